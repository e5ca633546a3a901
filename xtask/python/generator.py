"""Weights and inputs out of names: the same bits here and in the Rust crate `plutino-fixtures`.

`fixtures/README.md` states the rules; `test_generator.py` and the crate's tests hold both sides to
the same known answers.
"""

import math
from dataclasses import dataclass

import numpy as np

from files import Graph, Operator

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)

# E[act(x)^2] for x ~ N(0, 1) is 1 / gain: a layer followed by the activation keeps the second moment.
GAINS = {
    "nn.ReLU": 2.0,
    "nn.ReLU6": 2.0,
    "F.relu": 2.0,
    "F.relu6": 2.0,
    "nn.SiLU": 2.5,
    "nn.Hardswish": 2.5,
    "nn.GELU": 2.5,
    "F.silu": 2.5,
    "F.hardswish": 2.5,
    "F.gelu": 2.5,
}
GATES = {"nn.Sigmoid", "nn.Hardsigmoid", "F.sigmoid", "F.hardsigmoid"}
NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm")


def words(key: str, count: int) -> np.ndarray:
    """`count` words of SplitMix64 (Steele, Lea and Flood, 2014), seeded by the FNV-1a hash of `key`."""
    state = 0xCBF29CE484222325
    for byte in key.encode():
        state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    z = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_GAMMA + np.uint64(state)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(key: str, count: int, centre: float, spread: float) -> np.ndarray:
    """f32 values in [centre - spread, centre + spread): one product and one sum, each rounded to f32."""
    unit = (words(key, count) >> np.uint64(40)).astype(np.int32) - (1 << 23)
    unit = unit.astype(np.float32) * np.float32(2.0**-23)  # exact
    return np.float32(spread) * unit + np.float32(centre)


def integers(key: str, count: int, low: int, high: int) -> np.ndarray:
    """i64 values in [low, high), by the high word's product with the range."""
    scaled = (words(key, count) >> np.uint64(32)) * np.uint64(high - low) >> np.uint64(32)
    return scaled.astype(np.int64) + low


@dataclass(frozen=True)
class Rule:
    centre: float
    spread: float


def fan_in_rule(gain: float, fan_in: int) -> Rule:
    """Uniform values of variance gain / fan_in."""
    return Rule(0.0, math.sqrt(3.0 * gain / max(fan_in, 1)))


def rule(op: Operator, attr: str, shape: tuple[int, ...], followers: set[str]) -> Rule:
    """The distribution of one f32 weight; the first line that fits decides."""
    if attr == "running_var":
        return Rule(1.0, 0.5)
    if attr == "bias" and followers & GATES:
        return Rule(2.0, 0.1)
    if attr == "running_mean" or "bias" in attr:
        return Rule(0.0, 0.1)
    if any(norm in op.kind for norm in NORMS):
        return Rule(1.0, 0.25)
    if op.kind.endswith("PReLU"):
        return Rule(0.25, 0.125)
    if op.kind == "pnnx.Attribute":
        return Rule(0.0, 0.5)
    if op.kind.endswith("Embedding"):
        return Rule(0.0, math.sqrt(3.0))
    gain = max((GAINS.get(kind, 1.0) for kind in followers), default=1.0)
    taps = math.prod(shape[1:])
    if "ConvTranspose" in op.kind:
        # (in, out / groups, kernel...): every output sees in / groups channels and kernel / stride taps.
        groups = op.integers("groups")[0]
        fan_in = shape[0] * math.prod(shape[2:]) // (groups * math.prod(op.integers("stride")))
        return fan_in_rule(gain, fan_in)
    return fan_in_rule(gain, taps)


def period(graph: Graph, op: Operator, shape: tuple[int, ...]) -> int:
    """How many values there are before they repeat: pnnx writes the masks of all heads for each window."""
    readers = graph.consumers(op) if op.kind == "pnnx.Attribute" and len(shape) == 3 else []
    heads = [reader.integers("num_heads")[0] for reader in readers if reader.kind == "nn.MultiheadAttention"]
    repeats = heads and shape[0] % heads[0] == 0
    return math.prod(shape[1:]) * (heads[0] if repeats else shape[0]) if shape else 1


def is_constant(op: Operator, attr: str, dtype: str) -> bool:
    """Weights that are data rather than parameters: index tables and the grids of the YOLO head."""
    return dtype != "f32" or (op.kind == "models.yolo.Detect" and attr.startswith("pnnx_"))


def weights(graph: Graph) -> dict[str, np.ndarray]:
    """Every generated weight of the graph, by its entry name `<operator>.<attribute>`."""
    made = {}
    for op in graph.operators:
        followers = graph.consumer_kinds(op)
        for attr, (shape, dtype) in op.attributes.items():
            if not is_constant(op, attr, dtype):
                name = f"{op.name}.{attr}"
                chosen = rule(op, attr, shape, followers)
                values = uniform(name, period(graph, op, shape), chosen.centre, chosen.spread)
                made[name] = np.resize(values, shape)
    return made


def input_values(recipe: dict) -> np.ndarray:
    """The tensor of one input recipe of a `fixture.json`."""
    count = math.prod(recipe["shape"])
    match recipe["kind"]:
        case "uniform":
            centre = (recipe["high"] + recipe["low"]) / 2
            values = uniform(recipe["key"], count, centre, (recipe["high"] - recipe["low"]) / 2)
        case "integers":
            values = integers(recipe["key"], count, recipe["low"], recipe["high"])
        case kind:
            raise ValueError(f"unknown kind of input: {kind}")
    return values.reshape(recipe["shape"])

"""What a case is, and how it is written."""

import collections
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import files
import generator
from export import Exported, run


@dataclass(frozen=True)
class Values:
    """An input: f32 in [low, high), or integers where `dtype` says so."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: torch.dtype = torch.float32

    def tensor(self, key: str) -> Tensor:
        count = int(np.prod(self.shape, dtype=np.int64))
        if self.dtype.is_floating_point:
            values = generator.uniform(key, count, (self.high + self.low) / 2, (self.high - self.low) / 2)
        else:
            values = generator.integers(key, count, int(self.low), int(self.high))
        return torch.from_numpy(values.reshape(self.shape)).to(self.dtype)


def ints(*shape: int, low: int = 0, high: int, dtype: torch.dtype = torch.int64) -> Values:
    return Values(shape, low, high, dtype)


def floats(*shape: int, low: float = -2.0, high: float = 2.0) -> Values:
    return Values(shape, low, high)


class Whole(nn.Module):
    """Calls a module or function as a part: pnnx recognises modules only inside of another."""

    def __init__(self, op: Callable):
        super().__init__()
        self.op = op

    def forward(self, *inputs):
        return self.op(*inputs)


@dataclass(frozen=True)
class Case:
    module: nn.Module
    inputs: tuple[Values, ...]
    inputs2: tuple[Values, ...] | None = None
    """Inputs of other shapes for the same graph; pnnx writes the dimensions that differ as `?`."""
    rtol: float = 1e-5
    atol: float = 1e-5
    kept_whole: str | None = None
    """Python path of a module that pnnx must keep as one operator; its Python output cannot run then."""
    quantized: bool = False
    """Whether operators are quantised: pnnx's Python of them does not run, and they have no f64 form."""
    misread: bool = False
    """Whether pnnx's Python computes something else than the graph that it stands for."""
    by_hand: tuple[str, dict[str, np.ndarray]] | Callable[[], tuple[str, dict[str, np.ndarray]]] | None = None
    """The graph and its weights (or what makes them, once weights have values), where pnnx does not write them."""
    overflows: bool = False
    """Whether numbers overflow that would not in f64."""
    optlevel: int = 2
    """How much pnnx does of its work: 0 leaves TorchScript's constants and arithmetic, 1 what it makes of them."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Operator types and weights to be called otherwise, as other versions of pnnx do."""


def case(op: Callable, *inputs: Values | tuple[int, ...], inputs2: tuple = (), **options) -> Case:
    """`op` is a module or a function; a plain shape stands for f32 values in [-2, 2)."""

    def values(each: tuple) -> tuple[Values, ...]:
        return tuple(value if isinstance(value, Values) else Values(value) for value in each)

    return Case(Whole(op), values(inputs), values(inputs2) or None, **options)


def fill(name: str, module: nn.Module) -> None:
    """Gives parameters and running statistics values that depend on their names only."""
    for key, tensor in module.state_dict().items():
        if not tensor.is_floating_point():
            continue
        positive = key.endswith("running_var") or tensor.dim() == 1 and key.endswith("weight")
        values = generator.uniform(f"{name}.{key}", tensor.numel(), 1.0 if positive else 0.0, 0.5)
        tensor.copy_(torch.from_numpy(values).view(tensor.shape))


def largest_excess(actual: np.ndarray, expected: np.ndarray, case: Case) -> float:
    """The largest error in units of what the tolerance allows; equal infinities and NaN do not count."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return np.inf
    if expected.dtype == np.bool_ or np.issubdtype(expected.dtype, np.integer):
        return 0.0 if np.array_equal(actual, expected) else np.inf
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - expected) / (case.atol + case.rtol * np.abs(expected))
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return float(np.max(np.where(same, 0.0, error), initial=0.0))


def check(name: str, case: Case, inputs: list[Tensor], outputs: list[np.ndarray], exported: nn.Module | None) -> None:
    """The tolerance must leave room for another order of summation, and pnnx must not change the result."""
    doubles = [x.double() if x.dtype == torch.float32 else x for x in inputs]
    exact = run(case.module.double(), *doubles)
    case.module.float()
    for out, (single, double) in enumerate([] if case.overflows else zip(outputs, exact)):
        if single.dtype == np.float32 and double.dtype == np.float64:
            excess = largest_excess(single.astype(np.float64), double, case)
            if excess > 0.5:
                raise RuntimeError(f"{name}: PyTorch's f32 error of out{out} is {excess:.2f} of the tolerance")
    if exported is None:
        return
    again = run(exported, *inputs)
    for out, (actual, expected) in enumerate(zip(again, outputs, strict=True)):
        excess = largest_excess(actual, expected, case)
        if excess > 1.0:
            raise RuntimeError(f"{name}: out{out} of the exported graph is off by {excess:.2f} tolerances")


def rename(exported: Exported, names: dict[str, str]) -> None:
    text = exported.param.read_text()
    for old, new in names.items():
        text = text.replace(f"@{old}=", f"@{new}=").replace(f"\n{old} ", f"\n{new} ")
    exported.param.write_text(text)
    entries = {}
    for key, data in files.read_weights(exported.bin).items():
        operator, _, attr = key.rpartition(".")
        entries[f"{operator}.{names.get(attr, attr)}"] = data
    files.write_zip(exported.bin, entries)


def export(case: Case, tensors: list[list[Tensor]], target: Path) -> nn.Module | None:
    """Writes what pnnx makes of the module; returns its Python form where that runs."""
    with Exported(case.module, *map(tuple, tensors), moduleop=case.kept_whole, optlevel=case.optlevel) as exported:
        if case.renamed:
            rename(exported, case.renamed)
        exported.save(target, weights=True)
        graph = exported.param.read_text()
        raw = any(f"\n{prefix}" in graph for prefix in ("aten::", "pnnx.custom_op."))  # no names of Python's
        whole = case.optlevel == 2 and not raw
        return None if case.kept_whole or case.quantized or case.misread or not whole else exported.module()


def write_by_hand(case: Case, target: Path) -> None:
    graph, weights = case.by_hand() if callable(case.by_hand) else case.by_hand
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.pnnx.param").write_text(graph)
    files.write_zip(target / "model.pnnx.bin", {name: data.tobytes() for name, data in weights.items()})


def write(name: str, case: Case, target: Path) -> str:
    """Writes the folder of one case; returns the types of its operators."""
    torch.manual_seed(zlib.crc32(name.encode()))
    fill(name, case.module)
    case.module.eval()
    sets = [case.inputs] + ([case.inputs2] if case.inputs2 else [])
    tensors = [
        [value.tensor(f"{name}.in{i}" + "b" * number) for i, value in enumerate(values)]
        for number, values in enumerate(sets)
    ]
    module = write_by_hand(case, target) if case.by_hand else export(case, tensors, target)
    kinds = collections.Counter(op.kind for op in files.Graph.read(target / "model.pnnx.param").operators)
    for number, inputs in enumerate(tensors):
        suffix = "2" * number
        outputs = run(case.module, *inputs)
        if not case.quantized:
            check(name, case, inputs, outputs, module)
        files.write_npz(target / f"inputs{suffix}.npz", {f"in{i}": x.numpy() for i, x in enumerate(inputs)})
        files.write_npz(target / f"outputs{suffix}.npz", {f"out{i}": x for i, x in enumerate(outputs)})
    meta = {"ops": dict(sorted(kinds.items())), "rtol": case.rtol, "atol": case.atol}
    files.write_json(target / "meta.json", meta)
    return ", ".join(kind for kind in meta["ops"] if kind not in ("pnnx.Input", "pnnx.Output"))

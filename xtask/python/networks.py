"""Architectures at full size. Their weights are generated, so only graph, recipe and outputs are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torchvision
from torch import nn

import files
import generator
from export import Exported, run
from models.minilm import MiniLM
from models.unet import UNet
from models.yolo import YoloV5s

SAMPLE = 4096  # an output with more values than this is kept as a sample
TOLERANCE = 1e-5


def uniform(*shape: int, low: float = -2.0, high: float = 2.0) -> dict:
    return {"shape": shape, "dtype": "f32", "kind": "uniform", "low": low, "high": high}


def integers(*shape: int, low: int = 0, high: int) -> dict:
    return {"shape": shape, "dtype": "i64", "kind": "integers", "low": low, "high": high}


IMAGE = uniform(1, 3, 224, 224)


@dataclass(frozen=True)
class Network:
    source: str
    build: Callable[[], nn.Module]
    inputs: tuple[dict, ...] = (IMAGE,)
    kept_whole: str | None = None
    """Python path of a module that pnnx must keep as one operator."""


def vision(name: str) -> Network:
    return Network(f"torchvision.models.{name}", lambda: getattr(torchvision.models, name)(weights=None))


class BiLstm(nn.Module):
    def __init__(self, width: int = 128):
        super().__init__()
        self.lstm = nn.LSTM(width, 256, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


NETWORKS = {
    "resnet18": vision("resnet18"),
    "resnet50": vision("resnet50"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "shufflenet_v2_x1_0": vision("shufflenet_v2_x1_0"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "convnext_tiny": vision("convnext_tiny"),
    "vit_b_32": vision("vit_b_32"),
    "swin_t": vision("swin_t"),
    "unet": Network("models/unet.py", UNet, (uniform(1, 3, 256, 256),)),
    "yolov5s": Network(
        "models/yolo.py", YoloV5s, (uniform(1, 3, 640, 640, low=0.0, high=1.3),), "models.yolo.Detect"
    ),
    "minilm": Network(
        "models/minilm.py",
        MiniLM,
        (integers(1, 128, high=30522), integers(1, 128, high=2), integers(1, 128, high=2)),
    ),
    "bilstm": Network("torch.nn.LSTM, two layers of 2 x 256", BiLstm, (uniform(1, 32, 128),)),
}


def generate_weights(exported: Exported) -> tuple[files.Graph, dict[str, bytes]]:
    """Replaces the parameters in the exported `.bin` by generated ones; constants keep what was traced."""
    graph = files.Graph.read(exported.param)
    made = {key: array.tobytes() for key, array in generator.weights(graph).items()}
    entries = {key: made.get(key, data) for key, data in files.read_weights(exported.bin).items()}
    files.write_zip(exported.bin, entries)
    return graph, entries


def expected(exported: Exported, net: nn.Module, entries: dict[str, bytes], inputs: list[torch.Tensor]):
    """PyTorch's outputs of the exported graph, computed in float32 and in float64."""

    def outputs(dtype: torch.dtype) -> list[np.ndarray]:
        names = {}
        if head := getattr(net, "detect", None):
            for name, param in head.named_parameters():
                stored = np.frombuffer(entries[f"detect.{name}"], np.float32).reshape(param.shape)
                param.data = torch.from_numpy(stored.copy()).to(dtype)
            names["models"] = SimpleNamespace(yolo=SimpleNamespace(Detect=lambda *stages: head(list(stages))))
        cast = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        return run(exported.module(**names).to(dtype), *cast)

    return outputs(torch.float32), outputs(torch.float64)


def describe(name: str, single: np.ndarray, double: np.ndarray) -> dict:
    """What `fixture.json` says of an output; `error_of_f32` is relative to the largest value."""
    return {
        "name": name,
        "shape": single.shape,
        "dtype": "f32",
        "min": float(single.min()),
        "max": float(single.max()),
        "mean": float(double.mean()),
        "std": float(double.std()),
        "error_of_f32": float(np.abs(single - double).max() / np.abs(double).max()),
    }


def write(name: str, target: Path) -> str:
    """Writes one fixture and returns a line that tells how sane its outputs are."""
    network = NETWORKS[name]
    torch.manual_seed(0)
    net = network.build().eval()
    recipes = [{"name": f"in{i}", "key": f"{name}.in{i}", **recipe} for i, recipe in enumerate(network.inputs)]
    inputs = [torch.from_numpy(generator.input_values(recipe)) for recipe in recipes]
    with Exported(net, tuple(inputs), moduleop=network.kept_whole) as exported:
        exported.save(target, weights=False)
        graph, entries = generate_weights(exported)
        constants = {
            f"{op.name}.{attr}": np.frombuffer(entries[f"{op.name}.{attr}"], files.DTYPES[dtype]).reshape(shape)
            for op in graph.operators
            for attr, (shape, dtype) in op.attributes.items()
            if generator.is_constant(op, attr, dtype)
        }
        if constants:
            files.write_npz(target / "constants.npz", constants)
        single, double = expected(exported, net, entries, inputs)

    arrays, described = {}, []
    for i, array in enumerate(single):
        key = f"out{i}"
        described.append(describe(key, array, double[i]))
        if array.size > SAMPLE:
            indices = np.unique(generator.integers(f"{name}.{key}", SAMPLE, 0, array.size))
            arrays[f"{key}.indices"], arrays[f"{key}.values"] = indices, array.ravel()[indices]
        else:
            arrays[key] = array
    files.write_npz(target / "outputs.npz", arrays)
    fixture = {
        "name": name,
        "source": network.source,
        "weights": "generated",
        "weights_crc32": files.checksum(graph, entries),
        "constants": "constants.npz" if constants else None,
        "inputs": recipes,
        "outputs": described,
        "tolerance": TOLERANCE,
    }
    files.write_json(target / "fixture.json", fixture)
    return "; ".join(
        f"{d['name']} {'x'.join(map(str, d['shape']))} min {d['min']:.3g} max {d['max']:.3g} std {d['std']:.3g}"
        f" f32 error {d['error_of_f32']:.1e}"
        for d in described
    )

"""Chains of layers with outputs in float64, and how far onnxruntime's float32 is off: `fixtures/precision/`."""

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from torch import nn

import files
import generator
from export import Exported, run
from networks import generate_weights, uniform

SAMPLE = 512  # an output with more values than this is kept as a sample
OPSET = 17


class Attention(nn.Module):
    """Self-attention with a residual, by `scaled_dot_product_attention` or spelled out."""

    def __init__(self, width: int, heads: int, spelled_out: bool = False):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.spelled_out = heads, spelled_out

    def forward(self, x):
        batch, length, width = x.shape

        def split(y):
            return y.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        if self.spelled_out:
            scores = torch.matmul(q, k.transpose(-2, -1)) / (width // self.heads) ** 0.5
            y = torch.matmul(torch.softmax(scores, -1), v)
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Outputs(nn.Module):
    """A recurrent layer without its final states."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def repeated(times: int, *layers) -> nn.Sequential:
    """The layers, made anew for each time."""
    return nn.Sequential(*(layer() for _ in range(times) for layer in layers))


def linear(inputs: int, outputs: int):
    return lambda: nn.Linear(inputs, outputs)


def conv(inputs: int, outputs: int, kernel: int = 3, **options):
    return lambda: nn.Conv2d(inputs, outputs, kernel, **options)


@dataclass(frozen=True)
class Chain:
    module: nn.Module
    input: dict


def chains() -> dict[str, Chain]:
    image = uniform(1, 64, 20, 20)
    return {
        "linear": Chain(repeated(6, linear(256, 256)), uniform(8, 256)),
        # Products that are small beside the bias.
        "linear_bias": Chain(repeated(1, linear(512, 512)), uniform(8, 512, low=-1e-3, high=1e-3)),
        "linear_bias_chain": Chain(repeated(6, linear(256, 256)), uniform(8, 256, low=-1e-3, high=1e-3)),
        "linear_long": Chain(nn.Sequential(nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 256)), uniform(8, 256)),
        "linear_row": Chain(repeated(3, linear(768, 768)), uniform(1, 768)),
        "gelu": Chain(nn.GELU(), uniform(1, 4096, low=-8.0, high=8.0)),
        "gelu_chain": Chain(repeated(6, linear(256, 256), nn.GELU), uniform(8, 256)),
        "gelu_tanh_chain": Chain(repeated(6, linear(256, 256), lambda: nn.GELU("tanh")), uniform(8, 256)),
        "feed_forward": Chain(
            repeated(3, lambda: nn.LayerNorm(192), linear(192, 768), nn.GELU, linear(768, 192)), uniform(8, 192)
        ),
        "conv_1x1": Chain(repeated(2, conv(64, 256, 1), nn.ReLU, conv(256, 64, 1)), image),
        "conv_1x1_bias": Chain(repeated(1, conv(64, 64, 1)), uniform(1, 64, 20, 20, low=-1e-3, high=1e-3)),
        "conv_strided": Chain(
            nn.Sequential(nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 1), nn.ReLU()), image
        ),
        "conv_5x5": Chain(repeated(2, conv(32, 32, 5, padding=2), nn.ReLU), uniform(1, 32, 16, 16)),
        "conv_grouped": Chain(repeated(3, conv(64, 64, 3, padding=1, groups=4), nn.ReLU), image),
        "conv_depthwise": Chain(
            repeated(2, conv(64, 64, 3, padding=1, groups=64), nn.ReLU, conv(64, 64, 1), conv(64, 64, 5, padding=2, groups=64)),
            image,
        ),
        "conv_depthwise_bias": Chain(
            repeated(1, conv(64, 64, 5, padding=2, groups=64)), uniform(1, 64, 16, 16, low=-1e-3, high=1e-3)
        ),
        "conv_transposed": Chain(
            nn.Sequential(nn.ConvTranspose2d(64, 64, 2, 2), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1)),
            uniform(1, 64, 7, 7),
        ),
        "conv_1d": Chain(
            nn.Sequential(nn.Conv1d(64, 128, 5, padding=2), nn.ReLU(), nn.Conv1d(128, 64, 3, dilation=2)), uniform(1, 64, 50)
        ),
        "conv_3d": Chain(nn.Sequential(nn.Conv3d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 8, 3)), uniform(1, 16, 6, 8, 8)),
        "conv_3x3": Chain(repeated(4, conv(64, 64, padding=1), nn.ReLU), image),
        "conv_3x3_wide": Chain(repeated(2, conv(256, 256, padding=1), nn.ReLU), uniform(1, 256, 14, 14)),
        "conv_first": Chain(
            nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1)), uniform(1, 3, 48, 48)
        ),
        "conv_first_7x7": Chain(nn.Conv2d(3, 64, 7, 2, 3), uniform(1, 3, 112, 112)),
        "attention": Chain(repeated(3, lambda: Attention(128, 2)), uniform(1, 50, 128)),
        "attention_spelled_out": Chain(repeated(3, lambda: Attention(128, 2, spelled_out=True)), uniform(1, 50, 128)),
        "attention_long": Chain(Attention(64, 1), uniform(1, 400, 64)),
        "lstm": Chain(Outputs(nn.LSTM(64, 256, num_layers=2, batch_first=True)), uniform(1, 20, 64)),
        "lstm_bidirectional": Chain(Outputs(nn.LSTM(64, 128, bidirectional=True)), uniform(20, 3, 64)),
        "gru": Chain(Outputs(nn.GRU(64, 256, num_layers=2, batch_first=True)), uniform(1, 20, 64)),
        "rnn": Chain(Outputs(nn.RNN(64, 256, num_layers=2)), uniform(20, 1, 64)),
    }


def onnx(module: nn.Module, x: torch.Tensor, path: Path) -> np.ndarray:
    """What onnxruntime makes of the module, with one thread."""
    torch.onnx.export(module, (x,), str(path), opset_version=OPSET, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def errors(found: np.ndarray, exact: np.ndarray, scale: float) -> dict:
    """Relative to the output's largest value."""
    off = np.abs(found - exact) / scale
    return {"largest": float(off.max()), "rms": float(np.sqrt((off**2).mean()))}


class Named(nn.Module):
    """The chain under a name that Python can write: pnnx takes operators' names from their places."""

    def __init__(self, chain: nn.Module):
        super().__init__()
        self.chain = chain

    def forward(self, x):
        return self.chain(x)


def write(name: str, target: Path) -> str:
    """Writes one chain and returns a line with the errors."""
    chain = chains()[name]
    recipe = {"name": "in0", "key": f"precision.{name}", **chain.input}
    x = torch.from_numpy(generator.input_values(recipe))
    with Exported(Named(chain.module).eval(), (x,)) as exported:
        exported.save(target, weights=False)
        generate_weights(exported)
        module = exported.module()
        (exact,) = run(copy.deepcopy(module).double(), x.double())
        (single,) = run(module, x)
        other = onnx(module, x, exported.folder / "chain.onnx")
    exact, single, other = exact.ravel(), single.ravel(), other.ravel()
    scale = float(np.abs(exact).max())
    arrays = {"out0": exact}
    if exact.size > SAMPLE:
        chosen = np.sort(np.argsort(generator.words(f"precision.{name}.sample", exact.size))[:SAMPLE]).astype(np.int64)
        arrays = {"out0.indices": chosen, "out0.values": exact[chosen]}
        exact, single, other = exact[chosen], single[chosen], other[chosen]
    files.write_npz(target / "outputs.npz", arrays)
    reference = errors(other, exact, scale)
    description = {
        "name": name,
        "source": "xtask/python/precision.py",
        "weights": "generated",
        "inputs": [recipe],
        "tolerance": 1e-5,
        "outputs": [],
        "largest": scale,
        "onnxruntime": reference,
        "pytorch": errors(single, exact, scale),
    }
    files.write_json(target / "fixture.json", description)
    return f"onnxruntime errs by {reference['largest']:.1e}, rms {reference['rms']:.1e}"

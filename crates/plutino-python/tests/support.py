"""Models of the tests: the fixtures of the repository, and a few that are written here."""

import os
import pathlib

import numpy as np

ROOT = pathlib.Path(os.environ.get("PLUTINO_ROOT", pathlib.Path(__file__).resolve().parents[3]))
DIGITS = ROOT / "fixtures" / "digits" / "model.pnnx.param"
OPS = ROOT / "fixtures" / "ops"


def digits():
    """Inputs and expected outputs of the committed network."""
    inputs = np.load(DIGITS.parent / "inputs.npz")["in0"]
    outputs = np.load(DIGITS.parent / "outputs.npz")["out0"]
    return inputs, outputs


def param(*lines):
    """The bytes of a .param file with these operators, each `type name inputs outputs ...`."""
    operands = set()
    for line in lines:
        _, _, count_in, count_out, *names = line.split()
        operands.update(names[: int(count_in) + int(count_out)])
    text = "\n".join(["7767517", f"{len(lines)} {len(operands)}", *lines])
    return (text + "\n").encode()


def chain(length):
    """Products of a square matrix with itself: as long a run as one likes."""
    lines = ["pnnx.Input in 0 1 v0 #v0=(?,?)f32"]
    for i in range(length):
        lines.append(f"torch.matmul m{i} 2 1 v{i} v0 v{i + 1}")
    return param(*lines, f"pnnx.Output out 1 0 v{length}")


ECHO = param("pnnx.Input in 0 1 x", "torch.clone c 1 1 x y", "pnnx.Output out 1 0 y")
"""Gives back what it is given, of any dtype."""

PARTS = param(
    "pnnx.Input in 0 1 x #x=(2,6)f32",
    "nn.ReLU positive 1 1 x r #x=(2,6)f32 #r=(2,6)f32",
    "torch.neg negative 1 1 r n #r=(2,6)f32 #n=(2,6)f32",
    "pnnx.Output first 1 0 r",
    "pnnx.Output second 1 0 n",
)
"""Two outputs and an operand between."""

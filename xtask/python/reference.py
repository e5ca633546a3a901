"""A small network with every value that PyTorch computes in it, for `plutino compare`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from export import Exported

SCRIPT = Path(__file__).resolve().parents[2] / "crates/plutino-cli/assets/dump.py"


class Net(nn.Module):
    """Fused operators, views, a split and a concatenation, arithmetic, indices, a tuple in a tuple, a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.mix = nn.Conv2d(8, 8, 1)
        self.scale = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.lstm = nn.LSTM(16, 6, batch_first=True)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor, shift: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
        y = self.conv(x).relu()
        a, b = torch.split(y, [3, 5], 1)
        z = torch.cat([b, a], 1) * self.scale - torch.sqrt(torch.abs(shift) + 1)
        z = self.mix(z) + y
        largest, where = z.max(1)
        rows, (h, c) = self.lstm(z.flatten(2))
        return self.head(rows).softmax(-1), (h, c), largest.mean(-1), where


def write(_: str, target: Path) -> str:
    torch.manual_seed(0)
    net = Net().eval()
    with Exported(net, (torch.rand(1, 3, 4, 4), torch.rand(1, 1, 4, 4))) as exported:
        exported.save(target, weights=True)
        command = [sys.executable, SCRIPT, exported.folder / "model_pnnx.py", "-o", target / "reference.npz", "--threads", "1"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    with np.load(target / "reference.npz") as values:
        np.savez(target / "inputs.npz", in0=values["0"], in1=values["1"])
    return done.stdout.strip().partition(": ")[2]

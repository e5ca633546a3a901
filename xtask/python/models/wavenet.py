"""A stack of dilated, causal convolutions with gates, as in WaveNet (van den Oord et al., 2016)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Gated(nn.Module):
    """Half of the channels gates the other; one product goes on, one to the sum of all layers."""

    def __init__(self, channels: int, kernel: int, dilation: int):
        super().__init__()
        self.before = (kernel - 1) * dilation
        self.conv = nn.Conv1d(channels, 2 * channels, kernel, dilation=dilation)
        self.on = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = self.conv(F.pad(x, (self.before, 0))).chunk(2, 1)
        y = torch.tanh(value) * torch.sigmoid(gate)
        return x + self.on(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, channels: int = 64, kernel: int = 2, dilations: int = 10, stacks: int = 1, out: int = 256):
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.layers = nn.ModuleList(Gated(channels, kernel, 2**i) for _ in range(stacks) for i in range(dilations))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, out, 1))

    def forward(self, wave: Tensor) -> Tensor:
        x = self.first(wave)
        skips = []
        for layer in self.layers:
            x, skip = layer(x)
            skips.append(skip)
        return self.last(sum(skips))

"""A module that pnnx is told to keep whole, with a module and a parameter of its own inside."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int, out: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1)
        self.bn = nn.BatchNorm2d(out)

    def forward(self, x):
        return self.bn(self.conv(x))


class Focus(nn.Module):
    """Every second pixel to a channel of its own, a convolution, a learned scale; and the mean of that."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.block = Block(4 * channels, out)
        self.scale = nn.Parameter(torch.rand(out, 1, 1))

    def forward(self, x, y):
        x = torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)
        x = self.block(x) * self.scale + y
        return x, x.mean((1, 2, 3))


class TwoFocuses(nn.Module):
    """Two of them with weights of their own; of the second, one result is left aside."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, stride=2)
        self.first = Focus(3, 8)
        self.second = Focus(3, 8)

    def forward(self, x):
        y = self.stem(x)
        y, mean = self.first(x, y)
        y, _ = self.second(x, y)
        return torch.relu(y), mean

"""PointNet for classification (Qi et al., 2016), with the transform of the points alone."""

from itertools import pairwise

import torch
from torch import Tensor, nn


def shared(*widths: int) -> nn.Sequential:
    """The same layers for every point."""
    layers = []
    for a, b in pairwise(widths):
        layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers)


def head(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(*widths[-2:]))


class Transform(nn.Module):
    """A square matrix out of all points, near the identity."""

    def __init__(self, channels: int):
        super().__init__()
        self.channels = channels
        self.points = shared(channels, 64, 128, 1024)
        self.head = head(1024, 512, 256, channels * channels)

    def forward(self, points: Tensor) -> Tensor:
        matrix = self.head(self.points(points).amax(2)).view(-1, self.channels, self.channels)
        return matrix + torch.eye(self.channels)


class PointNet(nn.Module):
    def __init__(self, classes: int = 40):
        super().__init__()
        self.transform = Transform(3)
        self.points = shared(3, 64, 64, 64, 128, 1024)
        self.head = head(1024, 512, 256, classes)

    def forward(self, points: Tensor) -> Tensor:
        turned = torch.bmm(points.transpose(1, 2), self.transform(points)).transpose(1, 2)
        return self.head(self.points(turned).amax(2))

"""3-D U-Net (Çiçek et al., 2016) of three levels, for volumes."""

from itertools import pairwise

import torch
from torch import Tensor, nn


def double_conv(channels_in: int, channels_out: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in ((channels_in, channels_out), (channels_out, channels_out)):
        layers += [nn.Conv3d(a, b, 3, padding=1, bias=False), nn.BatchNorm3d(b), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet3d(nn.Module):
    def __init__(self, channels: int = 1, classes: int = 3, widths: tuple[int, ...] = (16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip((channels, *widths), widths))
        self.pool = nn.MaxPool3d(2)
        pairs = list(pairwise(widths))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(double_conv(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv3d(widths[0], classes, 1)

    def forward(self, volume: Tensor) -> Tensor:
        x = self.down[0](volume)
        skips = []
        for block in self.down[1:]:
            skips.append(x)
            x = block(self.pool(x))
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat((skips.pop(), up(x)), 1))
        return self.head(x)

"""U-Net (Ronneberger, Fischer and Brox, 2015) with padded convolutions and four levels."""

import torch
from torch import Tensor, nn


def double_conv(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, channels: int = 3, classes: int = 2, widths: tuple[int, ...] = (64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip((channels, *widths), widths))
        self.pool = nn.MaxPool2d(2)
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(double_conv(2 * a, a) for a, _ in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat((skips.pop(), up(x)), 1))
        return self.head(x)

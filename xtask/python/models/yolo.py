"""A detector in the shape of YOLOv5s, release 6: backbone with a 6x6 stem, C3 blocks and SPPF, a
path-aggregation neck, and a head of three stages.

Written from the published description of the architecture. The module's path matters: pnnx keeps
the head whole as an operator of type `models.yolo.Detect`.
"""

import torch
from torch import Tensor, nn

WIDTHS = (32, 64, 128, 256, 512)  # YOLOv5's 64..1024 at the width factor 0.5 of the "s" model
ANCHORS = (  # width and height in pixels, three for each stage
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
STRIDES = (8, 16, 32)


class Conv(nn.Module):
    """Convolution, batch norm, SiLU."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, padding: int | None = None):
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(channels_out)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool):
        super().__init__()
        self.cv1 = Conv(channels, channels, 1)
        self.cv2 = Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Cross-stage partial block: one half goes through the bottlenecks, one half around them."""

    def __init__(self, channels_in: int, channels_out: int, depth: int, shortcut: bool = True):
        super().__init__()
        hidden = channels_out // 2
        self.cv1 = Conv(channels_in, hidden)
        self.cv2 = Conv(channels_in, hidden)
        self.cv3 = Conv(2 * hidden, channels_out)
        self.m = nn.Sequential(*(Bottleneck(hidden, shortcut) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class SPPF(nn.Module):
    """Spatial pyramid pooling: one 5x5 max-pool three times over stands for 5x5, 9x9 and 13x13."""

    def __init__(self, channels: int):
        super().__init__()
        self.cv1 = Conv(channels, channels // 2)
        self.cv2 = Conv(channels * 2, channels)
        self.m = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.cv1(x)
        y = self.m(x)
        z = self.m(y)
        return self.cv2(torch.cat((x, y, z, self.m(z)), 1))


class Detect(nn.Module):
    """Decodes three stages into rows (x, y, w, h, objectness, classes...), pixels and probabilities."""

    def __init__(self, classes: int, channels: tuple[int, ...], size: int):
        super().__init__()
        self.columns = 5 + classes
        self.anchors_per_stage = len(ANCHORS[0])
        self.m = nn.ModuleList(nn.Conv2d(c, self.columns * self.anchors_per_stage, 1) for c in channels)
        # Plain attributes, not buffers: tracing turns them into the constants pnnx_0 .. pnnx_6.
        self.strides = torch.tensor(STRIDES, dtype=torch.float32)
        self.grids = [self._grid(size // s) for s in STRIDES]
        self.anchor_grids = [
            torch.tensor(a, dtype=torch.float32).view(1, -1, 1, 1, 2).expand(1, -1, size // s, size // s, 2).contiguous()
            for a, s in zip(ANCHORS, STRIDES)
        ]

    def _grid(self, side: int) -> Tensor:
        y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        grid = torch.stack((x, y), 2).float() - 0.5
        return grid.expand(1, self.anchors_per_stage, side, side, 2).contiguous()

    def forward(self, stages: list[Tensor]) -> Tensor:
        rows = []
        for i, x in enumerate(stages):
            x = self.m[i](x)
            batch, _, height, width = x.shape
            y = x.view(batch, self.anchors_per_stage, self.columns, height, width).permute(0, 1, 3, 4, 2).contiguous()
            y = y.sigmoid()
            xy = (y[..., 0:2] * 2 + self.grids[i]) * self.strides[i]
            wh = (y[..., 2:4] * 2) ** 2 * self.anchor_grids[i]
            rows.append(torch.cat((xy, wh, y[..., 4:]), -1).view(batch, -1, self.columns))
        return torch.cat(rows, 1)


class YoloV5s(nn.Module):
    def __init__(self, classes: int = 80, size: int = 640):
        super().__init__()
        c1, c2, c3, c4, c5 = WIDTHS
        self.stem = Conv(3, c1, 6, 2, 2)
        self.stage2 = nn.Sequential(Conv(c1, c2, 3, 2), C3(c2, c2, 1))
        self.stage3 = nn.Sequential(Conv(c2, c3, 3, 2), C3(c3, c3, 2))
        self.stage4 = nn.Sequential(Conv(c3, c4, 3, 2), C3(c4, c4, 3))
        self.stage5 = nn.Sequential(Conv(c4, c5, 3, 2), C3(c5, c5, 1), SPPF(c5))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.lateral5 = Conv(c5, c4)
        self.top4 = C3(2 * c4, c4, 1, shortcut=False)
        self.lateral4 = Conv(c4, c3)
        self.top3 = C3(2 * c3, c3, 1, shortcut=False)
        self.down3 = Conv(c3, c3, 3, 2)
        self.bottom4 = C3(2 * c3, c4, 1, shortcut=False)
        self.down4 = Conv(c4, c4, 3, 2)
        self.bottom5 = C3(2 * c4, c5, 1, shortcut=False)
        self.detect = Detect(classes, (c3, c4, c5), size)

    def forward(self, image: Tensor) -> Tensor:
        p3 = self.stage3(self.stage2(self.stem(image)))
        p4 = self.stage4(p3)
        l5 = self.lateral5(self.stage5(p4))
        l4 = self.lateral4(self.top4(torch.cat((self.up(l5), p4), 1)))
        n3 = self.top3(torch.cat((self.up(l4), p3), 1))
        n4 = self.bottom4(torch.cat((self.down3(n3), l4), 1))
        n5 = self.bottom5(torch.cat((self.down4(n4), l5), 1))
        return self.detect([n3, n4, n5])

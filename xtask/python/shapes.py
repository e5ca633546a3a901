"""A small detector and a small segmenter, trained on pictures of shapes that are made here."""

import json
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn import functional as F

import files
from export import Exported

NAMES = ("circle", "square", "triangle")
PICTURE = (160, 120)  # width and height of what is made
SIZE = 96  # what the networks take, grey beside the picture
STRIDE = 8
STEPS = 900
BATCH = 24
GREY = 114
GAP = 3  # pixels between shapes
SAMPLES = 4


def made(rng: random.Random) -> tuple[Image.Image, Image.Image, list[tuple[int, int, int, int, int]]]:
    """A picture, its mask of classes from 1 on, and the boxes (x1, y1, x2, y2, class) of shapes that lie apart."""
    width, height = PICTURE
    colour = lambda low, high: tuple(rng.randint(low, high) for _ in range(3))  # noqa: E731
    picture, mask = Image.new("RGB", PICTURE), Image.new("L", PICTURE)
    draw, marks = ImageDraw.Draw(picture), ImageDraw.Draw(mask)
    top, bottom = colour(10, 110), colour(10, 110)
    for y in range(height):
        draw.line((0, y, width, y), tuple(a + (b - a) * y // height for a, b in zip(top, bottom)))
    boxes = []
    for _ in range(rng.randint(2, 6)):
        side = rng.randint(28, 54)
        x, y = rng.randint(2, width - side - 3), rng.randint(2, height - side - 3)
        box = (x, y, x + side, y + side)
        apart = (x > right + GAP or left > x + side + GAP or y > low + GAP or high > y + side + GAP
                 for left, high, right, low, _ in boxes)  # fmt: skip
        if not all(apart):
            continue
        kind = rng.randrange(len(NAMES))
        for drawn, fill in ((draw, colour(130, 255)), (marks, kind + 1)):
            if kind == 0:
                drawn.ellipse(box, fill)
            elif kind == 1:
                drawn.rectangle(box, fill)
            else:
                drawn.polygon([(x, y + side), (x + side, y + side), (x + side // 2, y)], fill)
        boxes.append((*box, kind))
    return picture, mask, boxes


def fitted(image: Image.Image, ground: int, filter) -> np.ndarray:
    """In the networks' size, in the middle."""
    height = SIZE * PICTURE[1] // PICTURE[0]
    into = Image.new(image.mode, (SIZE, SIZE), (ground,) * len(image.getbands()))
    into.paste(image.resize((SIZE, height), filter), (0, (SIZE - height) // 2))
    return np.asarray(into)


class Block(nn.Sequential):
    def __init__(self, channels_in: int, channels_out: int, stride: int = 1):
        conv = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        super().__init__(conv, nn.BatchNorm2d(channels_out), nn.SiLU())


class Trunk(nn.Module):
    """Features at strides 2, 4 and 8."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(Block(3, 8, 2), Block(8, 8))
        self.b = nn.Sequential(Block(8, 16, 2), Block(16, 16))
        self.c = nn.Sequential(Block(16, 32, 2), Block(32, 32), Block(32, 32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.a(x)
        b = self.b(a)
        return a, b, self.c(b)


class Detector(nn.Module):
    """One stage of YOLOv8's head: (N, 4 + classes, cells), boxes as centre and size in pixels, then probabilities."""

    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.head = nn.Sequential(Block(32, 32), nn.Conv2d(32, 4 + len(NAMES), 1))
        y, x = torch.meshgrid(torch.arange(SIZE // STRIDE), torch.arange(SIZE // STRIDE), indexing="ij")
        self.cells = ((torch.stack((x, y)).flatten(1) + 0.5) * STRIDE).float()[None]
        nn.init.constant_(self.head[1].bias[4:], -4.0)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.trunk(x)[2]).flatten(2)
        sides, scores = F.softplus(y[:, :4]) * STRIDE, y[:, 4:].sigmoid()
        low, high = self.cells - sides[:, :2], self.cells + sides[:, 2:]
        return torch.cat(((low + high) / 2, high - low, scores), 1)


class Segmenter(nn.Module):
    """Scores of the ground and the classes for every pixel: (N, 1 + classes, height, width)."""

    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.b, self.a = Block(32 + 16, 16), Block(16 + 8, 12)
        self.head = nn.Conv2d(12, 1 + len(NAMES), 1)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.trunk(x)
        b = self.b(torch.cat((self.up(c), b), 1))
        return self.up(self.head(self.a(torch.cat((self.up(b), a), 1))))


def targets(boxes: list, scale: float, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Class and box of every cell; class -1 away from the middles of boxes, -2 where it may be either."""
    side = SIZE // STRIDE
    kinds, corners = np.full(side * side, -1), np.zeros((side * side, 4), np.float32)
    centre = (np.arange(side) + 0.5) * STRIDE
    cx, cy = np.tile(centre, side), np.repeat(centre, side)
    for x1, y1, x2, y2, kind in boxes:
        x1, x2, y1, y2 = x1 * scale, x2 * scale, y1 * scale + top, y2 * scale + top
        inside = (cx > x1) & (cx < x2) & (cy > y1) & (cy < y2)
        away = np.maximum(abs(cx - (x1 + x2) / 2), abs(cy - (y1 + y2) / 2)) / STRIDE
        kinds[inside & (away < 1.3)], kinds[inside & (away < 0.8)] = -2, kind
        corners[inside] = (x1, y1, x2, y2)
    return kinds, corners


def detection_loss(out: Tensor, kinds: Tensor, corners: Tensor) -> Tensor:
    xy, wh, scores = out[:, :2], out[:, 2:4], out[:, 4:]
    known = (kinds != -2)[:, None]
    wanted = F.one_hot(kinds.clamp(min=0), len(NAMES)).transpose(1, 2) * (kinds >= 0)[:, None]
    loss = F.binary_cross_entropy(scores, wanted.float(), reduction="none") * (wanted - scores.detach()) ** 2
    classes = (loss * known).sum() / max(1, int((kinds >= 0).sum()))
    mine = kinds >= 0
    box = torch.cat((xy - wh / 2, xy + wh / 2), 1).transpose(1, 2)[mine]
    return 4 * classes + F.smooth_l1_loss(box, corners[mine]) * 0.5


def write(name: str, target: Path) -> str:
    rng = random.Random(1)
    samples = [made(rng) for _ in range(SAMPLES)]
    scale, top = SIZE / PICTURE[0], (SIZE - SIZE * PICTURE[1] // PICTURE[0]) // 2
    pool = []
    for _ in range(3000):
        picture, mask, boxes = made(rng)
        pool.append((fitted(picture, GREY, Image.BILINEAR), fitted(mask, 0, Image.NEAREST), *targets(boxes, scale, top)))
    images, masks, kinds, corners = (torch.from_numpy(np.stack(part)) for part in zip(*pool))

    torch.manual_seed(0)
    nets = {"detector": Detector(), "segmenter": Segmenter()}
    parameters = [p for net in nets.values() for p in net.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, STEPS)
    for _ in range(STEPS):
        at = torch.randint(len(images), (BATCH,))
        x = images[at].permute(0, 3, 1, 2).float() / 255
        loss = detection_loss(nets["detector"](x), kinds[at], corners[at])
        loss = loss + F.cross_entropy(nets["segmenter"](x), masks[at].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    target.mkdir(parents=True)
    x = torch.zeros(1, 3, SIZE, SIZE)
    for kind, net in nets.items():
        with Exported(net.eval(), (x,), (x.expand(2, -1, -1, -1).contiguous(),)) as exported:
            exported.save(target / kind, weights=True)
        ground = ["ground"] if kind == "segmenter" else []
        recipe = {"letterbox": True, "labels": [*ground, *NAMES]}
        (target / kind / "model.preprocess.json").write_text(json.dumps(recipe) + "\n")
    truth = {}
    for i, (picture, mask, boxes) in enumerate(samples):
        picture.save(target / f"{i}.png", optimize=True)
        mask.save(target / f"{i}.mask.png", optimize=True)
        truth[f"{i}.png"] = [{"name": NAMES[kind], "box": box} for *box, kind in boxes]
    files.write_json(target / "truth.json", truth)
    return f"{sum(p.numel() for p in parameters)} parameters, loss {loss.item():.3f}"

"""Reading by position: indices, windows, grids, boxes; sums in Einstein's notation; what selects."""

import itertools

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from operators.case import case, ints

X = (2, 3, 4, 5)


def grid_sample(mode: str, padding: str, align: bool):
    return lambda x, grid: F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align)


def assigned(x, index, values):
    y = x.clone()
    y[index] = values
    return y


def accumulated(x, rows, columns, values):
    return x.clone().index_put((rows, columns), values, accumulate=True)


class Deformed(nn.Module):
    def __init__(self, mask: bool, **options):
        super().__init__()
        self.offset = nn.Conv2d(4, 2 * 2 * 6, (3, 2), padding=1)
        self.mask = nn.Conv2d(4, 2 * 6, (3, 2), padding=1) if mask else None
        self.conv = torchvision.ops.DeformConv2d(4, 6, (3, 2), padding=1, groups=2, **options)

    def forward(self, x):
        if self.mask is None:
            return self.conv(x, self.offset(x))
        return self.conv(x, self.offset(x), torch.sigmoid(self.mask(x)))


class Pooled(nn.Module):
    def __init__(self, *options, **more):
        super().__init__()
        self.pool = torchvision.ops.RoIAlign(*options, **more)
        rois = [(0, 1, 2, 15.5, 12), (1, -9, -5, 40, 30), (1, 3, 3, 3, 3), (0, 20, 16, 22, 18)]
        self.register_buffer("rois", torch.tensor(rois, dtype=torch.float32), persistent=False)

    def forward(self, x):
        return self.pool(x, self.rois)


# Sums of 24 products of samples, whose positions and values are rounded.
DEFORMED = {"rtol": 1e-4, "atol": 1e-4}


EQUATIONS = {
    "transpose": ("ij->ji", (3, 4)),
    "sum": ("ij->j", (3, 4)),
    "diagonal": ("ii->i", (4, 4)),
    "outer": ("i,j->ij", (3,), (4,)),
    "matmul": ("ij,jk->ik", (3, 4), (4, 5)),
    "implicit": ("ij,jk", (3, 4), (4, 5)),
    "attention": ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
    "bilinear": ("bn,anm,bm->ba", (2, 5), (3, 5, 4), (2, 4)),
}


def einsum(equation: str):
    return lambda *x: torch.einsum(equation, *x)


# Positions are rounded to f32 before they are interpolated between.
SAMPLED = {"rtol": 3e-5, "atol": 3e-5}

CASES = {
    # Leading dimensions only: pnnx's own Python code, which checks what it exports, drops the others.
    "index": case(lambda x, i: x[i], X, ints(2, 2, low=-2, high=2)),
    "index_two": case(lambda x, i, j: x[i, j], X, ints(6, 1, high=2), ints(4, high=3)),
    "index_constant": case(lambda x: x[..., [4, 0, -2]], X),
    "index_put": case(assigned, X, ints(1, high=2), (1, 3, 1, 5)),
    "index_put_accumulate": case(accumulated, (3, 4), ints(9, high=3), ints(9, high=4), (9,)),
    "masked_select": case(lambda x: torch.masked_select(x, x > 0.5), X),
    "topk": case(lambda x: torch.topk(x, 3, dim=1), (2, 7, 3)),
    "topk_smallest": case(lambda x: torch.topk(x, 2, largest=False)[0], (2, 7)),
    "repeat_interleave": case(lambda x: torch.repeat_interleave(x, 3, dim=1), (2, 3, 2)),
    "repeat_interleave_each": case(lambda x: torch.repeat_interleave(x, torch.tensor([2, 0, 3]), dim=1), (2, 3, 2)),
    "cross": case(lambda a, b: torch.cross(a, b, dim=1), (2, 3, 4), (2, 3, 4)),
    "pairwise_distance": case(nn.PairwiseDistance(), (5, 9), (5, 9)),
    "pairwise_distance_keepdim": case(
        lambda a, b: F.pairwise_distance(a, b, p=3.0, eps=1e-3, keepdim=True), (2, 5, 9), (2, 5, 9)
    ),
    "glu": case(nn.GLU(1), (2, 6, 5)),
    "glu_function": case(F.glu, (3, 10)),
    "unfold": case(lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), (2, 3, 7, 6)),
    "unfold_module": case(nn.Unfold(2), (2, 3, 4, 5)),
    "fold": case(nn.Fold((7, 6), (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), (2, 18, 16)),
    "fold_function": case(lambda x: F.fold(x, (4, 5), 3, padding=1), (2, 27, 20)),
    "affine_grid": case(lambda t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (2, 2, 3)),
    "affine_grid_corners": case(lambda t: F.affine_grid(t, (1, 3, 4, 5, 2), align_corners=True), (1, 3, 4)),
    "roi_align": case(Pooled((2, 3), 0.5, 2, aligned=True), (2, 3, 9, 11), **SAMPLED),
    "roi_align_adaptive": case(Pooled(3, 0.25, -1), (2, 3, 9, 11), **SAMPLED),
    "deform_conv2d": case(Deformed(False), (2, 4, 7, 8), **DEFORMED),
    "deform_conv2d_mask": case(Deformed(True), (2, 4, 7, 8), **DEFORMED),
}
CASES |= {
    f"einsum_{name}": case(einsum(equation), *shapes) for name, (equation, *shapes) in EQUATIONS.items()
}
CASES |= {
    f"grid_sample_{mode}_{padding}{'_corners' * align}": case(
        grid_sample(mode, padding, align), (2, 3, 5, 6), (2, 4, 7, 2), **SAMPLED
    )
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    )
}
CASES |= {
    f"grid_sample_3d_{mode}_{padding}": case(
        grid_sample(mode, padding, False), (1, 2, 4, 5, 3), (1, 3, 2, 4, 3), **SAMPLED
    )
    for mode, padding in (("bilinear", "reflection"), ("nearest", "border"), ("bilinear", "zeros"))
}

"""NaN, infinities, signed zeros, denormals, and tensors without elements, through every family of operators.

Signs of zeros are results of their own (`signbit`), for zeros are equal; denormals are scaled up, for they are smaller
than any tolerance.
"""

import math

import torch
from torch.nn import functional as F

from operators.case import case, ints
from operators.extremes import given

INF, NAN, TINY, MIN, MAX = math.inf, math.nan, 1e-45, 1.1754944e-38, 3.4028235e38

NUMBERS = (NAN, INF, -INF, 0.0, -0.0, TINY, -TINY, MIN, -MIN, 1e-40, MAX, -MAX, 1.0, -1.0, 0.5, -0.5,
           2.5, -2.5, 1e-8, 20.0, -20.0, 100.0, -100.0, 3.0)  # fmt: skip
SMALL = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0)
ZEROS = (0.0, -0.0, 0.25, -0.25, -0.5, 0.5, -1.0, 1.0, -0.75, TINY, -TINY, 2.0)


def unary(x):
    return (torch.abs(x), torch.neg(x), torch.sign(x), torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(x),
            torch.sqrt(x), torch.rsqrt(x), torch.reciprocal(x), torch.exp(x), torch.log(x), torch.log10(x), torch.sin(x),
            torch.cos(x), torch.asin(x), torch.acos(x), torch.atan(x), torch.acosh(x), torch.asinh(x), torch.atanh(x),
            torch.sinh(x), torch.cosh(x), torch.tanh(x), torch.square(x), torch.frac(x), torch.expm1(x), torch.log1p(x),
            torch.log2(x), torch.exp2(x), torch.erfc(x))  # fmt: skip


def activations(x):
    return (F.relu(x), F.relu6(x), F.hardtanh(x), F.leaky_relu(x, 0.1), F.celu(x), F.threshold(x, 0.1, 20.0),
            F.hardshrink(x), F.softshrink(x), torch.clamp(x, -1.0, 1.0), torch.clamp(x, min=0.5), F.rrelu(x), F.glu(torch.clamp(x, -80.0, 1e30), 0))  # fmt: skip


def binary(x, y):
    return (x + y, x - y, x * y, x / y, torch.pow(x, y), torch.atan2(x, y), torch.fmod(x, y), torch.remainder(x, y),
            torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y), torch.hypot(x, y),
            torch.logaddexp(x, y), torch.xlogy(x, y), torch.copysign(x, y), torch.floor_divide(x, y), x == y, x != y,
            x < y, x >= y, torch.logical_and(x, y), torch.lerp(x, y, 0.25))  # fmt: skip


def tests(x):
    return (torch.isnan(x), torch.isinf(x), torch.isfinite(x), torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, -2.0),
            torch.signbit(x), x.bool(), torch.where(x > 0, x, -x), torch.masked_fill(x, torch.isnan(x), 7.0),
            torch.isposinf(x), torch.isneginf(x))  # fmt: skip


def reductions(x):
    return (x.sum(1), x.prod(1), x.mean(0), x.amax(1), x.amin(1), *torch.max(x, 1), *torch.min(x, 1), x.argmax(1),
            x.argmin(1), x.var(1), x.std(1), torch.norm(x, 2, 1), torch.norm(x, 1, 1), torch.norm(x, INF, 1),
            torch.logsumexp(x, 1), torch.nansum(x, 1), torch.nanmean(x, 1), torch.cumsum(x, 1), torch.cumprod(x, 1),
            *torch.cummax(x, 1), *torch.cummin(x, 1), torch.all(x, 1), torch.any(x, 1), *torch.median(x, 1),
            *torch.nanmedian(x, 1), torch.count_nonzero(x, 1), torch.logcumsumexp(x, 1))  # fmt: skip


def orders(x):
    # Which of equal elements comes first is PyTorch's secret: it differs with the length.
    return (torch.sort(x, 1)[0], torch.topk(x, 3, 1)[0], torch.topk(x, 3, 1, largest=False)[0],
            torch.kthvalue(x, 2, 1)[0])  # fmt: skip


def signs(x):
    made = (torch.relu(x), torch.neg(x), torch.abs(x), torch.floor(x), torch.ceil(x), torch.round(x), torch.trunc(x),
            torch.sqrt(x * 0.0), torch.sin(x), torch.tanh(x), torch.sign(x), x * 0.0, x * -1.0, x / -INF,
            torch.clamp(x, -0.5, 0.5), torch.clamp(x, min=0.0),
            F.leaky_relu(x, 0.0), F.hardtanh(x), F.relu6(x), F.hardswish(x), F.softshrink(x), F.silu(x), F.elu(x),
            torch.fmod(x, 0.25), torch.remainder(x, 0.25), torch.atan(x), torch.expm1(x),
            torch.frac(x), torch.square(x), F.hardshrink(x), x.prod(0), F.max_pool1d(x, 2),
            x.reshape(4, 3), torch.fmax(x, -x), torch.fmin(x, -x), torch.max(x * 0.0, 1)[0],
            torch.min(x * 0.0, 0)[0], torch.clamp(x.double(), min=0.0), torch.clamp(x.double(), -1.0, 0.0))  # fmt: skip
    return tuple(torch.signbit(y) for y in made)


def scaled(x):
    up = 1e38
    made = (x + x, x - x * 0.5, x * 0.5, x * 3.0, x / 2.0, torch.abs(x), torch.neg(x), torch.relu(x), F.leaky_relu(x, 0.5),
            torch.maximum(x, -x), torch.sin(x), torch.tanh(x), torch.expm1(x), x.sum(1), x.mean(1), x.amax(1),
            torch.sort(x, 1)[0], torch.cumsum(x, 1), F.max_pool1d(x, 2),
            F.avg_pool1d(x, 2), torch.matmul(x, x.t()), F.pad(x, (1, 1)), F.silu(x), F.gelu(x), F.elu(x))  # fmt: skip
    return tuple(y * up for y in made) + (x.sqrt(), torch.rsqrt(x), torch.log(x), 1.0 / x, x == 0.0)


class Products(torch.nn.Module):
    """Weights of zero make NaN of infinities, and only there: kernels must not skip them, nor spread them further."""

    def __init__(self):
        super().__init__()
        self.same = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.pointwise = torch.nn.Conv2d(3, 4, 1)
        self.depthwise = torch.nn.Conv2d(3, 3, 3, padding=1, groups=3)
        self.strided = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.transposed = torch.nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.linear = torch.nn.Linear(8, 5)

    def forward(self, x):
        return (self.pointwise(x), self.depthwise(x), self.strided(x), self.transposed(x), self.linear(x),
                torch.matmul(x, x.transpose(-1, -2)), self.same(x))  # fmt: skip


class Norms(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.batch = torch.nn.BatchNorm1d(4)
        self.prelu = torch.nn.PReLU(4)

    def forward(self, x):
        return (F.layer_norm(x, (8,)), F.group_norm(x, 2), F.instance_norm(x), F.normalize(x, 2.0, 2),
                F.normalize(x, 1.0, 1), self.batch(x), F.local_response_norm(x, 3), F.rms_norm(x, (8,)),
                self.prelu(x))  # fmt: skip


def pools(x):
    return (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_max_pool2d(x, 3),
            F.adaptive_avg_pool2d(x, 3), F.lp_pool2d(x, 2, 2), F.max_pool2d(x, 3, 1, 1))  # fmt: skip


def resizes(x):
    return (F.interpolate(x, scale_factor=2.0), F.interpolate(x, size=(5, 7), mode="nearest"),
            F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.pixel_shuffle(x, 2), F.pad(x, (1, 1, 1, 1), "reflect"),
            F.pad(x, (1, 2), value=-2.0), F.pad(x, (2, 1, 0, 0), mode="replicate"), F.unfold(x, 2))  # fmt: skip


def samples(x, grid):
    """Without `bilinear` and `zeros`: at infinity PyTorch's vector code makes NaN, its scalar code 0."""
    modes = (("bilinear", "border"), ("nearest", "zeros"), ("nearest", "border"))
    return tuple(F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)
                 for mode, padding in modes for corners in (False, True))  # fmt: skip


def losses(x, y):
    p = torch.sigmoid(y)
    return (F.mse_loss(x, y, reduction="none"), F.l1_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y, reduction="none"),
            F.huber_loss(x, y, reduction="none"), F.binary_cross_entropy_with_logits(x, p, reduction="none"),
            F.kl_div(x, p, reduction="none"), F.cosine_similarity(x, y), F.pairwise_distance(x, y),
            torch.cdist(x, y), F.softmax(x, 1), F.log_softmax(x, 0))  # fmt: skip


def nothing_elementwise(x, y):
    return (torch.abs(x), torch.exp(x), F.relu(x), F.gelu(x), F.silu(x), F.softmax(x, 1), F.log_softmax(x, 0), x + y, x * y,
            torch.maximum(x, y), torch.where(x > y, x, y), torch.clamp(x, 0, 1), x == y, torch.pow(x, 2.0), x.half().float(),
            F.glu(x, 1), torch.isnan(x), x.int())  # fmt: skip


def nothing_reduced(x):
    return (x.sum(0), x.sum(1), x.sum(), x.prod(0), x.mean(0), x.mean(1), x.var(0), x.amax(1), x.argmax(1), x.cumsum(0),
            x.cumprod(1), torch.norm(x, 2, 0), torch.logsumexp(x, 0), torch.all(x, 0), torch.any(x, 0),
            *torch.max(x, 1), *torch.sort(x, 1), *torch.sort(x, 0), *torch.topk(x, 2, 1), torch.count_nonzero(x),
            torch.nansum(x, 0), x.std(1))  # fmt: skip


def nothing_shaped(x, y):
    return (torch.cat([x, y], 0), torch.cat([x, x], 1), torch.stack([x, x]), x.t(), x.reshape(4, 0), x.reshape(0, 2, 2),
            x.unsqueeze(0), torch.flatten(x), x.repeat(2, 3), x.expand(3, 0, 4), F.pad(x, (1, 1)), F.pad(x, (0, 0, 1, 1)),
            x[:, 1:3], torch.roll(x, 1, 0), torch.flip(x, (0,)), torch.tril(x), *torch.split(x, 2, 1), *torch.chunk(x, 2, 1),
            torch.index_select(y, 0, torch.zeros(0, dtype=torch.int64)), torch.narrow(y, 0, 1, 0), y[2:1])  # fmt: skip


class NothingMultiplied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.depthwise = torch.nn.Conv2d(2, 2, 3, groups=2)
        self.transposed = torch.nn.ConvTranspose2d(2, 3, 2, stride=2)
        self.one = torch.nn.Conv1d(4, 3, 1)
        self.layer = torch.nn.LayerNorm(4)
        self.batch = torch.nn.BatchNorm2d(2)
        self.group = torch.nn.GroupNorm(2, 2)
        self.prelu = torch.nn.PReLU(2)

    def forward(self, x, image, a, b):
        return (self.linear(x), self.conv(image), self.depthwise(image), self.transposed(image), self.layer(x),
                self.batch(image), self.group(image), self.one(x.unsqueeze(2)), torch.matmul(a, b), torch.bmm(a.unsqueeze(0), b.unsqueeze(0)),
                torch.einsum("ij,jk->ik", a, b), F.max_pool2d(image, 2), F.avg_pool2d(image, 2),
                F.adaptive_avg_pool2d(image, 2), F.adaptive_max_pool2d(image, 1),
                F.interpolate(image, scale_factor=2.0), F.interpolate(image, scale_factor=2.0, mode="bilinear"),
                F.pixel_shuffle(image.reshape(0, 8, 3, 1), 2), F.normalize(x), F.unfold(image, 2), self.prelu(image))  # fmt: skip


def nothing_attended(q, k, v):
    return F.scaled_dot_product_attention(q, k, v), torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)), -1), v)


def nothing_chosen(x, i, table):
    return (F.embedding(i, table), torch.gather(x, 0, i.reshape(0, 1)), F.one_hot(i, 3), torch.index_select(table, 0, i),
            torch.bincount(i), torch.cdist(x, table[:, :4]), torch.fft.rfft(x).real, torch.nonzero(x),
            x[x > 0], torch.unique(i))  # fmt: skip


CASES = {
    "numbers_unary": case(unary, given(4, 6, values=NUMBERS), overflows=True),
    "numbers_activations": case(activations, given(4, 6, values=NUMBERS), overflows=True),
    "numbers_binary": case(binary, given(10, 1, values=SMALL), given(1, 10, values=SMALL), overflows=True),
    "numbers_tests": case(tests, given(4, 6, values=NUMBERS), overflows=True),
    "numbers_reduced": case(reductions, given(8, 5, values=(*SMALL[3:], *SMALL, 2.0, 4.0, 8.0)), overflows=True),
    "numbers_ordered": case(orders, given(8, 5, values=(*SMALL[5:], *SMALL, 2.0, 4.0, 8.0)), overflows=True),
    "numbers_signs": case(signs, given(3, 4, values=ZEROS), overflows=True),
    "numbers_denormal": case(scaled, given(6, 4, values=(TINY, -TINY, 1e-40, -3e-39, MIN, 0.0, 5e-45)), overflows=True),
    "numbers_multiplied": case(
        Products(), given(1, 3, 8, 8, values=(1.0, 0.5, -1.0, 2.0, 0.25, INF, -0.5) + (1.0, -1.5, 0.75) * 20 + (NAN,)),
        overflows=True),
    "numbers_normalized": case(Norms(), given(2, 4, 8, values=(1.0, 2.0) * 8 + (INF,) + (0.0,) * 15 + (NAN,) + (1.0,) * 14),
                               overflows=True),
    "numbers_pooled": case(pools, given(1, 2, 6, 6, values=(1.0, -INF, 2.0, 0.5, NAN, 3.0, INF, -1.0, 0.0) + (1.0,) * 9),
                           overflows=True),
    "numbers_resized": case(resizes, given(1, 4, 3, 4, values=(1.0, INF, 2.0, 0.5, NAN, 3.0) + (1.0, 4.0) * 9),
                            overflows=True),
    "numbers_sampled": case(
        samples, (1, 2, 4, 5), given(1, 3, 4, 2, values=(0.1, 0.2, INF, 0.0, -INF, 0.5, 0.3, 1e30, -1e30, -0.4, 1.0, -1.0)),
        overflows=True),
    "numbers_lost": case(losses, given(3, 4, values=(INF, 1.0, 2.0, 0.5, -1.0, 0.0, -0.0, NAN, 1.0, 1.0, 1.0, 1.0)),
                         (3, 4), overflows=True),
    "nothing_elementwise": case(nothing_elementwise, (0, 4), (0, 4)),
    "nothing_reduced": case(nothing_reduced, (0, 4)),
    "nothing_shaped": case(nothing_shaped, (0, 4), (3, 4)),
    "nothing_multiplied": case(NothingMultiplied(), (0, 4), (0, 2, 6, 6), (3, 0), (0, 5)),
    "nothing_attended": case(nothing_attended, (0, 2, 3, 8), (0, 2, 5, 8), (0, 2, 5, 8)),
    "nothing_chosen": case(nothing_chosen, (0, 4), ints(0, high=1), (3, 5)),
}  # fmt: skip

"""NaN, infinities, numbers that overflow and indices of nothing: as PyTorch has them, where it does not contradict itself
(its vector code makes NaN of GELU(inf), its scalar code inf)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from operators.case import Values, case, ints

INF, NAN, LARGE = math.inf, math.nan, 3e38


@dataclass(frozen=True)
class Given(Values):
    """These numbers, over and over."""

    values: tuple[float, ...] = ()

    def tensor(self, key: str) -> Tensor:
        return torch.from_numpy(np.resize(np.array(self.values, np.float32), self.shape)).to(self.dtype)


def given(*shape: int, values: tuple[float, ...]) -> Given:
    return Given(shape, values=values)


NUMBERS = (-INF, NAN, 0.0, -0.0, -LARGE, LARGE, -104.0, 104.0, -20.0, 20.0, -3.0, 3.0, -1.0, 1.0, -0.5, 0.5)


def functions(x):
    return (
        F.gelu(x, approximate="tanh"),
        F.silu(x),
        F.mish(x),
        F.hardswish(x),
        F.hardsigmoid(x),
        F.softplus(x),
        F.logsigmoid(x),
        F.softsign(x),
        F.tanhshrink(x),
        F.elu(x),
        F.selu(x),
        F.leaky_relu(x, 0.0),
        torch.tanh(x),
        torch.sigmoid(x),
        torch.erf(x),
    )


def softmaxes(x):
    y = x.t().reshape(1, 4, 5)
    return [f(z, dim=1) for f in (F.softmin, F.softmax, F.log_softmax) for z in (x, y)]


def greatest(x):
    return (*F.max_pool2d(x, 2, return_indices=True), *F.max_pool2d(x, 3, 1, 1, return_indices=True),
            *F.adaptive_max_pool2d(x, 3, return_indices=True),
            F.max_pool2d(x, 2), F.adaptive_max_pool2d(x, 1))  # fmt: skip


def orders(x):
    return (*torch.max(x, 1), *torch.min(x, 1), x.argmax(0), x.argmin(0), x.amax(1), x.amin(0), *torch.sort(x, 1),
            *torch.sort(x, 1, descending=True), torch.argsort(x, 1))  # fmt: skip


def means(x):
    return (x.mean(-1), x.mean((2, 3)), F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1), F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, 3), x.sum(1), x.var(1))  # fmt: skip


def attention(q, k, v, mask):
    spelled_out = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 4.0, -1), v)
    return spelled_out, F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def chosen(x, i, j, k):
    return (torch.gather(x, 0, i), torch.gather(x, 1, j), torch.gather(x, -1, k), torch.index_select(x, 0, i),
            torch.scatter(x, 0, j, 1.0), F.embedding(j, x), x[i], x[:, i])  # fmt: skip


ROW = (LARGE, -LARGE, 1.0, 2.0, INF, 1.0, 2.0, 3.0, -INF, 1.0, 2.0, 3.0, NAN, 1.0, 2.0, 3.0, 1e5, -1e5, 0.0, 1.0)
NANS = (1.0, NAN, 3.0, NAN, NAN, 2.0, 5.0, 5.0, 0.0, 1.0, NAN, 2.0, 7.0, 7.0, 7.0, INF, -INF, -INF, -INF)
QUERIES = (1.0,) * 16 + (8e18,) * 16 + (-1.0,) * 16 + (1e30,) * 16 + (0.5,) * 16 + (NAN,) * 16
KEYS = (0.25,) * 16 + (-0.25,) * 16 + (8e18,) * 16 + (0.5, -0.5) * 8
MASK = (0.0,) * 32 + (-INF,) * 32 + (0.0, -INF) * 16 + (NAN,) + (0.0,) * 31

CASES = {
    "special_activations": case(functions, given(4, 16, values=NUMBERS), overflows=True),
    "special_activations_infinite": case(functions, given(4, 16, values=(INF, -INF))),
    "special_gelu": case(lambda x: F.gelu(x), given(4, 16, values=(-INF, NAN, -LARGE, -104.0, -6.0, -0.0, 0.0, 104.0))),
    "special_softmax": case(softmaxes, given(5, 4, values=ROW), overflows=True),
    "special_max_pool": case(greatest, given(1, 5, 4, 4, values=NANS)),
    "special_orders": case(orders, given(5, 7, values=NANS)),
    "special_means": case(means, given(1, 20, 6, 6, values=(LARGE,)), overflows=True),
    "special_attention": case(
        attention,
        given(1, 2, 24, 16, values=QUERIES),
        given(1, 2, 32, 16, values=KEYS),
        (1, 2, 32, 16),
        given(24, 32, values=MASK),
        overflows=True,
    ),
    "special_empty_indices": case(chosen, (3, 4), ints(0, high=1), ints(0, 9, high=1), ints(2, 0, 3, high=1)),
}

"""What pnnx leaves of TorchScript with `optlevel=0` (constants, lists, arithmetic of sizes) and `optlevel=1` (arguments that
are expressions): each thing in both.
"""

import torch
from torch import nn
from torch.nn import functional as F

from operators.case import Case, ints, Values, Whole


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x):
        x = F.relu6(self.norm(self.conv(x)), inplace=True)
        return F.log_softmax(self.linear(F.adaptive_avg_pool2d(x, 1).flatten(1)), dim=-1)


def sizes(x, y):
    """Arithmetic on shapes."""
    b, c, h, w = x.shape
    z = x.reshape(b, c * h // 2, 2 * w).transpose(1, 2).contiguous().view(b, -1)
    z = z - y.repeat(1, z.size(1) // y.size(1))
    return z, z.sum(1, keepdim=True) + float(h * w) / c, x.new_zeros(b, c + 1) + 1


def arithmetic(x, y):
    z = (x * 2 + 1 - y / 3) ** 2
    masked = (z > 0.5) & (z < 4) | ~(x > y)
    z = torch.where(masked, z, -z)
    return torch.add(z, y, alpha=0.5), torch.clamp(z, -1.5, 4), z // 2, z % 1.5, 2 - z, z.mean((0,)), torch.stack([x, y], -1)


def in_place(x):
    """Of whole tensors: what is a part of one, pnnx does not say below level 2."""
    y = x.clone()
    y += 1
    y.mul_(2)
    y.add_(x, alpha=0.5)
    y.copy_(y * x)
    return y.clamp_(-3, 5), F.relu_(x.neg())


def slices(x, i):
    n = x.shape[1]
    left, right = x.chunk(2, -1)
    return (
        x[:, n // 2 :], x[:, :-1, 1:], x[:, torch.arange(0, n, 2)], x[:, i], x.narrow(1, 0, n // 2), x.flip(1)[:, ::3],
        torch.cat([x[:, n // 2 :], x], 1), left - right, x[None, :, 0, ...], x.unbind(1)[0],
    )  # fmt: skip


def reductions(x):
    values, indices = x.topk(3, -1)
    highest = x.max(-1)
    return (
        values, indices, highest.values, highest.indices, x.argmax(-1), x.norm(dim=-1), x.std(-1), x.cumsum(1), x.amax((1, 2)),
        x.var(dim=1, unbiased=False), x.logsumexp(-1), torch.einsum("bij,bkj->bik", x, x), x.to(torch.int64).sum(1),
        torch.gather(x, 2, indices), F.one_hot(x.argmax(-1), 8), x.sort(-1, descending=True)[0],
    )  # fmt: skip


def functions(x):
    return (
        F.gelu(x, approximate="tanh"), F.elu(x, 0.7), F.leaky_relu(x, 0.1), F.softplus(x, 2.0, 15.0), F.hardtanh(x, -0.5, 0.7),
        F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), F.pad(x, (1, 2, 0, 1), mode="reflect"),
        F.pad(x, (1, 1), value=0.5), F.avg_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.layer_norm(x, (6,)),
        F.normalize(x, dim=1), F.threshold(x, 0.1, 20), F.glu(x, 1), F.pixel_shuffle(x, 2), F.unfold(x, 2),
    )  # fmt: skip


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.into(x).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (c // 2) ** -0.5
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, c)) + z.transpose(1, 2).flatten(2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), nn.GRU(10, 4, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0][:, -1]


NETWORKS = {
    "head": (Head, (2, 3, 8, 8)),
    "sizes": (sizes, (2, 4, 6, 6), (2, 12)),
    "arithmetic": (arithmetic, (3, 5), (3, 5)),
    "in_place": (in_place, (2, 4, 6)),
    "slices": (slices, (2, 7, 6), ints(3, high=5)),
    "reductions": (reductions, (2, 4, 8)),
    "functions": (functions, (2, 4, 5, 6)),
    "attention": (Attention, (2, 5, 8)),
    "recurrent": (Recurrent, (2, 5, 6)),
}


def made(what, *inputs, optlevel: int) -> Case:
    module = what() if isinstance(what, type) else what
    inputs = tuple(value if isinstance(value, Values) else Values(value) for value in inputs)
    return Case(Whole(module), inputs, rtol=1e-4, atol=1e-5, optlevel=optlevel)


CASES = {f"optlevel{level}_{name}": made(*network, optlevel=level) for level in (0, 1) for name, network in NETWORKS.items()}

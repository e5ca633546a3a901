"""A decoder in the shape of Llama: RMS norm, rotary positions, grouped queries, SwiGLU; the same module as prefill and as step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Size:
    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    """Heads of keys and values."""
    inner: int
    tied: bool = False

    @property
    def head(self) -> int:
        return self.width // self.heads


class Attention(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.q = nn.Linear(size.width, size.heads * size.head, bias=False)
        self.k = nn.Linear(size.width, size.groups * size.head, bias=False)
        self.v = nn.Linear(size.width, size.groups * size.head, bias=False)
        self.o = nn.Linear(size.heads * size.head, size.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, past: tuple[Tensor, ...]):
        def heads(y: Tensor, count: int) -> Tensor:
            return y.unflatten(-1, (count, self.size.head)).transpose(1, 2)

        def turned(y: Tensor) -> Tensor:
            low, high = y.chunk(2, -1)
            return y * cos + torch.cat((-high, low), -1) * sin

        q = turned(heads(self.q(x), self.size.heads))
        k = turned(heads(self.k(x), self.size.groups))
        v = heads(self.v(x), self.size.groups)
        if past:
            k, v = (torch.cat((old, new), 2) for old, new in zip(past, (k, v)))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2)), k, v


class Layer(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.before_attention, self.before_feed = nn.RMSNorm(size.width, 1e-5), nn.RMSNorm(size.width, 1e-5)
        self.attention = Attention(size)
        self.gate = nn.Linear(size.width, size.inner, bias=False)
        self.up = nn.Linear(size.width, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: Tensor, *of_attention):
        y, k, v = self.attention(self.before_attention(x), *of_attention)
        x = x + y
        y = self.before_feed(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Decoder(nn.Module):
    """Tokens and positions (N, T), mask (N, 1, T, S + T) to be added, and keys and values (N, groups, S, head) of every
    layer, or none of them: logits (N, T, vocabulary), and keys and values of S + T tokens."""

    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, 1e-5)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        if size.tied:
            self.head.weight = self.embed.weight
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, size.head, 2) / size.head))

    def forward(self, tokens: Tensor, positions: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x = self.embed(tokens)
        angles = positions.unsqueeze(-1) * self.frequencies
        angles = torch.cat((angles, angles), -1).unsqueeze(1)
        cos, sin = angles.cos(), angles.sin()
        caches = []
        for i, layer in enumerate(self.layers):
            x, *both = layer(x, cos, sin, mask, past[2 * i : 2 * i + 2])
            caches += both
        return self.head(self.norm(x)), *caches

    def inputs(self, rows: int, tokens: int, past: int = 0) -> tuple[Tensor, ...]:
        """What a call takes, with no row padded; made-up tokens and caches."""
        caches = (rows, self.size.groups, past, self.size.head)
        return (
            torch.randint(self.size.vocabulary, (rows, tokens)),
            torch.arange(past, past + tokens).expand(rows, -1).contiguous(),
            causal(rows, tokens, past),
            *(torch.rand(caches) for _ in range(2 * self.size.layers) if past),
        )


def causal(rows: int, tokens: int, past: int = 0) -> Tensor:
    """The mask: -inf where a token comes after the one that looks."""
    return torch.full((rows, 1, tokens, past + tokens), -torch.inf).triu(past + 1)

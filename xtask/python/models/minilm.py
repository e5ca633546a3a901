"""A BERT encoder of MiniLM's size: 6 layers, 384 wide, 12 heads, vocabulary of 30522."""

import math

import torch
from torch import Tensor, nn


class Embeddings(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int):
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(positions, width)
        self.token_type = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, tokens: Tensor, types: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        return self.norm(self.word(tokens) + self.position(positions) + self.token_type(types))


class SelfAttention(nn.Module):
    """Scaled dot-product attention, spelled out as in the paper (Vaswani et al., 2017)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, self.head_width).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_width) + mask
        context = torch.matmul(torch.softmax(scores, dim=-1), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return self.output(context.view(x.shape[0], x.shape[1], self.heads * self.head_width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.expand = nn.Linear(width, hidden)
        self.gelu = nn.GELU()
        self.contract = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        return self.norm(x + self.contract(self.gelu(self.expand(x))))


class MiniLM(nn.Module):
    """Returns the last hidden state and the pooled first token."""

    def __init__(self, layers: int = 6, width: int = 384, heads: int = 12, hidden: int = 1536, vocabulary: int = 30522):
        super().__init__()
        self.embeddings = Embeddings(vocabulary, 512, width)
        self.layers = nn.ModuleList(Layer(width, heads, hidden) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, attention_mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        x = self.embeddings(tokens, types)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))

"""Attention: nn.MultiheadAttention and F.scaled_dot_product_attention."""

import torch
from torch import nn
from torch.nn import functional as F

from operators.case import case

EMBED, HEADS = 12, 3


class SelfAttention(nn.Module):
    def __init__(self, weights: bool = False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, **options)
        self.weights = weights

    def forward(self, x):
        out, weights = self.attention(x, x, x, need_weights=self.weights)
        return (out, weights) if self.weights else out


class HeadWeights(nn.Module):
    """The weights of each head; pnnx does not write that, but for the shape."""

    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, **options)

    def forward(self, x, y):
        return self.attention(x, y, y, average_attn_weights=False)


class CrossAttention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, batch_first=True, **options)

    def forward(self, query, key, value):
        return self.attention(query, key, value, need_weights=False)[0]


class PaddedAttention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, **options)

    def forward(self, x, padding, mask=None):
        return self.attention(x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False)[0]


class MaskedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, batch_first=True)

    def forward(self, x, mask):
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


QUERY, KEY = (2, 3, 5, 4), (2, 3, 6, 4)

CASES = {
    "mha_self": case(SelfAttention(batch_first=True), (2, 5, EMBED)),
    "mha_self_sequence_first": case(SelfAttention(), (5, 2, EMBED)),
    "mha_self_no_bias": case(SelfAttention(batch_first=True, bias=False), (2, 5, EMBED)),
    "mha_self_weights": case(SelfAttention(True, batch_first=True), (2, 5, EMBED)),
    "mha_head_weights": case(HeadWeights(batch_first=True), (2, 5, EMBED), (2, 4, EMBED), misread=True),
    "mha_head_weights_sequence_first": case(HeadWeights(), (5, 2, EMBED), (4, 2, EMBED), misread=True),
    "mha_head_weights_extended": case(
        HeadWeights(batch_first=True, add_bias_kv=True, add_zero_attn=True), (2, 5, EMBED), (2, 4, EMBED), misread=True
    ),
    "mha_self_any_length": case(SelfAttention(batch_first=True), (2, 5, EMBED), inputs2=((1, 7, EMBED),)),
    "mha_cross": case(CrossAttention(), (2, 5, EMBED), (2, 4, EMBED), (2, 4, EMBED)),
    "mha_cross_widths": case(CrossAttention(kdim=7, vdim=9), (2, 5, EMBED), (2, 4, 7), (2, 4, 9)),
    "mha_padding_mask": case(PaddedAttention(batch_first=True), (2, 5, EMBED), (2, 5), misread=True),
    "mha_both_masks": case(PaddedAttention(), (5, 2, EMBED), (2, 5), (5, 5), misread=True),
    "mha_mask": case(MaskedAttention(), (2, 5, EMBED), (5, 5)),
    "sdpa": case(F.scaled_dot_product_attention, QUERY, KEY, KEY),
    "sdpa_causal": case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), QUERY, QUERY, QUERY),
    "sdpa_scale": case(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), QUERY, KEY, KEY),
    "sdpa_mask": case(F.scaled_dot_product_attention, QUERY, KEY, KEY, (2, 1, 5, 6)),
    "sdpa_bool_mask": case(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > -1.0), QUERY, KEY, KEY, (5, 6)
    ),
    "sdpa_rank3": case(F.scaled_dot_product_attention, (3, 5, 4), (3, 6, 4), (3, 6, 7)),
    "attention_spelled_out": case(
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 2.0, -1) @ v, QUERY, KEY, KEY
    ),
}

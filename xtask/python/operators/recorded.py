"""What pnnx leaves out of a file and the dtypes and shapes that it records still tell."""

import torch
from torch import nn
from torch.nn import functional as F

from operators.case import case, floats, ints

EMBED, HEADS = 12, 3


class Attention(nn.Module):
    """Masks of bools, which pnnx writes in front of the query and calls nothing."""

    def __init__(self, causal: bool = False, padding: bool = False, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, **options)
        self.causal, self.padding = causal, padding

    def forward(self, query, key, value, mask, padding):
        return self.attention(
            query,
            key,
            value,
            attn_mask=mask > 1.0 if self.causal else None,
            key_padding_mask=padding > 1.0 if self.padding else None,
            need_weights=False,
        )[0]


class SelfAttention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED, HEADS, **options)

    def forward(self, x, padding):
        return self.attention(x, x, x, key_padding_mask=padding > 1.0, need_weights=False)[0]


# Five queries, four keys, two sequences.
TENSORS = (5, 2, EMBED), (4, 2, EMBED), (4, 2, EMBED), (5, 4), (2, 4)
BATCH_FIRST = (2, 5, EMBED), (2, 4, EMBED), (2, 4, EMBED), (5, 4), (2, 4)
HEAD_MASKS = (5, 2, EMBED), (4, 2, EMBED), (4, 2, EMBED), (2 * HEADS, 5, 4), (2, 4)
INTEGERS = ints(4, 5, low=-9, high=10)

CASES = {
    "mha_bools_mask": case(Attention(causal=True), *TENSORS, misread=True),
    "mha_bools_head_masks": case(Attention(causal=True), *HEAD_MASKS, misread=True),
    "mha_bools_padding": case(Attention(padding=True, batch_first=True), *BATCH_FIRST, misread=True),
    "mha_bools_both": case(Attention(causal=True, padding=True), *TENSORS, misread=True),
    "mha_bools_self": case(SelfAttention(), (5, 2, EMBED), (2, 5), misread=True),
    "integer_division_floor": case(lambda x: torch.div(x, 3, rounding_mode="floor"), INTEGERS, misread=True),
    "integer_division_inside": case(
        lambda x, y: torch.div(x, y + 2, rounding_mode="floor") * 3 + x % 4, INTEGERS, ints(5, low=0, high=5), misread=True
    ),
    "sum_in_double": case(lambda x: x.sum(1, dtype=torch.float64), (4, 5), misread=True),
    "cumsum_in_double": case(lambda x: x.cumsum(1, dtype=torch.float64), (4, 5), misread=True),
    "mean_of_integers": case(lambda x: x.mean(1, dtype=torch.float32), INTEGERS, misread=True),
    "sum_of_integers_as_int": case(lambda x: x.int().sum(1, dtype=torch.int32), INTEGERS, misread=True),
    "log_softmax_in_double": case(lambda x: F.log_softmax(x, -1, dtype=torch.float64), floats(4, 5), misread=True),
    "softmax_of_integers": case(lambda x: F.softmax(x, -1, dtype=torch.float32), INTEGERS, misread=True),
}

"""Recurrent networks over packed sequences.

pnnx cannot convert `nn.LSTM` and its neighbours where their input is packed; of classes derived from them it leaves
PyTorch's native functions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from operators.case import Case, Values, Whole, case


class LSTM(nn.LSTM):
    pass


class GRU(nn.GRU):
    pass


class RNN(nn.RNN):
    pass


@dataclass(frozen=True)
class Lengths(Values):
    """These numbers."""

    numbers: tuple[int, ...] = ()

    def tensor(self, key: str) -> Tensor:
        return torch.tensor(self.numbers)


def lengths(*numbers: int) -> Lengths:
    return Lengths((len(numbers),), dtype=torch.int64, numbers=numbers)


class Packed(nn.Module):
    def __init__(self, network: nn.RNNBase, enforce_sorted: bool, total_length: int | None = None, value: float = 0.0):
        super().__init__()
        self.network, self.enforce_sorted, self.total_length, self.value = network, enforce_sorted, total_length, value

    def forward(self, x, lengths):
        first = self.network.batch_first
        packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=self.enforce_sorted)
        y, states = self.network(packed)
        y, lengths = pad_packed_sequence(y, first, self.value, self.total_length)
        return y, lengths, *(states if isinstance(states, tuple) else (states,))


def packed(network: nn.RNNBase, x: tuple[int, ...], own: Lengths, x2=None, own2=None, **options) -> Case:
    module = Packed(network, **options)
    return Case(Whole(module), (Values(x), own), (Values(x2), own2) if x2 else None)


CASES = {
    "packed_lstm": packed(
        LSTM(5, 4, batch_first=True), (3, 6, 5), lengths(6, 4, 1), (4, 7, 5), lengths(7, 7, 3, 2), enforce_sorted=True
    ),
    "packed_lstm_projected": packed(
        LSTM(5, 4, num_layers=2, proj_size=3), (6, 3, 5), lengths(6, 6, 2), enforce_sorted=True, value=-1.5
    ),
    "packed_gru_unsorted": packed(
        GRU(5, 4, num_layers=2, bidirectional=True, batch_first=True),
        (3, 6, 5), lengths(2, 6, 4), (3, 4, 5), lengths(1, 4, 4), enforce_sorted=False,
    ),
    "packed_rnn_longer": packed(
        RNN(5, 4, nonlinearity="relu"), (6, 3, 5), lengths(3, 5, 3), enforce_sorted=False, total_length=9
    ),
    "pad_sequence": case(
        lambda a, b, c: torch.nn.utils.rnn.pad_sequence([a, b, c], batch_first=True, padding_value=-0.5), (2, 3), (5, 3), (1, 3)
    ),
}  # fmt: skip

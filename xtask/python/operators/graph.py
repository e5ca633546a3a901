"""Graphs of several inputs and outputs, and the head of a detector kept whole."""

import torch
from torch import nn

from operators.case import case, ints
from models.yolo import C3, SPPF, Bottleneck, Detect


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU()
        self.left = nn.Conv2d(8, 4, 1)
        self.right = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.body(x))
        return self.left(x), self.right(x.mean((2, 3)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(6, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x))) + x)


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(8, 2, 1)
        self.excite = nn.Conv2d(2, 8, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.excite(torch.relu(self.squeeze(self.pool(x)))))


class ChannelMeans(nn.Module):
    """Means and sums over pixels, between and after convolutions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 20, 3, padding=1)
        self.second = nn.Conv2d(20, 32, 1)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x * torch.sigmoid(x.mean((2, 3), keepdim=True)))
        return x.mean((2, 3)), x.sum((-1, -2)), x.sum((2, 3), keepdim=True)


class Scaled(nn.Module):
    """A parameter and a buffer of integers that no module owns: both become pnnx.Attribute."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(3, 1, 1))
        self.register_buffer("table", torch.tensor([2, 0, 1]))

    def forward(self, x):
        return x * self.scale + torch.index_select(x, 1, self.table)


class FinalState(nn.Module):
    """The last state of a network, and nothing else of it."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)[1]


class Head(nn.Module):
    """The detector's head behind one input per stage: 64 x 64 pixels, two classes."""

    def __init__(self):
        super().__init__()
        self.detect = Detect(2, (4, 6, 8), 64)

    def forward(self, large, middle, small):
        return self.detect([large, middle, small])


STAGES = (2, 4, 8, 8), (2, 6, 4, 4), (2, 8, 2, 2)
OLD_NAMES = {f"pnnx_{n:02}": f"pnnx_{6 - n}" for n in range(7)}  # numbered from the end, before padding

CASES = {
    "detect": case(Head(), *STAGES, kept_whole="models.yolo.Detect", atol=1e-4),
    "detect_old_names": case(Head(), *STAGES, kept_whole="models.yolo.Detect", atol=1e-4, renamed=OLD_NAMES),
    "two_inputs_two_outputs": case(lambda a, b: (a + b, a * b - 1.0), (2, 3), (2, 3)),
    "nested_tuple": case(lambda a, b: (a + 1.0, (b * 2.0, a - b)), (2, 3), (2, 3)),
    "output_is_input": case(lambda a, b: (a, torch.relu(b)), (2, 3), (2, 3)),
    "output_twice": case(lambda a: (lambda y: (y, y))(torch.relu(a)), (2, 3)),
    "input_unused": case(lambda a, b: torch.relu(a), (2, 3), (2, 3)),
    "input_twice": case(lambda a: torch.matmul(a, a), (3, 3)),
    "mixed_dtypes": case(lambda a, b: (a.argmax(1), b * 2, a > 0.0), (3, 4), ints(3, high=9)),
    "two_heads": case(TwoHeads(), (2, 3, 6, 5)),
    "residual_block": case(Residual(), (2, 6, 5, 7)),
    "squeeze_excite": case(SqueezeExcite(), (2, 8, 5, 4)),
    "channel_means": case(ChannelMeans(), (2, 3, 7, 6)),
    "attributes": case(Scaled(), (2, 3, 4, 5)),
    "bottleneck": case(Bottleneck(8, True), (1, 8, 6, 6)),
    "c3": case(C3(8, 8, 2), (1, 8, 6, 6)),
    "sppf": case(SPPF(8), (1, 8, 9, 7)),
    "depthwise_separable": case(
        nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(), nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU6()
        ),
        (2, 8, 7, 6),
        inputs2=((1, 8, 4, 9),),
    ),
    "rnn": case(nn.RNN(5, 4, num_layers=2, nonlinearity="relu", bidirectional=True), (3, 2, 5)),
    "lstm": case(nn.LSTM(5, 4, batch_first=True), (2, 3, 5)),
    "gru_final_state": case(FinalState(nn.GRU(5, 4, num_layers=2)), (3, 2, 5), misread=True),
    "gru_bidirectional": case(nn.GRU(5, 4, num_layers=2, bidirectional=True), (3, 2, 5)),
}

"""A reader of text lines (Shi, Bai and Yao, 2015): convolutions to one row, LSTMs along it."""

from torch import Tensor, nn


class Reader(nn.Module):
    """A bidirectional LSTM and a linear layer over its two halves."""

    def __init__(self, width: int, hidden: int, out: int):
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.lstm(x)[0])


def conv(channels_in: int, channels_out: int, kernel: int = 3, padding: int = 1, norm: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(channels_in, channels_out, kernel, 1, padding)]
    if norm:
        layers.append(nn.BatchNorm2d(channels_out))
    return [*layers, nn.ReLU()]


class Crnn(nn.Module):
    """Takes grey pictures 32 pixels high, gives scores of the classes for each step along."""

    def __init__(self, classes: int = 37, hidden: int = 256):
        super().__init__()
        self.convolutions = nn.Sequential(
            *conv(1, 64),
            nn.MaxPool2d(2),
            *conv(64, 128),
            nn.MaxPool2d(2),
            *conv(128, 256, norm=True),
            *conv(256, 256),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *conv(256, 512, norm=True),
            *conv(512, 512),
            nn.MaxPool2d((2, 2), (2, 1), (0, 1)),
            *conv(512, 512, kernel=2, padding=0, norm=True),
        )
        self.readers = nn.Sequential(Reader(512, hidden, hidden), Reader(hidden, hidden, classes))

    def forward(self, picture: Tensor) -> Tensor:
        columns = self.convolutions(picture).squeeze(2).permute(0, 2, 1)
        return self.readers(columns)

"""The generator of a DCGAN (Radford, Metz and Chintala, 2015): from noise to 64 x 64 pixels."""

from torch import Tensor, nn


class Generator(nn.Module):
    def __init__(self, noise: int = 100, widths: tuple[int, ...] = (512, 256, 128, 64), channels: int = 3):
        super().__init__()
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(zip((noise, *widths), widths)):
            stride, padding = (1, 0) if i == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], channels, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, noise: Tensor) -> Tensor:
        return self.layers(noise)

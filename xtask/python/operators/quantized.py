"""Quantised operators, as pnnx writes them.

pnnx has no engine that could load quantised layers of today's PyTorch: the graph of the network is written here, in
the form of its pass `expand_quantization_modules`. All scales are powers of two, so that f32 computes what PyTorch's
integers do, exactly.
"""

import torch
from torch.ao.nn.quantized import DeQuantize, Quantize
from torch.nn import functional as F

import generator
from operators.case import case

X = (1, 8, 6, 6)
OPS = torch.ops.quantized


def quantized(dtype):
    """A module and functions between two conversions."""
    enter, leave = Quantize(0.03125, 40 if dtype == torch.quint8 else -7, dtype), DeQuantize()
    return lambda x: leave(F.relu(F.max_pool2d(enter(x), 2)))


def arithmetic(x, y):
    """What FloatFunctional becomes when a model is converted."""
    a = torch.quantize_per_tensor(x, 0.0625, 30, torch.quint8)
    b = torch.quantize_per_tensor(y, 0.03125, 64, torch.quint8)
    joined = OPS.cat([OPS.add(a, b, 0.125, 20), OPS.mul(a, b, 0.25, 12)], 1, 0.25, 16)
    return OPS.mul_scalar(OPS.add_relu(joined, joined, 0.5, 3), 0.5).dequantize()


def with_numbers(x):
    a = torch.quantize_per_tensor(x, 0.0625, 60, torch.quint8)
    sums = OPS.add_scalar(a, 0.25), OPS.add_scalar_relu(a, -0.5), OPS.mul_scalar_relu(a, 0.5)
    return *(y.dequantize() for y in sums), OPS.mul_relu(a, a, 0.125, 3).dequantize()


class Layer:
    """8-bit weights with a scale for each output, and a bias on the grid of all products."""

    def __init__(self, name: str, *shape: int):
        self.name = name
        channels = shape[0]
        integers = generator.integers(f"{name}.weight", torch.Size(shape).numel(), -64, 64).reshape(shape)
        scales = 2.0 ** -generator.integers(f"{name}.scales", channels, 6, 9).astype(float)
        self.scales, self.zero_points = torch.from_numpy(scales), torch.zeros(channels, dtype=torch.int64)
        weight = torch.from_numpy(integers) * self.scales.reshape(-1, *[1] * (len(shape) - 1))
        self.weight = torch.quantize_per_channel(weight.float(), self.scales, self.zero_points, 0, torch.qint8)
        self.bias = torch.from_numpy(generator.integers(f"{name}.bias", channels, -16, 16) / 16.0).float()

    def attributes(self) -> dict:
        return {
            f"{self.name}.bias": self.bias.numpy(),
            f"{self.name}.weight": self.weight.int_repr().numpy(),
            f"{self.name}.weight.q_per_channel_scales": self.scales.numpy(),
            f"{self.name}.weight.q_per_channel_zero_points": self.zero_points.numpy(),
        }


LAYERS = [Layer("quantize_network.conv1", 16, 3, 3, 3), Layer("quantize_network.conv2", 16, 4, 3, 3),
          Layer("quantize_network.linear", 5, 16)]  # fmt: skip


def network(x):
    conv1, conv2, linear = LAYERS
    one = OPS.conv2d_prepack(conv1.weight, conv1.bias, [2, 2], [1, 1], [1, 1], 1)
    two = OPS.conv2d_prepack(conv2.weight, conv2.bias, [2, 2], [1, 1], [1, 1], 4)
    x = OPS.conv2d_relu(torch.quantize_per_tensor(x, 0.03125, 64, torch.quint8), one, 0.0625, 0)
    x = torch.flatten(F.max_pool2d(OPS.conv2d(x, two, 0.25, 96), 2), 1)
    torch.use_deterministic_algorithms(False)  # or it would not resize quantised tensors
    x = OPS.linear(x, OPS.linear_prepack(linear.weight, linear.bias), 0.5, 128)
    torch.use_deterministic_algorithms(True)
    return x.dequantize()


NETWORK = """7767517
11 10
pnnx.Input pnnx_input_0 0 1 0 #0=(2,3,8,8)f32
nn.quantized.Quantize quant 1 1 0 1 dtype=torch.qint8 scale=0.03125 zero_point=64 #0=(2,3,8,8)f32 #1=(2,3,8,8)u8
nn.quantized.Conv2d quantize_network.conv1 1 1 1 2 bias=False dilation=(1,1) groups=1 in_channels=3 kernel_size=(3,3) out_channels=16 padding=(1,1) padding_mode=zeros stride=(2,2) @bias=(16)f32 @weight=(16,3,3,3)i8 @weight.q_per_channel_scales=(16)f64 @weight.q_per_channel_zero_points=(16)i64 #1=(2,3,8,8)u8
nn.ReLU conv1_relu 1 1 2 3
nn.quantized.Quantize conv1_output_quantize 1 1 3 4 dtype=torch.qint8 scale=0.0625 zero_point=0 #4=(2,16,4,4)u8
nn.quantized.Conv2d quantize_network.conv2 1 1 4 5 bias=False dilation=(1,1) groups=4 in_channels=16 kernel_size=(3,3) out_channels=16 padding=(1,1) padding_mode=zeros scale=0.25 stride=(2,2) zero_point=96 @bias=(16)f32 @weight=(16,4,3,3)i8 @weight.q_per_channel_scales=(16)f64 @weight.q_per_channel_zero_points=(16)i64 #4=(2,16,4,4)u8 #5=(2,16,2,2)u8
F.max_pool2d pool 1 1 5 6 ceil_mode=False dilation=(1,1) kernel_size=(2,2) padding=(0,0) return_indices=False stride=None $input=5 #5=(2,16,2,2)u8 #6=(2,16,1,1)u8
torch.flatten flatten 1 1 6 7 end_dim=-1 start_dim=1 $input=6 #6=(2,16,1,1)u8 #7=(2,16)u8
nn.quantized.Linear quantize_network.linear 1 1 7 8 in_features=16 out_features=5 scale=0.5 zero_point=128 @bias=(5)f32 @weight=(5,16)i8 @weight.q_per_channel_scales=(5)f64 @weight.q_per_channel_zero_points=(5)i64 #7=(2,16)u8 #8=(2,5)u8
nn.quantized.DeQuantize dequant 1 1 8 9 #8=(2,5)u8 #9=(2,5)f32
pnnx.Output pnnx_output_0 1 0 9 #9=(2,5)f32
"""

CASES = {
    "quantize_quint8": case(quantized(torch.quint8), X, quantized=True),
    "quantize_qint8": case(quantized(torch.qint8), X, quantized=True),
    "quantize_arithmetic": case(arithmetic, X, X, quantized=True),
    "quantize_arithmetic_numbers": case(with_numbers, X, quantized=True),
    "quantize_network": case(
        network,
        (2, 3, 8, 8),
        quantized=True,
        by_hand=(NETWORK, {name: data for layer in LAYERS for name, data in layer.attributes().items()}),
    ),
}

"""Activations: https://pytorch.org/docs/stable/nn.html#non-linear-activations-weighted-sum-nonlinearity"""

from torch import nn
from torch.nn import functional as F

from operators.calls import exported
from operators.case import case, floats

X = floats(2, 3, 5, low=-6.0, high=6.0)  # beyond every bend, and an element count that no vector width divides

MODULES = {
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "sigmoid": nn.Sigmoid(),
    "silu": nn.SiLU(),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardtanh": nn.Hardtanh(),
    "hardtanh_range": nn.Hardtanh(-1.5, 3.25),
    "leaky_relu": nn.LeakyReLU(0.1),
    "elu": nn.ELU(1.5),
    "selu": nn.SELU(),
    "celu": nn.CELU(0.75),
    "tanh": nn.Tanh(),
    "mish": nn.Mish(),
    "softplus": nn.Softplus(),
    "softplus_threshold": nn.Softplus(beta=2.0, threshold=4.0),
    "softsign": nn.Softsign(),
    "logsigmoid": nn.LogSigmoid(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "softmax_last": nn.Softmax(-1),
    "softmax_first": nn.Softmax(0),
    "softmax_middle": nn.Softmax(1),
    "log_softmax": nn.LogSoftmax(1),
}
FUNCTIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": F.elu,
    "tanh": F.tanh,
    "mish": F.mish,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "softmax": lambda x: F.softmax(x, 1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "softmin": lambda x: F.softmin(x, 0),
}

CASES = (
    {f"{name}_module": case(module, X) for name, module in MODULES.items()}
    | {f"{name}_function": case(function, X) for name, function in FUNCTIONS.items()}
    | {
        "thresholds": exported(
            """
            F.celu a alpha=0.75
            F.hardshrink a lambd=0.25
            F.softshrink a lambd=0.25
            F.threshold a threshold=0.1 value=-3.0
            F.prelu a b
            F.rrelu a lower=0.1 upper=0.3
            nn.Hardshrink a lambd=0.25
            nn.Softshrink a lambd=0.25
            nn.Tanhshrink a
            nn.Threshold a threshold=0.1 value=-3.0
            nn.RReLU a lower=0.1 upper=0.3
            nn.Softmin a dim=1
            """,
            X, (3,),
        ),
        "prelu_one_weight": case(nn.PReLU(), (2, 3, 4, 5)),
        "prelu_weight_per_channel": case(nn.PReLU(3), (2, 3, 4, 5)),
        "prelu_vector": case(nn.PReLU(3), (2, 3)),
        "softmax_rank1": case(nn.Softmax(0), (7,)),
        "softmax_rank4_channels": case(nn.Softmax(1), (2, 5, 3, 4)),
        "softmax_of_large_values": case(nn.Softmax(-1), floats(3, 9, low=-200.0, high=200.0)),
        "softmax_any_shape": case(nn.Softmax(-1), (2, 3, 5), inputs2=((1, 4, 8),)),
        "softmax2d": case(nn.Softmax2d(), (2, 5, 3, 4)),
    }
)

"""What becomes pnnx.Expression: arithmetic, unary and binary functions, sizes, integers."""

import torch

from operators.case import case, floats, ints

X = floats(2, 3, 5)
UNIT = floats(2, 3, 5, low=-1.0, high=1.0)
POSITIVE = floats(2, 3, 5, low=0.125, high=4.0)
ABOVE_ONE = floats(2, 3, 5, low=1.0, high=4.0)
SMALL = (3, 5)
WHOLE = ints(3, 5, low=-20, high=20)
WHOLE32 = ints(3, 5, low=-20, high=20, dtype=torch.int32)
DIVISOR = ints(3, 5, low=1, high=7)

UNARY = {
    "abs": X, "acos": UNIT, "acosh": ABOVE_ONE, "asin": UNIT, "asinh": X, "atan": X, "atanh": UNIT, "ceil": X, "cos": X,
    "cosh": X, "erf": X, "exp": X, "expm1": X, "floor": X, "log": POSITIVE, "log10": POSITIVE, "log1p": POSITIVE,
    "neg": X, "reciprocal": POSITIVE, "round": X, "rsqrt": POSITIVE, "sign": X, "sin": X, "sinh": X, "sqrt": POSITIVE,
    "square": X, "tan": UNIT, "tanh": X, "trunc": X,
}  # fmt: skip
BINARY = {
    "add": X, "atan2": X, "div": POSITIVE, "floor_divide": POSITIVE, "fmod": POSITIVE, "logaddexp": X, "maximum": X,
    "minimum": X, "mul": X, "pow": POSITIVE, "remainder": POSITIVE, "sub": X,
}  # fmt: skip


def unary(function):
    return lambda x: function(x) * 1.5 + 0.25


def binary(function):
    return lambda x, y: function(x, y) + 0.25


CASES = (
    {f"expr_{name}": case(unary(getattr(torch, name)), values) for name, values in UNARY.items()}
    | {
        f"expr_{name}": case(binary(getattr(torch, name)), POSITIVE if name in ("pow", "fmod") else X, values)
        for name, values in BINARY.items()
    }
    | {
        "expr_round_half_to_even": case(lambda x: torch.round(x / 2.0) + 0.0, floats(9, low=-9.0, high=9.0)),
        "expr_nested": case(lambda x, y: torch.sqrt(x * x + y * y) / (torch.abs(x - y) + 1.0), X, X),
        "expr_three_inputs": case(lambda x, y, z: (x + y) * z - y / 3.0, SMALL, SMALL, SMALL),
        "expr_broadcast_row": case(lambda x, y: x * y + 1.0, (2, 3, 5), (5,)),
        "expr_broadcast_channel": case(lambda x, y: x * y + x, (2, 3, 4, 5), (1, 3, 1, 1)),
        "expr_broadcast_both": case(lambda x, y: x - 2.0 * y, (4, 1, 5), (3, 1)),
        "expr_broadcast_one": case(lambda x, y: x + 2.0 * y, (3, 5), (1,)),
        "expr_any_shape": case(lambda x, y: x * y - y, (2, 3), (2, 3), inputs2=((4, 5), (4, 5))),
        "silu_spelled_out": case(lambda x: x * torch.sigmoid(x), X),
        "expr_rsub": case(lambda x: 1.0 - x * 2.0, X),
        "expr_rdiv": case(lambda x: 1.0 / (x * 2.0), POSITIVE),
        "expr_pow_integer": case(lambda x: (x - 1.0) ** 2 + x**3, X),
        "expr_pow_half": case(lambda x: (x + 1.0) ** 0.5 + 0.0, POSITIVE),
        "expr_pow_base": case(lambda x: 2.0**x + 1.0, X),
        "expr_i64": case(lambda x, y: x * 3 + y - 1, WHOLE, WHOLE),
        "expr_i64_i32": case(lambda x, y: x * y + 1, WHOLE, WHOLE32),
        "expr_i64_f32": case(lambda x, y: x * y + 0.5, WHOLE, SMALL),
        "expr_i32_float_literal": case(lambda x: x * 0.5 + 1, WHOLE32),
        "expr_i64_division": case(lambda x, y: x / y + 1, WHOLE, DIVISOR),
        "expr_i64_floor_divide": case(lambda x, y: x // y + 1, WHOLE, DIVISOR),
        "expr_i64_remainder": case(lambda x, y: x % y + 1, WHOLE, DIVISOR),
        "expr_i64_fmod": case(lambda x, y: torch.fmod(x, y) + 1, WHOLE, DIVISOR),
        "expr_i64_pow": case(lambda x: x**3 - x, WHOLE),
        "expr_i64_sqrt": case(lambda x: torch.sqrt(x * 2) + 1, DIVISOR),
        "expr_i32_bits": case(lambda x, y: ((x & y) | 5) ^ (y << 2), WHOLE32, WHOLE32),
        "expr_i32_shift": case(lambda x: (x << 3) + (x >> 1), WHOLE32),
        "expr_u8_wraps": case(lambda x: x * 3 + 7, ints(3, 5, high=256, dtype=torch.uint8)),
        "expr_size": case(lambda x: x * x.size(1) + x.size(2), X, inputs2=((1, 4, 2),)),
        "expr_size_feeds_reshape": case(
            lambda x: x.reshape(x.size(0) * x.size(1), -1) * 2.0, X, inputs2=((3, 2, 4),)
        ),
        "expr_size_feeds_pooled_view": case(
            lambda x: x.mean((2, 3)).view(x.size(0), 2, x.size(1) // 2), (2, 6, 3, 3), inputs2=((3, 4, 5, 5),)
        ),
    }
)

"""Pointwise functions as PNNX has them: expressions, which plutino matches with what it fuses.

``x * 0.5 * (1 + erf(x / 1.4142))`` is one expression, not four operators; a value that only another
expression reads is written there.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

from .modules import Arguments

Formula = Tuple[Any, ...]
"""Name of a function, then its arguments: nodes, numbers, other formulas."""

LARGEST = 40
"""Functions in one expression."""

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp expm1 floor log log10 log1p neg "
    "reciprocal round rsqrt sign sin sinh sqrt square tan tanh trunc"
).split()


def _scaled(a: Arguments, name: str, node: Any) -> Optional[Formula]:
    other, alpha = a["other"], a["alpha"]
    dtype = getattr(getattr(other, "meta", {}).get("val"), "dtype", None)
    result = node.meta["val"].dtype
    if alpha == 1 or (str(result) == "torch.bool" and alpha):
        return (name, a["input"], other)
    # PyTorch multiplies in the dtype of the result.
    return (name, a["input"], ("mul", other, alpha)) if dtype in (None, result) else None


def _divided(a: Arguments) -> Optional[Formula]:
    name = {None: "div", "floor": "floor_divide"}.get(a.get("rounding_mode"))
    return (name, a["input"], a["other"]) if name else None


def _power(a: Arguments) -> Formula:
    return ("pow", a["input"], a["exponent"])


_MAKE: Dict[str, Callable[[Arguments], Optional[Formula]]] = {
    "rsub": lambda a: ("sub", a["other"], a["input"]) if a["alpha"] == 1 else None,
    "mul": lambda a: ("mul", a["input"], a["other"]),
    "div": _divided,
    "pow": _power,
    "maximum": lambda a: ("maximum", a["input"], a["other"]),
    "minimum": lambda a: ("minimum", a["input"], a["other"]),
}


def formula(function: str, arguments: Arguments, node: Any) -> Optional[Formula]:
    """The formula of a call; ``None`` where it is none."""
    if function in _UNARY:
        source = arguments["input"].meta["val"]
        plain = not source.is_complex() and not arguments.get("decimals")
        return (function, arguments["input"]) if plain else None
    if function in ("add", "sub"):
        found = _scaled(arguments, function, node)
    else:
        make = _MAKE.get(function)
        found = None if make is None else make(arguments)
    if found is None or any(isinstance(part, bool) for part in found):
        return None
    return found


def rounds(node: Any) -> bool:
    """Whether a value in between would be rounded where PyTorch rounds it: not in half precision,
    in which expressions are computed as a whole."""
    dtype = getattr(node.meta.get("val"), "dtype", None)
    return str(dtype) in ("torch.float32", "torch.float64")


def number(value: Any) -> str:
    """A number in an expression."""
    if isinstance(value, complex):
        return f"{value.real!r}{value.imag:+}j"
    return repr(value)

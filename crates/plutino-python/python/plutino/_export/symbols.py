"""Sizes that vary: names for the record, expressions for what is computed from them."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable, Dict, Optional, Tuple

from .graph import Dim


def recorded(size: Any, names: Dict[str, str]) -> Dim:
    """How a size is recorded: a number, the name of a symbol, or nothing for what is computed."""
    if isinstance(size, int):
        return size
    expr = size.node.expr
    if expr.is_Integer:
        return int(expr)
    return names.get(str(expr), str(expr)) if expr.is_Symbol else None


def _unary(name: str) -> Callable[..., str]:
    return lambda a: f"{name}({a})"


def _binary(name: str) -> Callable[..., str]:
    return lambda a, b: f"{name}({a},{b})"


def _sum(*parts: str) -> str:
    first, *rest = parts
    for part in rest:
        first = f"add({first},{part})"
    return first


def _round(value: str, digits: str = "None") -> Optional[str]:
    return f"int(round({value}))" if digits == "None" else None


_PYTHON: Dict[Any, Callable[..., Optional[str]]] = {
    operator.add: _binary("add"),
    operator.sub: _binary("sub"),
    operator.mul: _binary("mul"),
    operator.floordiv: _binary("floor_divide"),
    operator.truediv: _binary("div"),
    operator.mod: _binary("remainder"),
    operator.pow: _binary("pow"),
    operator.neg: _unary("neg"),
    operator.abs: _unary("abs"),
    # Of integers: those of booleans are comparisons.
    operator.and_: _binary("and"),
    operator.or_: _binary("or"),
    operator.xor: _binary("xor"),
    operator.lshift: _binary("lshift"),
    operator.rshift: _binary("rshift"),
    math.floor: lambda a: f"int(floor({a}))",
    math.ceil: lambda a: f"int(ceil({a}))",
    math.trunc: _unary("int"),
    round: _round,
    int: _unary("int"),
    abs: _unary("abs"),
    min: _binary("min"),
    max: _binary("max"),
}

_COMPARISONS: Dict[Any, str] = {
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.eq: "eq",
    operator.ne: "ne",
}

_OF_BOOLEANS: Dict[Any, str] = {operator.and_: "logical_and", operator.or_: "logical_or"}

_TORCH: Dict[str, Callable[..., str]] = {
    "sym_max": _binary("max"),
    "sym_min": _binary("min"),
    "sym_int": _unary("int"),
    "sym_float": lambda a: f"mul({a},1.0)",
    "sym_sum": _sum,
    "sym_sqrt": _unary("sqrt"),
    "_sym_sqrt": _unary("sqrt"),
}


def comparison(node: Any) -> Optional[Tuple[str, Any, Any]]:
    """What PyTorch calls a comparison of two sizes, or of two of these, and its arguments."""
    import torch

    function = _COMPARISONS.get(node.target)
    if isinstance(node.meta.get("val"), (bool, torch.SymBool)):
        function = function or _OF_BOOLEANS.get(node.target)
    return None if function is None else (function, *node.args)


def expression(node: Any, text: Callable[[Any], str]) -> Optional[str]:
    """The expression of a node that computes a size; ``text`` gives that of an argument. ``None``
    where PNNX has none."""
    try:
        make = _PYTHON.get(node.target)
    except TypeError:
        make = None
    make = make or _TORCH.get(getattr(node.target, "__name__", ""))
    if make is None:
        return None
    args = (
        node.args[0]
        if len(node.args) == 1 and isinstance(node.args[0], (list, tuple))
        else node.args
    )
    return make(*(text(arg) for arg in args))

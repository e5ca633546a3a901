"""What Python asks of sizes while a module is exported: PyTorch has it as expressions of SymPy, a
model as Python that is evaluated for the sizes of a call."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

_FUNCTIONS = {
    "math": math,
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "round": round,
}
"""What conditions call."""


def holds(condition: str, values: Mapping[str, int]) -> bool:
    """Whether a condition is true for these values; not where it makes no sense for them."""
    return bool(value(condition, values))


def value(expression: str, values: Mapping[str, int]) -> Any:
    """The value of an expression for these; ``None`` where it has none."""
    scope = {"__builtins__": {}, **_FUNCTIONS}
    try:
        return eval(_compiled(expression), scope, dict(values))
    except (ArithmeticError, NameError, TypeError, ValueError):
        return None  # divisions by 0, roots of negative numbers


def names(condition: str) -> List[str]:
    """The names in a condition, each once."""
    return list(dict.fromkeys(WORD.findall(condition)))


WORD = re.compile(r"[A-Za-z_]\w*")


@functools.lru_cache(maxsize=1024)
def _compiled(condition: str) -> Any:
    return compile(condition, "<sizes>", "eval")


_INFIX = {
    "Add": " + ",
    "Mul": "*",
    "Pow": " ** ",
    "FloatPow": " ** ",
    "PowByNatural": " ** ",
    "Mod": " % ",
    "PythonMod": " % ",
    "FloorDiv": " // ",
    "CleanDiv": " // ",
    "IntTrueDiv": " / ",
    "FloatTrueDiv": " / ",
    "LShift": " << ",
    "RShift": " >> ",
    "BitwiseFn_bitwise_and": " & ",
    "BitwiseFn_bitwise_or": " | ",
    "BitwiseFn_bitwise_xor": " ^ ",
    "And": " and ",
    "Or": " or ",
    "Equality": " == ",
    "Unequality": " != ",
    "LessThan": " <= ",
    "StrictLessThan": " < ",
    "GreaterThan": " >= ",
    "StrictGreaterThan": " > ",
}

_CALLS = {
    "Abs": "abs",
    "Max": "max",
    "Min": "min",
    "ToFloat": "float",
    "floor": "math.floor",
    "FloorToInt": "math.floor",
    "ceiling": "math.ceil",
    "CeilToInt": "math.ceil",
    "TruncToInt": "math.trunc",
    "RoundToInt": "round",
    "RoundDecimal": "round",
    **{
        f"OpaqueUnaryFn_{name}": f"math.{name}"
        for name in (
            "sqrt cos cosh sin sinh tan tanh asin acos atan exp log asinh log2"
        ).split()
    },
}

_OTHERS: Dict[str, Callable[..., str]] = {
    "Not": lambda a: f"not {a}",
    "TruncToFloat": lambda a: f"float(math.trunc({a}))",
    "CeilDiv": lambda a, b: f"-(-{a} // {b})",
    "ModularIndexing": lambda a, b, c: f"({a} // {b}) % {c}",
    "Where": lambda a, b, c: f"{b} if {a} else {c}",
    "BooleanTrue": lambda: "True",
    "BooleanFalse": lambda: "False",
    "Infinity": lambda: "math.inf",
    "IntInfinity": lambda: "math.inf",
    "NegativeInfinity": lambda: "-math.inf",
    "NegativeIntInfinity": lambda: "-math.inf",
}


def text(expression: Any) -> Optional[str]:
    """An expression of SymPy in Python; ``None`` where it has functions that only PyTorch has."""
    try:
        return _text(expression)
    except (KeyError, TypeError):
        return None


def _text(expression: Any) -> str:
    if expression.is_Symbol or expression.is_Integer:
        return str(expression)
    if expression.is_Rational:
        return f"{expression.p} / {expression.q}"
    if expression.is_Float:
        return repr(float(expression))
    kind = type(expression).__name__
    if kind == "Identity":
        return _text(expression.args[0])
    if kind in _CALLS:
        return f"{_CALLS[kind]}({', '.join(map(_text, expression.args))})"
    parts = [_inside(part) for part in expression.args]
    return _INFIX[kind].join(parts) if kind in _INFIX else _OTHERS[kind](*parts)


def _inside(expression: Any) -> str:
    """With parentheses where something stands for itself only with them."""
    found = _text(expression)
    alone = expression.is_Symbol or type(expression).__name__ in _CALLS
    return found if alone or found.replace(".", "").isdigit() else f"({found})"


Asked = List[Tuple[Any, bool]]
"""Expressions, and what PyTorch said."""


@contextlib.contextmanager
def asked() -> Iterator[Asked]:
    """Notes what the module's own Python asks of sizes that vary, in this thread. PyTorch keeps no
    record of what it answers by itself: it assumes that such a size is at least 2. One at a time:
    exports wait for each other."""
    import torch

    found: Asked = []
    answer = torch.SymBool.__bool__
    thread = threading.get_ident()

    def noted(self: Any) -> bool:
        result: bool = answer(self)
        # Code that PyTorch generates has no name of a module.
        name = sys._getframe(1).f_globals.get("__name__", "torch")
        if name.partition(".")[0] != "torch" and threading.get_ident() == thread:
            found.append((getattr(self.node, "expr", None), result))
        return result

    torch.SymBool.__bool__ = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        torch.SymBool.__bool__ = answer  # type: ignore[method-assign]

"""Sizes that a model is good for: those of the example, and where they vary within the bounds and
the conditions that the program was made under.

Python decides by sizes while a module is exported (``if x.shape[0] >= 4``), and sizes that do not
vary are numbers of the program. Nothing in the files says so: a session runs other shapes, and gives
what the program gives for them, which is not always what the module would.
"""

from __future__ import annotations

import functools
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from .. import _errors


class Varying(NamedTuple):
    """``factor`` times what varies, and ``offset``."""

    symbol: str
    factor: int = 1
    offset: int = 0


Size = Union[int, Varying, None]
"""``None`` where nothing is known."""


@dataclass
class Sizes:
    """What :meth:`check` holds shapes against. Without an entry an input may have any shape."""

    shapes: Dict[str, Tuple[Size, ...]] = field(default_factory=dict)
    """By operand."""
    names: Dict[str, str] = field(default_factory=dict)
    """What the caller calls what an operand is fed."""
    bounds: Dict[str, Tuple[int, Optional[int]]] = field(default_factory=dict)
    """The least and the largest value of what varies."""
    conditions: List[str] = field(default_factory=list)
    """What must be true besides, as Python has it, in names of what varies."""

    def check(self, feeds: Mapping[str, Any]) -> None:
        """Refuses arguments of other sizes."""
        values: Dict[str, int] = {}
        seen: Dict[str, str] = {}
        for operand, sizes in self.shapes.items():
            value = feeds[operand]
            shape = value.shape if hasattr(value, "shape") else np.shape(value)
            name = self.names[operand]
            if len(shape) != len(sizes):
                raise _errors.InputError(
                    f"{name!r} had {len(sizes)} dimension(s) when the module was exported, "
                    f"found {len(shape)}",
                    input=operand,
                    expected=f"{len(sizes)} dimension(s)",
                )
            for at, (found, size) in enumerate(zip(shape, sizes)):
                if isinstance(size, int) and found != size:
                    raise _refusal(operand, name, at, found, str(size), _ADVICE)
                if isinstance(size, Varying):
                    self._vary(values, seen, size, operand, name, at, found)
        for condition in self.conditions:
            if not _holds(condition, values):
                raise _errors.InputError(
                    f"the module was exported for sizes with {_shown(condition, seen)}, which is "
                    f"not so here: {_here(condition, seen, values)}; export it again with an "
                    "example of such sizes"
                )

    def _vary(
        self,
        values: Dict[str, int],
        seen: Dict[str, str],
        size: Varying,
        operand: str,
        name: str,
        at: int,
        found: int,
    ) -> None:
        """Notes the value of what varies, or refuses it."""
        symbol, factor, offset = size
        value, rest = divmod(found - offset, factor)
        if rest:
            expected = f"a multiple of {factor}" + (f" and {offset}" if offset else "")
            raise _refusal(operand, name, at, found, expected, "")
        if values.setdefault(symbol, value) != value:
            wanted = str(factor * values[symbol] + offset)
            raise _refusal(operand, name, at, found, wanted, f", as {seen[symbol]} says")
        here = f"{name}.shape[{at}]"
        seen.setdefault(
            symbol, here if size == Varying(symbol) else f"(({here} - {offset}) // {factor})"
        )
        least, most = self.bounds.get(symbol, (0, None))
        if value < least or (most is not None and value > most):
            low = factor * least + offset
            expected = f"at least {low}" if most is None else f"{low} to {factor * most + offset}"
            raise _refusal(operand, name, at, found, expected, _BOUNDS)


_ADVICE = ": export it with dynamic= where sizes vary"
_BOUNDS = ": export it again with an example of such a size"


def _refusal(
    operand: str, name: str, at: int, found: int, expected: str, advice: str
) -> _errors.InputError:
    return _errors.InputError(
        f"dimension {at} of {name!r} is {found}; the module was exported for {expected}{advice}",
        input=operand,
        expected=expected,
    )


def _holds(condition: str, values: Mapping[str, int]) -> bool:
    try:
        return bool(eval(_compiled(condition), {"__builtins__": {}, **_FUNCTIONS}, dict(values)))
    except ZeroDivisionError:
        return False


@functools.lru_cache(maxsize=1024)
def _compiled(condition: str) -> Any:
    return compile(condition, "<sizes>", "eval")


_FUNCTIONS = {"math": math, "abs": abs, "max": max, "min": min, "float": float, "int": int}
"""What conditions call."""

_WORD = re.compile(r"[A-Za-z_]\w*")


def _shown(condition: str, seen: Mapping[str, str]) -> str:
    """A condition in the caller's words."""
    return _WORD.sub(lambda word: seen.get(word[0], word[0]), condition)


def _here(condition: str, seen: Mapping[str, str], values: Mapping[str, int]) -> str:
    used = [symbol for symbol in dict.fromkeys(_WORD.findall(condition)) if symbol in seen]
    return ", ".join(f"{seen[symbol]} is {values[symbol]}" for symbol in used)


def of(program: Any) -> Sizes:
    """Those of a program of ``torch.export``, for the tensors that the caller gives."""
    import torch
    from torch.export.graph_signature import InputKind

    found = Sizes()
    given = {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT
    }
    symbols: Dict[str, int] = {}
    environment = None
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or node.name not in given:
            continue
        if not isinstance(value, torch.Tensor):
            continue
        sizes = []
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                environment = size.node.shape_env
            sizes.append(_size(size, symbols))
        found.shapes[node.name] = tuple(sizes)
    for expression, span in program.range_constraints.items():
        if str(expression) in symbols:
            # Below 2 sizes are special to PyTorch: it assumes 2, and runs the program with less.
            least, most = span.lower, span.upper
            low = int(least) if least.is_Integer and least > 2 else 0
            high = int(most) if most.is_Integer else None
            found.bounds[str(expression)] = (low, high)
    if environment is not None:
        found.conditions = _conditions(environment, symbols)
    return found


def _size(size: Any, symbols: Dict[str, int]) -> Size:
    """A size of an argument; ``symbols`` gets what varies in it, with its value in the example."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    free = list(expression.free_symbols)
    if len(free) != 1:
        return None
    (symbol,) = free
    offset = expression.subs(symbol, 0)
    factor = expression.subs(symbol, 1) - offset
    linear = factor.is_Integer and offset.is_Integer and factor > 0
    if not linear or expression.subs(symbol, 7) != factor * 7 + offset:
        return None
    if size.node.hint is not None:
        symbols[str(symbol)] = (int(size.node.hint) - int(offset)) // int(factor)
    return Varying(str(symbol), int(factor), int(offset))


def _is_layout(guard: Any) -> bool:
    """Whether PyTorch asked, and not the module, if a size is other than 1: by that it knows what is
    broadcast and how memory lies, which operators see for themselves in each run."""
    import torch

    expression = guard.expr
    if not (expression.is_Relational and expression.rel_op == "!=" and 1 in expression.args):
        return False
    where = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    file = getattr(where, "filename", None)
    return file is None or file.startswith(os.path.dirname(torch.__file__) + os.sep)


def _conditions(environment: Any, symbols: Mapping[str, int]) -> List[str]:
    """What Python asked of sizes, as far as it can be asked of those of a call: it is so for the
    example."""
    from torch.utils._sympy.printers import PythonPrinter

    found: List[str] = []
    for guard in environment.guards:
        if _is_layout(guard):
            continue
        expression = environment.replace(guard.expr)
        names = {str(symbol) for symbol in expression.free_symbols}
        if not names or not names <= symbols.keys():
            continue
        condition = PythonPrinter().doprint(expression)
        try:
            known = _holds(condition, symbols)
        except (NameError, SyntaxError, TypeError, ValueError):
            continue  # functions that only PyTorch has
        if known and condition not in found:
            found.append(condition)
    return found

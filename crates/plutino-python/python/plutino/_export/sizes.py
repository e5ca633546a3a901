"""Sizes that a model is good for: those of the example, and where they vary within the bounds and
the conditions that the program was made under.

Python decides by sizes while a module is exported (``if x.shape[0] >= 4``), and sizes that do not
vary are numbers of the program. Nothing in the files says so: a session runs other shapes, and gives
what the program gives for them, which is not always what the module would.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from .. import _errors
from . import conditions


class Varying(NamedTuple):
    """``factor`` times what varies, and ``offset``."""

    symbol: str
    factor: int = 1
    offset: int = 0


Size = Union[int, Varying, str, None]
"""An expression where several sizes decide; ``None`` where nothing is known."""


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
    assumed: List[str] = field(default_factory=list)
    """What PyTorch took for true, and the module asked."""

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
                    advice = _ADVICE + (_FIXED if size > 1 else _SMALL)
                    raise _refusal(operand, name, at, found, str(size), advice)
                if isinstance(size, Varying):
                    self._vary(values, seen, size, operand, name, at, found)
        for condition in (*self.conditions, *self.assumed):
            if not conditions.holds(condition, values):
                raise _errors.InputError(
                    f"the module was exported for sizes with {_shown(condition, seen)}, which is "
                    f"not so here: {_here(condition, seen, values)}; export it again with an "
                    "example of such sizes"
                )

    def hold(self, values: Mapping[str, int]) -> bool:
        """Whether all conditions are true for these values of what varies."""
        return all(conditions.holds(each, values) for each in (*self.conditions, *self.assumed))

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
        least, most = self.bounds.get(symbol, (1, None))
        if value < least or (most is not None and value > most):
            low = factor * least + offset
            expected = f"at least {low}" if most is None else f"{low} to {factor * most + offset}"
            raise _refusal(operand, name, at, found, expected, _BOUNDS)


_ADVICE = ": export it with dynamic= where sizes vary"
_FIXED = "; one that torch.export needs as a number stays that of the example"
_SMALL = " and an example in which they are at least 2"
_BOUNDS = ": export it again with an example of such a size"


def _refusal(
    operand: str, name: str, at: int, found: int, expected: str, advice: str
) -> _errors.InputError:
    return _errors.InputError(
        f"dimension {at} of {name!r} is {found}; the module was exported for {expected}{advice}",
        input=operand,
        expected=expected,
    )


def _shown(condition: str, seen: Mapping[str, str]) -> str:
    """A condition in the caller's words."""
    return conditions.WORD.sub(lambda word: seen.get(word[0], word[0]), condition)


def _here(condition: str, seen: Mapping[str, str], values: Mapping[str, int]) -> str:
    used = [symbol for symbol in conditions.names(condition) if symbol in seen]
    return ", ".join(f"{seen[symbol]} is {values[symbol]}" for symbol in used)


def of(program: Any, asked: conditions.Asked) -> Sizes:
    """Those of a program of ``torch.export``, for the tensors that the caller gives. ``asked``: what
    the module asked of sizes when it was exported."""
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
            # Whether 0 is as right as 1 mostly is has to be tried.
            least, most = span.lower, span.upper
            low = int(least) if least.is_Integer and least > 2 else 1
            high = int(most) if most.is_Integer else None
            found.bounds[str(expression)] = (low, high)
    if environment is not None:
        given = [each.expr for each in environment.guards if not _is_layout(each)]
        found.conditions = _conditions(given, environment, symbols)
        given = [
            expression if answer else ~expression
            for expression, answer in asked
            if hasattr(expression, "free_symbols")
        ]
        given += _squeezed(program)
        assumed = _conditions(given, environment, symbols)
        found.assumed = [each for each in assumed if each not in found.conditions]
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
        return conditions.text(expression)
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
    """Whether PyTorch asked, and not the module, if a size is other than 1, or at least 2: by that it
    knows what is broadcast and how memory lies, which operators see for themselves in each run."""
    import torch

    expression = guard.expr
    if not expression.is_Relational:
        return False
    other = expression.rel_op == "!=" and 1 in expression.args
    if not (other or (expression.rel_op == ">=" and expression.args[1] == 2)):
        return False
    where = getattr(getattr(guard, "sloc", None), "framework_loc", None)
    file = getattr(where, "filename", None)
    # What the module asked through the function that notes it is known.
    ours = (None, conditions.__file__)
    return file in ours or file.startswith(os.path.dirname(torch.__file__) + os.sep)


def _squeezed(program: Any) -> List[Any]:
    """That sizes which a squeeze would drop are other than 1: by the rank Python decides."""
    import torch

    found: List[Any] = []
    for node in program.graph.nodes:
        if node.op == "call_function" and str(node.target).startswith("aten.squeeze"):
            shape = node.args[0].meta["val"].shape
            dims = node.args[1] if len(node.args) > 1 else range(len(shape))
            for dim in (dims,) if isinstance(dims, int) else dims:
                if len(shape) and isinstance(shape[dim], torch.SymInt):
                    one = shape[dim] == 1
                    if isinstance(one, torch.SymBool):
                        found.append(~one.node.expr)
    return found


def _conditions(given: List[Any], environment: Any, symbols: Mapping[str, int]) -> List[str]:
    """What Python asked of sizes, so that it can be asked of those of a call. What cannot is true for
    the sizes of the example."""
    found: List[str] = []
    for expression in given:
        expression = environment.replace(expression)
        names = {str(symbol) for symbol in expression.free_symbols}
        known = sorted(names & symbols.keys())
        if not known or not all(name in symbols or name.startswith("s") for name in names):
            continue  # nothing varies, or with values of tensors, which the program checks
        condition = conditions.text(expression) if len(known) == len(names) else None
        if condition is None or not conditions.holds(condition, symbols):
            condition = " and ".join(f"{name} == {symbols[name]}" for name in known)
        if condition not in found:
            found.append(condition)
    return found

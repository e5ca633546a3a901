"""Branches of Python on data: taken as the example takes them, and checked in every run.

``if mask.any().item():`` is no part of a program. What such a call gives for the example is noted in
a run of the module, and given again while it is exported, so that the program has the branch that
the example takes. The tensor that was asked becomes a further result: a run for which it has another
value than it had is one of another program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from dataclasses import dataclass
from typing import Any, Iterator, List, NamedTuple, Tuple, Union

from .. import _errors

_ASKS = ("item", "__bool__", "__int__", "__index__")


class Assumption(NamedTuple):
    """What a model takes for granted, as it was for the example."""

    where: str
    """The line of Python that asks."""
    value: Union[bool, int]
    number: int
    """The output of the model that has this value where the assumption holds."""


@dataclass
class Noted:
    """What Python asked of a module's tensors, in order: where, and what the answer was."""

    answers: List[Tuple[str, Any]]

    @property
    def useful(self) -> List[Tuple[str, Union[bool, int]]]:
        """Those that decide something: a float is mostly a number of its own in every run."""
        return [(where, value) for where, value in self.answers if isinstance(value, (bool, int))]


def note(module: Any, call: Any) -> Noted:
    """Runs a module and notes what Python asks of its tensors."""
    import torch

    noted = Noted([])

    class Notes(torch.overrides.TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            if _asks(function):
                noted.answers.append((_where(), result))
            return result

    args, kwargs = call
    with torch.no_grad(), Notes():
        module(*args, **kwargs)
    return noted


@contextlib.contextmanager
def assumed(module: Any, noted: Noted) -> Iterator[None]:
    """Lets a module answer as it did; it returns its results, and the tensors that were asked."""
    import torch

    forward = module.forward
    own = "forward" in vars(module)

    class Answers(torch.overrides.TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.left = iter(noted.answers)
            self.asked: List[Any] = []

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if not _asks(function):
                return function(*args, **(kwargs or {}))
            where, value = next(self.left, ("", None))
            if where != _where():
                raise _errors.ExportError(
                    f"the module asks for other values when it is exported: {_where()}"
                )
            if not isinstance(value, (bool, int)):
                return function(*args, **(kwargs or {}))
            self.asked.append(args[0])
            return value

    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with Answers() as answers:
            results = forward(*args, **kwargs)
        return results, answers.asked

    module.forward = wrapped
    try:
        yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward


def check(assumptions: List[Assumption], results: Any) -> None:
    """Refuses results of a run for which something that was assumed is not so."""
    for where, value, number in assumptions:
        found = results[number].item()
        if found != value:
            raise _errors.InputError(
                f"for these inputs the module takes another branch than for the example it was "
                f"exported with: {where} gives {found!r}, and gave {value!r}"
            )


def _asks(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return name in _ASKS and getattr(function, "__objclass__", None) is not None


def _where() -> str:
    """The line outside of PyTorch that asks: ``modeling.py:549``."""
    for frame in reversed(traceback.extract_stack()):
        parts = frame.filename.replace(os.sep, "/").split("/")
        if "torch" not in parts and not frame.filename.endswith("_export/assume.py"):
            return f"{parts[-1]}:{frame.lineno}"
    return "?"

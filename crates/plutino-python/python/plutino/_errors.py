"""What plutino raises: a hierarchy under :class:`Error`, with the fields of the engine's errors."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Type


class Error(Exception):
    """What plutino raises. The message says what is wrong, where, and what would have been right.

    Fields that an error has nothing to say about are ``None``.
    """

    file: Optional[str] = None
    """The ``.param`` file (``<memory>`` or ``<graph>`` where the model came as bytes)."""
    line: Optional[int] = None
    """Line in that file, from 1."""
    operator: Optional[str] = None
    """Name of the operator, such as ``layer1.0.conv1``."""
    kind: Optional[str] = None
    """Its type, such as ``nn.Conv2d``."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_remake, (type(self), self.args, dict(self.__dict__)))


def _remake(cls: Type[Error], args: Tuple[Any, ...], fields: Dict[str, Any]) -> Error:
    return cls(*args, **fields)


class ModelError(Error, ValueError):
    """A model could not be loaded: its files are wrong."""

    column: Optional[int] = None
    """Column in that line, from 1."""


class ModelNotFound(ModelError, FileNotFoundError):
    """There is no model at the path, or no weights beside it."""

    tried: List[str] = []
    """The files that were looked for."""


class UnsupportedOperators(ModelError):
    """Operators of the model cannot be run: all of them are listed at once."""

    kinds: List[Tuple[str, int]] = []
    """Types without an implementation, each with its number of operators."""
    problems: List[str] = []
    """Operators of known types with something wrong in them."""


class OptionError(Error, ValueError):
    """An option, or an environment variable, has a value that makes no sense."""

    option: Optional[str] = None
    expected: Optional[str] = None


class InputError(Error, ValueError):
    """What is fed, or asked for, does not suit the model."""

    input: Optional[str] = None
    """Name of the operand."""
    expected: Optional[str] = None
    missing: List[str] = []
    """Inputs that are not fed and are needed."""
    instead: List[str] = []
    """Operands each of which could be fed instead."""


class StateError(InputError):
    """A :class:`State` cannot carry what it is to carry, or belongs to another model."""


class StoreError(InputError):
    """A :class:`Handle` names nothing any more, or something of another session; or what is to be
    kept is no single array."""


class OperatorError(Error):
    """An operator refuses the shapes, dtypes or values that reach it."""

    inputs: Optional[str] = None
    """Its inputs, as inferred."""


class Interrupted(Error):
    """The caller's limits ended the work."""

    done: int = 0
    """Steps that were finished."""
    steps: int = 0
    """Steps of the plan; 0 where it was still being made, or the model loaded."""


class Cancelled(Interrupted):
    """A :class:`CancelToken` was cancelled."""


class DeadlineExceeded(Interrupted, TimeoutError):
    """``timeout`` seconds have passed."""


class OutOfMemory(Error, MemoryError):
    """Memory is refused by the system."""

    needed: Optional[int] = None
    """Bytes."""


class BudgetExceeded(OutOfMemory):
    """More memory is needed than ``max_memory`` allows."""

    budget: Optional[int] = None
    """Bytes."""


class TooLarge(Error, ValueError):
    """A model or a plan exceeds a limit of size that keeps hostile files harmless."""


class InternalError(Error):
    """A defect of plutino: please report it."""


class ExportError(Error):
    """A module could not be written as a PNNX model."""

    reason: Optional[str] = None
    """What the exporter that was asked said."""


class MismatchError(ExportError):
    """An exported model does not compute what the module does."""

    error: Optional[float] = None
    """The largest error of an output, relative to its largest magnitude."""
    tolerance: Optional[float] = None
    """What it may be."""
    output: Optional[int] = None
    """Number of that output."""
    operators: List[Dict[str, Any]] = []
    """Operators that are wrong by themselves, the first one first, as :meth:`Session.isolate` has
    them; none where each is right on its own."""

"""PNNX graphs as they are written: operators, operands, weights, and the two files.

This module knows the format and nothing of PyTorch: a weight is anything with a shape, a dtype and
bytes.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .. import _errors

Path = Union[str, "os.PathLike[str]"]

Dim = Union[int, str, None]
"""A recorded size: known, the same wherever this name stands, or unknown."""

MAGIC = 7767517
OPEN_END = 2147483647
"""What slices write for "to the end"."""


@dataclass(frozen=True)
class Type:
    """What is recorded of an operand: a hint for whoever reads the file."""

    shape: Tuple[Dim, ...]
    dtype: str
    """PNNX's name: ``f32``, ``i64`` ..."""

    def __str__(self) -> str:
        def dim(size: Dim) -> str:
            return "?" if size is None else f"%{size}" if isinstance(size, str) else str(size)

        return f"({','.join(map(dim, self.shape))}){self.dtype}"


@dataclass(frozen=True)
class Weight:
    """Elements that go to the ``.bin`` file."""

    shape: Tuple[int, ...]
    dtype: str
    read: Callable[[], Any] = field(repr=False)
    """Gives the bytes, dense, in order and little-endian, when they are written."""


@dataclass
class Operator:
    kind: str
    name: str
    inputs: List[str]
    outputs: List[str]
    params: Dict[str, Any]
    weights: Dict[str, Weight]
    keys: List[Optional[str]]
    """What argument each input stands for; ``None`` where its place says so."""


class Graph:
    """Operators in the order of their computation."""

    def __init__(self) -> None:
        self.operators: List[Operator] = []
        self.types: Dict[str, Type] = {}
        self._names: Dict[str, int] = {}
        self._made: Dict[str, str] = {}

    def add(
        self,
        kind: str,
        name: str,
        inputs: Sequence[Union[str, Tuple[str, str]]] = (),
        outputs: Sequence[str] = (),
        params: Optional[Mapping[str, Any]] = None,
        weights: Optional[Mapping[str, Weight]] = None,
    ) -> Operator:
        """Adds an operator. An input is an operand, or a pair: the argument and its operand. A name
        that is taken gets a number."""
        pairs = [(None, i) if isinstance(i, str) else i for i in inputs]
        operator = Operator(
            kind,
            self.free_name(name),
            [operand for _, operand in pairs],
            list(outputs),
            dict(params or {}),
            dict(weights or {}),
            [key for key, _ in pairs],
        )
        for operand in operator.inputs:
            if operand not in self._made:
                raise _errors.InternalError(f"{operator.name} reads '{operand}' before it is made")
        for operand in operator.outputs:
            if operand in self._made:
                raise _errors.InternalError(f"{operator.name} makes '{operand}' a second time")
            self._made[operand] = operator.name
        self.operators.append(operator)
        return operator

    def free_name(self, name: str) -> str:
        """This name as the format allows it, with a number where another operator has it."""
        name = "".join("_" if c.isspace() or c in "=@#$" else c for c in name) or "operator"
        count = self._names.get(name)
        self._names[name] = 1 if count is None else count + 1
        return name if count is None else self.free_name(f"{name}_{count}")

    def operand_names(self) -> Iterable[str]:
        return self._made.keys()

    def text(self) -> str:
        """The ``.param`` file."""
        lines = [str(MAGIC), f"{len(self.operators)} {len(self._made)}"]
        lines += [self._line(operator) for operator in self.operators]
        return "\n".join(lines) + "\n"

    def _line(self, operator: Operator) -> str:
        words = [
            operator.kind,
            operator.name,
            str(len(operator.inputs)),
            str(len(operator.outputs)),
        ]
        words += operator.inputs + operator.outputs
        words += [f"{key}={literal(value)}" for key, value in operator.params.items()]
        words += [f"@{key}={Type(w.shape, w.dtype)}" for key, w in operator.weights.items()]
        pairs = zip(operator.keys, operator.inputs)
        words += [f"${key}={operand}" for key, operand in pairs if key is not None]
        recorded = dict.fromkeys(operator.inputs + operator.outputs)
        words += [
            f"#{operand}={self.types[operand]}" for operand in recorded if operand in self.types
        ]
        for word in words:
            if not word or any(c.isspace() for c in word):
                raise _errors.ExportError(
                    f"PNNX has no way to write {word!r}, of {operator.kind} '{operator.name}'",
                    operator=operator.name,
                    kind=operator.kind,
                )
        return " ".join(words)

    def save(self, param: Path, bin: Path) -> None:
        """Writes both files; weights one after the other, so that none is held twice."""
        text = self.text()
        with zipfile.ZipFile(bin, "w", zipfile.ZIP_STORED) as archive:
            for operator in self.operators:
                for key, weight in operator.weights.items():
                    data = memoryview(weight.read()).cast("B")
                    entry = zipfile.ZipInfo(f"{operator.name}.{key}", (1980, 1, 1, 0, 0, 0))
                    entry.file_size = data.nbytes
                    with archive.open(entry, "w") as file:
                        file.write(data)
        with open(param, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)


def literal(value: Any) -> str:
    """A parameter as the format writes it."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)  # the shortest digits that give the same number; inf and nan are words
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    if isinstance(value, complex):
        return f"({literal(value.real)}{'' if value.imag < 0 else '+'}{literal(value.imag)}j)"
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(literal, value))})"
    raise _errors.ExportError(f"PNNX has no way to write {value!r}")

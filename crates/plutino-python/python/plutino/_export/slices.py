"""Slices of slices, ``x[a:b, c:d:2]``: the program has one call for each dimension, a file one operator for all,
which copies once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from . import calls
from .graph import OPEN_END
from .modules import Arguments

Bounds = Tuple[int, int, int, int]
"""Dimension, start, end and step."""


@dataclass(frozen=True)
class Part:
    """A part of a value, sliced in this order."""

    source: Any
    bounds: Tuple[Bounds, ...]

    def params(self) -> Dict[str, Any]:
        """The parameters of ``Tensor.slice``."""
        dims, starts, ends, steps = zip(*self.bounds)
        selects = (OPEN_END,) * len(dims)
        return {"dims": dims, "starts": starts, "ends": ends, "steps": steps, "selects": selects}


def part(node: Any, parts: Mapping[Any, Part]) -> Optional[Part]:
    """The part that a call takes, of what the slices in ``parts`` before it were taken of; ``None``
    where it is no slice between bounds that are known."""
    bounds = _bounds(node)
    if bounds is None:
        return None
    source = calls.arguments(node)["input"]
    before = parts.get(source)
    return Part(source, (bounds,)) if before is None else Part(before.source, (*before.bounds, bounds))


def is_slice(node: Any) -> bool:
    """Whether :func:`part` knows this node."""
    return _bounds(node) is not None


def _bounds(node: Any) -> Optional[Bounds]:
    schema = getattr(node.target, "_schema", None)
    if not calls.is_call(node) or schema is None or schema.name != "aten::slice":
        return None
    arguments: Arguments = calls.arguments(node)
    start, end = arguments["start"], arguments["end"]
    start, end = 0 if start is None else start, OPEN_END if end is None else calls.end(end)
    found = [arguments["dim"], start, end, arguments["step"]]
    if not all(type(each) is int for each in found):
        return None
    dim, start, end, step = found
    return dim, start, end, step

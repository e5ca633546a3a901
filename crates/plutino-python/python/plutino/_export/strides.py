"""``as_strided``, which reads the memory that its input lies in, by strides.

A file says nothing of strides. Whoever runs it can follow those of PyTorch from operator to
operator, as far as each says what it does to them; here every value has its own. So the input is
written as a copy in the order of its memory, whose strides anybody knows.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from .modules import Arguments


class Reading(NamedTuple):
    """What ``as_strided`` reads of its input."""

    order: List[int]
    """Dimensions of the input as they lie in memory, the outermost first."""
    size: List[int]
    stride: List[int]
    offset: int
    """The first element, counted from the input's own."""

    def params(self) -> Dict[str, Any]:
        params: Dict[str, Any] = {"size": self.size, "stride": self.stride}
        return {**params, "storage_offset": self.offset} if self.offset else params


def reading(arguments: Arguments) -> Optional[Reading]:
    """What is read; ``None`` where sizes vary, or where elements are read that are none of the
    input's: of memory that it is only a part of."""
    value = arguments["input"].meta["val"]
    known = [*value.shape, *value.stride(), value.storage_offset()]
    size, stride = list(arguments["size"]), list(arguments["stride"])
    start = arguments["storage_offset"]
    start = value.storage_offset() if start is None else start
    if not all(type(each) is int for each in [*known, *size, *stride, start]):
        return None
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), -value.shape[d]))
    step = 1
    for dim in reversed(order):
        if value.shape[dim] != 1 and value.stride(dim) != step:
            return None  # memory between its elements, or elements that are read twice
        step *= value.shape[dim]
    offset = start - value.storage_offset()
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    if offset < 0 or (last >= step and 0 not in size):
        return None
    return Reading(order, size, stride, offset)

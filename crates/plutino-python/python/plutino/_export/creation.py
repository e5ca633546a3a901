"""Tensors that are made of nothing but a shape: then what follows from them can be computed once."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import dtypes
from .modules import Arguments

_VALUES: Dict[str, Any] = {
    "new_zeros": 0,
    "new_ones": 1,
    "zeros_like": 0,
    "ones_like": 1,
    "new_full": None,
    "full_like": None,
}


def as_full(function: str, arguments: Arguments, value: Any) -> Optional[Dict[str, Any]]:
    """The arguments of ``aten::full`` that make the same tensor; ``None`` where it takes after
    another tensor, whose sizes vary."""
    if function not in _VALUES:
        return None
    fill = _VALUES[function]
    fill = arguments["fill_value"] if fill is None else fill
    size = arguments.get("size", list(value.shape))
    known = all(isinstance(each, int) or hasattr(each, "all_input_nodes") for each in size)
    if not known or hasattr(fill, "all_input_nodes"):
        return None
    return {"size": size, "fill_value": fill, "dtype": dtypes.word(value.dtype)}

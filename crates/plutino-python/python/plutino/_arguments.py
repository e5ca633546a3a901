"""Arguments held to what they must be, before anything is done with them."""

from __future__ import annotations

import operator
import os
import sys
from typing import Any, List, Optional

import numpy as np

from . import _errors

MOST = 2 * sys.maxsize + 1
"""The largest number that the native half takes."""


def short(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 40:
        return f"{len(value)} bytes"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:60] + "..."


def refusal(name: str, expected: str, found: Any) -> _errors.OptionError:
    """The error for an argument, or a part of one, that is something else than expected."""
    message = f"{name} must be {expected}, found {short(found)}"
    return _errors.OptionError(message, option=name.partition("[")[0], expected=expected)


def whole(value: Any) -> Optional[int]:
    """An integer, of NumPy's as well; ``None`` for what is none. (Truth is no number.)"""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def number(name: str, value: Any, most: int = MOST) -> int:
    """An integer from 0 on."""
    found = whole(value)
    if found is None or not 0 <= found <= most:
        raise refusal(name, f"a number, not negative and at most {most}", value)
    return found


def real(name: str, value: Any, expected: str) -> float:
    """A number that is not negative."""
    try:
        if isinstance(value, (bool, str, bytes, bytearray)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise refusal(name, expected, value) from None
    if not found >= 0:  # NaN as well
        raise refusal(name, expected, value)
    return found


def path(name: str, value: Any, expected: str = "a string or an os.PathLike") -> str:
    """A path as text. To ``open`` a number is a file that is open already."""
    try:
        return os.fsdecode(os.fspath(value))
    except TypeError:
        raise refusal(name, expected, value) from None


def is_text(value: Any) -> bool:
    """Whether the native half takes it: halves of characters are no text to it."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def names(argument: str, found: Any) -> List[str]:
    """Names of operands: one, or several."""
    expected = "a name, or a list of names"
    try:
        listed = [found] if isinstance(found, str) else list(found)
    except TypeError:
        listed = [None]
    if not all(map(is_text, listed)):
        message = f"{argument} must be {expected}, found {short(found)}"
        raise _errors.InputError(message, expected=expected)
    return listed

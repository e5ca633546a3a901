"""Arrays in and out: what is fed as bytes that lie in order, what comes out as arrays of NumPy."""

from __future__ import annotations

import sys
from typing import Any, List, Optional, Tuple

import numpy as np

from . import _errors
from ._arguments import short

Feed = Tuple[str, str, List[int], "np.ndarray[Any, np.dtype[np.uint8]]"]
"""Operand, PNNX's name of the dtype, shape, bytes."""

NAMES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "c64",
    "complex128": "c128",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}

DTYPES = tuple(NAMES)
"""Dtypes of NumPy (and ``ml_dtypes``) that operands may have."""


def dtype_name(name: Optional[str]) -> Optional[str]:
    """NumPy's name of a dtype that PNNX calls so. (It has none for pairs of halves.)"""
    return None if name is None else _DTYPES.get(name, name)


def _bfloat16() -> Optional["np.dtype[Any]"]:
    """The dtype, where ``ml_dtypes`` is installed."""
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def pnnx_name(dtype: Any) -> str:
    """PNNX's name of a dtype of NumPy, or of its name."""
    try:
        name = NAMES.get(str(dtype)) or NAMES.get(np.dtype(dtype).name)
    except TypeError:
        name = None
    if name is None:
        raise _errors.InputError(
            f"there is no dtype '{dtype}' in PNNX models; there are {', '.join(NAMES)}"
        )
    return name


def _torch_bfloat16(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.Tensor) and data.dtype == torch.bfloat16


def to_array(data: Any, recorded: Optional[str]) -> Tuple["np.ndarray[Any, Any]", str]:
    """An array of what is fed, and PNNX's name of its dtype. Copies nothing that NumPy can share.

    Numbers and lists of them have no dtype of their own: they take that of the file, where it has
    all of them.
    """
    if isinstance(data, np.ndarray):
        if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
            raise _errors.InputError("elements of the array are masked: feed what filled() gives")
        array = np.asarray(data)
    elif _torch_bfloat16(data):  # which neither NumPy nor its DLPack knows
        torch = sys.modules["torch"]
        return data.detach().cpu().contiguous().view(torch.int16).numpy(), "bf16"
    elif hasattr(data, "detach") and hasattr(data, "__array__"):
        data = data.detach()  # a tensor of PyTorch that may want its gradient
        if hasattr(data, "resolve_conj"):  # and may be read as something else than what lies there
            data = data.resolve_conj().resolve_neg()
        array = np.asarray(data)
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        array = np.asarray(data)
    elif hasattr(data, "__dlpack__"):
        array = np.from_dlpack(data)
    else:
        array = _numbers(data, recorded)
    return array, pnnx_name(array.dtype)


_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
"""Each kind of numbers has those before."""


def _numbers(data: Any, recorded: Optional[str]) -> "np.ndarray[Any, Any]":
    """An array of a number, or of lists of numbers, of the dtype that the file records."""
    found = np.asarray(data)
    if found.dtype.kind not in _KINDS and found.dtype.name not in NAMES:
        raise _errors.InputError(
            f"it must be an array, or numbers of 64 bits, or lists of these, found {short(data)}"
        )
    plain = _DTYPES.get(recorded or "")
    if plain is None:
        return found
    if plain == "bfloat16":
        narrow = _bfloat16()
        wanted, kind = np.dtype(np.float32) if narrow is None else narrow, "f"
    else:
        wanted = np.dtype(plain)
        kind = wanted.kind
    if found.size == 0 or _KINDS.get(found.dtype.kind, 2) <= _KINDS[kind]:
        with np.errstate(over="ignore"):
            array = found.astype(wanted)
        # Whole numbers stay what they are; others are rounded, but not to infinity.
        seen = (np.isfinite(array), np.isfinite(found)) if kind in "fc" else (array, found)
        if np.array_equal(*seen):
            return array
    raise _errors.InputError(
        f"the file has {plain}, which does not have all of {short(data)}", expected=recorded
    )


def feed(operand: str, data: Any, recorded: Optional[str]) -> Feed:
    """What the native half takes. Read in place where elements are dense, in order and aligned;
    copied once where they are not."""
    try:
        array, name = to_array(data, recorded)
    except _errors.InputError as error:
        message = f"operand '{operand}' cannot be fed: {error}"
        raise _errors.InputError(message, input=operand, expected=error.expected) from None
    except (TypeError, ValueError, BufferError, RuntimeError, OverflowError) as error:
        raise _errors.InputError(
            f"operand '{operand}' cannot be fed: {error}", input=operand
        ) from error
    shape = list(array.shape)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = np.array(array, order="C", copy=True)
    return operand, name, shape, array.reshape(-1).view(np.uint8)


def again(operand: str, memory: Any) -> Feed:
    """What is fed to have this result again, bit by bit."""
    array = np.asarray(memory)
    shape = array.shape[:-1] if memory.dtype == "c32" else array.shape  # pairs of halves
    return operand, memory.dtype, list(shape), array.reshape(-1).view(np.uint8)


def result(memory: Any) -> "np.ndarray[Any, Any]":
    """The array of a result: in the memory that the run wrote to."""
    array = np.asarray(memory)
    if memory.dtype == "bf16":
        bfloat16 = _bfloat16()
        if bfloat16 is not None:
            return array.view(bfloat16)
        # Without the dtype the exact values: the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def writable(out: Any, where: str) -> None:
    """Refuses what no result can be copied to; asked before the run, which may take long."""
    if not isinstance(out, np.ndarray):
        raise _errors.InputError(f"{where} must be an array, found {type(out).__name__}")
    if not out.flags.writeable:
        raise _errors.InputError(f"{where} must be an array to write to: this one is read-only")


def store(out: "np.ndarray[Any, Any]", array: "np.ndarray[Any, Any]", name: str) -> Any:
    """Copies a result to the array that the caller has for it."""
    if out.shape != array.shape or out.dtype != array.dtype:
        raise _errors.InputError(
            f"out for '{name}' must be {array.dtype} of shape {array.shape}, "
            f"found {out.dtype} of shape {out.shape}",
            input=name,
        )
    np.copyto(out, array)
    return out

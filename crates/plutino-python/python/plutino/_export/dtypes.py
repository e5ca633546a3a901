"""Dtypes and tensors of PyTorch in PNNX's terms."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from .. import _arrays, _errors
from .graph import Weight

_PNNX = {**_arrays.NAMES, "complex32": "c32"}
"""NumPy has no name for the last."""

_WORDS = {
    "float32": "torch.float",
    "float64": "torch.double",
    "float16": "torch.half",
    "int64": "torch.long",
    "int32": "torch.int",
    "int16": "torch.short",
}


def _plain(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def pnnx_dtype(dtype: Any) -> str:
    """``f32`` for ``torch.float32``."""
    name = _PNNX.get(_plain(dtype))
    if name is None:
        raise _errors.ExportError(f"PNNX has no tensors of {dtype}; it has {', '.join(_PNNX)}")
    return name


def word(dtype: Any) -> str:
    """A dtype as a parameter: ``torch.float``."""
    return _WORDS.get(_plain(dtype), str(dtype))


def weight(tensor: Any) -> Weight:
    """A tensor that goes to the file, read when it is written."""
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized:
        raise _errors.ExportError(f"a weight is {tensor.layout}, quantised or sparse: not exported")
    dtype = pnnx_dtype(tensor.dtype)

    def read() -> Any:
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return dense.reshape(-1).view(torch.uint8).numpy() if dense.numel() else b""

    return Weight(tuple(int(size) for size in tensor.shape), dtype, read)


def identity(tensor: Any) -> Tuple[Any, ...]:
    """Equal for tensors that are one: tied weights."""
    if tensor.numel() == 0:
        return (id(tensor),)
    storage = tensor.untyped_storage().data_ptr() if hasattr(tensor, "untyped_storage") else 0
    read = (tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), *read)


NUMPY: Dict[str, str] = {pnnx: name for name, pnnx in _PNNX.items()}
"""PyTorch's and NumPy's names by PNNX's."""

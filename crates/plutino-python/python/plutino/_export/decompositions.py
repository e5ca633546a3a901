"""Operators that a file has none for, as others: what ``run_decompositions`` is given.

Each is called for every use of its operator, and leaves those alone which need nothing.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Optional, Sequence

Table = Dict[Any, Callable[..., Any]]


def table() -> Table:
    """By operator what computes it: a table of the caller's own."""
    import torch

    aten = torch.ops.aten
    found: Table = {
        aten.conv_tbc.default: _conv_tbc,
        aten.linalg_tensorinv.default: _tensorinv,
        aten.linalg_tensorsolve.default: _tensorsolve,
        aten.as_strided_scatter.default: _as_strided_scatter,
        aten.index_fill.int_Scalar: _index_fill,
        aten.full_like.default: _full_like,
        aten.unfold_backward.default: _unfold_backward,
        aten.gradient.tensorarrayint: _gradient,
        aten.gradient.tensorarray: _gradient,
        aten.full.default: _full,
        aten.fill.Scalar: _fill,
        aten.masked_fill.Scalar: _masked_fill,
        aten.eq.Scalar: lambda x, value: _compared(aten.eq.Tensor, x, value),
        aten.ne.Scalar: lambda x, value: _compared(aten.ne.Tensor, x, value),
    }
    # Norms by the statistics of the batch, which parts of a module may want that are training.
    found.update(torch._decomp.get_decompositions([aten._native_batch_norm_legit_functional]))
    for overload in ("Scalar", "ScalarSelf", "ScalarOther"):
        found[getattr(aten.where, overload)] = _where
    for name in ("addmm", "baddbmm", "addbmm", "addmv", "addr"):
        found[getattr(aten, name).default] = _added_product(name)
    for name, make in _OF_COMPLEX.items():
        spread = ("default", "dim", "correction")
        several = spread if name.startswith(("var", "std")) else ("default",)
        for overload in several:
            found[getattr(getattr(aten, name), overload)] = _of_complex(make)
    return found


# Of complex numbers

_OF_COMPLEX: Dict[str, Callable[..., Any]] = {
    "isfinite": lambda x: x.real.isfinite() & x.imag.isfinite(),
    "isinf": lambda x: x.real.isinf() | x.imag.isinf(),
    "nan_to_num": lambda x, *args: _parts(lambda part: part.nan_to_num(*args), x),
    "sigmoid": lambda x: _sigmoid(x),
    "tanh": lambda x: -1j * (1j * x).tan(),
    "var": lambda x, *args, **options: _variance(x, *args, **options),
    "std": lambda x, *args, **options: _variance(x, *args, **options).sqrt(),
    "var_mean": lambda x, *args, **options: (_variance(x, *args, **options), _mean(x, *args, **options)),
    "std_mean": lambda x, *args, **options: (
        _variance(x, *args, **options).sqrt(),
        _mean(x, *args, **options),
    ),
    "silu": lambda x: x * _sigmoid(x),
}


def _of_complex(make: Callable[..., Any]) -> Callable[..., Any]:
    def decomposed(x: Any, *args: Any, **options: Any) -> Any:
        return make(x, *args, **options) if x.is_complex() else NotImplemented

    return decomposed


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + (-x).exp())


def _parts(function: Callable[[Any], Any], x: Any) -> Any:
    import torch

    return torch.complex(function(x.real), function(x.imag))


def _variance(x: Any, *args: Any, **options: Any) -> Any:
    import torch

    return torch.var(x.real, *args, **options) + torch.var(x.imag, *args, **options)


def _mean(x: Any, dim: Any = None, *_: Any, keepdim: bool = False, **__: Any) -> Any:
    """The mean of what has this variance; ``unbiased`` may stand where ``dim`` does."""
    dim = None if isinstance(dim, bool) or dim is None else list(dim)
    return x.mean(dim or tuple(range(x.dim())), keepdim)


# Complex numbers among parameters


def _number(value: complex, dtype: Any) -> Any:
    """A number as a tensor: the parameters of operators are real."""
    import torch

    parts = (torch.full((), part, dtype=dtype.to_real()) for part in (value.real, value.imag))
    return torch.complex(*parts)


def _full(size: Sequence[Any], value: Any, *, dtype: Any = None, **places: Any) -> Any:
    import torch

    if not isinstance(value, complex):
        return NotImplemented
    dtype = torch.get_default_dtype().to_complex() if dtype is None else dtype
    return _number(value, dtype).expand(size)


def _fill(x: Any, value: Any) -> Any:
    if not isinstance(value, complex):
        return NotImplemented
    return _number(value, x.dtype).expand(x.shape)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    import torch

    if not isinstance(value, complex):
        return NotImplemented
    return torch.masked_fill(x, mask, _number(value, x.dtype))


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    import torch

    if not isinstance(value, complex):
        return NotImplemented
    return torch.index_fill(x, dim, index, _number(value, x.dtype))


def _full_like(x: Any, value: Any, *, dtype: Any = None, **places: Any) -> Any:
    if not isinstance(value, complex):
        return NotImplemented
    return _number(value, x.dtype if dtype is None else dtype).expand(x.shape)


def _added_product(name: str) -> Callable[..., Any]:
    import torch

    product = {
        "addmm": torch.mm,
        "baddbmm": torch.bmm,
        "addbmm": lambda a, b: torch.bmm(a, b).sum(0),
        "addmv": torch.mv,
        "addr": torch.outer,
    }[name]

    def decomposed(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        if not isinstance(beta, complex) and not isinstance(alpha, complex):
            return NotImplemented
        return beta * x + alpha * product(a, b)

    return decomposed


def _compared(function: Any, x: Any, value: Any) -> Any:
    import torch

    if not isinstance(value, complex):
        return NotImplemented
    return function(x, _number(value, torch.result_type(x, value)))


def _where(condition: Any, one: Any, other: Any) -> Any:
    import torch

    if not isinstance(one, complex) and not isinstance(other, complex):
        return NotImplemented
    dtype = torch.result_type(one, other)
    pair = (
        _number(complex(each), dtype) if isinstance(each, (int, float, complex)) else each.to(dtype)
        for each in (one, other)
    )
    return torch.where(condition, *pair)


# Others


def _as_strided_scatter(
    x: Any, source: Any, size: Any, stride: Any, storage_offset: Any = None
) -> Any:
    """What ``fill_diagonal_`` becomes: a view of the memory is written."""
    import torch

    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented
    places = torch.arange(x.numel()).as_strided(size, stride, storage_offset or 0)
    return torch.put(x, places, source)


def _gradient(x: Any, *, spacing: Sequence[Any], dim: Any = None, edge_order: int = 1) -> Any:
    """Along dimensions whose coordinates are tensors; a constant spacing has an operator."""
    import torch

    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    parts = []
    for at, place in zip(dims, spacing):
        f = x.movedim(at, -1)
        before, after = place.diff()[:-1], place.diff()[1:]
        both = before + after
        a, b, c = -after / (before * both), (after - before) / (before * after), before / (after * both)
        inner = a * f[..., :-2] + b * f[..., 1:-1] + c * f[..., 2:]
        if edge_order == 1:
            slopes = f.diff() / place.diff()
            first, last = slopes[..., :1], slopes[..., -1:]
        else:
            p, q, r = before[:1], after[:1], both[:1]
            weights = -(p + r) / (p * r), r / (p * q), -p / (q * r)
            first = sum(w * f[..., i : i + 1] for i, w in enumerate(weights))
            p, q, r = before[-1:], after[-1:], both[-1:]
            weights = q / (p * r), -r / (p * q), (q + r) / (q * r)
            last = sum(w * f[..., i : i + 1] for i, w in enumerate(weights, f.shape[-1] - 3))
        parts.append(torch.cat([first, inner, last], -1).movedim(-1, at))
    return parts


def _unfold_backward(x: Any, sizes: Sequence[Any], dim: int, size: int, step: int) -> Any:
    """What writing to the windows of ``Tensor.unfold`` becomes: their sum, each in its place."""
    import torch

    dim %= len(sizes)
    windows = x.movedim(-1, dim + 1).flatten(dim, dim + 1)
    starts = torch.arange(x.shape[dim]) * step
    places = (starts[:, None] + torch.arange(size)).flatten()
    return torch.zeros(sizes, dtype=x.dtype).index_add(dim, places, windows)


def _conv_tbc(x: Any, weight: Any, bias: Any, padding: int = 0) -> Any:
    import torch

    x, weight = x.permute(1, 2, 0), weight.permute(2, 1, 0)
    return torch.conv1d(x, weight, bias, padding=padding).permute(2, 0, 1)


def _tensorinv(x: Any, ind: int = 2) -> Any:
    import torch

    rows, columns = x.shape[:ind], x.shape[ind:]
    matrix = x.reshape(math.prod(rows), math.prod(columns))
    return torch.linalg.inv(matrix).reshape(*columns, *rows)


def _tensorsolve(x: Any, other: Any, dims: Optional[Sequence[int]] = None) -> Any:
    import torch

    if dims is not None:
        x = x.movedim(dims, tuple(range(x.dim() - len(dims), x.dim())))
    columns = x.shape[other.dim() :]
    matrix = x.reshape(math.prod(other.shape), math.prod(columns))
    return torch.linalg.solve(matrix, other.reshape(-1)).reshape(columns)

"""Sizes of 1: PyTorch assumes that what varies is at least 2, so that a program says nothing of what the
module would do with less. Where the module asked, both are run with such sizes."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping

from . import conditions
from .sizes import Sizes, Varying


def settle(sizes: Sizes, call: Any, feeds: Mapping[str, Any], right: Callable[[Any], bool]) -> None:
    """Drops what was assumed of sizes and makes no difference: where ``right`` says so of the same
    call with sizes of 1. ``feeds``: its tensors by operand."""
    known: Dict[str, bool] = {}

    def is_right(values: Dict[str, int]) -> bool:
        key = str(sorted(values.items()))
        if key not in known:
            known[key] = right(_narrowed(sizes, call, feeds, values))
        return known[key]

    example = _example(sizes, feeds)
    kept = []
    for condition in sizes.assumed:
        tried = [
            ones
            for ones in _ones(condition, example)
            if not conditions.holds(condition, {**example, **ones})
        ]
        if not tried or not all(map(is_right, tried)):
            kept.append(condition)
    sizes.assumed = kept


def _ones(condition: str, example: Mapping[str, int]) -> Iterator[Dict[str, int]]:
    """Each of what varies in a condition as 1, and all."""
    names = [name for name in conditions.names(condition) if name in example]
    for name in names:
        yield {name: 1}
    if len(names) > 1:
        yield dict.fromkeys(names, 1)


def _example(sizes: Sizes, feeds: Mapping[str, Any]) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for operand, shape in sizes.shapes.items():
        for at, size in enumerate(shape):
            if isinstance(size, Varying):
                found[size.symbol] = (feeds[operand].shape[at] - size.offset) // size.factor
    return found


def _narrowed(
    sizes: Sizes, call: Any, feeds: Mapping[str, Any], values: Mapping[str, int]
) -> Any:
    """A call with these values of what varies: the beginning of each tensor."""
    from torch.utils import _pytree as pytree

    operands = {id(tensor): operand for operand, tensor in feeds.items()}

    def narrowed(leaf: Any) -> Any:
        for at, size in enumerate(sizes.shapes.get(operands.get(id(leaf), ""), ())):
            if isinstance(size, Varying) and size.symbol in values:
                leaf = leaf.narrow(at, 0, size.factor * values[size.symbol] + size.offset)
        return leaf

    leaves, spec = pytree.tree_flatten(call)
    found: List[Any] = [narrowed(leaf) for leaf in leaves]
    return pytree.tree_unflatten(found, spec)

"""Sizes below 2: PyTorch assumes that what varies is at least 2, so that a program says nothing of
what the module would do with less. Module and model are run with such sizes, and those for which
they differ are refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

from . import conditions
from .sizes import Sizes, Varying

Values = Dict[str, int]
"""Of what varies, by symbol."""


def settle(
    sizes: Sizes, call: Any, feeds: Mapping[str, Any], compare: Callable[[Any], Optional[bool]]
) -> None:
    """Drops what was assumed of sizes and makes no difference, and keeps to what varies the bounds
    within which none is known.

    ``compare`` says whether module and model give the same for the same call with smaller sizes;
    nothing where that is not known, as the module refuses it. ``feeds``: its tensors by operand.
    """
    known: Dict[str, Optional[bool]] = {}
    example = _example(sizes, feeds)

    def same(values: Values) -> Optional[bool]:
        key = str(sorted(values.items()))
        if key not in known:
            known[key] = compare(_narrowed(sizes, call, feeds, {**example, **values}))
        return known[key]

    kept = []
    for condition in sizes.assumed:
        tried = [
            ones
            for ones in _ones(condition, example)
            if not conditions.holds(condition, {**example, **ones})
        ]
        if not tried or not all(map(same, tried)):
            kept.append(condition)
    sizes.assumed = kept
    for symbol in example:
        least, most = sizes.bounds.get(symbol, (1, None))
        if least > 1:
            continue
        # A size of 1 is taken unless it is known to be wrong, one of 0 if it is known to be right.
        if sizes.hold({**example, symbol: 1}) and same({symbol: 1}) is False:
            least = 2
        elif sizes.hold({**example, symbol: 0}) and same({symbol: 0}):
            least = 0
        sizes.bounds[symbol] = (least, most)


def _ones(condition: str, example: Values) -> Iterator[Values]:
    """Each of what varies in a condition as 1, and all."""
    names = [name for name in conditions.names(condition) if name in example]
    for name in names:
        yield {name: 1}
    if len(names) > 1:
        yield dict.fromkeys(names, 1)


def _example(sizes: Sizes, feeds: Mapping[str, Any]) -> Values:
    found: Values = {}
    for operand, shape in sizes.shapes.items():
        for at, size in enumerate(shape):
            if isinstance(size, Varying):
                found[size.symbol] = (feeds[operand].shape[at] - size.offset) // size.factor
    return found


def _narrowed(sizes: Sizes, call: Any, feeds: Mapping[str, Any], values: Values) -> Any:
    """A call with these values of what varies: the beginning of each tensor."""
    from torch.utils import _pytree as pytree

    operands = {id(tensor): operand for operand, tensor in feeds.items()}

    def narrowed(leaf: Any) -> Any:
        for at, size in enumerate(sizes.shapes.get(operands.get(id(leaf), ""), ())):
            wanted = None
            if isinstance(size, Varying):
                wanted = size.factor * values[size.symbol] + size.offset
            elif isinstance(size, str):
                wanted = conditions.value(size, values)
            if isinstance(wanted, int) and 0 <= wanted < leaf.shape[at]:
                leaf = leaf.narrow(at, 0, wanted)
        return leaf

    leaves, spec = pytree.tree_flatten(call)
    found: List[Any] = [narrowed(leaf) for leaf in leaves]
    return pytree.tree_unflatten(found, spec)

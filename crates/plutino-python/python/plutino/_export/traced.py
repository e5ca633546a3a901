"""Results that are no tensors, where a trace stands for the module: it has those of the example."""

from __future__ import annotations

import copy
import math
from typing import Any, Optional, Sequence

from .. import _errors

PLAIN = (bool, int, float, str, type(None))
"""What may be the same in each run. In anything else there may be tensors that nobody sees."""


def check(module: Any, call: Any, leaves: Sequence[Any], names: Sequence[Optional[str]]) -> None:
    """Refuses results of the module that a trace would keep as they are for this call, and that are
    not so for each: objects, and numbers that are others for other arguments."""
    import torch

    for at, leaf in enumerate(leaves):
        if not isinstance(leaf, (torch.Tensor, *PLAIN)):
            kind = type(leaf).__name__
            raise _refusal(
                at,
                names,
                f"is {_article(kind)} {kind}, which pytree does not take apart: a trace would keep "
                "that of the example. Register the class, so that tensors in it are results "
                f"(torch.export.register_dataclass({kind}) for a dataclass, "
                "torch.utils._pytree.register_pytree_node for others), or leave it out "
                "(use_cache=False for caches of transformers)",
            )
    if not any(isinstance(leaf, (int, float)) for leaf in leaves):
        return
    for at, (leaf, other) in enumerate(zip(leaves, _others(module, call, leaves))):
        if isinstance(leaf, PLAIN) and repr(leaf) != repr(other):
            raise _refusal(
                at,
                names,
                f"is {leaf!r} for the example and {_shown(other)} for other values: a trace would "
                "keep the first. Return it as a tensor",
            )


def _others(module: Any, call: Any, leaves: Sequence[Any]) -> Sequence[Any]:
    """The results for other values of the arguments; those of the call where the module takes none,
    or has others in number."""
    import torch
    from torch.utils import _pytree as pytree

    try:
        args, kwargs = pytree.tree_map(_other, copy.deepcopy(call))
        with torch.no_grad():
            others = pytree.tree_leaves(module(*args, **kwargs))
    except Exception:  # whatever a module does not like about them
        return leaves
    return others if len(others) == len(leaves) else leaves


def _other(leaf: Any) -> Any:
    """Other values of the same kind: of another sign and magnitude, or within the same bounds, as
    indices are."""
    import torch

    if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0:
        return leaf
    if leaf.dtype == torch.bool:
        return ~leaf
    if leaf.is_floating_point() or leaf.is_complex():
        return leaf * -1.5 + math.pi / 8
    return leaf.max() + leaf.min() - leaf


def _refusal(at: int, names: Sequence[Optional[str]], why: str) -> _errors.ExportError:
    name = names[at] if at < len(names) else None
    which = f"result {at}" if name is None else f"result {name!r}"
    return _errors.ExportError(f"{which} {why}", reason=f"{which} {why}")


def _article(word: str) -> str:
    return "an" if word[:1] in "AEIOUaeiou" else "a"


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, PLAIN) else f"a {type(value).__name__}"

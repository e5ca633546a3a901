"""Classes of other packages whose tensors are arguments and results of their own.

pytree takes apart what is registered with it. transformers registers the classes of its outputs when
they are imported, and a ``DynamicCache`` when it is asked to.
"""

from __future__ import annotations

import sys
from typing import Any, List, Tuple, Type

from .. import _errors


def register() -> None:
    """Registers those of the packages that are in use: without their modules nobody has any."""
    if "transformers.cache_utils" not in sys.modules:
        return
    from torch.utils import _pytree as pytree

    try:
        from transformers.cache_utils import DynamicCache
        from transformers.integrations import executorch

        if DynamicCache not in pytree.SUPPORTED_NODES:
            ask: Any = executorch.register_dynamic_cache_export_support
            ask()
    except Exception:  # other releases: those of before register it by themselves, or have none
        return


def flatten(
    value: Any, refusal: Type[_errors.Error] = _errors.ExportError
) -> Tuple[List[Any], Any]:
    """The leaves of a value and its structure. A class may refuse to be taken apart: a
    ``DynamicCache`` with layers of other kinds does."""
    from torch.utils import _pytree as pytree

    try:
        return pytree.tree_flatten(value)
    except RuntimeError as error:
        raise refusal(
            f"a class among arguments or results is not taken apart: {error}. use_cache=False "
            "leaves caches of transformers out"
        ) from error

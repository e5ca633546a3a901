"""A module as a program of ``torch.export``, functional and without what only training needs."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Mapping, Sequence, Tuple

from .. import _arguments
from . import conditions, decompositions, defaults, sizes
from .signature import Arguments, parameters
from .sizes import Sizes

LEAST = (2, 5)
"""The first release of PyTorch whose exporter is good enough."""


def available() -> bool:
    """Whether PyTorch is recent enough."""
    import torch

    parts = torch.__version__.split("+")[0].split(".")
    try:
        return tuple(int(part) for part in parts[:2]) >= LEAST
    except ValueError:
        return False


def capture(module: Any, call: Arguments, dynamic: Any) -> Tuple[Any, Dict[str, str], Sizes]:
    """The program, names of its symbols where the user gave any, and what sizes it is good for.

    ``dynamic``: sizes that vary, as ``torch.export`` has them (``dynamic_shapes``), with words for
    dimensions (``{"x": {0: "batch"}}``), or ``True`` for all that can.
    """
    import torch

    args, kwargs = _apart(module, call)
    dims: Dict[str, Any] = {}
    shapes = _shapes(module, dynamic, args, kwargs, dims)

    def program_of() -> Tuple[Any, conditions.Asked]:
        with conditions.asked() as asked:
            found = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        return found.run_decompositions(decompositions.table()), asked

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.no_grad():
                program, asked = program_of()
        except IndexError:  # PyTorch loses arguments of a module that enables gradients
            with torch.enable_grad():
                program, asked = program_of()
    defaults.spell_out(program)
    return program, _names(program, shapes), sizes.of(program, asked)


def _apart(module: Any, call: Arguments) -> Arguments:
    """The same call with a tensor of its own for each argument: one that is given twice would be one
    input, and one that is the module's own a constant."""
    import torch
    from torch.utils import _pytree as pytree

    taken = {
        id(value)
        for part in module.modules()
        for value in (*part._parameters.values(), *part._buffers.values(), *vars(part).values())
        if isinstance(value, torch.Tensor)
    }

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in taken:
            return leaf.detach().clone()
        taken.add(id(leaf))
        return leaf

    args, kwargs = pytree.tree_map(own, call)
    return args, kwargs


def _shapes(
    module: Any,
    dynamic: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dims: Dict[str, Any],
) -> Any:
    import torch
    from torch.export import Dim
    from torch.utils import _pytree as pytree

    if dynamic is None or dynamic is False:
        return None
    if dynamic is True:

        def every(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return {at: Dim.AUTO for at in range(value.dim())}
            parts, spec = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
            if spec.is_leaf():
                return None
            # Of classes that are registered with pytree, torch.export wants lists.
            found = [every(part) for part in parts]
            builtin = spec.type in pytree.BUILTIN_TYPES
            return pytree.tree_unflatten(found, spec) if builtin else found

        # By parameter: those behind a star are one.
        call = parameters(module).bind(*args, **kwargs).arguments
        return {name: every(value) for name, value in call.items()}

    def named(value: Any) -> Any:
        if isinstance(value, str):
            return dims.setdefault(value, Dim(value))
        if isinstance(value, Mapping):
            return {key: named(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(named(each) for each in value)
        return value

    if isinstance(dynamic, str) or not isinstance(dynamic, (Mapping, list, tuple)):
        if type(dynamic).__name__ not in ("ShapesCollection", "AdditionalInputs"):
            raise _arguments.refusal("dynamic", "True, or sizes by argument and dimension", dynamic)
    shapes = named(dynamic)
    if not isinstance(shapes, Mapping):
        return shapes
    # What is not mentioned does not vary.
    front = parameters(module).bind_partial(*args).arguments
    _check_dimensions(dynamic, {**front, **kwargs})
    return {**dict.fromkeys([*front, *kwargs]), **shapes}


def _check_dimensions(dynamic: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Refuses dimensions that tensors among the arguments do not have."""
    import torch

    for name, spec in dynamic.items():
        value = call.get(name)
        if isinstance(value, torch.Tensor) and isinstance(spec, Mapping):
            for at in spec:
                if not isinstance(at, int) or not -value.dim() <= at < value.dim():
                    which = f"dynamic[{name!r}]"
                    expected = f"by dimension, of which there are {value.dim()}"
                    raise _arguments.refusal(which, expected, dict(spec))


def _names(program: Any, shapes: Any) -> Dict[str, str]:
    """Names that the user gave to sizes, by symbol of the program."""
    if not isinstance(shapes, Mapping):
        return {}
    found: Dict[str, str] = {}
    values = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    for argument, spec in shapes.items():
        value = values.get(argument)
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec or ())
        for at, dim in pairs:
            name = getattr(dim, "__name__", None)
            if name is None or value is None or not isinstance(at, int):
                continue
            size = value.shape[at]
            if not isinstance(size, int) and size.node.expr.is_Symbol:
                found[str(size.node.expr)] = name
    return found

"""Dtypes that PyTorch takes from its default (``torch.set_default_dtype``), spelled out.

``torch.zeros(3)`` and ``torch.arange(3) / 2`` say nothing of it, and whoever runs a file takes f32.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import calls

_NO_NUMBERS = ("condition", "mask", "index", "indices", "dim", "size")
"""Arguments that dtypes of results do not depend on."""


def spell_out(program: Any) -> None:
    """Changes a program so that it means the same where the default is f32."""
    import torch

    default = torch.get_default_dtype()
    if default == torch.float32:
        return
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                if calls.is_call(node) and isinstance(node.target, torch._ops.OpOverload):
                    _spell_out(node, default)
            module.recompile()


def _spell_out(node: Any, default: Any) -> None:
    result = _dtype(node.meta.get("val"))
    if result not in (default, default.to_complex()):
        return
    dtypes = [_dtype(source.meta.get("val")) for source in node.all_input_nodes]
    if any(dtype is not None and _has_fractions(dtype) for dtype in dtypes):
        return
    arguments = calls.arguments(node)
    if "dtype" in arguments:
        if arguments["dtype"] is None:
            _set(node, "dtype", result)
    elif node.target._schema.name == "aten::where":
        _choose(node, arguments, result)
    else:
        for name, value in arguments.items():
            if name not in _NO_NUMBERS and calls.is_node(value) and calls.is_tensor(value):
                node.replace_input_with(value, _number(node, value, default))


def _dtype(value: Any) -> Optional[Any]:
    """That of a tensor, or of the first of several."""
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return getattr(value, "dtype", None)


def _has_fractions(dtype: Any) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def _set(node: Any, name: str, value: Any) -> None:
    names = [argument.name for argument in node.target._schema.arguments]
    at = names.index(name)
    if at < len(node.args):
        node.update_arg(at, value)
    else:
        node.update_kwarg(name, value)


def _choose(node: Any, arguments: Dict[str, Any], dtype: Any) -> None:
    """A choice between numbers of Python, or one and integers."""
    import torch

    condition, *others = arguments.values()
    node.target = torch.ops.aten.where.self
    node.args = (condition, *(_number(node, other, dtype) for other in others))


def _number(node: Any, value: Any, dtype: Any) -> Any:
    """A node before this one: a value, or a number of Python, of this dtype."""
    import torch

    aten = torch.ops.aten
    of_python = not calls.is_node(value)
    target: Any = aten.full.default if of_python else aten._to_copy.default
    args: List[Any] = [[], value] if of_python else [value]
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, tuple(args), {"dtype": dtype})
    made.meta = dict(node.meta)
    example = node.meta["val"]
    made.meta["val"] = example.new_empty([]) if of_python else value.meta["val"].to(dtype)
    return made

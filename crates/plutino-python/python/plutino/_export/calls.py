"""Calls of a program: their arguments, and functions that are written in a way of their own."""

from __future__ import annotations

import operator
from typing import Any

from . import dtypes
from .graph import OPEN_END
from .modules import Arguments

NOTHING = {"alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "lift"}
"""Functions whose result is their input: there is one memory, and nobody writes to it."""

VARIADIC = {
    "block_diag",
    "broadcast_tensors",
    "cartesian_prod",
    "cat",
    "column_stack",
    "concat",
    "dstack",
    "einsum",
    "hstack",
    "meshgrid",
    "stack",
    "vstack",
}
"""Functions whose one list of tensors PNNX has as so many inputs, of ``torch.NAME``."""

_ONE_LIST = {
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_tensors",
    "meshgrid",
    "nonzero_numpy",
    "where",
}
"""Functions whose one output plutino has as a list, also where that has one member."""

CUSTOM = {
    "transformers::grouped_mm_fallback": ("aten::_grouped_mm", {"weight": "mat2"}),
}
"""Operators of other libraries that are one of PyTorch's own: its type, and what it calls arguments."""


def is_node(value: Any) -> bool:
    return hasattr(value, "all_input_nodes")


def is_tensor(node: Any) -> bool:
    return hasattr(node.meta.get("val"), "dtype")


def is_call(node: Any) -> bool:
    return bool(node.op == "call_function")


def is_control(node: Any) -> bool:
    """Whether a call runs graphs: branches, loops."""
    import torch

    return is_call(node) and isinstance(node.target, torch._ops.HigherOrderOperator)


def is_item(node: Any) -> bool:
    return is_call(node) and node.target is operator.getitem


def arguments(node: Any) -> Arguments:
    """Arguments of a call by name, with defaults; ``input`` for ``self``."""
    found: Arguments = {}
    for at, argument in enumerate(node.target._schema.arguments):
        if at < len(node.args):
            value = node.args[at]
        else:
            value = node.kwargs.get(argument.name, argument.default_value)
        found["input" if argument.name == "self" else argument.name] = value
    return found


def draws(arguments: Arguments) -> bool:
    """Whether a call of a function that may draw numbers does."""
    for name in ("dropout_p", "dropout", "p"):
        if name in arguments and not is_node(arguments[name]):
            return bool(arguments[name] and arguments.get("train", True))
    return True


def is_list(function: str, results: Any) -> bool:
    """Whether the results of a function have to be taken out of the list that its operator makes."""
    if not isinstance(results, (list, tuple)):
        return False
    return function == "gradient" or (len(results) == 1 and function in _ONE_LIST)


def is_place(key: str) -> bool:
    """Whether an argument says where a tensor lies, or how: nothing that results depend on."""
    return key in ("device", "layout", "pin_memory", "memory_format", "generator", "non_blocking")


def is_default(argument: Any, value: Any) -> bool:
    if is_node(value) or (isinstance(value, (list, tuple)) and any(map(is_node, value))):
        return False
    default = argument.default_value
    return type(value) is type(default) and bool(value == default)


def overloaded(schema: Any) -> str:
    """``mean.dim``."""
    name = schema.name.partition("::")[2]
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def end(value: Any) -> Any:
    """The end of a slice, as a file has it."""
    return OPEN_END if type(value) is int and value == 2**63 - 1 else value


def parameter(value: Any) -> Any:
    import torch

    if isinstance(value, torch.dtype):
        return dtypes.word(value)
    if isinstance(value, (list, tuple)):
        return [parameter(each) for each in value]
    return value

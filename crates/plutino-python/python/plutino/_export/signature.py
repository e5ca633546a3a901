"""How a module is called, and how a model's flat inputs and outputs stand for that."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .. import _errors

Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""Positional ones, and those by name."""


class Item(int):
    """The number of an output that is a Python number to the module's caller."""


def given(example: Any, kwargs: Optional[Mapping[str, Any]] = None) -> Arguments:
    """What ``example_inputs`` are: one value, a tuple or list of them, or a mapping by name."""
    if isinstance(example, Mapping):
        return (), {**example, **(kwargs or {})}
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    return args, dict(kwargs or {})


@dataclass
class Signature:
    """Flattens the arguments of a module, and puts its results together. Picklable."""

    names: Optional[List[str]]
    """Parameters of ``forward`` by position; ``None`` where it takes any number of arguments."""
    in_spec: Any = None
    out_spec: Any = None
    inputs: List[Optional[str]] = field(default_factory=list)
    """Of each leaf of the arguments the operand; ``None`` for a constant."""
    constants: List[Any] = field(default_factory=list)
    outputs: List[Union[int, Tuple[Any]]] = field(default_factory=list)
    """Of each leaf of the results the number of the model's output, or its value."""
    results: List[Optional[str]] = field(default_factory=list)
    """Of each leaf of the results its name, where it has one."""

    @staticmethod
    def of(module: Any) -> "Signature":
        kinds = inspect.Parameter
        names: Optional[List[str]] = []
        for parameter in inspect.signature(module.forward).parameters.values():
            if parameter.kind in (kinds.VAR_POSITIONAL, kinds.POSITIONAL_ONLY):
                return Signature(None)
            if parameter.kind == kinds.POSITIONAL_OR_KEYWORD and names is not None:
                names.append(parameter.name)
        return Signature(names)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The same call with as many arguments by name as there can be, in the module's order."""
        if self.names is None:
            return tuple(args), dict(kwargs)
        if len(args) > len(self.names):
            raise _errors.InputError(
                f"the module takes {len(self.names)} argument(s), {len(args)} given"
            )
        named = dict(zip(self.names, args))
        twice = named.keys() & kwargs.keys()
        if twice:
            raise _errors.InputError(f"argument '{min(twice)}' is given twice")
        order = [name for name in self.names if name in kwargs]
        order += [name for name in kwargs if name not in self.names]
        return (), {**named, **{name: kwargs[name] for name in order}}

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
        """Values of the model's inputs, by operand."""
        from torch.utils import _pytree as pytree

        call = self.arguments(args, kwargs)
        leaves, spec = pytree.tree_flatten(call)
        if spec != self.in_spec:
            raise _errors.InputError(
                f"the module was exported with arguments {_shown(self.in_spec)}, "
                f"found {_shown(spec)}"
            )
        feeds = {}
        for leaf, operand, constant in zip(leaves, self.inputs, self.constants):
            if operand is not None:
                feeds[operand] = leaf
            elif leaf is not constant and leaf != constant:
                raise _errors.InputError(
                    f"an argument that is {leaf!r} was {constant!r} when the module was exported: "
                    "what is no tensor is part of the model"
                )
        return feeds

    def unflatten(self, results: Sequence[Any]) -> Any:
        """What the module would return."""
        from torch.utils import _pytree as pytree

        leaves = [
            results[at].item()
            if isinstance(at, Item)
            else results[at]
            if isinstance(at, int)
            else at[0]
            for at in self.outputs
        ]
        return pytree.tree_unflatten(leaves, self.out_spec)


def _shown(spec: Any) -> str:
    """A tree of arguments in one line."""
    text = " ".join(str(spec).split())
    return text if len(text) < 200 else text[:200] + "..."

"""How a module is called, and how a model's flat inputs and outputs stand for that."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _errors
from . import classes
from .sizes import Sizes

Arguments = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""Positional ones, and those by name."""


class Item(NamedTuple):
    """An output that is a Python number to the module's caller."""

    number: int
    kind: type
    """``bool``, ``int`` or ``float``."""

    def of(self, results: Sequence[Any]) -> Any:
        """The number among these outputs."""
        return self.kind(results[self.number].item())


Output = Union[int, Item, List[Any]]
"""The number of a model's output; in a list of one the value of what is none."""


def given(example: Any, kwargs: Optional[Mapping[str, Any]] = None) -> Arguments:
    """What ``example_inputs`` are: one value, a tuple or list of them, or a mapping by name."""
    if isinstance(example, Mapping):
        return (), {**example, **(kwargs or {})}
    args = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    return args, dict(kwargs or {})


def parameters(module: Any) -> inspect.Signature:
    """Those of ``forward``; any where it does not say, as after ``torch.jit.trace``."""
    try:
        return inspect.signature(module.forward)
    except ValueError:
        return inspect.signature(lambda *args, **kwargs: None)


@dataclass
class Signature:
    """Flattens the arguments of a module, and puts its results together. Picklable."""

    names: Optional[List[str]]
    """Parameters of ``forward`` by position; ``None`` where it takes any number of arguments."""
    keywords: List[str] = field(default_factory=list)
    """Those that have a name alone."""
    defaults: Dict[str, Any] = field(default_factory=dict)
    """Their values where they are not given, as far as these are plain."""
    positional: int = 0
    """How many the example gave by position."""
    by_name: List[str] = field(default_factory=list)
    """The others, in order."""
    optional: List[str] = field(default_factory=list)
    """Those of the example that have their default."""
    in_spec: Any = None
    out_spec: Any = None
    leaves: List[str] = field(default_factory=list)
    """Of each leaf of the arguments what the caller calls it: ``x``, ``x[0]``."""
    inputs: List[Optional[str]] = field(default_factory=list)
    """Of each leaf of the arguments the operand; ``None`` for a constant."""
    constants: List[Any] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    """What shapes the model is good for."""
    outputs: List[Output] = field(default_factory=list)
    """Of each leaf of the results the number of the model's output, or its value."""
    results: List[Optional[str]] = field(default_factory=list)
    """Of each leaf of the results its name, where it has one."""

    @staticmethod
    def of(module: Any) -> "Signature":
        kinds = inspect.Parameter
        found = Signature([])
        for name, parameter in parameters(module).parameters.items():
            if parameter.kind == kinds.VAR_POSITIONAL:
                found.names = None
            elif parameter.kind == kinds.KEYWORD_ONLY:
                found.keywords.append(name)
            elif parameter.kind != kinds.VAR_KEYWORD and found.names is not None:
                found.names.append(name)
            if parameter.default is not kinds.empty and _is_plain(parameter.default):
                found.defaults[name] = parameter.default
        return found

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        classes.register()  # in another process

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The call that is exported: by position what is given so, the others in the order of the
        parameters. What :meth:`flatten` gets must be the same call."""
        self.positional = len(args)
        named = self._named(args, kwargs)
        order = [*(self.names or ()), *self.keywords]
        front = () if self.names is None else self.names[: len(args)]
        self.by_name = [name for name in order if name in named and name not in front]
        self.by_name += [name for name in kwargs if name not in order]
        call = self._call(args, named)
        self.optional = [
            name
            for name, value in named.items()
            if name in self.defaults and _is_same(value, self.defaults[name])
        ]
        leaves, self.in_spec = classes.flatten(call)
        self.leaves = self._called(call) or [f"argument {at}" for at in range(len(leaves))]
        return call

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
        """Arguments by name, as far as they have any."""
        if self.names is None:
            return dict(kwargs)
        if len(args) > len(self.names):
            raise _errors.InputError(
                f"the module takes {len(self.names)} argument(s), {len(args)} given"
            )
        named = dict(zip(self.names, args))
        twice = named.keys() & kwargs.keys()
        if twice:
            raise _errors.InputError(f"argument '{min(twice)}' is given twice")
        return {**named, **kwargs}

    def _call(self, args: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        """The call of the example with these arguments; what it did not have stands behind."""
        if self.names is not None:
            front = [name for name in self.names[: self.positional] if name in named]
            args = [named[name] for name in front]
            named = {name: value for name, value in named.items() if name not in front}
        order = [name for name in self.by_name if name in named]
        order += [name for name in named if name not in order]
        return tuple(args), {name: named[name] for name in order}

    def _called(self, call: Arguments) -> List[str]:
        """What the caller calls each leaf; nothing where a class does not say how its parts are
        called."""
        from torch.utils import _pytree as pytree

        def called(path: Any) -> str:
            _, key, *inner = path
            name = getattr(key, "key", None)
            if name is None:
                name = f"args[{key.idx}]" if self.names is None else self.names[key.idx]
            return f"{name}{pytree.keystr(tuple(inner))}"

        try:
            paths, _ = pytree.tree_flatten_with_path(call)
        except ValueError:
            return []
        return [called(path) for path, _ in paths]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Dict[str, Any]:
        """Values of the model's inputs, by operand."""
        named = self._named(args, kwargs)
        known = {*self.by_name, *(self.names or ())[: self.positional]}
        named = {
            name: value
            for name, value in named.items()
            if name in known
            or name not in self.defaults
            or not _is_same(value, self.defaults[name])
        }
        for name in self.optional:
            named.setdefault(name, self.defaults[name])
        call = self._call(args, named)
        leaves, spec = classes.flatten(call, _errors.InputError)
        if spec != self.in_spec:
            raise self._other(call, len(leaves), spec)
        feeds = {}
        for leaf, name, operand, constant in zip(leaves, self.leaves, self.inputs, self.constants):
            if operand is None:
                if not _is_same(leaf, constant):
                    raise _errors.InputError(
                        f"{name!r} was {constant!r} when the module was exported, found "
                        f"{_short(leaf)}: what is no tensor is part of the model"
                    )
            elif leaf is None or isinstance(leaf, (str, bytes)):
                raise _errors.InputError(
                    f"{name!r} was a tensor when the module was exported, found {_short(leaf)}",
                    input=operand,
                    expected="a tensor",
                )
            else:
                feeds[operand] = leaf
        return feeds

    def _other(self, call: Arguments, count: int, spec: Any) -> _errors.InputError:
        """The refusal of arguments of another structure: which are missing, which are too many."""
        called, expected = self._called(call), _listed(self.leaves)
        missing = [name for name in self.leaves if name not in called]
        more = [name for name in called if name not in self.leaves]
        if len(called) != count or not (missing or more):
            why = f"{_shown(self.in_spec)}, found {_shown(spec)}"
            if sorted(called) == sorted(self.leaves) and called != self.leaves:
                why = f"{expected}: keys of dictionaries stand in the order of the example"
            return _errors.InputError(f"the module was exported with arguments {why}")
        message = f"the module was exported with arguments {expected or '(none)'}"
        message += f"; missing: {_listed(missing)}" if missing else ""
        message += f"; not among them: {_listed(more)}" if more else ""
        return _errors.InputError(message, expected=expected, missing=missing)

    def unflatten(self, results: Sequence[Any]) -> Any:
        """What the module would return."""
        from torch.utils import _pytree as pytree

        leaves = [_result(output, results) for output in self.outputs]
        return pytree.tree_unflatten(leaves, self.out_spec)


def _result(output: Output, results: Sequence[Any]) -> Any:
    if isinstance(output, Item):
        return output.of(results)
    return results[output] if isinstance(output, int) else output[0]


def _is_plain(value: Any) -> bool:
    """Whether a default can be pickled, and compared with what is given."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, complex, str))


def _is_same(value: Any, constant: Any) -> bool:
    """Whether a value is the constant: the number 2 is not 2.0, which makes other dtypes."""
    if value is constant:
        return True
    try:
        return type(value) is type(constant) and bool(value == constant)
    except (TypeError, ValueError, RuntimeError):  # arrays have several answers
        return False


def _short(value: Any) -> str:
    """A value in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) < 80 else f"a {type(value).__name__}"


_MOST_LISTED = 8


def _listed(names: Sequence[str]) -> str:
    """Arguments in one line: caches of models have a hundred parts."""
    more = len(names) - _MOST_LISTED
    listed = ", ".join(map(repr, names[:_MOST_LISTED]))
    return f"{listed} and {more} more" if more > 0 else listed


def _shown(spec: Any) -> str:
    """A tree of arguments in one line."""
    text = " ".join(str(spec).split())
    return text if len(text) < 200 else text[:200] + "..."

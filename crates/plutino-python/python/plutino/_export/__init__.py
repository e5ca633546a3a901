"""Exporting modules of PyTorch, which is imported when it is needed and not before."""

from __future__ import annotations

import contextlib
import copy
import errno
import inspect
import os
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from .. import _arguments, _errors
from .._session import Session
from .._state import State as Carried
from . import assume, capture, classes, ones, pnnx, program, traced, verify
from .assume import Assumption
from .program import State, Written
from .signature import Arguments, Item, Signature, given

Path = Union[str, "os.PathLike[str]"]

EXPORTERS = ("torch.export", "pnnx")


@dataclass
class Export:
    """What :func:`export` wrote."""

    param: str
    """Path of the ``.param`` file."""
    bin: str
    """Path of the ``.bin`` file."""
    definitions: Optional[str]
    """The folder of what branches and loops run, where there are any."""
    exporter: str
    """Which exporter wrote it."""
    fallback: Optional[str] = None
    """Why ``torch.export`` did not, where pnnx stands in for it."""
    error: Optional[float] = None
    """The largest error of an output, relative to its largest magnitude; ``None`` where nothing was
    compared."""
    tolerance: Optional[float] = None
    """What it might have been."""
    states: List[State] = field(default_factory=list)
    """Buffers that the module writes to: inputs and outputs of the model."""
    assumptions: List[Assumption] = field(default_factory=list)
    """Where Python's ``if`` asks for a value of a tensor: what it was for the example. The model has
    that branch alone, and a further output for each, ``assumed.0``, by which a run is checked."""
    signature: Optional[Signature] = field(default=None, repr=False)
    mutated: List[Tuple[str, int]] = field(default_factory=list, repr=False)

    def state(self, session: Session) -> Carried:
        """A state of a session of this model that carries the buffers which the module writes to,
        from their initial values on."""
        state = session.state()
        for buffer in self.states:
            state.carry(f"out{buffer.number}", buffer.input).start(buffer.input, buffer.initial)
        return state


def export(
    module: Any,
    path: Path,
    example_inputs: Any = (),
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    dynamic: Any = None,
    exporter: Optional[str] = None,
    check: bool = True,
    tolerance: Optional[float] = None,
) -> Export:
    """Writes a module of PyTorch as a PNNX model: ``path.pnnx.param`` and ``path.pnnx.bin``, and
    where it has branches or loops (``torch.cond``, ``while_loop``, ``scan``) what these run, in the
    folder ``path.definitions``.

    ``example_inputs`` are its arguments: a tuple, a mapping by name, or one tensor; ``kwargs`` adds
    some by name. ``dynamic`` says which sizes vary: ``True`` for all that can, or by argument and
    dimension, ``{"x": {0: "batch"}}``, as ``torch.export`` has it (``dynamic_shapes``).

    ``exporter`` is ``"torch.export"`` (the default from PyTorch 2.5 on) or ``"pnnx"``. If none is
    named, pnnx stands in where ``torch.export`` refuses a module; ``fallback`` then says why.

    With ``check`` the model is run on the example and compared with the module. What deviates by
    more than ``tolerance`` of the largest magnitude is a :class:`MismatchError`, which names the
    first operator that is wrong; the files are there to be looked at. (1e-4 if not given, 2e-2 in
    half precision, or 8 times what PyTorch itself deviates from f64.)

    A module that is training is refused: call ``eval()`` first.

    Exports in several threads wait for each other.
    """
    _check(module, exporter)
    if tolerance is not None:
        tolerance = _arguments.real("tolerance", tolerance, "a number, not negative")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise _arguments.refusal("kwargs", "a mapping of names to arguments", kwargs)
    param, bin = _paths(path)
    with _turn.lock:
        classes.register()
        signature = Signature.of(module)
        call = _detached(signature.arguments(*given(example_inputs, kwargs)))
        found = Export(param, bin, None, "pnnx", signature=signature)
        return _exported(found, module, call, dynamic, exporter, check, tolerance)


class _Turn:
    """Whose turn it is: exporters replace methods of PyTorch's classes and of the module, write to
    its buffers and put them back, and pnnx has the folder of the process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        # Reentrant: a handler of a signal may export in the middle of an export.
        self.lock = threading.RLock()


_turn = _Turn()

if hasattr(os, "register_at_fork"):
    # A thread of the parent that exports is not in the child.
    os.register_at_fork(after_in_child=_turn.renew)


def _exported(
    found: Export,
    module: Any,
    call: Arguments,
    dynamic: Any,
    exporter: Optional[str],
    check: bool,
    tolerance: Optional[float],
) -> Export:
    """:func:`export`, of arguments that are what they must be."""
    signature, param, bin = found.signature, found.param, found.bin
    assert signature is not None
    expected = _expected(module, call, signature)
    captured = None
    if exporter != "pnnx" and capture.available():
        try:
            captured, written = _with_torch_export(module, call, dynamic, found, len(expected))
        except Exception as error:
            found.fallback = _reason(error)
            if exporter is not None or dynamic not in (None, False):
                raise _refusal(error, found.fallback) from error
    elif exporter == "torch.export":
        raise _errors.OptionError(
            f"exporter='torch.export' needs PyTorch {'.'.join(map(str, capture.LEAST))}",
            option="exporter",
        )
    if captured is None:
        try:
            with _unchanged(module):
                traced.check(module, call, expected, signature.results)
            with _unchanged(module):
                numbers = any(not isinstance(at, int) for at in signature.outputs)
                written = pnnx.write(module, call, signature.out_spec, param, bin, numbers)
            _clear_definitions(found)
        except _errors.ExportError as error:
            if found.fallback is None:
                raise
            raise _errors.ExportError(
                f"torch.export: {found.fallback}; {error}", reason=found.fallback
            ) from error
        if found.fallback is not None:
            _warn(
                f"torch.export refuses the module ({found.fallback}): pnnx traced it instead. What "
                "Python decides by values of tensors, or takes from them, is part of the model as "
                "it was for the example, and no run checks that"
            )
    signature.inputs, signature.constants = written.inputs, written.constants
    if captured is not None:
        signature.outputs = written.outputs[: len(expected)]
    found.states, found.mutated = written.states, written.mutated
    if check and not written.random:
        _compare(found, module, call, expected, captured, written, tolerance)
    return found


def _check(module: Any, exporter: Optional[str]) -> None:
    if exporter is not None and exporter not in EXPORTERS:
        raise _errors.OptionError(
            f"exporter must be one of {', '.join(EXPORTERS)}, found {exporter!r}",
            option="exporter",
            expected=", ".join(EXPORTERS),
        )
    try:
        import torch
    except ImportError as error:
        raise _errors.ExportError(
            f"PyTorch is not installed ({error}): pip install plutino[torch]", reason=str(error)
        ) from None
    if not isinstance(module, torch.nn.Module):
        raise _errors.ExportError(f"a torch.nn.Module is exported, found {type(module).__name__}")
    if module.training:
        raise _errors.ExportError("the module is training: call eval() before it is exported")


def _paths(path: Path) -> Tuple[str, str]:
    stem = _arguments.path("path", path)
    for end in (".param", ".pnnx", ".pt", ".pth"):
        stem = stem[: -len(end)] if stem.endswith(end) else stem
    folder = os.path.dirname(stem) or os.curdir
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
    return f"{stem}.pnnx.param", f"{stem}.pnnx.bin"


def _detached(call: Arguments) -> Arguments:
    """The same call without the operators that made its tensors: with them none is copied."""
    import torch
    from torch.utils import _pytree as pytree

    def detached(leaf: Any) -> Any:
        made = isinstance(leaf, torch.Tensor) and not leaf.is_leaf
        return leaf.detach() if made else leaf

    args, kwargs = pytree.tree_map(detached, call)
    return args, kwargs


def _expected(module: Any, call: Any, signature: Signature) -> List[Any]:
    """The module's own results, flat; buffers that it writes to are put back."""
    import torch
    from torch.utils import _pytree as pytree

    results, leaves, signature.out_spec = _results(module, call)
    try:
        paths, _ = pytree.tree_flatten_with_path(results)
        signature.results = [_word(path) for path, _ in paths]
    except ValueError:  # a class that says how it is flattened, and not under which names
        signature.results = []
    # What pnnx gives: tensors alone.
    count = iter(range(len(leaves)))
    signature.outputs = [
        next(count) if isinstance(leaf, torch.Tensor) else [leaf] for leaf in leaves
    ]
    return leaves


def _results(module: Any, call: Any) -> Tuple[Any, List[Any], Any]:
    """What the module returns, its leaves and their structure."""
    import torch

    args, kwargs = copy.deepcopy(call)
    with torch.no_grad(), _unchanged(module):
        results = module(*args, **kwargs)
        flat, structure = classes.flatten(results)
        # Copies: what is one of the buffers is not to be put back with them.
        leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
    return results, leaves, structure


@contextlib.contextmanager
def _layers_alone() -> Iterator[bool]:
    """Without what PyTorch's transformers take instead of their layers where nobody wants gradients,
    which leaves zeros where a mask says padding; whether it is there to be left out."""
    import torch

    mha: Any = getattr(torch.backends, "mha", None)
    taken = bool(mha is not None and mha.get_fastpath_enabled())
    if taken:
        mha.set_fastpath_enabled(False)
    try:
        yield taken
    finally:
        if taken:
            mha.set_fastpath_enabled(True)


@contextlib.contextmanager
def _unchanged(module: Any) -> Iterator[None]:
    """Puts buffers back that a module writes to, or sets, when it is called."""
    kept = [
        (part, name, buffer, buffer.shape, _distinct(buffer).clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for part, name, buffer, shape, values in kept:
            current = getattr(part, name, None)
            if current is None or current.shape != shape:
                continue  # a table that grew
            if current is not buffer:
                setattr(part, name, buffer)
            _distinct(buffer.detach()).copy_(values)


def _distinct(tensor: Any) -> Any:
    """One of those elements that lie at the same place, as ``expand`` has them: what lies at several
    is not written to."""
    import torch

    for dim, stride in enumerate(tensor.stride() if tensor.layout == torch.strided else ()):
        if stride == 0 and tensor.shape[dim]:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _word(path: Any) -> Optional[str]:
    """The name of a result in a dictionary: ``logits``, ``attentions.0``."""
    keys = [
        getattr(part, "key", getattr(part, "idx", getattr(part, "name", None))) for part in path
    ]
    return ".".join(map(str, keys)) if any(isinstance(key, str) for key in keys) else None


def _with_torch_export(
    module: Any, call: Any, dynamic: Any, found: Export, results: int
) -> Tuple[Any, Written]:
    signature = found.signature
    assert signature is not None
    with _unchanged(module):
        noted = None
        try:
            captured, names, sizes = capture.capture(module, call, dynamic)
        except Exception:
            noted = assume.note(module, copy.deepcopy(call))
            if not noted.useful:
                raise
        if noted is not None:
            with assume.assumed(module, noted):
                captured, names, sizes = capture.capture(module, call, dynamic)
    words = signature.results or [None] * results
    useful = [] if noted is None else noted.useful
    words = [*words, *(f"assumed.{number}" for number in range(len(useful)))]
    written = program.write(captured, names, words)
    for (where, value), output in zip(useful, written.outputs[results:]):
        if isinstance(output, int):
            found.assumptions.append(Assumption(where, value, output))
    signature.sizes = sizes
    sizes.names = {
        operand: name for operand, name in zip(written.inputs, signature.leaves) if operand
    }
    _clear_definitions(found)
    written.graph.save(found.param, found.bin)
    _save_definitions(found, written)
    found.exporter = "torch.export"
    return captured, written


def _folder(found: Export) -> str:
    """Where the definitions of a model lie, if it has any."""
    return found.param[: -len(".pnnx.param")] + ".definitions"


def _clear_definitions(found: Export) -> None:
    """Removes those of the model that an earlier export wrote under the same name."""
    folder = _folder(found)
    for entry in os.listdir(folder) if os.path.isdir(folder) else ():
        if entry.endswith((".pnnx.param", ".pnnx.bin")):
            os.remove(os.path.join(folder, entry))


def _save_definitions(found: Export, written: Written) -> None:
    """Writes what branches and loops run beside the model."""
    if not written.definitions:
        return
    found.definitions = _folder(found)
    os.makedirs(found.definitions, exist_ok=True)
    for kind, graph in written.definitions.items():
        path = os.path.join(found.definitions, kind)
        graph.save(f"{path}.pnnx.param", f"{path}.pnnx.bin")


def _warn(message: str) -> None:
    """Warns of a line outside of this package."""
    package = __name__.partition(".")[0]
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _reason(error: Exception) -> str:
    """The first line of what an exporter says, what it says of sizes, and suggests for them: other
    lines are advice to its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    fixes = next((at for at, line in enumerate(lines) if line.startswith("Suggested fixes")), None)
    why = [line for line in lines[1 : 2 if fixes is None else fixes] if line.startswith("- ")]
    told = [line.partition(" For more information")[0] for line in lines[:1]] + why[:1]
    if fixes is not None:
        ends = (at for at in range(fixes + 1, len(lines)) if " = " not in lines[at])
        told.append(f"{lines[fixes]} {', '.join(lines[fixes + 1 : next(ends, None)])}")
    return f"{type(error).__name__}: {' '.join(told)}"[:_LONGEST]


_LONGEST = 500
"""Characters of what an exporter says."""


def _refusal(error: Exception, reason: str) -> Exception:
    if isinstance(error, _errors.Error):
        return error
    return _errors.ExportError(f"torch.export refuses the module: {reason}", reason=reason)


def _compare(
    found: Export,
    module: Any,
    call: Any,
    leaves: List[Any],
    captured: Any,
    written: Written,
    tolerance: Optional[float],
) -> None:
    """Runs the model on the example, and compares."""
    import torch

    signature = found.signature
    assert signature is not None
    session = Session(found.param, threads=1)  # others may need the cores; results are the same
    feeds = feeds_of(session, signature, found.states, call)
    results = session.run(None, feeds)
    expected = verify.tensors([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    actual = [results[at] for at in signature.outputs if isinstance(at, int)]
    if len(actual) != len(expected):
        raise _errors.MismatchError(
            f"the module has {len(expected)} results, the model {len(actual)}"
        )
    # As those of the module are compared.
    actual = [a.astype(np.float32) if a.dtype.name == "bfloat16" else a for a in actual]
    error, output = verify.worst(actual, expected)
    found.error, given = error, tolerance
    if tolerance is None:
        halves = any(p.dtype in (torch.float16, torch.bfloat16) for p in module.parameters())
        halves |= any(
            getattr(leaf, "dtype", None) in (torch.float16, torch.bfloat16) for leaf in leaves
        )
        tolerance = verify.allowed(expected, halves)
        if error > tolerance > 0:
            own = verify.OWN * verify.own_error(module, call, expected)
            tolerance = max(tolerance, min(own, verify.MOST))
    found.tolerance = tolerance
    for at, leaf in zip(signature.outputs, leaves):
        if isinstance(at, Item):
            verify.same_number(at.of(results), leaf, tolerance)
    if error <= tolerance:
        _settle_small(session, found, module, call, feeds, leaves)
        return
    if any(isinstance(part, torch.nn.TransformerEncoder) for part in module.modules()):
        with _layers_alone() as others:
            if others:  # what torch.export sees
                _, leaves, _ = _results(module, call)
                _compare(found, module, call, leaves, captured, written, given)
                _warn(
                    "PyTorch's TransformerEncoder takes a fast path that gives other values than "
                    "its layers do, zeros where a mask says padding: the model gives those of the "
                    "layers"
                )
                return
    operators = None
    if captured is not None:
        operators = verify.blame(session, captured, written, feeds)
    pair = actual[output], expected[output]
    raise verify.refuse(error, tolerance, output, pair, operators)


def _settle_small(
    session: Session, found: Export, module: Any, call: Any, feeds: Any, leaves: List[Any]
) -> None:
    """Runs module and model with sizes of 1 and 0, where sizes vary. ``leaves``: the module's
    results for the call."""
    import torch

    signature = found.signature
    assert signature is not None

    example = [
        verify.tensors([leaf])[0] if isinstance(leaf, torch.Tensor) else np.asarray(leaf)
        for at, leaf in zip(signature.outputs, leaves)
        if isinstance(at, (int, Item))
    ]

    def compare(narrowed: Any) -> Optional[bool]:
        args, kwargs = copy.deepcopy(narrowed)
        try:
            with torch.no_grad(), _unchanged(module), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of means of nothing
                others, _ = classes.flatten(module(*args, **kwargs))
        except Exception:  # what does not run so either way
            return None
        try:
            results = session.run(None, feeds_of(session, signature, found.states, narrowed))
        except _errors.Error:
            return False
        try:
            assume.check(found.assumptions, results)
        except _errors.InputError:
            return None
        if len(others) != len(signature.outputs):
            return False
        pairs = []
        for at, leaf in zip(signature.outputs, others):
            if isinstance(leaf, torch.Tensor) and isinstance(at, int):
                actual = results[at]
                narrow = actual.dtype.name == "bfloat16"  # as the module's are compared
                actual = actual.astype(np.float32) if narrow else actual
                pairs.append((actual, verify.tensors([leaf])[0]))
            elif isinstance(at, Item):
                pairs.append((np.asarray(at.of(results)), np.asarray(leaf)))
            elif isinstance(at, int) or isinstance(leaf, torch.Tensor) or at[0] != leaf:
                return False
        return verify.same(pairs, found.tolerance or 0.0, example)

    ones.settle(signature.sizes, call, feeds, compare)


def feeds_of(session: Session, signature: Signature, states: List[State], call: Any) -> Any:
    """What a session is fed for these arguments: states first have their initial values."""
    feeds = signature.flatten(*call)
    feeds.update({state.input: state.initial for state in states})
    if all(name is None or name.startswith("in") for name in signature.inputs) and not states:
        # pnnx numbers its operands: by position.
        names = [value.name for value in session.get_inputs()]
        if set(feeds) != set(names):
            return list(feeds.values())
    return feeds

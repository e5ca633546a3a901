"""Sessions: models that are ready to run."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from functools import partial
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arguments, _arrays, _errors, _report
from ._native import CancelToken, NativeSession, forked
from ._state import Handle, State
from ._view import View

Bytes = Union[bytes, bytearray, memoryview]

Files = Union[str, Tuple[bytes, bytes], Tuple[str, str]]
"""The path of a model, or the contents of its two files."""

Defined = Tuple[Optional[str], Files]
"""An operator type and the model that it is; a path without a type is a folder of them."""


class ValueInfo(NamedTuple):
    """An input or output of a model, as the file records it."""

    name: str
    """Name of the operand in the file."""
    operator: str
    """Name of the ``pnnx.Input`` or ``pnnx.Output`` operator."""
    type: Optional[str]
    """Dtype, as NumPy calls it; ``None`` where the file is silent."""
    shape: Optional[Tuple[Union[int, str, None], ...]]
    """Shape of the export, a hint: ``None`` for a size that varies, a name for one that is the same
    in several places. ``None`` where the file is silent."""


class Session:
    """A model with options and threads, ready to run. May be used by many threads at once.

    ``model`` is the path of the ``.param`` file (or its stem; the ``.bin`` file lies beside it), or
    the bytes of the ``.param`` file; then ``bin`` are the bytes of the ``.bin`` file. With a path,
    ``bin`` may be the path of a ``.bin`` file that lies elsewhere.

    Operator types that are models themselves, such as the branches of ``plutino.If``, are read from
    the folder beside the model (``net.definitions``), and from ``definitions``: a folder, or by
    type the path of a model or the bytes of its two files.

    Options, by name:

    - ``threads``: threads that compute; the cores of the machine if not given.
    - ``memory``: ``"fast"``, or ``"low"`` for as little as possible.
    - ``weights``: ``"bf16"`` or ``"f16"`` keeps the weights of linear layers in half the memory, ``"int8"`` in a quarter, ``"nf4"`` in less than a sixth;
      steps that read each of them once take about half of the time.
    - ``precision``: how accurate products are at least, in the words of
      ``torch.set_float32_matmul_precision``: ``"highest"`` (f32), ``"high"`` or ``"medium"``, which
      allows bf16 where the machine multiplies it.
    - ``precision_of``: the same for operators of a name, scope or type alone, such as
      ``{"head": "highest", "nn.Linear": "medium"}``; the last one that means an operator counts.
    - ``isa``: ``"scalar"``, ``"avx2"`` or ``"avx512"``; the best of the machine if not given.
    - ``max_memory``: bytes that model, plan and run may take together; more is
      :class:`BudgetExceeded`, before it is taken.
    - ``batch_invariant``: a row of a batch has the bits that it has alone.
    - ``winograd``: whether Winograd's algorithms may compute convolutions.
    - ``plan_cache_size``: plans kept for further runs with the same shapes (8).
    - ``passes_off``: names of optimisations to leave out, such as ``"fuse"`` or ``"fuse@conv1"``.
    - ``mmap``: map the ``.bin`` file, if it is one; you promise that nobody changes it meanwhile.
      (Without, a large file is read as weights are needed, and what has changed in it is an error.)
    - ``verify``: compare the check sums of weights.
    - ``timeout``: seconds that loading may take.

    >>> session = plutino.Session("resnet18.pnnx.param")      # doctest: +SKIP
    >>> scores = session(image)                               # doctest: +SKIP
    """

    def __init__(
        self,
        model: Union[str, "os.PathLike[str]", Bytes],
        *,
        bin: Union[str, "os.PathLike[str]", Bytes, None] = None,
        definitions: Union[str, "os.PathLike[str]", Mapping[str, Any], None] = None,
        threads: Optional[int] = None,
        memory: Optional[str] = None,
        weights: Optional[str] = None,
        precision: Optional[str] = None,
        precision_of: Optional[Mapping[str, str]] = None,
        isa: Optional[str] = None,
        max_memory: Optional[int] = None,
        batch_invariant: bool = False,
        winograd: bool = True,
        plan_cache_size: Optional[int] = None,
        passes_off: Iterable[str] = (),
        mmap: bool = False,
        verify: bool = True,
        timeout: Optional[float] = None,
    ) -> None:
        options: Dict[str, Any] = {
            "threads": threads,
            "isa": isa,
            "memory": memory,
            "weights": weights,
            "precision": precision,
            "precision_of": _precisions(precision_of),
            "max_memory": max_memory,
            "batch_invariant": batch_invariant,
            "winograd": winograd,
            "plan_cache_size": plan_cache_size,
            "passes_off": _passes(passes_off),
            "mmap": mmap,
            "verify": verify,
        }
        _check(options)
        source, defined = _source(model, bin), _defined(definitions)
        # Where both files were read here the model has a path nevertheless: there are its own
        # definitions, which count less than those that are given, and errors are to name it.
        apart = _in_memory(source) and not isinstance(model, _BYTES)
        if apart and os.path.isdir(_folder_beside(model)):
            defined.insert(0, (None, _folder_beside(model)))
        try:
            self._open(source, defined, options, timeout)
        except _errors.Error as error:
            named = not any(_in_memory(files) for _, files in defined)
            if apart and named:  # else it may be bytes of a definition
                _rename(error, _param(model), bin)
            missing = isinstance(error, _errors.ModelNotFound) and isinstance(source, str)
            if missing and str(error.file).endswith(".bin") and error.file == _beside(source):
                error.args = (f"{error}; where it lies elsewhere, bin= says so",)
            raise

    def _open(
        self, source: Files, defined: List[Defined], options: Dict[str, Any], timeout: Any = None
    ) -> None:
        self._source, self._defined, self._options = source, defined, options
        self._lock = threading.Lock()
        self._made: Optional[NativeSession] = self._load(timeout)
        self._left: Optional[NativeSession] = None
        self._inputs = [_info(value) for value in self._made.inputs()]
        self._names = _names(self._inputs)
        self._recorded = {
            name: value.type
            for value, names in zip(self._inputs, self._names)
            for name in names
        }
        self._outputs = [_info(value) for value in self._made.outputs()]
        _sessions.add(self)

    def _load(self, timeout: Any = None) -> NativeSession:
        bounds = _bounds(None, timeout)
        return NativeSession.load(self._source, self._defined, self._options, bounds)

    @property
    def _native(self) -> NativeSession:
        made = self._made
        return self._remake() if made is None else made

    # What the model is

    def get_inputs(self) -> List[ValueInfo]:
        """The inputs, in order: ``name``, ``type``, ``shape``."""
        return list(self._inputs)

    def get_outputs(self) -> List[ValueInfo]:
        """The outputs, in order, tuples taken apart."""
        return list(self._outputs)

    @property
    def warnings(self) -> List[str]:
        """What is likely wrong in the file: it runs, but is perhaps not what the model was."""
        return self._native.warnings()

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self._native.threads

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self._native.isa

    def __repr__(self) -> str:
        return f"plutino.Session({self._title()}, threads={self.threads}, isa={self.isa!r})"

    def _title(self) -> str:
        source = self._source
        return repr(source) if isinstance(source, str) else f"<{len(source[0])} bytes>"

    # Running

    def __call__(self, *inputs: Any, timeout: Optional[float] = None) -> Any:
        """Runs the model: inputs in its order. One output comes as it is, several as a tuple."""
        results = self.run(None, list(inputs), timeout=timeout)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self,
        outputs: Union[str, Sequence[str], None] = None,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[CancelToken] = None,
        out: Union[Sequence[Any], Mapping[str, Any], None] = None,
        state: Optional[State] = None,
    ) -> List[Any]:
        """Runs the model, or a part of it, and returns a list of arrays.

        ``outputs`` are names of operands, or of the operators that make them; the model's outputs
        if there are none (``None``, or an empty list). ``feeds`` are inputs by name (or
        ``in0``, ``in1``, ... by position), or all of them
        in order. Whatever lies between what is fed and what is asked for is computed, so any
        operand can stand in both.

        ``timeout`` is in seconds; then :class:`DeadlineExceeded`. ``cancel`` ends the run from
        another thread; Ctrl-C does as well. ``out`` are arrays to put the results in, in order or
        by name, that can be written to.

        With ``state`` the run takes what the last one with that state left: ``feeds`` are the other
        inputs, results the outputs that are not carried (:meth:`state`).

        Arrays are read where they lie, where their elements are dense, in order and aligned; else
        they are copied once. Nobody may write to them meanwhile. Results are not copied.
        """
        places = _places(out)
        results = self.run_named(outputs, feeds, timeout=timeout, cancel=cancel, state=state)
        if places is None:
            return [array for _, array in results]
        if isinstance(out, Mapping):
            unknown = set(out) - {name for name, _ in results}
            if unknown:
                raise _errors.InputError(
                    f"out has {', '.join(map(repr, sorted(unknown)))}, the results are "
                    f"{', '.join(repr(name) for name, _ in results)}"
                )
            return [
                _arrays.store(out[name], array, name) if name in out else array
                for name, array in results
            ]
        if len(places) != len(results):
            raise _errors.InputError(f"out has {len(places)} arrays for {len(results)} results")
        return [_arrays.store(to, array, name) for to, (name, array) in zip(places, results)]

    def run_named(
        self,
        outputs: Union[str, Sequence[str], None] = None,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[CancelToken] = None,
        state: Optional[State] = None,
    ) -> List[Tuple[str, Any]]:
        """:meth:`run`, each result with its name; members of tuples are ``name.0``, ``name.1``."""
        native, bounds, carried = self._native, _bounds(cancel, timeout), _carried(state)
        feed, stored = self._feeds_and_stored(feeds, state)
        results = native.run(feed, self._fetches(outputs), bounds, carried, stored)
        return [(name, _arrays.result(memory)) for name, memory in results]

    async def run_async(
        self,
        outputs: Union[str, Sequence[str], None] = None,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[CancelToken] = None,
        out: Union[Sequence[Any], Mapping[str, Any], None] = None,
        state: Optional[State] = None,
        executor: Any = None,
    ) -> List[Any]:
        """:meth:`run` beside the event loop, on a thread of ``executor`` (the loop's own if not
        given). When the task is cancelled, so is the run."""
        token = CancelToken() if cancel is None else cancel
        run = partial(self.run, outputs, feeds, timeout=timeout, cancel=token, out=out, state=state)
        future = asyncio.get_running_loop().run_in_executor(executor, run)
        try:
            return await future
        except asyncio.CancelledError:
            token.cancel()
            raise

    def run_keeping(
        self,
        keep: Union[str, Sequence[str]],
        outputs: Union[str, Sequence[str], None] = None,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[CancelToken] = None,
    ) -> Tuple[List[Any], List[Handle]]:
        """:meth:`run` that keeps the results for the operands ``keep`` in the session, without a copy,
        and returns a :class:`Handle` for each beside the other results: those of ``outputs``, or the
        model's outputs that are not kept. A handle stands for an array wherever one is fed."""
        native, bounds = self._native, _bounds(cancel, timeout)
        feed, stored = self._feeds_and_stored(feeds)
        results, kept = native.run_keeping(
            self._fetches(keep, "keep"), feed, stored, self._fetches(outputs), bounds
        )
        return [_arrays.result(memory) for memory in results], [Handle(native, k) for k in kept]

    def put(self, value: Any) -> Handle:
        """Keeps a copy of an array in the session, to be fed to any number of runs."""
        native = self._native
        return Handle(native, native.put(_arrays.feed("value", value, None)))

    @property
    def stored_bytes(self) -> int:
        """Bytes of what is kept: they count where ``max_memory`` is given."""
        return self._native.stored_bytes

    def state(self, carried: Optional[Mapping[str, str]] = None) -> State:
        """A state: what is carried from run to run, ``carried`` says from which output to which
        input (``{"hn": "h"}``); see :class:`State`."""
        return State(self, carried)

    # Looking

    def plan(self, feeds: Union[Mapping[str, Any], Sequence[Any], None] = None) -> _report.Plan:
        """The steps of a run with inputs of these shapes: arrays, or shapes as tuples; those of the
        export if not given. The first run then costs what any other does."""
        return _report.Plan(self._native.plan(self._specs(feeds), _bounds(None, None)))

    def memory(self, feeds: Union[Mapping[str, Any], Sequence[Any], None] = None) -> _report.Memory:
        """Bytes that the model and a run with inputs of these shapes take; see :meth:`plan`."""
        return _report.Memory(self.plan(feeds)["memory"])

    def profile(
        self,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        outputs: Union[str, Sequence[str], None] = None,
        *,
        timeout: Optional[float] = None,
        cancel: Optional[CancelToken] = None,
        state: Optional[State] = None,
    ) -> _report.Profile:
        """Runs once and says how long each step took."""
        bounds, carried = _bounds(cancel, timeout), _carried(state)
        feed, fetches = self._feeds(feeds, state), self._fetches(outputs)
        return _report.Profile(self._native.profile(feed, fetches, bounds, carried))

    def view(
        self,
        feeds: Union[Mapping[str, Any], Sequence[Any], None] = None,
        path: Union[str, "os.PathLike[str]", None] = None,
        *,
        runs: int = 5,
    ) -> View:
        """The page of the model: its graph, and the plan, memory and weights, with times where
        ``feeds`` are arrays; shapes (tuples) will do for the plan alone, and without any those of
        the export. A notebook shows it; ``path`` is a file to write it to, for any browser.

        It is what ``plutino view`` writes: one file that fetches nothing. ``docs/view.md`` says
        more."""
        runs = _arguments.number("runs", runs)
        file = None if path is None else _arguments.path("path", path)
        arrays = feeds is not None and not _shapes_alone(feeds)
        try:
            specs = self._specs(feeds)
        except _errors.InputError:
            if feeds is not None:
                raise
            specs = []  # the file does not say: then there is no plan to show
        feed = self._feeds(feeds) if arrays else []
        title = self._title().strip("'\"")
        page = self._native.view(title, specs, feed, runs, _bounds(None, None))
        view = View(page, title, len(self._inputs), len(self._outputs))
        if file is not None:
            view.save(file)
        return view

    def compare(
        self, reference: Mapping[str, Any], *, tolerance: Optional[float] = None
    ) -> _report.Comparison:
        """Runs the model and compares every value that exists in the plan with those of
        ``reference``: arrays by name of the operand, the inputs among them.

        What may differ follows from dtypes and the length of sums, or is ``tolerance``, relative to
        the largest magnitude. ``docs/compare.md`` says more."""
        return self._compared(reference, tolerance, False)

    def isolate(
        self, reference: Mapping[str, Any], *, tolerance: Optional[float] = None
    ) -> _report.Comparison:
        """Runs each operator alone, on the reference's inputs, and compares its outputs: what is
        wrong in the result is wrong by itself. See :meth:`compare`."""
        return self._compared(reference, tolerance, True)

    def _compared(
        self, reference: Mapping[str, Any], tolerance: Optional[float], alone: bool
    ) -> _report.Comparison:
        arrays = [_arrays.feed(name, data, None) for name, data in _by_name("reference", reference)]
        if tolerance is not None:
            tolerance = _arguments.real("tolerance", tolerance, "a number, not negative")
        bounds = _bounds(None, None)
        return _report.Comparison(self._native.compare(arrays, tolerance, alone, bounds))

    def release_memory(self) -> None:
        """Gives memory back to the system that is kept for further runs: plans, arenas, packed
        weights. The next run makes them again."""
        self._native.release_memory()

    # Arguments

    def _named(
        self, feeds: Any, state: Optional[State] = None
    ) -> List[Tuple[str, Any, Optional[str]]]:
        """What is fed, each with the operand's name and the recorded dtype."""
        inputs = self._inputs
        if state is not None and not isinstance(feeds, Mapping):
            carried = state.carried
            inputs = [value for value in inputs if value.name not in carried]
        if feeds is None:
            feeds = []
        if isinstance(feeds, Mapping):
            recorded = self._recorded
            return [(name, data, recorded.get(name)) for name, data in _by_name("feeds", feeds)]
        if hasattr(feeds, "__array__") or hasattr(feeds, "__dlpack__"):
            feeds = [feeds]
        try:
            feeds = list(feeds)
        except TypeError:
            expected = "arrays by name, or all of them in order"
            message = f"feeds must be {expected}, found {_arguments.short(feeds)}"
            raise _errors.InputError(message, expected=expected) from None
        if len(feeds) != len(inputs):
            names = ", ".join(value.name for value in inputs)
            whose = "the model has" if state is None else "beside the state the model has"
            raise _errors.InputError(
                f"{whose} {len(inputs)} input(s) ({names}), {len(feeds)} given"
            )
        return [(value.name, data, value.type) for value, data in zip(inputs, feeds)]

    def _feeds(self, feeds: Any, state: Optional[State] = None) -> List[_arrays.Feed]:
        return [
            _arrays.feed(name, data, recorded and _arrays.pnnx_name(recorded))
            for name, data, recorded in self._named(feeds, state)
        ]

    def _feeds_and_stored(
        self, feeds: Any, state: Optional[State] = None
    ) -> Tuple[List[_arrays.Feed], List[Tuple[str, Any]]]:
        """What is fed: arrays, and what is kept in the session."""
        arrays, stored = [], []
        for name, data, recorded in self._named(feeds, state):
            if isinstance(data, Handle):
                stored.append((name, data._native))
            else:
                arrays.append(_arrays.feed(name, data, recorded and _arrays.pnnx_name(recorded)))
        return arrays, stored

    def _fetches(self, outputs: Any, argument: str = "outputs") -> List[str]:
        if outputs is None:
            return []
        names = _arguments.names(argument, outputs)
        # An output of the model may be called by its operator, where that has no other.
        operators = [value.operator for value in self._outputs]
        values = {v.operator: v.name for v in self._outputs if operators.count(v.operator) == 1}
        return [values.get(name, name) for name in names]

    def _specs(self, feeds: Any) -> List[Tuple[str, List[int]]]:
        if feeds is None:
            return [_recorded(value) for value in self._inputs]
        if isinstance(feeds, Mapping):
            by_name = dict(_by_name("feeds", feeds))
            given = {
                value.name: [name for name in names if name in by_name]
                for value, names in zip(self._inputs, self._names)
            }
            for name, names in given.items():
                if len(names) > 1:
                    raise _errors.InputError(
                        f"input {name!r} has two shapes: {' and '.join(map(repr, names))} name it",
                        input=name,
                    )
            unknown = by_name.keys() - {name for names in given.values() for name in names}
            if unknown:
                name, inputs = min(unknown), ", ".join(map(repr, given))
                raise _errors.InputError(
                    f"the model has no input named {name!r}; there are: {inputs}", input=name
                )
            missing = [name for name, names in given.items() if not names]
            if missing:
                raise _errors.InputError(f"no shape for input {missing[0]!r}", missing=missing)
            feeds = [by_name[name] for (name,) in given.values()]
        elif _is_shape(feeds):
            feeds = [feeds]
        specs = []
        for name, data, recorded in self._named(feeds):
            if _is_shape(data):
                wrong = [size for size in data if not 0 <= size <= _arguments.MOST]
                if wrong:
                    raise _errors.InputError(
                        f"the shape of input {name!r} must have sizes from 0 to {_arguments.MOST}, "
                        f"found {wrong[0]}",
                        input=name,
                    )
                specs.append((_arrays.pnnx_name(recorded or "float32"), list(data)))
            else:
                plain = recorded and _arrays.pnnx_name(recorded)
                _, dtype, shape, _ = _arrays.feed(name, data, plain)
                specs.append((dtype, shape))
        return specs

    # Copies, other processes

    def __getstate__(self) -> Dict[str, Any]:
        return {
            "source": self._source,
            "definitions": self._defined,
            "options": self._options,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._open(state["source"], state["definitions"], state["options"])

    def _forked(self, busy: bool) -> None:
        """In the child after a fork: the session's threads are not there. It is made again by the
        next who uses it; of the same model, unless a run was under way in the parent: then locks of
        the model may be held by a thread that is not there, and it is loaded again."""
        self._lock = threading.Lock()
        self._left = None if busy else self._made or self._left
        self._made = None

    def _remake(self) -> NativeSession:
        with self._lock:
            if self._made is None:
                self._made = self._load() if self._left is None else self._left.again()
                self._left = None
            return self._made


def _after_fork() -> None:
    busy = forked()
    for session in list(_sessions):
        session._forked(busy)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _info(value: Any) -> ValueInfo:
    name, operator, dtype, shape = value
    dims = None if shape is None else tuple(shape)
    return ValueInfo(name, operator, _arrays.dtype_name(dtype), dims)


def _names(inputs: List[ValueInfo]) -> List[List[str]]:
    """How each input may be called: by its operand, by its operator, by its position."""
    taken = {name for value in inputs for name in (value.name, value.operator)}
    found = []
    for at, value in enumerate(inputs):
        positions = [] if f"in{at}" in taken else [f"in{at}"]
        found.append(list(dict.fromkeys([value.name, value.operator, *positions])))
    return found


def _recorded(value: ValueInfo) -> Tuple[str, List[int]]:
    shape, dtype = value.shape, value.type
    if shape is None or dtype is None or not _is_shape(shape):
        raise _errors.InputError(
            f"the file does not say what shape input {value.name!r} has: give arrays or shapes",
            input=value.name,
        )
    return _arrays.pnnx_name(dtype), [int(size) for size in shape]  # type: ignore[arg-type]


def _shapes_alone(feeds: Any) -> bool:
    """Whether these are shapes, and no arrays."""
    if _is_shape(feeds):
        return True
    values = list(feeds.values()) if isinstance(feeds, Mapping) else feeds
    return isinstance(values, (list, tuple)) and all(map(_is_shape, values))


def _is_shape(data: Any) -> bool:
    return isinstance(data, tuple) and all(
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) for size in data
    )


def _bounds(
    cancel: Optional[CancelToken], timeout: Optional[float]
) -> Tuple[Optional[CancelToken], Optional[float], bool]:
    """Limits of some work, and whether it is to look for signals: only the main thread gets any."""
    main = threading.get_ident() == threading.main_thread().ident
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise _arguments.refusal("cancel", "a plutino.CancelToken", cancel)
    if timeout is not None:
        timeout = _arguments.real("timeout", timeout, "seconds, not negative")
    return cancel, timeout, main


def _carried(state: Optional[State]) -> Any:
    if state is None:
        return None
    if not isinstance(state, State):
        expected = "a plutino.State, as session.state() makes it"
        message = f"state must be {expected}, found {_arguments.short(state)}"
        raise _errors.StateError(message, expected=expected)
    return state._native


def _by_name(argument: str, values: Any) -> List[Tuple[str, Any]]:
    """Arrays by name of the operand."""
    if not isinstance(values, Mapping):
        expected = "a mapping of names to arrays"
        message = f"{argument} must be {expected}, found {_arguments.short(values)}"
        raise _errors.InputError(message, expected=expected)
    for name in values:
        if not _arguments.is_text(name):
            raise _errors.InputError(f"names in {argument} are strings, found {name!r}")
    return list(values.items())


def _places(out: Any) -> Optional[List[Any]]:
    """Where results are to be put, each an array that can be written to."""
    if out is None:
        return None
    if isinstance(out, Mapping):
        places = [(f"out for {name!r}", array) for name, array in _by_name("out", out)]
    else:
        try:
            places = [(f"out[{at}]", array) for at, array in enumerate(out)]
        except TypeError:
            expected = "arrays in the order of the results, or by name"
            message = f"out must be {expected}, found {_arguments.short(out)}"
            raise _errors.InputError(message, expected=expected) from None
    for where, array in places:
        _arrays.writable(array, where)
    if len({id(array) for _, array in places}) < len(places):
        raise _errors.InputError("out has one array for several results")
    return [array for _, array in places]


_BYTES = (bytes, bytearray, memoryview)


def _source(model: Any, weights: Any, names: Tuple[str, str] = ("model", "bin")) -> Files:
    """The path of a model, its two paths or their bytes. ``names``: what the caller calls them."""
    expected = "a path, or the bytes of the .bin file"
    bin = None
    if weights is not None and not isinstance(weights, _BYTES):
        bin = os.path.abspath(_arguments.path(names[1], weights, expected))
    if not isinstance(model, _BYTES):
        expected = "a path, or the bytes of the .param file"
        path = os.path.abspath(_arguments.path(names[0], model, expected))
        if weights is None:
            return path
        param = _param(path)
        if bin is not None:  # the weights may stay in the file, or be mapped
            beside = _is_same_file(bin, _beside(param))
            return path if beside else (param, bin)
        model = _read(param)
    if bin is not None:
        weights = _read(bin)
    return bytes(model), b"" if weights is None else bytes(weights)


def _in_memory(files: Files) -> bool:
    """Whether these are the bytes of two files."""
    return isinstance(files, tuple) and isinstance(files[0], bytes)


def _param(model: Any) -> str:
    """The ``.param`` file at a path, or that it is the stem of: as the native half looks for it."""
    path = os.path.abspath(os.fsdecode(os.fspath(model)))
    tried = [path] if path.endswith(".param") else [f"{path}.pnnx.param", f"{path}.param", path]
    for found in tried:
        if os.path.isfile(found):
            return found
    for found in tried:
        if os.path.exists(found) and not os.path.isdir(found):
            return found
    raise _errors.ModelNotFound(
        f"no model at '{path}': tried {', '.join(map(repr, tried))}", file=path, tried=tried
    )


def _beside(model: str) -> str:
    """The ``.bin`` file of a model that has none elsewhere."""
    return os.path.splitext(_param(model))[0] + ".bin"


def _folder_beside(model: Any) -> str:
    """Where a model's own definitions lie, if it has any: ``net.definitions``."""
    stem = os.path.abspath(os.fsdecode(os.fspath(model)))
    for end in (".param", ".pnnx"):
        stem = stem[: -len(end)] if stem.endswith(end) else stem
    return f"{stem}.definitions"


def _is_same_file(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):
        return False


def _read(path: str) -> bytes:
    """The bytes of a regular file: opening a pipe waits for its other end."""
    if not os.path.isfile(path):
        if os.path.exists(path):
            raise _errors.ModelError(f"'{path}' is no regular file", file=path)
        raise _errors.ModelNotFound(f"there is no file '{path}'", file=path, tried=[path])
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _errors.ModelError(f"cannot read '{path}': {error.strerror}", file=path) from error


def _rename(error: _errors.Error, param: str, weights: Any) -> None:
    """Names the files in an error about bytes that were read from them."""
    if error.file not in ("<memory>", "<graph>"):
        return
    name = param
    if error.file == "<memory>" and error.line is None:  # in the .param file there is a line
        if isinstance(weights, _BYTES):
            return
        name = os.path.abspath(os.fsdecode(os.fspath(weights)))
    error.args = (str(error).replace(error.file, name, 1),)
    error.file = name


def _defined(definitions: Any) -> List[Defined]:
    """Definitions as the native half takes them."""
    if definitions is None:
        return []
    if isinstance(definitions, Mapping):
        return [(_kind(kind), _definition(kind, files)) for kind, files in definitions.items()]
    expected = "a folder, or models by type"
    return [(None, os.path.abspath(_arguments.path("definitions", definitions, expected)))]


def _kind(kind: Any) -> str:
    if not _arguments.is_text(kind):
        raise _errors.OptionError(
            f"types in definitions are strings, found {kind!r}", option="definitions"
        )
    return str(kind)


def _definition(kind: Any, files: Any) -> Files:
    name = f"definitions[{kind!r}]"
    pair = files if isinstance(files, tuple) else (files, None)
    if len(pair) != 2:
        raise _arguments.refusal(name, "the path of a model, or its two files", files)
    return _source(*pair, (name, f"{name}[1]"))


def _passes(asked: Any) -> List[str]:
    """Names of optimisations: one, or several."""
    try:
        passes = [asked] if isinstance(asked, str) else list(asked)
    except TypeError:
        passes = [None]
    if not all(map(_arguments.is_text, passes)):
        raise _arguments.refusal("passes_off", "names of optimisations", asked)
    return passes


_KINDS: Dict[str, Any] = {
    "threads": int,
    "max_memory": int,
    "plan_cache_size": int,
    "isa": str,
    "memory": str,
    "weights": str,
    "precision": str,
    "batch_invariant": bool,
    "winograd": bool,
    "mmap": bool,
    "verify": bool,
}


def _precisions(asked: Any) -> List[Tuple[str, str]]:
    pairs = list(asked.items()) if isinstance(asked, Mapping) else asked
    if pairs is None:
        return []
    expected = "a mapping of names to precisions"
    if pairs is asked or not all(_arguments.is_text(word) for pair in pairs for word in pair):
        raise _errors.OptionError(
            f"precision_of must be {expected}, found {asked!r}",
            option="precision_of",
            expected=expected,
        )
    return pairs


def _check(options: Dict[str, Any]) -> None:
    """Refuses options of other types; numbers of NumPy become those of Python."""
    for name, kind in _KINDS.items():
        value = options[name]
        if value is None and kind is not bool:
            continue
        if kind is int:
            options[name] = _arguments.number(name, value)
        elif not isinstance(value, kind) or kind is str and not _arguments.is_text(value):
            raise _arguments.refusal(name, f"a {kind.__name__}", value)

"""Values that one run hands to the next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from . import _arguments, _arrays, _errors

if TYPE_CHECKING:
    from ._native import NativeHandle, NativeSession
    from ._session import Session


def _name(operand: Any) -> str:
    if not _arguments.is_text(operand):
        raise _errors.StateError(f"operands are named by strings, found {operand!r}")
    return str(operand)


def _mapping(argument: str, given: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        expected = f"a mapping of {what}"
        message = f"{argument} must be {expected}, found {_arguments.short(given)}"
        raise _errors.StateError(message, expected=expected)
    return given


class Handle:
    """An array that is kept in a session, from :meth:`Session.put` or :meth:`Session.run_keeping`: to
    be fed in the place of an array, without a copy. It is good for that session, until
    :meth:`remove`; then it is a :class:`StoreError`, and never another array."""

    def __init__(self, session: "NativeSession", native: "NativeHandle") -> None:
        self._session = session
        self._native = native

    def get(self) -> Any:
        """The array; what is kept is not copied."""
        return _arrays.result(self._session.get(self._native))

    def remove(self) -> None:
        """Keeps it no longer."""
        self._session.remove(self._native)


class State:
    """What is carried from each run to the next: outputs of a run that are inputs of the one after
    it, such as the hidden state of a recurrent cell or the keys and values of a decoder.

    A session may have any number of states, one for each stream of data; they do not know of each
    other. Nothing is copied from run to run: two buffers take turns, and a cache that only grows is
    appended to where it lies. A run that fails changes nothing.

    >>> state = session.state({"hn": "h"})                    # doctest: +SKIP
    >>> for frame in frames:                                  # doctest: +SKIP
    ...     (y,) = session.run(None, [frame], state=state)

    Runs with one state wait for each other. A state is pickled with its session and its values.
    """

    def __init__(self, session: "Session", carried: Optional[Mapping[str, str]] = None) -> None:
        self._session = session
        self._native = session._native.state()
        # What was said of the first run, for copies in other processes.
        self._starts: Dict[str, Union[int, _arrays.Feed]] = {}
        carried = {} if carried is None else carried
        for output, input in _mapping("carried", carried, "outputs to inputs").items():
            self.carry(output, input)

    def carry(self, output: str, input: str) -> "State":
        """Lets every run take for ``input`` what the run before it made for ``output``.

        Both are operands, by their names in the file or those of the operators that make them, or
        by position: ``"out0"``, ``"in1"``. The first run takes zeros where the file records one
        shape for both, nothing (in the dimension that grows) for a cache, and must be told
        otherwise: :meth:`start`, :meth:`start_empty`."""
        self._native.carry(_name(output), _name(input))
        return self

    def start(self, input: str, value: Any) -> "State":
        """Lets the first run, and the first one after each :meth:`reset`, take this array."""
        feed = self._feed(input, value)
        self._native.start(feed)
        name, dtype, shape, elements = feed
        self._starts[input] = (name, dtype, shape, elements.copy())
        return self

    def start_empty(self, input: str, dim: int) -> "State":
        """:meth:`start` with nothing in dimension ``dim``, and in the others what the file records:
        a cache that has read nothing yet."""
        at = _arguments.whole(dim)
        if at is None or not 0 <= at <= _arguments.MOST:
            message = f"dim must be a number, not negative, found {_arguments.short(dim)}"
            raise _errors.StateError(message, input=_name(input))
        self._native.start_empty(_name(input), at)
        self._starts[input] = at
        return self

    @property
    def carried(self) -> Dict[str, str]:
        """The operands that are carried to, each with the one that it is carried from."""
        return dict(self._native.carried())

    def __getitem__(self, input: str) -> Any:
        """What the next run takes for an input, a copy; ``None`` where it is the first one, and
        there is no start yet."""
        memory = self._native.get(_name(input))
        return None if memory is None else _arrays.result(memory)

    def __iter__(self) -> Iterator[str]:
        """The operands that are carried to, by name."""
        return iter(self.carried)

    def __contains__(self, input: object) -> bool:
        """Whether an operand is carried to: what ``state[input]`` would give."""
        if not _arguments.is_text(input):
            return False
        name = str(input)
        if name in self.carried:
            return True
        try:
            self._native.get(name)  # another name of it: an operator's, a position
        except _errors.InputError:
            return False
        return True

    def __setitem__(self, input: str, value: Any) -> None:
        """Lets the next run take this array for an input."""
        self._native.set(self._feed(input, value))

    def values(self) -> Dict[str, Any]:
        """What every input takes in the next run, by the names of the operands; copies."""
        return {name: _arrays.result(memory) for name, memory in self._native.values()}

    def restore(self, values: Mapping[str, Any]) -> "State":
        """Sets all values; inputs that are not named are as before the first run."""
        given = _mapping("values", values, "operands to arrays")
        self._native.restore([self._feed(name, value) for name, value in given.items()])
        return self

    def reset(self) -> "State":
        """Back to before the first run."""
        self._native.reset()
        return self

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes all values to a ``.npz`` file, by the names of the operands."""
        self._native.save(_arguments.path("path", path))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> "State":
        """Takes over what :meth:`save` wrote. A file that does not fit changes nothing."""
        self._native.load(_arguments.path("path", path))
        return self

    def copy(self) -> "State":
        """Another state that begins where this one is; neither changes the other."""
        branch = object.__new__(State)
        branch._session, branch._starts = self._session, dict(self._starts)
        branch._native = self._native.branch()
        return branch

    __copy__ = copy

    @property
    def nbytes(self) -> int:
        """Bytes that the state holds, those kept for the next run included."""
        return self._native.nbytes

    def _feed(self, name: str, value: Any) -> _arrays.Feed:
        (feed,) = self._session._feeds({_name(name): value})
        return feed

    def __repr__(self) -> str:
        pairs = ", ".join(f"{output} -> {input}" for input, output in self.carried.items())
        return f"plutino.State({pairs or 'nothing is carried'})"

    def __getstate__(self) -> Dict[str, Any]:
        values = [_arrays.again(name, memory) for name, memory in self._native.values()]
        carried: List[Tuple[str, str]] = self._native.carried()
        return {
            "session": self._session,
            "carried": carried,
            "starts": self._starts,
            "values": values,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["session"], {})  # type: ignore[misc]
        for input, output in state["carried"]:
            self.carry(output, input)
        self._starts = state["starts"]
        for input, start in self._starts.items():
            if isinstance(start, int):
                self._native.start_empty(input, start)
            else:
                self._native.start(start)
        self._native.restore(state["values"])

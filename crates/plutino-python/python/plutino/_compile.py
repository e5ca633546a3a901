"""Modules of PyTorch that plutino computes."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from ._export import Export, assume, export
from ._export.program import State
from ._export.signature import Signature
from ._session import Session, _bounds


class CompiledModule:
    """What :func:`compile` returns: called as the module is, with tensors in and tensors out.

    Inputs are read where they lie, where they are dense and on the CPU; results are tensors in the
    memory that the run wrote to. It is pickled with its weights. Gradients are not computed.

    It may be called by many threads at once. Where the module writes to buffers of its own, each
    call takes what the last one left, so that calls wait for each other; a copy has its own.

    Sizes that the module was not exported for are an :class:`InputError`.
    """

    def __init__(self, session: Session, found: Export) -> None:
        assert found.signature is not None
        self.session = session
        """The session that computes: for plans, profiles, memory."""
        self.exporter = found.exporter
        """Which exporter wrote the model."""
        self.fallback = found.fallback
        """Why ``torch.export`` did not, where pnnx stands in for it."""
        self.error = found.error
        """The largest error on the example, relative to the largest magnitude of an output."""
        self.assumptions = found.assumptions
        """What is taken for granted of data, and checked in every run: see :class:`Export`."""
        self._signature: Signature = found.signature
        self._states: List[State] = found.states
        self._mutated = found.mutated
        self._inputs = [value.name for value in session.get_inputs()]
        self._share()
        self.reset()

    def _share(self) -> None:
        # Reentrant: a handler of a signal may call the module in the middle of a call.
        self._turn = threading.RLock()
        _modules.add(self)

    def reset(self) -> None:
        """Gives buffers that the module writes to the values that they had when it was exported."""
        with self._turn:
            self._values = {state.input: state.initial.clone() for state in self._states}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        feeds = self._signature.flatten(args, kwargs)
        self._signature.sizes.check(feeds)
        if self._states:
            with self._turn:
                results = self._run({**feeds, **self._values})
                assume.check(self.assumptions, results)
                # All of them at once: a copy that is made meanwhile has those of one call.
                self._values = {state.input: results[state.number] for state in self._states}
        else:
            results = self._run(feeds)
            assume.check(self.assumptions, results)
        for operand, output in self._mutated:
            _write(feeds[operand], results[output])
        return self._signature.unflatten(results)

    def _run(self, feeds: Dict[str, Any]) -> List[Any]:
        """All outputs as tensors."""
        session = self.session
        values = list(feeds.values())
        # The exporter names operands, pnnx numbers them: then they stand in order.
        named = feeds if feeds.keys() == set(self._inputs) else dict(zip(self._inputs, values))
        results = session._native.run(session._feeds(named), [], _bounds(None, None))
        return [_tensor(memory) for _, memory in results]

    def __repr__(self) -> str:
        return f"plutino.CompiledModule({self.session!r}, exporter={self.exporter!r})"

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_turn"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._share()


def _after_fork() -> None:
    """A thread of the parent that is in the middle of a call is not in the child."""
    for module in list(_modules):
        module._turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_modules: "weakref.WeakSet[CompiledModule]" = weakref.WeakSet()


def compile(
    module: Any,
    example_inputs: Any = (),
    *,
    kwargs: Optional[Mapping[str, Any]] = None,
    dynamic: Any = None,
    exporter: Optional[str] = None,
    check: bool = True,
    tolerance: Optional[float] = None,
    **options: Any,
) -> CompiledModule:
    """A module of PyTorch as plutino computes it: exported, loaded, compared with the module on the
    example, and called as the module is.

    >>> fast = plutino.compile(model.eval(), (image,))        # doctest: +SKIP
    >>> scores = fast(image)                                  # doctest: +SKIP

    Arguments are those of :func:`export`; ``options`` are those of :class:`Session`, such as
    ``threads``. A model that deviates by more than ``tolerance`` is a :class:`MismatchError`.
    """
    with tempfile.TemporaryDirectory(prefix="plutino-") as folder:
        found = export(
            module,
            os.path.join(folder, "model"),
            example_inputs,
            kwargs=kwargs,
            dynamic=dynamic,
            exporter=exporter,
            check=check,
            tolerance=tolerance,
        )
        param, weights = _contents(found.param)
        definitions = {
            entry[: -len(".pnnx.param")]: _contents(os.path.join(found.definitions or "", entry))
            for entry in (os.listdir(found.definitions) if found.definitions else ())
            if entry.endswith(".pnnx.param")
        }
    session = Session(param, bin=weights, definitions=definitions, **options)
    return CompiledModule(session, found)


def _contents(param: str) -> Tuple[bytes, bytes]:
    """The two files of a model."""
    weights = param[: -len(".param")] + ".bin"
    with open(param, "rb") as file:
        text = file.read()
    if not os.path.exists(weights):
        return text, b""
    with open(weights, "rb") as file:
        return text, file.read()


def _write(argument: Any, value: Any) -> None:
    """Writes what the module would to its argument."""
    if isinstance(argument, np.ndarray):
        np.copyto(argument, value.numpy())
    else:
        argument.copy_(value)


def _tensor(memory: Any) -> Any:
    """A tensor in the memory of a result."""
    import torch

    array = np.asarray(memory)
    if memory.dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if memory.dtype == "c32":
        return torch.view_as_complex(torch.from_numpy(array))
    return torch.from_numpy(array)

"""The other exporter: pnnx, which starts from a trace of TorchScript."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import warnings
from typing import Any, Iterator, List, Optional, Tuple

from .. import _errors
from .graph import Graph
from .program import Written


def write(
    module: Any, call: Tuple[Any, Any], results: Any, param: str, bin: str, numbers: bool = False
) -> Written:
    """Exports through pnnx a module whose results have this structure, with ``numbers`` and other
    leaves that are no tensors among them. Its inputs are the tensors among the arguments, in order.
    """
    import torch
    from torch.utils import _pytree as pytree

    try:
        import pnnx
    except ImportError as error:
        raise _errors.ExportError(
            f"pnnx is not installed ({error}): pip install pnnx", reason=str(error)
        ) from None
    leaves = pytree.tree_leaves(call)
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    traced, tensors = traceable(module, call, results, numbers)
    with tempfile.TemporaryDirectory(prefix="plutino-pnnx-") as folder, torch.no_grad():
        stem = pathlib.Path(folder) / "model"
        reason = _run(pnnx, traced, stem, tensors)
        made = stem.with_name("model.pnnx.param"), stem.with_name("model.pnnx.bin")
        if not made[0].exists():
            raise _errors.ExportError(f"pnnx wrote no graph: {reason}", reason=reason)
        shutil.move(str(made[0]), param)
        if made[1].exists():
            shutil.move(str(made[1]), bin)
    written = Written(Graph())
    written.inputs = [f"in{at.index(i)}" if i in at else None for i in range(len(leaves))]
    written.constants = [None if i in at else leaf for i, leaf in enumerate(leaves)]
    return written


def traceable(
    module: Any, call: Tuple[Any, Any], results: Any, numbers: bool = False
) -> Tuple[Any, List[Any]]:
    """A module with tensors in and tensors out, which is what TorchScript traces, and what it is
    called with: the module itself where it is one, else what calls it. ``results`` is the structure
    of its results, as pytree has it: lists, dictionaries and ``numbers`` among them are not
    traced."""
    import torch
    from torch.utils import _pytree as pytree

    args, kwargs = call
    leaves, spec = pytree.tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i] for i in at]

    class Flat(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> Any:
            filled = list(leaves)
            for position, tensor in zip(at, tensors):
                filled[position] = tensor
            args, kwargs = pytree.tree_unflatten(filled, spec)
            results = pytree.tree_leaves(self.module(*args, **kwargs))
            return tuple(leaf for leaf in results if isinstance(leaf, torch.Tensor))

    plain = not (kwargs or numbers) and len(at) == len(leaves) and len(leaves) == len(args)
    plain &= results.is_leaf() or (results.type is tuple and results.num_nodes == results.num_leaves + 1)
    return (module if plain else Flat().eval()), tensors


def _run(pnnx: Any, module: Any, stem: pathlib.Path, inputs: List[Any]) -> Optional[str]:
    """Runs pnnx where its by-products do no harm. Older releases end with an error once the graph
    is written; what it was."""
    here = os.getcwd()
    said = stem.with_name("said.txt")
    os.chdir(stem.parent)
    try:
        with warnings.catch_warnings(), _silence(said):
            warnings.simplefilter("ignore")
            pnnx.export(module, str(stem.with_suffix(".pt")), tuple(inputs))
    except Exception as error:
        script = f"{stem.name}_pnnx.py"
        if isinstance(error, FileNotFoundError) and script in str(error):
            return f"pnnx ended without writing its script, {script}; {_last_line(said)}"
        return f"{type(error).__name__}: {error}"
    finally:
        os.chdir(here)
    return None


def _last_line(said: pathlib.Path) -> str:
    """The end of what a program printed."""
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines()]
    last = next(filter(None, reversed(lines)), None)
    return "it printed nothing" if last is None else f"the last line that it printed: {last}"


@contextlib.contextmanager
def _silence(said: pathlib.Path) -> Iterator[None]:
    """Keeps what the converter prints, which is a program of its own, from the terminal: it goes to
    this file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    instead = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(instead, 1)
        os.dup2(instead, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), saved):
            os.dup2(kept, number)
            os.close(kept)
        os.close(instead)

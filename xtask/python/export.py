"""Runs pnnx and the Python module that it writes beside the graph."""

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pnnx
import torch
from torch import Tensor, nn


LATER = (SyntaxError, AttributeError, FileNotFoundError, TypeError)
"""What older releases of pnnx, too, end with once the graph is written: their Python does not run, or is not there."""


@contextlib.contextmanager
def captured_output():
    """Collects what this process and the native converter print; shows it if the block fails."""
    with tempfile.TemporaryFile() as log:
        sys.stdout.flush(), sys.stderr.flush()
        saved = os.dup(1), os.dup(2)
        os.dup2(log.fileno(), 1), os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(saved[1], log.read())
            raise
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os.dup2(saved[0], 1), os.dup2(saved[1], 2)
            os.close(saved[0]), os.close(saved[1])


class Exported:
    """The files of one export, in a folder that goes away with the `with` block."""

    def __init__(self, module: nn.Module, inputs: tuple[Tensor, ...], inputs2: tuple[Tensor, ...] | None = None, **options):
        self._folder = tempfile.TemporaryDirectory(prefix="pnnx-")
        self.folder = Path(self._folder.name)
        self.param = self.folder / "model.pnnx.param"
        self.bin = self.folder / "model.pnnx.bin"
        # The graph is there when pnnx imports its Python, which is none where an operator is called `aten::...` or `prim::...`.
        # At low levels pnnx leaves `debug.param` where it is called.
        with captured_output(), torch.no_grad(), contextlib.chdir(self.folder), contextlib.suppress(*LATER):
            pnnx.export(module, str(self.folder / "model.pt"), inputs, inputs2, **options)
        if not self.param.exists():
            raise RuntimeError("pnnx wrote no graph")

    def __enter__(self) -> "Exported":
        return self

    def __exit__(self, *_) -> None:
        self._folder.cleanup()

    def save(self, target: Path, *, weights: bool) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for source in (self.param, self.bin) if weights else (self.param,):
            shutil.copyfile(source, target / source.name)

    def module(self, **names) -> nn.Module:
        """The graph as PyTorch code, with the weights that are in the `.bin` now.

        `names` are made visible to the code: a kept-whole module is called by its Python path.
        """
        spec = importlib.util.spec_from_file_location("exported", self.folder / "model_pnnx.py")
        code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        vars(code).update(names)
        return code.Model().eval()


def flattened(outputs) -> list[np.ndarray]:
    """The tensors of nested tuples and lists, in order: what a pnnx graph returns."""
    if isinstance(outputs, Tensor):
        return [outputs.detach().resolve_neg().numpy()]
    return [array for output in outputs for array in flattened(output)]


def run(module: nn.Module, *inputs: Tensor) -> list[np.ndarray]:
    with torch.no_grad():
        return flattened(module(*inputs))

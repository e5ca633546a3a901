"""Exports one model in a process of its own, with a time limit.

Libraries are imported once, before processes are forked: that takes longer than most exports.
"""

import importlib
import multiprocessing
import tempfile
import time
import traceback
import warnings

import torch


def outcome(name: str, exporter: str, program: str | None) -> dict:
    """What came of a model: exported by plutino, or by pnnx and run by this program."""
    from . import command
    from .cases import CASES
    from .weights import perturb

    torch.manual_seed(0)
    try:
        module, inputs = CASES[name]()
        perturb(module.eval())
        with torch.no_grad():
            module(**inputs) if isinstance(inputs, dict) else module(*inputs)
    except Exception as error:
        return {"verdict": "not made", "why": f"{type(error).__name__}: {error}"}
    if program is None:
        return exported(module, inputs, exporter)
    try:
        return command.outcome(module, inputs, program)
    except Exception as error:
        return {"verdict": "failed", "why": f"{type(error).__name__}: {error}", "trace": last(error)}


def last(error: Exception) -> str:
    return "".join(traceback.format_exception(error)[-3:])


def exported(module, inputs, exporter: str) -> dict:
    import plutino

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = plutino.export(module, f"{folder}/model", inputs, exporter=None if exporter == "default" else exporter)
        except plutino.MismatchError as error:
            return {"verdict": "wrong", "why": str(error), "error": error.error, "kind": error.kind}
        except plutino.UnsupportedOperators as error:
            return {"verdict": "unsupported", "why": str(error), "kinds": [kind for kind, _ in error.kinds]}
        except plutino.ExportError as error:
            return {"verdict": "refused", "why": str(error), "reason": error.reason}
        except Exception as error:
            return {"verdict": "failed", "why": f"{type(error).__name__}: {error}", "trace": last(error)}
    return {
        "verdict": "right" if found.error is not None else "random",
        "exporter": found.exporter,
        "fallback": found.fallback,
        "error": found.error,
        "tolerance": found.tolerance,
        "seconds": round(time.perf_counter() - start, 2),
    }


FORK = multiprocessing.get_context("fork")


def prepare() -> None:
    """Imports what most models need, and what exports import when they first run."""
    import plutino

    torch.set_num_threads(1)
    # PyPI's wheels of torch and torchaudio may be built for different releases of CUDA: of no matter for a CPU.
    # transformers imports it, too.
    cuda, torch.version.cuda = torch.version.cuda, None
    importlib.import_module("torchaudio")
    torch.version.cuda = cuda
    with tempfile.TemporaryDirectory() as folder:
        plutino.export(torch.nn.Linear(2, 2).eval(), f"{folder}/model", torch.ones(1, 2))
    for name in ("transformers", "timm", "torchvision", "pnnx"):
        importlib.import_module(name)


def _child(pipe, *call) -> None:
    warnings.simplefilter("ignore")
    pipe.send(outcome(*call))


def run(name: str, exporter: str, program: str | None, timeout: float) -> dict:
    """What came of a model; also where its process dies, or takes too long."""
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_child, args=(theirs, name, exporter, program))
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            return {"verdict": "time", "why": f"not done after {timeout:.0f} s"}
        return ours.recv()
    except EOFError:
        process.join()
        return {"verdict": "crashed", "why": f"its process ended with {process.exitcode}"}
    finally:
        process.kill()
        process.join()

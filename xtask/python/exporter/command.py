"""What `plutino check` and `plutino verify` say of a model as its users get it: perturbed, exported by pnnx itself, and run by the
command on the module's inputs.

Where something is wrong, PyTorch runs what pnnx wrote beside the graph (`model_pnnx.py`, of the same weights): it tells an export
that is wrong from an engine that is.
"""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

RIGHT = 1e-3
"""What an output may deviate by, relative to its standard deviation."""


@contextlib.contextmanager
def said(path: Path):
    """Keeps what the converter prints, which is a program of its own, in a file."""
    saved = os.dup(1), os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        for number, kept in zip((1, 2), saved):
            os.dup2(kept, number)
            os.close(kept)
        os.close(log)


def line(text: str) -> str:
    return next((each.strip() for each in text.splitlines() if each.strip()), "")[:300]


def written(module, inputs, folder: Path) -> str | None:
    """Exports by pnnx in a folder; why there is no graph, where there is none."""
    import pnnx

    log, here = folder / "said", os.getcwd()
    os.chdir(folder)
    try:
        with said(log), torch.no_grad():
            traced = torch.jit.trace(module, inputs, check_trace=False, strict=False)
            traced.save("model.pt")
    except Exception as error:
        return f"not traced: {type(error).__name__}: {line(str(error))}"
    finally:
        os.chdir(here)
    if not (folder / "model.pt").exists():
        return "not traced"
    os.chdir(folder)
    try:
        with said(log):
            pnnx.convert("model.pt", inputs)
    except Exception:  # of the script that it wrote, or of that of ncnn: the graph is there
        pass
    finally:
        os.chdir(here)
    if (folder / "model.pnnx.param").exists():
        return None
    words = [each for each in log.read_text(errors="replace").splitlines() if each.strip() and "####" not in each]
    return f"pnnx ends without a graph; it says last: {line(words[-1]) if words else 'nothing'}"


def array(tensor: torch.Tensor) -> np.ndarray:
    from plutino._export import verify

    return verify.tensors([tensor])[0]


def of_pnnx(folder: Path, inputs, expected: list[np.ndarray]) -> float | None:
    """The error of the script that pnnx wrote, run by PyTorch; none where it does not run."""
    from plutino._export import verify

    here = os.getcwd()
    os.chdir(folder)
    try:
        with said(folder / "script-said"), torch.no_grad():
            spec = importlib.util.spec_from_file_location("model_pnnx", folder / "model_pnnx.py")
            made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            results = made.Model().eval()(*inputs)
        leaves = torch.utils._pytree.tree_leaves(results)
        return verify.worst([array(each) for each in leaves], expected)[0] if len(leaves) == len(expected) else None
    except Exception:
        return None
    finally:
        os.chdir(here)


def command(*words, ends=(0, 1, 2, 3, 4)) -> tuple[dict, str, int]:
    """JSON that the command prints, its complaint, its exit code."""
    run = subprocess.run(words, capture_output=True, text=True, timeout=200)
    if run.returncode not in ends:
        return {}, f"ended with {run.returncode}: {line(run.stderr)}", run.returncode
    return json.loads(run.stdout) if run.stdout.strip() else {}, line(run.stderr), run.returncode


def outcome(module, inputs, program: str) -> dict:
    """What came of a model that was made."""
    from plutino._export import _unchanged, verify
    from plutino._export import pnnx as through
    from plutino._export.signature import Signature, given

    call = Signature.of(module).arguments(*given(inputs, None))
    args, kwargs = call
    with torch.no_grad(), _unchanged(module):
        structure = torch.utils._pytree.tree_structure(module(*args, **kwargs))
    module, tensors = through.traceable(module, call, structure)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with torch.no_grad(), _unchanged(module):
            results = module(*tensors)
        expected = [array(each) for each in torch.utils._pytree.tree_leaves(results)]
        with _unchanged(module):
            why = written(module, tuple(tensors), folder)
        if why is not None:
            return {"verdict": "not exported", "why": why}
        np.savez(folder / "in.npz", **{f"in{at}": array(each) for at, each in enumerate(tensors)})
        np.savez(folder / "out.npz", **{f"out{at}": each for at, each in enumerate(expected)})
        found = judged(program, folder / "model")
        if found["verdict"] != "right":
            found["script"] = of_pnnx(folder, tuple(tensors), expected)
        if found["verdict"] == "wrong" and "largest" in found:
            scale = max(float(np.abs(each).max()) for each in expected if each.size)
            own = verify.own_error(module, (tuple(tensors), {}), expected)
            if found["largest"] <= verify.OWN * own * scale:
                found.update(verdict="right", own=own)
    return {**found, "seconds": round(time.perf_counter() - start, 1)}


def judged(program: str, model: Path) -> dict:
    checked, complaint, _ = command(program, "check", "--json", model)
    found = {
        "check": short(checked.get("summary", complaint)),
        "warnings": [short(each) for each in checked.get("warnings", [])],
        "notes": [short(each) for each in checked.get("notes", [])],
    }
    folder = model.parent
    verified, complaint, _ = command(
        program, "verify", "--json", "--threads", "1", "--cast", "--inputs", folder / "in.npz", "--expected", folder / "out.npz", model
    )
    if not verified:
        return {**found, "verdict": "refused", "verify": short(complaint), "why": short(complaint)}
    errors = [each.get("error_per_deviation") for each in verified["outputs"] if each.get("elements")]
    error = max((each for each in errors if each is not None), default=None)
    # Elements near zero of an output of large numbers err by more than `verify` allows; what is
    # right elsewhere by six digits is right.
    details = [each for each in verified["outputs"] if each["verdict"] != "ok"]
    right = not details or all((each.get("error_per_deviation") or np.inf) < RIGHT for each in details)
    why = {} if right else {"why": short(verified["summary"])}
    if details and all(each.get("elements") for each in details):
        why["largest"] = max(each["max_abs_error"] or np.inf for each in details)
    return {**found, "verdict": "right" if right else "wrong", "verify": short(verified["summary"]), "error": error, **why}


def short(text: str) -> str:
    """Without the paths of the folder that the files lay in."""
    return re.sub(r"(/[^\s:]+)+/(model|in\.npz|out\.npz)", r"\2", text)

"""Comparing a model with the module that it was exported from."""

from __future__ import annotations

import copy
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .. import _errors
from .program import Written

FLOATS, HALVES = 1e-4, 2e-2
"""What results may deviate by, relative to their largest magnitude. Both engines round, in orders of
their own: sums of f32 deviate by 1e-6 and less for each layer, halves by a few units of their 8 or
11 bits. Where PyTorch itself is farther from what it computes in f64, so may we be."""

OWN = 8.0
"""How many times PyTorch's own rounding errors ours may be."""

MOST = 0.1
"""More than this is never allowed by :data:`OWN`: a module whose rounding errors are larger is too
ill-conditioned for a comparison to show anything."""


def tensors(results: Sequence[Any]) -> List["np.ndarray[Any, Any]"]:
    """Arrays of PyTorch's tensors; bfloat16 as float32, which NumPy knows."""
    import torch

    def array(tensor: Any) -> Any:
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        return tensor.numpy()

    return [array(each) for each in results]


def deviation(actual: Any, expected: Any, least: float = 0.0) -> float:
    """The largest difference, relative to the largest magnitude, or to ``least`` if that is more;
    infinite where something is not comparable."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if expected.size == 0:
        return 0.0
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, b = actual.astype(wide), expected.astype(wide)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    difference = np.abs(a[finite] - b[finite]).max()
    scale = max(np.abs(b[finite]).max(), least)
    if not np.isfinite(difference):
        return float("inf")
    return float(difference / scale) if scale > 0 else float(difference)


def magnitude(array: Any) -> float:
    """The largest magnitude of what is finite."""
    finite = array[np.isfinite(array)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def same(
    pairs: Sequence[Tuple[Any, Any]], tolerance: float, of: Sequence[Any]
) -> Optional[bool]:
    """Whether results for smaller sizes, of the model and of the module, are the same; nothing
    where they differ by so little that both may be rounded. ``of``: results for the example, whose
    magnitudes count as well."""
    if all(deviation(*pair) <= tolerance for pair in pairs):
        return True
    bound = max(tolerance, HALVES) if tolerance else 0.0
    scales = map(magnitude, of)
    rounded = all(deviation(*pair, scale) <= bound for pair, scale in zip(pairs, scales))
    return None if rounded else False


def worst(actual: Sequence[Any], expected: Sequence[Any]) -> Tuple[float, int]:
    """The largest deviation of an output, and its number."""
    errors = [deviation(a, b) for a, b in zip(actual, expected)]
    at = max(range(len(errors)), key=errors.__getitem__, default=-1)
    return (errors[at], at) if errors else (0.0, -1)


def same_number(actual: Any, expected: Any, tolerance: float) -> None:
    """Refuses a number of Python that is not the module's."""
    bound = max(tolerance, FLOATS) if isinstance(expected, float) else 0.0
    if deviation(np.asarray(actual), np.asarray(expected)) > bound:
        raise _errors.MismatchError(f"a result is {actual!r}, the module's {expected!r}")


def allowed(expected: Sequence[Any], halves: bool) -> float:
    """What outputs may deviate by, whatever PyTorch's own errors are."""
    if all(array.dtype.kind not in "fc" for array in expected):
        return 0.0
    return HALVES if halves else FLOATS


def own_error(module: Any, call: Any, expected: Sequence[Any]) -> float:
    """How far PyTorch's results are from those that it computes in f64; 0 where it cannot."""
    import torch
    from torch.utils import _pytree as pytree

    def widened(leaf: Any) -> Any:
        floats = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.double() if floats else leaf

    try:
        wide = copy.deepcopy(module).double()
        args, kwargs = pytree.tree_map(widened, call)
        with torch.no_grad():
            leaves = pytree.tree_leaves(wide(*args, **kwargs))
    except Exception:  # whatever a module does not like about f64
        return 0.0
    exact = tensors([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    if len(exact) != len(expected):
        return 0.0
    pairs = [(a.astype(b.dtype), b) for a, b in zip(expected, exact) if a.shape == b.shape]
    error, _ = worst([a for a, _ in pairs], [b for _, b in pairs])
    return error if np.isfinite(error) else 0.0


def values(program: Any, written: Written, feeds: Dict[str, Any]) -> Dict[str, Any]:
    """The value of every operand, computed by PyTorch, operator by operator."""
    import torch
    from torch.export.graph_signature import InputKind

    wanted = set(written.graph.operand_names())
    states = {state.input: state.initial for state in written.states}
    found: Dict[str, Any] = {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc, name-defined, unused-ignore]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if isinstance(result, torch.Tensor) and node.name in wanted:
                found[node.name] = result.detach().clone()
            return result

    flat = []
    leaves = iter(written.constants)
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            constant = next(leaves)
            flat.append(feeds.get(name, constant))
        elif name in states:
            flat.append(states[name].clone())
        else:
            constants = program.constants
            key = spec.target
            flat.append(constants[key] if key in constants else program.state_dict[key])
    with torch.no_grad():
        Recorder(program.graph_module).run(*flat)
    return found


def blame(
    session: Any, program: Any, written: Written, feeds: Dict[str, Any]
) -> List[Dict[str, Any]]:
    """Operators that are wrong by themselves, on PyTorch's inputs, in order of the run."""
    try:
        reference = values(program, written, feeds)
        report = session.isolate(reference)
    except Exception as error:  # the mismatch is what matters
        return [{"operator": None, "verdict": "failed", "why": str(error)}]
    return [value for value in report["values"] if value["wrong"]]


def _differs(actual: Any, expected: Any, error: float, tolerance: float) -> str:
    """How an output differs from the module's."""
    shapes = tuple(actual.shape), tuple(expected.shape)
    if shapes[0] != shapes[1] or actual.dtype != expected.dtype:
        return f"is {actual.dtype} of shape {shapes[0]}, the module's {expected.dtype} of {shapes[1]}"
    return (
        f"differs from the module's by {error:.2e} of its largest magnitude, "
        f"{tolerance:.1e} allowed"
    )


_OPEN = ("topk", "sort", "argsort", "kthvalue", "median", "nanmedian", "mode")
"""Functions whose positions are any of those of equal elements."""


def refuse(
    error: float,
    tolerance: float,
    output: int,
    pair: Tuple[Any, Any],
    operators: Optional[List[Dict[str, Any]]],
) -> _errors.MismatchError:
    """The exception that says what differs: an output, of the model and of the module."""
    message = f"output {output} {_differs(*pair, error, tolerance)}"
    first = operators[0] if operators else None
    if first is not None and first.get("operator"):
        why = first.get("why") or f"by {first['error']:.2e}, {first['tolerance']:.1e} allowed"
        message += (
            f"; the first operator that is wrong by itself is {first['kind']} "
            f"'{first['operator']}' (operand {first['operand']}, line {first['line']}): {why}"
        )
        if re.split(r"::|\.", first["kind"])[-1] in _OPEN:
            message += (
                "; which of equal elements comes first PyTorch leaves open: with another example, "
                "or check=False, the model is taken"
            )
    elif first is not None:
        message += f"; the operators could not be compared: {first['why']}"
    elif operators is not None:
        message += "; each operator is right by itself"
    return _errors.MismatchError(
        message,
        error=error,
        tolerance=tolerance,
        output=output,
        operators=list(operators or []),
        operator=first and first.get("operator"),
        kind=first and first.get("kind"),
    )


__all__ = [
    "MOST",
    "OWN",
    "allowed",
    "blame",
    "deviation",
    "own_error",
    "refuse",
    "same",
    "same_number",
    "tensors",
    "worst",
]

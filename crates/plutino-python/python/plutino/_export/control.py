"""Branches and loops: ``torch.cond``, ``while_loop``, ``scan`` and ``map`` as ``plutino.If``,
``plutino.While`` and ``plutino.Scan``, what they run as definitions.

A body is a graph with placeholders for everything that it reads, weights among them. A weight is one
of the body; what is computed is an input. Where two bodies, or a body and the graph around it, have
one weight in common, each has it: what is read there is packed for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from .. import _errors
from . import calls
from .graph import Graph

if TYPE_CHECKING:
    from .walk import Walk


def write(walk: "Walk", node: Any) -> None:
    """Writes a call that runs graphs."""
    name = node.target.name()
    make = _MAKE.get(name)
    if make is None or node.kwargs:
        raise _errors.ExportError(
            f"torch's '{name}' is not exported; {', '.join(_MAKE)} are",
            operator=node.name,
            kind=f"torch.{name}",
        )
    make(walk, node)


def _cond(walk: "Walk", node: Any) -> None:
    which, then, otherwise, others = node.args
    inputs, given = _others(walk, others)
    params = {
        part: _body(walk, node, part, module, [], given)
        for part, module in (("then", then), ("else", otherwise))
    }
    _add(walk, node, "plutino.If", [_value(walk, node, which), *inputs], params)


def _while(walk: "Walk", node: Any) -> None:
    cond, body, state, others = node.args
    inputs, given = _others(walk, others)
    params = {
        part: _body(walk, node, part, module, state, given)
        for part, module in (("cond", cond), ("body", body))
    }
    _add(walk, node, "plutino.While", [*_values(walk, node, state), *inputs], params)


def _scan(walk: "Walk", node: Any) -> None:
    if len(node.args) != 4:  # of releases that say along which dimension, and how
        raise _errors.ExportError(
            "torch.scan of this release of PyTorch is not exported: 2.6 or later is needed",
            operator=node.name,
            kind="torch.scan",
        )
    body, state, over, others = node.args
    _scanned(walk, node, body, state, over, others)


def _map(walk: "Walk", node: Any) -> None:
    body, over, others = node.args
    _scanned(walk, node, body, [], over, others)


def _scanned(
    walk: "Walk", node: Any, body: Any, state: Sequence[Any], over: Sequence[Any], others: Any
) -> None:
    inputs, given = _others(walk, others)
    params = {
        "body": _body(walk, node, "body", body, [*state, *over], given),
        "carried": len(state),
        "scanned": len(over),
    }
    values = [*_values(walk, node, [*state, *over]), *inputs]
    _add(walk, node, "plutino.Scan", values, params)


_MAKE = {"cond": _cond, "while_loop": _while, "scan": _scan, "map_impl": _map}
"""By the operator's name in a program."""

_Given = List[Tuple[Any, int]]
"""What bodies get beside the state: values, each with the number of its input; weights, -1."""


def _add(walk: "Walk", node: Any, kind: str, inputs: List[str], params: Dict[str, Any]) -> None:
    values = node.meta["val"]
    if any(value is None for value in values):
        raise _errors.ExportError(
            f"a result of '{node.name}' is None: bodies make tensors and numbers",
            operator=node.name,
            kind=kind,
        )
    walk.graph.add(kind, walk.name(node), inputs, walk.results(node), params)


def _others(walk: "Walk", values: Sequence[Any]) -> Tuple[List[str], _Given]:
    """Inputs that stay as they are, each once, and what the placeholders of bodies stand for."""
    inputs: List[str] = []
    given: _Given = []
    for value in values:
        if calls.is_node(value) and value in walk.constants:
            given.append((walk.constants[value], -1))
        elif calls.is_node(value):
            operand = walk.operand(value)
            if operand not in inputs:
                inputs.append(operand)
            given.append((value, inputs.index(operand)))
        else:
            given.append((value, -1))
    return inputs, given


def _values(walk: "Walk", node: Any, values: Sequence[Any]) -> List[str]:
    return [_value(walk, node, value) for value in values]


def _value(walk: "Walk", node: Any, value: Any) -> str:
    """The operand of a value, also of a plain number."""
    if calls.is_node(value):
        return walk.operand(value)
    return walk.literal(node, value)


def _body(
    walk: "Walk", node: Any, part: str, module: Any, state: Sequence[Any], given: _Given
) -> str:
    """Writes a body as a definition; its type."""
    kind = walk.shared.free_kind(f"{walk.kind and walk.kind + '.'}{walk.name(node)}.{part}")
    walk.shared.definitions[kind] = Graph()  # the name is taken
    inner = walk.inner(walk.modules[module], kind)
    placeholders = [each for each in inner.nodes if each.op == "placeholder"]
    if len(placeholders) != len(state) + len(given):
        raise _errors.InternalError(f"{kind} has {len(placeholders)} placeholders")
    for placeholder in placeholders[: len(state)]:
        inner.make_input(placeholder)
    made: Dict[int, str] = {}
    for placeholder, (value, number) in zip(placeholders[len(state) :], given):
        if number >= 0 and number in made:
            inner.operands[placeholder] = made[number]
        elif number >= 0:
            inner.make_input(placeholder)
            made[number] = placeholder.name
        elif isinstance(value, tuple):
            inner.constants[placeholder] = value
        else:
            inner.operands[placeholder] = inner.literal(placeholder, value)
    inner.walk()
    (output,) = (each for each in inner.nodes if each.op == "output")
    (results,) = output.args
    results = results if isinstance(results, (list, tuple)) else [results]
    for number, result in enumerate(results):
        name = f"out{number}"
        inner.graph.add("pnnx.Output", name, [_value(inner, output, result)])
    walk.shared.definitions[kind] = inner.graph
    return kind

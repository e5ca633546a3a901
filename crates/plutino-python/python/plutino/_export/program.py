"""From a program of ``torch.export`` to a PNNX graph: its inputs, its weights, its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .. import _errors
from . import calls
from .graph import Graph
from .signature import Item, Output
from .walk import Shared, Walk


@dataclass
class State:
    """A value that lives across runs: what output ``number`` gives is fed to ``input`` of the next."""

    name: str
    input: str
    number: int
    initial: Any


@dataclass
class Written:
    """A graph, and what the files do not say."""

    graph: Graph
    inputs: List[Optional[str]] = field(default_factory=list)
    """Of each leaf of the arguments the operand; ``None`` for what is no tensor, a constant."""
    constants: List[Any] = field(default_factory=list)
    """Of each leaf its value where it is a constant."""
    outputs: List[Output] = field(default_factory=list)
    """Of each leaf of the results the number of the model's output, or its constant value."""
    states: List[State] = field(default_factory=list)
    mutated: List[Tuple[str, int]] = field(default_factory=list)
    """Arguments that the module writes to: operand, number of the output."""
    random: bool = False
    """Whether numbers are drawn."""
    definitions: Dict[str, Graph] = field(default_factory=dict)
    """What branches and loops run, by type."""


def write(
    program: Any,
    symbols: Optional[Dict[str, str]] = None,
    results: Sequence[Optional[str]] = (),
) -> Written:
    """Writes a program that has no in-place operators (``run_decompositions({})``). ``symbols``
    and ``results``: names of sizes that vary and of the leaves of the results, as far as there are
    any.

    Raises :class:`ExportError` for what PNNX has no operators for.
    """
    return _Program(program, symbols or {}, results).run()


class _Program(Walk):
    def __init__(
        self, program: Any, names: Dict[str, str], results: Sequence[Optional[str]]
    ) -> None:
        super().__init__(program.graph_module, Shared(names))
        self.program = program
        self.written = Written(self.graph)
        self.result_names = results

    def run(self) -> Written:
        self._placeholders()
        self.walk()
        self._outputs()
        self.written.random = self.shared.random
        self.written.definitions = self.shared.definitions
        return self.written

    def _placeholders(self) -> None:
        from torch.export.graph_signature import InputKind, OutputKind

        signature = self.program.graph_signature
        mutated = {
            spec.target: spec.arg.name
            for spec in signature.output_specs
            if spec.kind == OutputKind.BUFFER_MUTATION
        }
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        states = []
        for node in self.nodes:
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if spec.kind == InputKind.USER_INPUT:
                self._input(node, spec)
            elif spec.kind in (InputKind.TOKEN, InputKind.CUSTOM_OBJ):
                raise _errors.ExportError(f"argument '{node.name}' is no tensor: not exported")
            else:
                tensor = self._tensor(spec)
                if spec.target in mutated:
                    self.written.states.append(
                        State(spec.target, node.name, -1, tensor.detach().clone())
                    )
                    states.append((node, spec.target))
                else:
                    self.constants[node] = (spec.target, tensor)
        for node, name in states:  # behind what the caller gives
            self.make_input(node, name)

    def _tensor(self, spec: Any) -> Any:
        """A parameter, buffer or lifted constant."""
        target = spec.target
        if target in self.program.constants:
            return self.program.constants[target]
        return self.program.state_dict[target]

    def _input(self, node: Any, spec: Any) -> None:
        import torch

        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise _errors.ExportError(
                    f"argument '{node.name}' is a number that varies: give it as a tensor"
                )
            constant = getattr(spec.arg, "value", value)
            self.written.inputs.append(None)
            self.written.constants.append(constant)
            return
        self.written.inputs.append(node.name)
        self.written.constants.append(None)
        self.make_input(node)

    def _outputs(self) -> None:
        from torch.export.graph_signature import OutputKind

        (output,) = (node for node in self.nodes if node.op == "output")
        specs = self.program.graph_signature.output_specs
        states = {state.name: state for state in self.written.states}
        count = 0
        pairs = list(zip(output.args[0], specs))
        # The caller's results, then what the next call needs.
        for value, spec in sorted(pairs, key=lambda p: p[1].kind != OutputKind.USER_OUTPUT):
            kind = spec.kind
            leaf = len(self.written.outputs)
            if kind == OutputKind.USER_OUTPUT:
                if calls.is_node(value):
                    self.written.outputs.append(_output(value, count))
                else:
                    self.written.outputs.append([value])
            if not calls.is_node(value):
                continue
            if kind == OutputKind.USER_OUTPUT:
                name = self.result_names[leaf] if leaf < len(self.result_names) else None
            elif kind == OutputKind.BUFFER_MUTATION:
                states[spec.target].number, name = count, f"{spec.target}.next"
            elif kind == OutputKind.USER_INPUT_MUTATION:
                self.written.mutated.append((spec.target, count))
                name = f"{spec.target}.next"
            elif kind == OutputKind.PARAMETER_MUTATION:
                raise _errors.ExportError(
                    f"the module writes to its parameter '{spec.target}' when it is called (as "
                    "nn.Embedding does with max_norm): what changes must be a buffer"
                )
            else:
                raise _errors.ExportError(f"the program has an output of kind {kind.name}")
            self.graph.add("pnnx.Output", name or f"out{count}", [self.operand(value)])
            count += 1


def _output(node: Any, number: int) -> Output:
    """What is made of an output of the model: the tensor that it is, or a number of Python."""
    import torch

    if calls.is_tensor(node):
        return number
    kind = type(node.meta["val"])
    return Item(number, {torch.SymBool: bool, torch.SymInt: int, torch.SymFloat: float}.get(kind, kind))

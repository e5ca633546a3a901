"""From a program of ``torch.export`` to a PNNX graph.

Operators are written as ``aten::NAME.OVERLOAD`` with PyTorch's names for their arguments: constants
as parameters, the rest as inputs that their keys name. Functions that are modules are written as
such (:mod:`.modules`). Names of operands are those of the program's nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from .. import _errors
from . import calls, dtypes, symbols
from .creation import as_full
from .formulas import LARGEST, Formula, formula, number, rounds
from .graph import Graph, Type, Weight
from .modules import Arguments, Module, as_module


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
    outputs: List[Union[int, Tuple[Any]]] = field(default_factory=list)
    """Of each leaf of the results the number of the model's output, or its constant value."""
    states: List[State] = field(default_factory=list)
    mutated: List[Tuple[int, int]] = field(default_factory=list)
    """Arguments that the module writes to: number of the leaf, number of the output."""
    random: bool = False
    """Whether numbers are drawn."""


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
    return _Walk(program, symbols or {}, results).run()


class _Walk:
    def __init__(
        self, program: Any, names: Dict[str, str], results: Sequence[Optional[str]]
    ) -> None:
        self.program = program
        self.graph = Graph()
        self.written = Written(self.graph)
        self.symbols = names
        self.results = results
        self.nodes = list(program.graph.nodes)
        # Nodes that are written already, and those whose value another operand has.
        self.operands: Dict[Any, str] = {}
        self.constants: Dict[Any, Tuple[str, Any]] = {}
        """Placeholders of parameters and the like: full name, tensor."""
        self.uses: Dict[Tuple[Any, ...], int] = {}
        self.attributes: Dict[Tuple[Any, ...], str] = {}
        self.formulas: Dict[Any, Formula] = {}
        """Values that the one expression which reads them is to spell out."""
        self.needed = self._needed()
        self.by_scope = self._calls_by_module()

    # What there is

    def _needed(self) -> Set[Any]:
        """Nodes that results are computed from: no assertions, nor what only they read."""
        found: Set[Any] = set()
        stack = [node for node in self.nodes if node.op == "output"]
        while stack:
            for node in stack.pop().all_input_nodes:
                if node not in found:
                    found.add(node)
                    stack.append(node)
        return found

    def _calls_by_module(self) -> Dict[str, int]:
        count: Dict[str, int] = {}
        for node in self.nodes:
            if node in self.needed and calls.is_call(node) and not calls.is_item(node):
                path = _scope(node)[0]
                count[path] = count.get(path, 0) + 1
        return count

    def run(self) -> Written:
        self._placeholders()
        for node in self.nodes:
            if node in self.needed and node.op == "call_function":
                self._call(node)
            elif node in self.needed and node.op == "get_attr":
                self._attribute(node)
        self._outputs()
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
            self._make_input(node, name)
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source in self.constants and node in self.needed:
                    key = dtypes.identity(self.constants[source][1])
                    self.uses[key] = self.uses.get(key, 0) + 1

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
        self._make_input(node)

    def _make_input(self, node: Any, name: Optional[str] = None) -> None:
        self._record(node.name, node.meta["val"])
        self.graph.add("pnnx.Input", name or node.name, [], [node.name])
        self.operands[node] = node.name

    def _attribute(self, node: Any) -> None:
        """A constant of the graph's module."""
        value = self.program.graph_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not hasattr(value, "untyped_storage"):
            return  # the module of a branch: whoever calls it says so
        self.constants[node] = (str(node.target), value)

    def _outputs(self) -> None:
        from torch.export.graph_signature import OutputKind

        (output,) = (node for node in self.nodes if node.op == "output")
        specs = self.program.graph_signature.output_specs
        states = {state.name: state for state in self.written.states}
        leaves = {name: at for at, name in enumerate(self.written.inputs) if name is not None}
        count = 0
        pairs = list(zip(output.args[0], specs))
        # The caller's results, then what the next call needs.
        for value, spec in sorted(pairs, key=lambda p: p[1].kind != OutputKind.USER_OUTPUT):
            kind = spec.kind
            leaf = len(self.written.outputs)
            if kind == OutputKind.USER_OUTPUT:
                self.written.outputs.append(count if calls.is_node(value) else (value,))
            if not calls.is_node(value):
                continue
            if kind == OutputKind.USER_OUTPUT:
                name = self.results[leaf] if leaf < len(self.results) else None
            elif kind == OutputKind.BUFFER_MUTATION:
                states[spec.target].number, name = count, f"{spec.target}.next"
            elif kind == OutputKind.USER_INPUT_MUTATION:
                self.written.mutated.append((leaves[spec.target], count))
                name = f"{spec.target}.next"
            else:
                raise _errors.ExportError(f"the program has an output of kind {kind.name}")
            self.graph.add("pnnx.Output", name or f"out{count}", [self._operand(value)])
            count += 1

    # Operands

    def _record(self, operand: str, value: Any) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            shape = tuple(symbols.recorded(size, self.symbols) for size in value.shape)
            self.graph.types[operand] = Type(shape, dtypes.pnnx_dtype(value.dtype))

    def _operand(self, node: Any) -> str:
        """The operand that has the value of a node; constants are written when they are first
        asked for, each once."""
        if node not in self.operands:
            name, tensor = self.constants[node]
            key = dtypes.identity(tensor)
            if key not in self.attributes:
                self._record(node.name, tensor)
                weight = {"data": dtypes.weight(tensor)}
                self.graph.add("pnnx.Attribute", name, [], [node.name], weights=weight)
                self.attributes[key] = node.name
            self.operands[node] = self.attributes[key]
        return self.operands[node]

    def _results(self, node: Any, most: Optional[int] = None) -> List[str]:
        """Names of what a node makes, which are recorded; of several those of the nodes that take
        them out."""
        value = node.meta.get("val")
        if not isinstance(value, (list, tuple)):
            self._record(node.name, value)
            self.operands[node] = node.name
            return [node.name]
        names = [f"{node.name}_{at}" for at in range(len(value))][:most]
        taken = self.graph.operand_names()
        for user in node.users:
            if calls.is_item(user) and user.args[1] < len(names):
                names[user.args[1]] = user.name
        names = [f"{name}_" if name in taken else name for name in names]
        for user in node.users:
            if calls.is_item(user):
                self.operands[user] = names[user.args[1]]
        for name, each in zip(names, value):
            self._record(name, each)
        return names

    # Calls

    def _call(self, node: Any) -> None:
        import torch

        if calls.is_item(node) and node in self.operands:
            return
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise calls.not_yet(node)
        if not isinstance(target, torch._ops.OpOverload):
            self._number(node)
            return
        function = target._schema.name.partition("::")[2]
        arguments = calls.arguments(node)
        if self._is_nothing(function, node, arguments):
            self._same(node, arguments["input"])
            return
        if torch.Tag.nondeterministic_seeded in target.tags:
            self.written.random |= calls.draws(arguments)
        module = as_module(function, arguments)
        if module is not None and self._module(node, module):
            return
        found = formula(function, arguments, node)
        if found is not None:
            self._formula(node, found)
        else:
            self._native(node, function, arguments)

    def _same(self, node: Any, source: Any) -> None:
        if source in self.constants and source not in self.operands:
            self.constants[node] = self.constants[source]
        else:
            self.operands[node] = self._operand(source)

    def _is_nothing(self, function: str, node: Any, arguments: Arguments) -> bool:
        if function in calls.NOTHING:
            return True
        if function in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
            return not arguments["train"] or arguments["p"] == 0
        if function in ("_to_copy", "to"):
            source = arguments["input"].meta["val"]
            return bool(source.dtype == node.meta["val"].dtype)
        return False

    def _module(self, node: Any, module: Module) -> bool:
        """Writes a call as a module, if its weights are constants and those of no other."""
        weights: Dict[str, Weight] = {}
        name = None
        for key, source in module.weights.items():
            if source not in self.constants:
                return False
            path, tensor = self.constants[source]
            if self.uses.get(dtypes.identity(tensor), 0) > 1:
                return False
            weights[key] = dtypes.weight(tensor)
            name = name or path
        owner = _owner(name) if name else self._name(node)
        inputs = [self._operand(source) for source in module.inputs]
        most = module.outputs
        if isinstance(node.meta["val"], (list, tuple)) and most is None:
            read = [user.args[1] for user in node.users if user in self.needed]
            most = 1 if max(read, default=0) == 0 else None
        outputs = self._results(node, most)
        self.graph.add(module.kind, owner, inputs, outputs, module.params, weights)
        return True

    def _native(self, node: Any, function: str, arguments: Arguments) -> None:
        """Writes a call as ``aten::NAME``, or as ``torch.NAME`` where lists of tensors are."""
        schema = node.target._schema
        if schema.name.partition("::")[0] != "aten":
            self._custom(node)
            return
        made = as_full(function, arguments, node.meta["val"])
        if made is not None:
            import torch

            full = torch.ops.aten.full.default._schema
            arguments = {each.name: made.get(each.name) for each in full.arguments}
            function, schema = "full", full
        params: Dict[str, Any] = {}
        inputs: List[Union[str, Tuple[str, str]]] = []
        variadic = function in calls.VARIADIC
        for argument in schema.arguments:
            key = "input" if argument.name == "self" else argument.name
            value, kind = arguments[key], str(argument.real_type)
            if value is None and "Optional" not in kind and "?" not in kind:
                continue
            if calls.is_place(key) or (
                argument.has_default_value() and calls.is_default(argument, value)
            ):
                continue
            if variadic and "List[Tensor]" in kind:
                inputs += [self._operand(tensor) for tensor in value]
            elif calls.is_node(value):
                inputs.append((key, self._operand(value)))
            elif isinstance(value, (list, tuple)) and any(map(calls.is_node, value)):
                inputs.append((key, self._list(node, key, value)))
            else:
                params[key] = calls.parameter(value)
        kind = f"torch.{function}" if variadic else f"aten::{calls.overloaded(schema)}"
        self.graph.add(kind, self._name(node), inputs, self._results(node), params)

    def _formula(self, node: Any, found: Formula) -> None:
        """Writes a call as an expression, with what only it reads; or leaves that to its reader."""
        readers = [user for user in node.users if user in self.needed or user.op == "output"]
        if len(readers) == 1 and rounds(node) and self._reads_once(readers[0], node):
            if self._length(found) < LARGEST // 2:
                self.formulas[node] = found
                return
        operands: List[str] = []

        def text(part: Any) -> str:
            if isinstance(part, tuple):
                return f"{part[0]}({','.join(map(text, part[1:]))})"
            if not calls.is_node(part):
                return number(part)
            if part in self.formulas:
                return text(self.formulas[part])
            operand = self._operand(part)
            if operand not in operands:
                operands.append(operand)
            return f"@{operands.index(operand)}"

        params = {"expr": text(found)}
        self.graph.add("pnnx.Expression", self._name(node), operands, self._results(node), params)

    def _reads_once(self, reader: Any, node: Any) -> bool:
        """Whether the reader of a value is an expression that has it once."""
        if reader.op != "call_function" or not hasattr(reader.target, "_schema"):
            return False
        function = reader.target._schema.name.partition("::")[2]
        found = formula(function, calls.arguments(reader), reader)
        return found is not None and _flat(found).count(node) == 1 and rounds(reader)

    def _length(self, found: Formula) -> int:
        """Functions in a formula, with those that it spells out."""
        parts = (self.formulas.get(part, ()) for part in _flat(found) if calls.is_node(part))
        return 1 + sum(self._length(part) for part in parts if part)

    def _custom(self, node: Any) -> None:
        """An operator of another library, as pnnx writes it: its arguments by number."""
        name = node.target._schema.name
        kind, theirs = calls.CUSTOM.get(name, (f"pnnx.custom_op.{name.replace('::', '.')}", None))
        params: Dict[str, Any] = {}
        inputs: List[Union[str, Tuple[str, str]]] = []
        for at, (argument, value) in enumerate(calls.arguments(node).items()):
            key = f"arg_{at}" if theirs is None else theirs.get(argument, argument)
            if calls.is_node(value):
                inputs.append((key, self._operand(value)))
            else:
                params[key] = calls.parameter(value)
        self.graph.add(kind, self._name(node), inputs, self._results(node), params)

    def _list(self, node: Any, key: str, values: Sequence[Any]) -> str:
        """The operand of a list, some of whose members are computed."""
        operands: List[str] = []
        members = []
        for value in values:
            if calls.is_node(value):
                operands.append(self._operand(value))
                members.append(f"@{len(operands) - 1}")
            else:
                members.append(str(value))
        name = f"{node.name}_{key}"
        while name in self.graph.operand_names():
            name += "_"
        expression = {"expr": f"[{','.join(members)}]"}
        if len(operands) == len(values) and calls.is_tensor(values[0]):
            self.graph.add("prim::ListConstruct", name, operands, [name])
        else:
            self.graph.add("pnnx.Expression", name, operands, [name], expression)
        return name

    def _number(self, node: Any) -> None:
        """A function of Python's on sizes."""
        operands: List[str] = []

        def text(value: Any) -> str:
            if not calls.is_node(value):
                return str(value)
            operand = self._operand(value)
            if operand not in operands:
                operands.append(operand)
            return f"@{operands.index(operand)}"

        expression = symbols.expression(node, text)
        if expression is None:
            name = getattr(node.target, "__name__", str(node.target))
            raise _errors.ExportError(
                f"sizes are computed by Python's '{name}', which PNNX has no expression for",
                operator=node.name,
                kind=name,
            )
        params = {"expr": expression}
        self.graph.add("pnnx.Expression", self._name(node), operands, self._results(node), params)

    # Names

    def _name(self, node: Any) -> str:
        """``layer1.0.relu``: the scope, and the node where the scope has several."""
        path, leaf = _scope(node)
        if not path:
            return str(node.name)
        if leaf and self.by_scope.get(path) == 1:
            return path
        return f"{path}.{node.name}"


def _flat(found: Formula) -> List[Any]:
    """Arguments of a formula, also of those inside."""
    parts: List[Any] = []
    for part in found[1:]:
        parts += _flat(part) if isinstance(part, tuple) else [part]
    return parts


def _scope(node: Any) -> Tuple[str, bool]:
    """Path of the module that a node is computed in, and whether that is one of PyTorch's own."""
    stack = node.meta.get("nn_module_stack") or {}
    for path, kind in reversed(list(stack.values())):
        if path.startswith("_empty_nn_module_stack"):
            continue
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        path = path.replace("L['self']", "").lstrip(".").partition("@")[0]
        return path, name.startswith("torch.nn.")
    return "", False


def _owner(weight: str) -> str:
    """The module that a weight belongs to, or its own name where that says more."""
    path, _, name = weight.rpartition(".")
    if name in ("weight", "bias", "running_mean", "running_var") or name.endswith("_l0"):
        return path or name
    return weight[: -len("_weight")] if weight.endswith("_weight") else weight

"""From a graph of ``torch.export`` to a PNNX graph: what programs and bodies of control flow share.

Operators are written as ``aten::NAME.OVERLOAD`` with PyTorch's names for their arguments: constants
as parameters, the rest as inputs that their keys name. Functions that are modules are written as
such (:mod:`.modules`). Names of operands are those of the graph's nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from .. import _errors
from . import calls, control, dtypes, slices, strides, symbols
from .creation import as_full
from .formulas import LARGEST, Formula, formula, number, rounds
from .graph import Graph, Type, Weight
from .modules import Arguments, Module, as_module


@dataclass
class Shared:
    """What all graphs of a program have in common."""

    symbols: Dict[str, str]
    """Names of sizes that vary, by symbol of the program."""
    definitions: Dict[str, Graph] = field(default_factory=dict)
    """Bodies of control flow, by the type that they define."""
    random: bool = False
    """Whether numbers are drawn."""

    def free_kind(self, name: str) -> str:
        """A type of this name that nothing defines yet. Definitions are files of that name."""
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
        kind, count = name, 0
        while kind in self.definitions:
            count += 1
            kind = f"{name}_{count}"
        return kind


class Walk:
    """Writes the calls of one graph. Whoever makes it says what the placeholders are
    (:attr:`operands`, :attr:`constants`), calls :meth:`walk`, and writes the outputs."""

    def __init__(self, module: Any, shared: Shared, kind: str = "") -> None:
        self.module = module
        self.shared = shared
        self.kind = kind
        """The type that the graph defines, where it is a body."""
        self.graph = Graph()
        self.nodes = list(module.graph.nodes)
        # Nodes that are written already, and those whose value another operand has.
        self.operands: Dict[Any, str] = {}
        self.constants: Dict[Any, Tuple[str, Any]] = {}
        """Placeholders of parameters and the like: full name, tensor."""
        self.modules: Dict[Any, Any] = {}
        """Graphs that control flow names."""
        self.uses: Dict[Tuple[Any, ...], int] = {}
        self.attributes: Dict[Tuple[Any, ...], str] = {}
        self.formulas: Dict[Any, Formula] = {}
        """Values that the one expression which reads them is to spell out."""
        self.parts: Dict[Any, slices.Part] = {}
        """Slices that the one slice which reads them takes with its own."""
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

    def walk(self) -> None:
        """Writes the calls that results need."""
        self._count_uses()
        for node in self.nodes:
            if node in self.needed and node.op == "call_function":
                self._call(node)
            elif node in self.needed and node.op == "get_attr":
                self._attribute(node)

    def _count_uses(self) -> None:
        """How often each constant is read. Bodies have constants of their own."""
        for node in self.nodes:
            if node not in self.needed or calls.is_control(node):
                continue
            for source in node.all_input_nodes:
                if source in self.constants:
                    key = dtypes.identity(self.constants[source][1])
                    self.uses[key] = self.uses.get(key, 0) + 1

    def make_input(self, node: Any, name: Optional[str] = None) -> None:
        """An input of the graph."""
        self._record(node.name, node.meta["val"])
        self.graph.add("pnnx.Input", name or node.name, [], [node.name])
        self.operands[node] = node.name

    def inner(self, module: Any, kind: str) -> "Walk":
        """A walk over a graph that a call of this one runs."""
        return Walk(module, self.shared, kind)

    def literal(self, node: Any, value: Any) -> str:
        """The operand of a number that is written out."""
        name = f"{node.name}_is_{len(self.graph.operators)}"
        self.graph.add("pnnx.Expression", name, [], [name], {"expr": str(value)})
        return name

    def _attribute(self, node: Any) -> None:
        """A constant of the graph's module."""
        value = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not hasattr(value, "untyped_storage"):
            self.modules[node] = value
            return
        self.constants[node] = (str(node.target), value)

    # Operands

    def _record(self, operand: str, value: Any) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            shape = tuple(symbols.recorded(size, self.shared.symbols) for size in value.shape)
            self.graph.types[operand] = Type(shape, dtypes.pnnx_dtype(value.dtype))

    def operand(self, node: Any) -> str:
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

    def results(self, node: Any, most: Optional[int] = None) -> List[str]:
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
        if calls.is_control(node):
            control.write(self, node)
            return
        if not isinstance(target, torch._ops.OpOverload):
            self._number(node)
            return
        function = target._schema.name.partition("::")[2]
        arguments = calls.arguments(node)
        if self._is_nothing(function, node, arguments):
            self._same(node, arguments["input"])
            return
        if function == "view" and "dtype" in arguments and arguments["input"] in self.constants:
            name, tensor = self.constants[arguments["input"]]
            self.constants[node] = name, tensor.view(arguments["dtype"])
            return
        if function == "sym_numel":
            inputs = [self.operand(arguments["input"])]
            self.graph.add("Tensor.numel", self.name(node), inputs, self.results(node))
            return
        if torch.Tag.nondeterministic_seeded in target.tags:
            self.shared.random |= calls.draws(arguments)
        module = as_module(function, arguments)
        if module is not None and self._module(node, module):
            return
        found, part = formula(function, arguments, node), slices.part(node, self.parts)
        if found is not None:
            self._formula(node, found)
        elif part is not None:
            self._part(node, part, function, arguments)
        else:
            self._native(node, function, arguments)

    def _same(self, node: Any, source: Any) -> None:
        if source in self.constants and source not in self.operands:
            self.constants[node] = self.constants[source]
        else:
            self.operands[node] = self.operand(source)

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
        owner = _owner(name) if name else self.name(node)
        inputs = [self.operand(source) for source in module.inputs]
        most = module.outputs
        if isinstance(node.meta["val"], (list, tuple)) and most is None:
            read = [user.args[1] for user in node.users if user in self.needed]
            most = 1 if max(read, default=0) == 0 else None
        outputs = self.results(node, most)
        self.graph.add(module.kind, owner, inputs, outputs, module.params, weights)
        return True

    def _native(self, node: Any, function: str, arguments: Arguments) -> None:
        """Writes a call as ``aten::NAME``, or as ``torch.NAME`` where lists of tensors are."""
        schema = node.target._schema
        if schema.name.partition("::")[0] != "aten":
            self._custom(node)
            return
        read = strides.reading(arguments) if function == "as_strided" else None
        if read is not None:
            self._as_strided(node, arguments["input"], read)
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
                inputs += [self.operand(tensor) for tensor in value]
            elif calls.is_node(value):
                inputs.append((key, self.operand(value)))
            elif isinstance(value, (list, tuple)) and any(map(calls.is_node, value)):
                inputs.append((key, self._list(node, key, value)))
            elif function == "einsum" and key == "equation":
                params[key] = value.replace(" ", "")  # which say nothing, and end a parameter
            elif function in ("slice", "slice_scatter") and key == "end":
                params[key] = calls.end(value)
            else:
                params[key] = calls.parameter(value)
        kind = f"torch.{function}" if variadic else f"aten::{calls.overloaded(schema)}"
        name, results = self.name(node), self.results(node)
        if calls.is_list(function, node.meta["val"]):
            whole = self.free_operand(f"{node.name}_list")
            self.graph.add(kind, name, inputs, [whole], params)
            self.graph.add("prim::ListUnpack", f"{name}_parts", [whole], results)
        else:
            self.graph.add(kind, name, inputs, results, params)

    def _as_strided(self, node: Any, source: Any, read: strides.Reading) -> None:
        """Writes a reading of memory, of a copy that lies as the memory does."""
        operand = self.operand(source)
        if read.order != sorted(read.order):
            turned = self.free_operand(f"{node.name}_order")
            order = {"dims": tuple(read.order)}
            self.graph.add("Tensor.permute", turned, [operand], [turned], order)
            operand = turned
        memory = self.free_operand(f"{node.name}_memory")
        dense = {"memory_format": "torch.contiguous_format"}
        self.graph.add("Tensor.clone", memory, [operand], [memory], dense)
        name, results = self.name(node), self.results(node)
        self.graph.add("aten::as_strided", name, [("input", memory)], results, read.params())

    def _formula(self, node: Any, found: Formula) -> None:
        """Writes a call as an expression, with what only it reads; or leaves that to its reader."""
        readers = self._readers(node)
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
            operand = self.operand(part)
            if operand not in operands:
                operands.append(operand)
            return f"@{operands.index(operand)}"

        params = {"expr": text(found)}
        self.graph.add("pnnx.Expression", self.name(node), operands, self.results(node), params)

    def _part(self, node: Any, part: slices.Part, function: str, arguments: Arguments) -> None:
        """Writes a slice with those that only it reads; or leaves that to its reader."""
        readers = self._readers(node)
        if len(readers) == 1 and slices.is_slice(readers[0]):
            self.parts[node] = part
        elif len(part.bounds) == 1:
            self._native(node, function, arguments)
        else:
            inputs = [self.operand(part.source)]
            self.graph.add("Tensor.slice", self.name(node), inputs, self.results(node), part.params())

    def _readers(self, node: Any) -> List[Any]:
        return [user for user in node.users if user in self.needed or user.op == "output"]

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
                inputs.append((key, self.operand(value)))
            else:
                params[key] = calls.parameter(value)
        self.graph.add(kind, self.name(node), inputs, self.results(node), params)

    def _list(self, node: Any, key: str, values: Sequence[Any]) -> str:
        """The operand of a list, some of whose members are computed."""
        operands: List[str] = []
        members = []
        for value in values:
            if calls.is_node(value):
                operands.append(self.operand(value))
                members.append(f"@{len(operands) - 1}")
            else:
                members.append(str(value))
        name = self.free_operand(f"{node.name}_{key}")
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
            operand = self.operand(value)
            if operand not in operands:
                operands.append(operand)
            return f"@{operands.index(operand)}"

        comparison = symbols.comparison(node)
        if comparison is not None:
            function, first, second = comparison
            pair = [
                self.operand(each) if calls.is_node(each) else self.literal(node, each)
                for each in (first, second)
            ]
            self.graph.add(f"torch.{function}", self.name(node), pair, self.results(node))
            return
        expression = symbols.expression(node, text)
        if expression is None:
            name = getattr(node.target, "__name__", str(node.target))
            raise _errors.ExportError(
                f"sizes are computed by Python's '{name}', which PNNX has no expression for",
                operator=node.name,
                kind=name,
            )
        params = {"expr": expression}
        self.graph.add("pnnx.Expression", self.name(node), operands, self.results(node), params)

    # Names

    def free_operand(self, name: str) -> str:
        """A name that no operand has."""
        while name in self.graph.operand_names():
            name += "_"
        return name

    def name(self, node: Any) -> str:
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
    if name in _WEIGHTS or name.endswith("_l0"):
        return path or name
    return weight[: -len("_weight")] if weight.endswith("_weight") else weight


_WEIGHTS = ("weight", "bias", "running_mean", "running_var", "weight_ih", "weight_hh")
"""What modules call the first of their weights."""

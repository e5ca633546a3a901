"""Many calls in one case: each a line of text with a function or module of PyTorch, its inputs by letter, and its
parameters as PNNX writes them.

`y z = torch.topk a k=3` names the results for the calls that follow. Results without a name are outputs of the case: one,
or as many as stand behind the type (`torch.topk/2 a k=3`). `$other=b` is an input that the file names. The letters a, b,
... are the inputs of the case.
"""

import ast
import itertools
import re
import string
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from operators.case import Case, Values, case

SPACES = {"torch": torch, "F": F, "nn": nn, "aten": torch.ops.aten, "torchvision": torchvision}


def listed(function: Callable) -> Callable:
    """A function of a list of tensors, which are separate inputs in PNNX."""
    return lambda *tensors, **more: function(tensors, **more)


def spectrogram(waveform, window, pad, n_fft, hop_length, win_length, power, normalized):
    """https://docs.pytorch.org/audio/stable/generated/torchaudio.functional.spectrogram.html"""
    y = torch.stft(F.pad(waveform, (pad, pad)), n_fft, hop_length, win_length, window, return_complex=True)
    y = y / window.pow(2).sum().sqrt() if normalized else y
    return y if power is None else y.abs().pow(power)


def inverse_spectrogram(spectrogram, window, length, pad, n_fft, hop_length, win_length, normalized):
    """https://docs.pytorch.org/audio/stable/generated/torchaudio.functional.inverse_spectrogram.html"""
    y = spectrogram * window.pow(2).sum().sqrt() if normalized else spectrogram
    return torch.istft(y, n_fft, hop_length, win_length, window, length=length)


# What Python calls otherwise, or not at all.
FUNCTIONS = {
    "F.nll_loss2d": F.nll_loss,
    "Tensor.copy": lambda x, y: y.expand_as(x).to(x.dtype),
    "Tensor.exponential": lambda x: x.clone().exponential_(),
    "Tensor.fill": torch.fill,
    "Tensor.ndim": Tensor.dim,
    "Tensor.size": lambda x, dim: x.size(dim),
    "Tensor.slice_copy": torch.slice_scatter,
    "Tensor.zero": torch.zeros_like,
    "aten::ScalarImplicit": Tensor.item,
    "aten::_grouped_mm": lambda x, *rest, mat2, offs, **more: torch.ops.aten._grouped_mm(x.float(), mat2.float(), offs),
    "aten::len": len,
    "nn.FractionalMaxPool2d": F.fractional_max_pool2d,
    "nn.FractionalMaxPool3d": F.fractional_max_pool3d,
    "pnnx.Expression": lambda expr: expr,
    "pnnx.SliceIndexes": lambda *x, indexes: [x[int(i[1:])] if i[0] == "@" else int(i) for i in indexes[1:-1].split(",")],
    "prim::ListConstruct": lambda *x: list(x),
    "prim::NumToTensor": torch.tensor,
    "prim::device": lambda x: x.device,
    "torch.allclose": lambda x, y: torch.tensor(torch.allclose(x, y)),
    "torch.chain_matmul": listed(torch.linalg.multi_dot),
    "torch.cholesky": torch.linalg.cholesky,
    "torch.equal": lambda x, y: torch.tensor(torch.equal(x, y)),
    "torch.nonzero_numpy": lambda x: torch.nonzero(x, as_tuple=True),
    "torch.qr": torch.linalg.qr,
    "torch.special.polygamma": lambda x, n: torch.special.polygamma(n, x),
    "torch.unique_dim_consecutive": torch.ops.aten.unique_dim_consecutive,
    "torchaudio.functional.inverse_spectrogram": inverse_spectrogram,
    "torchaudio.functional.spectrogram": spectrogram,
    **{f"torch.{name}": listed(getattr(torch, name)) for name in ("concat", "concatenate", "row_stack")},
    **{f"aten::{name}": getattr(Tensor, f"__{name.lower()}__") for name in ("Bool", "Int", "Float", "Complex")},
    **{f"aten::{name}Implicit": getattr(Tensor, f"__{name.lower()}__") for name in ("Int", "Float", "Complex")},
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A line, taken apart."""

    kind: str
    inputs: tuple[tuple[str | None, str], ...]
    """Names of parameters, where the file has them, and of operands."""
    params: tuple[tuple[str, str], ...]
    order: tuple[str, ...]
    """Operands and names of parameters, in the order of the line."""
    results: tuple[str, ...]
    is_output: bool

    @staticmethod
    def parse(line: str, number: int) -> "Call":
        named, _, rest = line.rpartition(" = ")
        kind, *words = rest.split()
        kind, _, count = kind.partition("/")
        inputs = [word.rpartition("=")[::2] for word in words if "=" not in word or word.startswith("$")]
        results = named.split() or [f"y{number}_{i}" for i in range(int(count or 1))]
        return Call(
            kind,
            tuple((name.lstrip("$") or None, operand) for name, operand in inputs),
            tuple(tuple(word.split("=", 1)) for word in words if "=" in word and not word.startswith("$")),
            tuple(word.partition("=")[2] if word.startswith("$") else word.partition("=")[0] for word in words),
            tuple(results),
            not named,
        )

    def arguments(self) -> dict:
        return {key: constant(value) for key, value in self.params}

    def function(self) -> Callable:
        if self.kind in FUNCTIONS:
            return FUNCTIONS[self.kind]
        space, *path = re.split(r"\.|::", self.kind)
        if space == "Tensor":
            return lambda x, *rest, **more: method(x, path[0], *rest, **more)
        found = SPACES[space]
        for name in path:
            found = getattr(found, name)
        return found

    def lines(self, number: int) -> list[str]:
        """The operator of the graph; of a raw one, constants are inputs, too."""
        if self.kind.startswith("aten::"):
            params = dict(self.params)
            names = [f"op{number}_{word}" if word in params else word for word in self.order]
            constants = [f"pnnx.Expression op{number}_{key} 0 1 op{number}_{key} expr={params[key]}" for key in params]
            words = [self.kind, f"op{number}", str(len(names)), str(len(self.results)), *names, *self.results]
            return [*constants, " ".join(words)]
        operands = [operand for _, operand in self.inputs]
        words = [self.kind, f"op{number}", str(len(operands)), str(len(self.results)), *operands, *self.results]
        words += [f"{key}={value}" for key, value in self.params]
        return [" ".join(words + [f"${name}={operand}" for name, operand in self.inputs if name])]


def method(x: Tensor, name: str, *rest, **more):
    """A method or property, or a method that changes its tensor: PNNX drops the underscore."""
    name = {"matrix_H": "H"}.get(name, name)
    if not hasattr(x, name):
        return getattr(x.clone(), f"{name}_")(*rest, **more)
    found = getattr(x, name)
    return found(*rest, **more) if callable(found) else found


def constant(text: str):
    """A parameter as PNNX writes it."""
    if text.startswith("torch."):
        return getattr(torch, text.removeprefix("torch."))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class Calls(nn.Module):
    """The calls as PyTorch runs them."""

    def __init__(self, calls: list[Call]):
        super().__init__()
        self.calls = calls
        modules = {i: call.function()(**call.arguments()) for i, call in enumerate(calls) if is_module(call)}
        self.parts = nn.ModuleDict({f"op{i}": module for i, module in modules.items()})

    def forward(self, *inputs):
        values, outputs = dict(zip(string.ascii_lowercase, inputs)), []
        for i, call in enumerate(self.calls):
            positional = [values[operand] for name, operand in call.inputs if name in (None, "input", "self")]
            named = {name: values[operand] for name, operand in call.inputs if name not in (None, "input", "self")}
            function = self.parts[f"op{i}"] if is_module(call) else call.function()
            arguments = {} if is_module(call) else call.arguments()
            torch.use_deterministic_algorithms("unpool" not in call.kind.lower())  # PyTorch promises nothing of some
            if call.kind == "nn.LSTMCell":
                positional[1:] = [tuple(positional[1:])]  # PNNX has no tuples there
            found = function(*positional, **named, **arguments)
            torch.use_deterministic_algorithms(True)
            found = found if isinstance(found, (tuple, list)) and len(call.results) > 1 else (found,)
            values |= dict(zip(call.results, found, strict=True))
            outputs += found if call.is_output else ()
        return tuple(outputs)


def is_module(call: Call) -> bool:
    return call.kind not in FUNCTIONS and re.search(r"\.[A-Z]\w*[a-z]\w*$", call.kind) is not None and call.kind[0] != "T"


def each(space: str, names: str, operands: str = "a", more: str = "") -> str:
    """A line for each of the names; `name/key=value` has a parameter of its own."""
    lines = []
    for name in names.split():
        name, _, own = name.partition("/")
        lines.append(f"{space}.{name} {operands} {more} {own}".strip())
    return "\n".join(lines) + "\n"


def parsed(lines: str) -> list[Call]:
    rows = [line.strip() for line in lines.strip().splitlines()]
    return [Call.parse(row, number) for number, row in enumerate(row for row in rows if row)]


def exported(lines: str, *inputs: Values | tuple[int, ...], **options) -> Case:
    """What pnnx makes of the calls."""
    return case(Calls(parsed(lines)), *inputs, **options)


def graph_of(calls: list[Call], module: Calls, inputs: int) -> tuple[str, dict]:
    """The graph of the calls, in their order, with the weights of their modules."""
    letters = string.ascii_lowercase[:inputs]
    rows, weights = [f"pnnx.Input in_{letter} 0 1 {letter}" for letter in letters], {}
    for number, call in enumerate(calls):
        *before, row = call.lines(number)
        own = module.parts[f"op{number}"].state_dict() if is_module(call) else {}
        for name, value in own.items():
            if not value.is_floating_point():
                continue  # the count of batches, which pnnx leaves out
            weights[f"op{number}.{name}"] = value.numpy()
            row += f" @{name}=({','.join(map(str, value.shape))})f32"
        rows += [*before, row]
    outputs = list(itertools.chain.from_iterable(call.results for call in calls if call.is_output))
    rows += [f"pnnx.Output out{i} 1 0 {result}" for i, result in enumerate(outputs)]
    operands = sum(int(row.split()[3]) for row in rows)
    return f"7767517\n{len(rows)} {operands}\n" + "\n".join(rows) + "\n", weights


def written(lines: str, *inputs: Values | tuple[int, ...], **options) -> Case:
    """The calls as a graph, in their order: where pnnx writes them otherwise, or cannot convert them."""
    calls = parsed(lines)
    module = Calls(calls)
    return case(module, *inputs, by_hand=lambda: graph_of(calls, module, len(inputs)), **options)

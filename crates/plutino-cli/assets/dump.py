#!/usr/bin/env python3
"""Writes every value of a model that pnnx exported, as PyTorch computes it, to an npz file.

    python dump.py model_pnnx.py -o reference.npz [--inputs inputs.npz]
    plutino compare model.pnnx.param --reference reference.npz

`model_pnnx.py` is the Python file that pnnx writes beside the model; it and its weights, `model.pnnx.bin`, must lie in
one folder. The arrays are called as the operands of the `.param` file; those of tuples and lists are numbered
(`7.0`, `7.1`). Without `--inputs`, the model gets those that the file itself makes up (`test_inference`). With it, the
arrays are the inputs by name (of operands, or `in0`, `in1`, ...), or in the order of the file.

Needs torch, numpy and whatever the model needs. bf16, which NumPy does not know, is saved as f32.
"""

import argparse
import ast
import os
import re
import sys
from pathlib import Path

import numpy as np
import torch

KEEP = "_plutino_keep"


def rewritten(source: str) -> ast.Module:
    """The module, with each value of `Model.forward` kept as soon as it is there: later lines may write to it."""
    # pnnx writes what it does not know as `aten::name(...)`, which is no Python.
    source = re.sub(r"(?<![\w.'\"])aten::(\w+)\(", r"torch.ops.aten.\1(", source)
    tree = ast.parse(source)
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    forwards = [node for model in models for node in model.body if getattr(node, "name", None) == "forward"]
    if not forwards:
        sys.exit("the file has no class Model with a method forward: is it the model_pnnx.py that pnnx wrote?")
    forward = forwards[0]

    def keep(names: list[str]) -> list[ast.stmt]:
        return [ast.parse(f"{KEEP}({name!r}, {name})").body[0] for name in names if name.startswith("v_")]

    arguments = [argument.arg for argument in forward.args.args[1:]]
    body = keep(arguments)
    for statement in forward.body:
        body.append(statement)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        body += keep(names)
    forward.body = body
    return ast.fix_missing_locations(tree)


def array(value: torch.Tensor) -> np.ndarray:
    value = value.detach().cpu().resolve_conj().resolve_neg()
    if value.is_quantized:
        value = value.dequantize()
    if value.dtype == torch.bfloat16:
        value = value.float()
    if value.dtype == torch.complex32:
        value = value.to(torch.complex64)
    return value.clone().numpy()


def leaves(value) -> list[np.ndarray]:
    """Tensors and numbers of nested tuples and lists, in order."""
    if isinstance(value, torch.Tensor):
        return [array(value)]
    if isinstance(value, (bool, int, float, complex)):
        return [np.asarray(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for member in value for leaf in leaves(member)]
    return []


def operands(param: Path) -> dict[str, str]:
    """The operands of a .param file by the names that pnnx's Python has for them."""
    names = {}
    for line in param.read_text().splitlines()[2:]:
        words = line.split()
        if len(words) < 4:
            continue
        inputs, outputs = int(words[2]), int(words[3])
        for name in words[4 : 4 + inputs + outputs]:
            names["v_" + re.sub(r"[^A-Za-z0-9_]", "_", name)] = name
    return names


def given(path: str, arguments: list[str], names: dict[str, str], made_up: tuple) -> list[torch.Tensor]:
    """The inputs of a file, in the order of the arguments of `forward`."""
    with np.load(path) as file:
        arrays = [(name, file[name]) for name in file.files]
    by_name = dict(arrays)
    if len(arrays) < len(arguments):
        sys.exit(f"{path} holds {len(arrays)} arrays, the model takes {len(arguments)}")
    inputs = []
    for i, argument in enumerate(arguments):
        name = names.get(argument, argument)
        known = [by_name[key] for key in (name, f"in{i}", f"pnnx_input_{i}") if key in by_name]
        tensor = torch.from_numpy((known or [arrays[i][1]])[0])
        # NumPy has no bf16, and makes float64 where nobody asked.
        if i < len(made_up) and isinstance(made_up[i], torch.Tensor):
            tensor = tensor.to(made_up[i].dtype)
        inputs.append(tensor)
    return inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path, help="the model_pnnx.py that pnnx wrote")
    parser.add_argument("-o", "--output", default="reference.npz", help="where to write the values [reference.npz]")
    parser.add_argument("--inputs", help="an npz file with the inputs")
    parser.add_argument("--param", type=Path, help="the .param file [the one beside the module]")
    parser.add_argument("--threads", type=int, help="threads that PyTorch computes with")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    module = args.module.resolve()
    param = args.param or module.with_name(re.sub(r"_pnnx\.py$", ".pnnx.param", module.name))
    if not param.is_file():
        sys.exit(f"{param} is not there: name the .param file with --param")
    output, inputs = Path(args.output).resolve(), args.inputs and Path(args.inputs).resolve()
    names = operands(param.resolve())

    values: dict[str, np.ndarray] = {}

    def keep(name: str, value) -> None:
        # A value that is no operand of the graph is one that pnnx inlined, or the result.
        found = leaves(value)
        whole = isinstance(value, (torch.Tensor, bool, int, float, complex))
        for i, leaf in enumerate(found):
            operand = names.get(name)
            if operand is not None:
                values[operand if whole else f"{operand}.{i}"] = leaf

    tree = rewritten(module.read_text())
    os.chdir(module.parent)  # where the module finds its weights
    sys.path.insert(0, str(module.parent))
    code = {"__name__": "exported", "__file__": str(module), KEEP: keep}
    exec(compile(tree, str(module), "exec"), code)
    model = code["Model"]
    forward = model.forward
    arguments = list(forward.__code__.co_varnames[1 : forward.__code__.co_argcount])

    def run(self, *made_up):
        tensors = given(str(inputs), arguments, names, made_up) if inputs else made_up
        with torch.no_grad():
            return forward(self, *tensors)

    model.forward = run
    with torch.no_grad():
        code["test_inference"]()
    np.savez(output, **values)
    missing = [operand for name, operand in names.items() if operand not in values and f"{operand}.0" not in values]
    print(f"{output}: {len(values)} arrays" + (f", nothing for {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()

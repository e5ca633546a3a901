"""Exports the models once for all engines, into a folder for each, with the same weights and inputs:

    model.pnnx.param, model.pnnx.bin    for plutino
    model.onnx                          for ONNX Runtime and OpenVINO
    model.ncnn.param, model.ncnn.bin    for ncnn
    model_pnnx.py                       for PyTorch
    in0.npy ..., out0.npy ...           inputs; outputs by PyTorch in double precision
    case.json                           what this script prints of it, for all models at once, as a list

The weights are made by name (generator.py) for the graph that pnnx writes. The other formats are exported from that
graph, executed as PyTorch code, so that all engines compute the same function of the same numbers.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import export  # noqa: E402
import files  # noqa: E402
import generator  # noqa: E402
import networks  # noqa: E402
from export import Exported, captured_output, run  # noqa: E402
from peers import graph, zoo  # noqa: E402
from peers.sets import SETS  # noqa: E402
from peers.zoo import Case  # noqa: E402

OPSET = 20
PACKAGES = ("numpy", "onnx", "pnnx", "torch", "torchvision")


def channel_shuffle(g, x, groups):
    """torch.channel_shuffle, which the exporter does not know: reshape, transpose, reshape."""
    from torch.onnx import symbolic_helper

    n, c, h, w = symbolic_helper._get_tensor_sizes(x)
    groups = symbolic_helper._parse_arg(groups, "i")

    def reshape(value, *shape: int):
        return g.op("Reshape", value, g.op("Constant", value_t=torch.tensor(shape)))

    split = reshape(x, n, groups, c // groups, h, w)
    return reshape(g.op("Transpose", split, perm_i=[0, 2, 1, 3, 4]), n, c, h, w)


def rms_norm(g, x, shape, weight, eps):
    """torch.rms_norm, which the exporter does not know: spelled out as transformers does."""
    from torch.onnx import symbolic_helper

    def constant(value: Tensor):
        return g.op("Constant", value_t=value)

    eps = symbolic_helper._parse_arg(eps, "f") or torch.finfo(torch.float32).eps
    axes = range(-len(symbolic_helper._parse_arg(shape, "is")), 0)
    square = g.op("Pow", x, constant(torch.tensor(2.0)))
    mean = g.op("ReduceMean", square, constant(torch.tensor(list(axes))), keepdims_i=1)
    root = g.op("Sqrt", g.op("Add", mean, constant(torch.tensor(eps))))
    y = g.op("Div", x, root)
    return y if symbolic_helper._is_none(weight) else g.op("Mul", y, weight)


def tensor_split(g, x, indices, dim):
    """torch.tensor_split, which the exporter makes a loop of: the slices that pnnx made it of."""
    from torch.onnx import symbolic_helper

    axis = symbolic_helper._parse_arg(dim, "i")
    ends = [*symbolic_helper._parse_arg(indices, "is"), sys.maxsize]
    bounds = zip([0, *ends], ends)
    parts = [symbolic_helper._slice_helper(g, x, axes=[axis], starts=[a], ends=[b]) for a, b in bounds]
    return g.op("prim::ListConstruct", *parts)


SYMBOLS: dict[str, Callable] = {
    "aten::channel_shuffle": channel_shuffle,
    "aten::rms_norm": rms_norm,
    "aten::tensor_split": tensor_split,
}


def write_onnx(case: Case, module: nn.Module, inputs: tuple[Tensor, ...], folder: Path) -> None:
    for name, symbol in SYMBOLS.items():
        torch.onnx.register_custom_op_symbolic(name, symbol, OPSET)
    outputs = len(list(folder.glob("out*.npy")))
    with captured_output(), warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            module,
            inputs,
            folder / "model.onnx",
            dynamo=False,
            opset_version=OPSET,
            input_names=[recipe["name"] for recipe in case.recipes],
            output_names=[f"out{i}" for i in range(outputs)],
        )


def write_ncnn(case: Case, module: nn.Module, inputs: tuple[Tensor, ...], folder: Path) -> None:
    """ncnn has no batch dimension: the model is exported for the first sample."""
    single = tuple(x[:1].float() if i in case.ncnn_floats else x[:1] for i, x in enumerate(inputs))
    with Exported(module, single, fp16=False) as exported:
        for name in ("model.ncnn.param", "model.ncnn.bin"):
            shutil.copyfile(exported.folder / name, folder / name)


FORMATS: dict[str, Callable] = {"onnx": write_onnx, "ncnn": write_ncnn}


def sources(chosen: ModuleType) -> str:
    """A hash of all that a prepared folder of a set depends on."""
    scripts = Path(__file__).parent.parent
    modules = [networks, generator, files, export, graph, zoo, chosen, sys.modules[__name__]]
    paths = {Path(module.__file__) for module in modules} | set(scripts.glob("models/*.py"))
    versions = {package: version(package) for package in (*PACKAGES, *chosen.PACKAGES)}
    digest = hashlib.sha256(json.dumps(versions).encode())
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def prepare(case: Case, folder: Path) -> dict:
    """Writes the folder of one case and returns its description."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    inputs = tuple(torch.from_numpy(generator.input_values(recipe)) for recipe in case.recipes)
    for recipe, tensor in zip(case.recipes, inputs):
        np.save(folder / f"{recipe['name']}.npy", tensor.numpy())

    with Exported(case.network.build().eval(), inputs, moduleop=case.network.kept_whole) as exported:
        networks.generate_weights(exported)
        exported.save(folder, weights=True)
        code = (exported.folder / "model_pnnx.py").read_text()
        stored = repr(str(exported.bin))
        if stored not in code:
            raise RuntimeError("model_pnnx.py names its weights in an unknown way")
        beside = "os.path.join(os.path.dirname(__file__), 'model.pnnx.bin')"
        (folder / "model_pnnx.py").write_text(code.replace(stored, beside))

    exact = graph.load(folder, case.network).double()
    cast = [x.double() if x.is_floating_point() else x for x in inputs]
    for i, output in enumerate(run(exact, *cast)):
        np.save(folder / f"out{i}.npy", output)
    del exact

    failed = {}
    module = graph.load(folder, case.network)
    for name, write in FORMATS.items():
        try:
            write(case, module, inputs, folder)
        except Exception as error:
            traceback.print_exc(limit=-3, chain=False)
            failed[name] = f"export: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return {"name": case.name, "batch": case.batch, "torch": case.torch, "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--set", choices=SETS, default="sixteen", help="of models")
    parser.add_argument("names", nargs="*", help="only these models of the set")
    args = parser.parse_args()
    chosen = SETS[args.set]
    cases = {case.name: case for case in chosen.CASES}
    if unknown := set(args.names) - cases.keys():
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")

    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # the fast path cannot be traced

    stamp = sources(chosen)
    described = []
    for name in args.names or cases:
        folder = args.out.resolve() / name
        written = folder / "case.json"
        entry = json.loads(written.read_text()) if written.exists() else {}
        if entry.get("sources") != stamp:
            start = time.monotonic()
            entry = prepare(cases[name], folder) | {"sources": stamp}
            written.write_text(json.dumps(entry, indent=2) + "\n")
            print(f"exported {name} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
        described.append(entry | {"folder": str(folder)})  # not stored: the cache may be moved
    print(json.dumps(described))


if __name__ == "__main__":
    main()

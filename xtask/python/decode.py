"""Makes a decoder of 125 million parameters with random weights, and times single-token steps of it with other engines.

    python xtask/python/decode.py make FOLDER
    python xtask/python/decode.py time FOLDER --engine torch|compile|onnx --threads 1
    plutino generate FOLDER/model --prompt "$(python -c 'print("a" * 64)')" --max 129 -t 1     # the same with plutino

Needs what the fixtures need; the tokenizer knows letters, and all other tokens by their numbers.
"""

import argparse
import json
import os
import string
import sys
import time
from pathlib import Path

PROMPT, STEPS = 64, 128
ROLES = ["tokens", "positions", "mask"]


def decoder():
    import torch
    from models.decoder import Decoder, Size

    torch.manual_seed(0)
    net = Decoder(Size(vocabulary=32000, width=768, layers=12, heads=12, groups=4, inner=2048))
    for parameter in net.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return net.eval()


def make(folder: Path) -> None:
    import story
    import torch

    net = decoder()
    print(f"{sum(p.numel() for p in net.parameters()) / 1e6:.1f} M parameters")
    story.export(net, folder)
    (folder / "model.generate.json").write_text(json.dumps({"inputs": ROLES}) + "\n")
    names = [*string.ascii_lowercase, " "]
    vocabulary = {name: i for i, name in enumerate(names)}
    vocabulary |= {f"<{i}>": i for i in range(len(names), net.size.vocabulary)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "decoder": {"type": "Fuse"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")

    inputs = net.inputs(1, 1, 4)
    taken = ["tokens", "positions", "mask", *(f"past{i}" for i in range(len(inputs) - 3))]
    made = ["scores", *(f"cache{i}" for i in range(len(inputs) - 3))]
    past, all_keys = torch.export.Dim("past", min=2), torch.export.Dim("keys", min=3)
    shapes = {"tokens": {}, "positions": {}, "mask": {3: all_keys}, "past": tuple({2: past} for _ in inputs[3:])}
    try:
        torch.onnx.export(net, inputs, str(folder / "step.onnx"), input_names=taken, output_names=made, dynamic_shapes=shapes, dynamo=True)  # fmt: skip
    except Exception as error:  # noqa: BLE001: onnxruntime is then left out
        print(f"no step.onnx: {type(error).__name__}: {error}", file=sys.stderr)


def torch_step(compiled: bool):
    import torch

    net = decoder()
    step = torch.compile(net, dynamic=True) if compiled else net

    def run(tokens, positions, mask, caches):
        with torch.inference_mode():
            scores, *caches = step(tokens, positions, mask, *caches)
        return scores, caches

    return run


def onnx_step(folder: Path, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "step.onnx"), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    value = onnxruntime.OrtValue.ortvalue_from_numpy

    def run(tokens, positions, mask, caches):
        fed = [value(x.numpy()) for x in (tokens, positions, mask)]
        caches = [c if isinstance(c, onnxruntime.OrtValue) else value(c.numpy()) for c in caches]
        scores, *caches = session.run_with_ort_values(None, dict(zip(names, fed + caches, strict=True)))
        return scores, caches

    return run


def measure(folder: Path, engine: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    run = onnx_step(folder, threads) if engine == "onnx" else torch_step(engine == "compile")
    net = decoder()
    size = net.size
    times = []
    for _ in range(3):  # the first is for compilers
        caches = [torch.rand(1, size.groups, PROMPT, size.head) for _ in range(2 * size.layers)]
        start = time.perf_counter()
        for at in range(PROMPT, PROMPT + STEPS):
            mask = torch.zeros(1, 1, 1, at + 1)
            _, caches = run(torch.tensor([[at]]), torch.tensor([[at]]), mask, caches)
        times.append(time.perf_counter() - start)
    print(f"{engine}, {threads} threads: {STEPS / min(times[1:]):.1f} tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "time"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=("torch", "compile", "onnx"), default="torch")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.what == "make":
        make(args.folder)
    else:
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
        measure(args.folder, args.engine, args.threads)


if __name__ == "__main__":
    main()

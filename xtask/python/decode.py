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
    caches = range(len(inputs) - 3)
    taken = [*ROLES, *(f"past{i}" for i in caches)]
    open_lengths = {"mask": {3: "keys"}} | {f"past{i}": {2: "past"} for i in caches}
    spelled_out()  # the exporter knows neither grouped queries nor RMS norm
    torch.onnx.export(
        net, inputs, str(folder / "step.onnx"), input_names=taken, output_names=["scores", *(f"cache{i}" for i in caches)],
        dynamic_axes=open_lengths, dynamo=False,
    )  # fmt: skip


def spelled_out() -> None:
    """Attention with the keys and values of each group repeated, and norms in their parts."""
    from torch import nn
    from torch.nn import functional as F

    attention = F.scaled_dot_product_attention

    def repeated(q, k, v, attn_mask, enable_gqa):
        times = q.shape[1] // k.shape[1]
        return attention(q, k.repeat_interleave(times, 1), v.repeat_interleave(times, 1), attn_mask=attn_mask)

    F.scaled_dot_product_attention = repeated
    nn.RMSNorm.forward = lambda norm, x: x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt() * norm.weight


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
    times, cpu = [], 0.0
    for turn in range(3):  # the first is for compilers
        caches = [torch.rand(1, size.groups, PROMPT, size.head) for _ in range(2 * size.layers)]
        for at in range(PROMPT, PROMPT + STEPS):
            mask = torch.zeros(1, 1, 1, at + 1)
            start, spent = time.perf_counter(), time.process_time()
            _, caches = run(torch.tensor([[at]]), torch.tensor([[at]]), mask, caches)
            if turn:
                times.append(time.perf_counter() - start)
                cpu += time.process_time() - spent
    cpu /= len(times)
    times.sort()
    best, median = times[len(times) // 20], times[len(times) // 2]  # others may use the machine: the 5th of 100
    print(f"{engine}, {threads} threads: {best * 1e3:.1f} ms a token at best, {median * 1e3:.1f} in the middle, {cpu * 1e3:.1f} of CPU")


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

"""Times single operators beside PyTorch's interpreter.

Started by `cargo xtask bench-operators`. Each is a module of its own, exported by `plutino.export`; PyTorch and a session
of plutino run it in turn, in one process, with the same inputs. Calls are timed from Python, so that neither looks better
than its users see it.
"""

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import plutino
import torch
from torch import Tensor, nn
from torch.nn import functional as F

GENERATOR = torch.Generator().manual_seed(1)
ROUNDS = 7
SLICE = 0.02
"""Seconds that one side computes before it is the other's turn."""


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def below(bound: int, *shape: int) -> Tensor:
    return torch.randint(0, bound, shape, generator=GENERATOR)


def grid(*shape: int) -> Tensor:
    return torch.rand(*shape, 2, generator=GENERATOR) * 2 - 1


def definite(n: int, size: int) -> Tensor:
    x = normal(n, size, size)
    return x @ x.mT + size * torch.eye(size)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


FLAT = normal(1 << 18)
"""As many numbers as a picture of 224 x 224 has in two of its middle layers."""
SQUARE = normal(512, 512)
WHOLE = below(100, 512, 512)
POSITIVE = FLAT.abs() + 0.1
UNIT = torch.rand(1 << 18, generator=GENERATOR) * 1.98 - 0.99

Case = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


def elementwise() -> Iterator[tuple[str, Case]]:
    for name in ("exp", "exp2", "sin", "tan", "atan", "sinh", "tanh", "asinh", "erf", "sigmoid"):
        yield name, (getattr(torch, name), (FLAT,))
    for name in ("asin", "acos", "atanh", "erfinv"):
        yield name, (getattr(torch, name), (UNIT,))
    for name in ("log", "log10", "rsqrt", "lgamma", "digamma"):
        yield name, (getattr(torch, name), (POSITIVE,))
    for name in ("atan2", "hypot", "fmod", "remainder", "maximum", "logaddexp"):
        yield name, (getattr(torch, name), (FLAT, POSITIVE))
    yield "pow", (torch.pow, (POSITIVE, FLAT))
    yield "where", (lambda a, b: torch.where(a > 0, a, b), (SQUARE, normal(512, 512)))
    for name, dtype in (("int64", torch.int64), ("int32", torch.int32), ("float64", torch.float64)):
        yield f"add {name}", (torch.add, (WHOLE.to(dtype), WHOLE.to(dtype)))
        yield f"clamp {name}", (lambda a: torch.clamp(a, 2, 50), (WHOLE.to(dtype),))
    yield "exp float64", (torch.exp, (FLAT.double(),))


def reductions() -> Iterator[tuple[str, Case]]:
    for name in ("sum", "amax", "argmax", "prod", "var", "norm", "softmax", "cumsum", "sort", "median", "logsumexp"):
        yield name, (lambda a, f=getattr(torch, name): first(f(a, dim=1)), (SQUARE,))
    for name in ("sum", "amax", "prod"):
        yield f"{name} int64", (lambda a, f=getattr(torch, name): f(a, dim=1), (WHOLE,))
        yield f"{name} float64", (lambda a, f=getattr(torch, name): f(a, dim=1), (SQUARE.double(),))
    yield "sum of columns", (lambda a: a.sum(0), (SQUARE,))
    yield "any", (lambda a: (a > 5).any(1), (SQUARE,))
    yield "topk", (lambda a: a.topk(5)[0], (normal(80000),))
    yield "unique", (torch.unique, (below(1000, 1 << 16),))
    yield "bincount", (lambda a: torch.bincount(a, minlength=1000), (below(1000, 1 << 16),))
    yield "searchsorted", (torch.searchsorted, (FLAT[:4096].sort()[0], FLAT[: 1 << 16]))


def first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def movement() -> Iterator[tuple[str, Case]]:
    rows = below(512, 512)
    yield "gather", (lambda a, i: a.gather(1, i), (SQUARE, below(512, 512, 512)))
    yield "index_select of rows", (lambda a, i: a.index_select(0, i), (SQUARE, rows))
    yield "index_select of columns", (lambda a, i: a.index_select(1, i), (SQUARE, rows))
    yield "x[i, j]", (lambda a, i, j: a[i, j], (SQUARE, below(512, 1 << 18), below(512, 1 << 18)))
    yield "masked_select", (lambda a: a[a > 0], (FLAT,))
    yield "nonzero", (lambda a: (a > 0).nonzero(), (FLAT,))
    yield "scatter_add", (lambda a, i: torch.zeros(512, 512).scatter_add(1, i, a), (SQUARE, below(512, 512, 512)))
    yield "embedding_bag", (F.embedding_bag, (below(1000, 256, 16), normal(1000, 64)))
    yield "flip", (lambda a: a.flip(1), (SQUARE,))
    yield "rot90", (torch.rot90, (SQUARE,))
    yield "roll", (lambda a: a.roll(7, 1), (SQUARE,))
    yield "repeat_interleave", (lambda a: a.repeat_interleave(3, 1), (SQUARE,))
    yield "transpose", (lambda a: a.mT.contiguous(), (normal(8, 128, 256),))
    yield "pad reflect", (lambda a: F.pad(a, (3, 3, 3, 3), mode="reflect"), (normal(1, 16, 128, 128),))
    yield "cat int64", (lambda a: torch.cat((a, a), 1), (WHOLE,))


def images() -> Iterator[tuple[str, Case]]:
    picture, volume = normal(1, 16, 64, 64), normal(1, 16, 16, 32, 32)
    yield "grid_sample", (lambda a, g: F.grid_sample(a, g, align_corners=False), (picture, grid(1, 64, 64)))
    for mode in ("nearest", "bilinear", "bicubic"):
        yield f"interpolate {mode}", (lambda a, m=mode: F.interpolate(a, scale_factor=2, mode=m), (picture,))
    yield "max_pool3d", (lambda a: F.max_pool3d(a, 3, 2, 1), (volume,))
    yield "adaptive_avg_pool2d", (lambda a: F.adaptive_avg_pool2d(a, (5, 7)), (normal(1, 64, 31, 33),))
    yield "unfold", (lambda a: F.unfold(a, 3, padding=1), (normal(2, 8, 32, 32),))
    yield "fold", (lambda a: F.fold(a, (32, 32), 3, padding=1), (normal(2, 72, 1024),))
    yield "conv3d", (nn.Conv3d(16, 32, 3, padding=1), (normal(1, 16, 8, 28, 28),))
    yield "conv3d depthwise", (nn.Conv3d(32, 32, 3, padding=1, groups=32), (normal(1, 32, 8, 28, 28),))
    yield "conv_transpose2d", (nn.ConvTranspose2d(64, 64, 3, 2, 1), (normal(1, 64, 28, 28),))
    yield "conv2d of groups", (nn.Conv2d(96, 96, 3, padding=1, groups=12), (normal(1, 96, 28, 28),))


def numerics() -> Iterator[tuple[str, Case]]:
    yield "cdist", (torch.cdist, (normal(256, 64), normal(256, 64)))
    yield "pdist", (F.pdist, (normal(256, 64),))
    yield "fft2", (lambda a: torch.view_as_real(torch.fft.fft2(a)), (normal(4, 256, 256),))
    yield "rfft", (lambda a: torch.view_as_real(torch.fft.rfft(a)), (normal(64, 4096),))
    yield "stft", (
        lambda a: torch.view_as_real(torch.stft(a, 512, return_complex=True, window=torch.ones(512))),
        (normal(1, 1 << 15),),
    )
    yield "matmul int64", (torch.matmul, (below(9, 128, 128), below(9, 128, 128)))
    yield "matmul float64", (torch.matmul, (normal(256, 256).double(), normal(256, 256).double()))
    yield "inv", (torch.linalg.inv, (normal(16, 64, 64),))
    yield "solve", (torch.linalg.solve, (normal(4, 128, 128), normal(4, 128, 16)))
    yield "cholesky", (torch.linalg.cholesky, (definite(16, 64),))
    yield "qr", (lambda a: torch.linalg.qr(a)[1], (normal(8, 64, 64),))
    yield "eigvalsh", (torch.linalg.eigvalsh, (definite(4, 64),))


FAMILIES = {f.__name__: f for f in (elementwise, reductions, movement, images, numerics)}


def duration(call: Callable[[], object]) -> float:
    """The median of as many calls as fit a slice, in seconds."""
    times = []
    end = time.perf_counter() + SLICE
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(case: Case, folder: Path) -> tuple[float, float]:
    """PyTorch's time and ours, in seconds."""
    function, inputs = case
    module = (function if isinstance(function, nn.Module) else Call(function)).eval()
    stem = folder / "model.pnnx.param"
    plutino.export(module, stem, inputs)
    session = plutino.Session(stem, threads=torch.get_num_threads())
    arrays = [np.ascontiguousarray(x.numpy()) for x in inputs]
    with torch.inference_mode():
        sides = (lambda: module(*inputs), lambda: session.run(None, arrays))
        for side in sides:
            side()
        rounds = [[duration(side) for side in sides] for _ in range(ROUNDS)]
    theirs, ours = (statistics.median(times) for times in zip(*rounds))
    return theirs, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="operators or families whose name has this word")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--markdown", type=Path, help="write the table here")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    lines = ["| operator | PyTorch, ms | plutino, ms | ours / theirs |", "|---|---|---|---|"]
    print(*lines, sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        for family, cases in FAMILIES.items():
            for name, case in cases():
                if args.only and not any(word in (family, name) or word in name for word in args.only):
                    continue
                theirs, ours = measure(case, Path(folder))
                lines.append(f"| {name} | {theirs * 1e3:.3g} | {ours * 1e3:.3g} | {ours / theirs:.2f} |")
                print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())

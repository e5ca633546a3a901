"""The networks of `networks.py`, exported by plutino and by pnnx: how long a run of each takes, on one thread.

    PYTHONPATH=<folder of plutino> python -m exporter.pairs [--only WORD] [--rounds 40]

Both sessions live in one process and run in turn; a ratio is the median over rounds of one run of each.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import plutino
import torch

import generator
from networks import NETWORKS

from .child import prepare
from .weights import perturb


def files(name: str, folder: Path) -> tuple[list[str], list[np.ndarray]]:
    """The stems of both models, ours first, and inputs; what is there is not exported again."""
    network = NETWORKS[name]
    recipes = [{"name": f"in{i}", "key": f"{name}.in{i}", **recipe} for i, recipe in enumerate(network.inputs)]
    inputs = [generator.input_values(recipe) for recipe in recipes]
    stems = []
    for exporter in ("torch.export", "pnnx"):
        stem = folder / f"{name}.{exporter.replace('.', '_')}"
        stems.append(str(stem))
        if not Path(f"{stem}.pnnx.bin").exists():
            torch.manual_seed(0)
            module = perturb(network.build().eval())
            plutino.export(module, str(stem), tuple(map(torch.from_numpy, inputs)), exporter=exporter)
    return stems, inputs


def compare(stems: list[str], inputs: list[np.ndarray], rounds: int) -> tuple[float, list[float], list[int]]:
    """The ratio (ours to pnnx), milliseconds of each, and how many steps each has."""
    sessions = [plutino.Session(stem, threads=1) for stem in stems]
    # pnnx writes the shapes of the example: an input that it leaves out is none of the model.
    taken = [inputs[: len(session.get_inputs())] for session in sessions]
    steps = [len(session.plan([x.shape for x in feeds])["steps"]) for session, feeds in zip(sessions, taken)]
    for session, feeds in [*zip(sessions, taken)] * 3:
        session.run(None, feeds)
    times: list[list[float]] = [[], []]
    for turn in range(rounds):
        for at in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            sessions[at].run(None, taken[at])
            times[at].append(time.perf_counter() - start)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(*times))
    return ratio, [1e3 * statistics.median(each) for each in times], steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="networks whose name has this word")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="keep the exported models here")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    prepare()
    chosen = [name for name in NETWORKS if any(word in name for word in args.only or [""])]
    print("| network | exported by plutino, ms | by pnnx, ms | ratio | steps |", "|---|---|---|---|---|", sep="\n")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            ratio, [ours, theirs], steps = compare(*files(name, folder), args.rounds)
            print(f"| {name} | {ours:.2f} | {theirs:.2f} | {ratio:.3f} | {steps[0]}, {steps[1]} |", flush=True)


if __name__ == "__main__":
    main()

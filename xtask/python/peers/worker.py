"""One engine with one model in one process. It takes commands as lines of JSON and answers each with one line.

    (at start)                        {"reply": "ready", "version": "1.31.1", "harness": bytes}
    {"do": "load"}                    {"reply": "loaded", "ms": until the first result was there}
    {"do": "run", "seconds": 1.0}     {"reply": "ran", "ms": [one for each run], "peak": bytes}
    {"do": "check"}                   {"reply": "checked", "error": largest difference over largest value}
    (instead of any of these)         {"reply": "failed", "reason": "..."}

`harness` is what the process holds before the engine's package is imported (the interpreter, NumPy, the inputs),
`peak` the most that it held at any time. A failed worker takes no further commands.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO

import numpy as np

from peers.engines import ENGINES, Arrays, Engine

WARM_UP = 0.1  # of each slice: the caches hold another engine's data
FEWEST = 3


def memory(key: str) -> int | None:
    """VmRSS or VmHWM of this process in bytes, where the system tells."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(key))


def arrays(folder: Path, kind: str) -> Arrays:
    return [np.load(folder / f"{kind}{i}.npy") for i in range(len(list(folder.glob(f"{kind}*.npy"))))]


def timed(engine: Engine) -> float:
    start = time.perf_counter()
    engine.run()
    return (time.perf_counter() - start) * 1e3


def time_slice(engine: Engine, seconds: float) -> list[float]:
    """Times of single runs in ms, after a warm-up. A slice takes longer than asked where a run does."""
    start = time.perf_counter()
    while True:
        engine.run()
        if time.perf_counter() - start >= WARM_UP * seconds:
            break
    times = []
    while len(times) < FEWEST or time.perf_counter() - start < seconds:
        times.append(timed(engine))
    return times


def largest_error(found: Arrays, expected: Arrays) -> float:
    """The largest difference of any output over the largest value of that output."""
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} outputs in place of {len(expected)}")
    errors = []
    for i, (a, b) in enumerate(zip(found, expected)):
        if a.size != b.size:
            raise ValueError(f"output {i} has shape {a.shape} in place of {b.shape}")
        errors.append(float(np.abs(a.reshape(b.shape).astype(np.float64) - b).max() / np.abs(b).max()))
    if not np.isfinite(errors).all():
        raise ValueError("outputs are not finite")
    return max(errors)


def serve(engine_name: str, folder: Path, threads: int, answers: TextIO) -> None:
    def answer(reply: str, **values) -> None:
        print(json.dumps({"reply": reply, **values}), file=answers, flush=True)

    inputs = arrays(folder, "in")
    harness = memory("VmRSS")
    engine = ENGINES[engine_name](threads)
    answer("ready", version=engine.version, harness=harness)
    for line in sys.stdin:
        match json.loads(line):
            case {"do": "load"}:
                start = time.perf_counter()
                engine.load(folder, inputs)
                engine.run()
                answer("loaded", ms=(time.perf_counter() - start) * 1e3)
            case {"do": "run", "seconds": seconds}:
                times = time_slice(engine, seconds)
                answer("ran", ms=times, peak=memory("VmHWM"))
            case {"do": "check"}:
                answer("checked", error=largest_error(engine.arrays(engine.run()), arrays(folder, "out")))
            case other:
                raise ValueError(f"unknown command {other}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the prepared model")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines may print; the answers have the old standard output for themselves
    try:
        serve(args.engine, args.folder, args.threads, answers)
    except Exception as error:
        words = " ".join(str(error).split())
        reason = f"{type(error).__name__}: {words[:300]}"
        print(json.dumps({"reply": "failed", "reason": reason}), file=answers, flush=True)


if __name__ == "__main__":
    main()

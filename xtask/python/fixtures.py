"""Writes the folder `fixtures/`: models as pnnx exports them, with PyTorch's outputs.

Started by `cargo xtask fixtures`, which prepares the Python environment.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import torch  # noqa: E402

import digits  # noqa: E402
import networks  # noqa: E402
import operators  # noqa: E402
import precision  # noqa: E402
import programs  # noqa: E402
import reference  # noqa: E402
import shapes  # noqa: E402
import story  # noqa: E402
import words  # noqa: E402

CASES = {f"ops/{operators.FOLDERS[name]}/{name}": case for name, case in operators.CASES.items()}
PROGRAMS = [f"programs/{name}" for name in programs.PROGRAMS]
CHAINS = [f"precision/{name}" for name in precision.chains()]
WRITERS = (
    {"digits": digits.write, "compare": reference.write, "shapes": shapes.write, "story": story.write, "tokenizers": words.write}
    | dict.fromkeys(networks.NETWORKS, networks.write)
    | dict.fromkeys(CASES, operators.write)
    | dict.fromkeys(CHAINS, precision.write)
    | dict.fromkeys(PROGRAMS, programs.write)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("names", nargs="*", help="only these fixtures; `ops`, `precision` and `programs` stand for all of theirs")
    args = parser.parse_args()
    for group, names in (("ops", CASES), ("precision", CHAINS), ("programs", PROGRAMS)):
        if group in args.names:
            args.names.remove(group)
            args.names += names
    if unknown := set(args.names) - WRITERS.keys():
        parser.error(f"no such fixture: {', '.join(sorted(unknown))}")

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mha.set_fastpath_enabled(False)  # the fast path cannot be traced

    for stale in {str(path.relative_to(args.out)) for path in args.out.glob("ops/*/*")} - CASES.keys():
        shutil.rmtree(args.out / stale)
    for name in args.names or WRITERS:
        start = time.monotonic()
        shutil.rmtree(args.out / name, ignore_errors=True)
        line = WRITERS[name](Path(name).name, args.out / name)
        print(f"{name} ({time.monotonic() - start:.1f} s): {line}", flush=True)


if __name__ == "__main__":
    main()

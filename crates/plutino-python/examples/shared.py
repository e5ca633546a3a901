"""What the examples beside this file have in common: a model, its inputs, and what must come out."""

import pathlib

import numpy as np

import plutino

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "digits"


def session():
    """A session that carries its weights with it: workers need no file. One thread: each worker has
    a core, and workers that start threads for all cores take them from each other. Rows have the same
    bits in batches of any size."""
    param, weights = (FOLDER / f"model.pnnx.{end}" for end in ("param", "bin"))
    return plutino.Session(param.read_bytes(), bin=weights.read_bytes(), threads=1, batch_invariant=True)


def images():
    """360 handwritten digits, (360, 1, 8, 8)."""
    return np.load(FOLDER / "inputs.npz")["in0"]


def same(scores, expected):
    """Results of workers have the bits of results of this process."""
    scores = np.asarray(scores, dtype=expected.dtype).reshape(expected.shape)
    assert scores.tobytes() == expected.tobytes(), np.abs(scores - expected).max()
    return f"{len(scores)} rows, equal to the last bit"

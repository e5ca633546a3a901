"""Small graphs of one operator or a few, written from PyTorch's documentation: one table per family."""

from pathlib import Path

from operators import activation, attention, convolution, expression, extremes, factorizations, fourier, functions, graph
from operators import halves, loss, matrix, native, normalization, pooling, quantized, raw, recorded, resize, sampling
from operators import levels, numbers, packed, shape, special, statistics, tensors, vision
from operators import case as one

__all__ = ["CASES", "FOLDERS", "write"]

TABLES = (
    convolution, pooling, activation, normalization, matrix, attention, resize, shape, sampling, vision, fourier,
    quantized, expression, raw, native, recorded, special, statistics, loss, tensors, factorizations, extremes,
    functions, graph, packed, levels, halves, numbers,
)
CASES = {name: case for table in TABLES for name, case in table.CASES.items()}
FOLDERS = {name: table.__name__.rpartition(".")[2] for table in TABLES for name in table.CASES}
"""The folder of each case: the name of its table."""
assert len(CASES) == sum(len(table.CASES) for table in TABLES), "two cases have one name"


def write(name: str, target: Path) -> str:
    """Writes the case of that name; returns the types of its operators."""
    return one.write(name, CASES[name], target)

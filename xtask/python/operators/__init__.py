"""Small graphs of one operator or a few, written from PyTorch's documentation: one table per family."""

from pathlib import Path

from operators import activation, attention, convolution, expression, fourier, graph, matrix, normalization
from operators import pooling, quantized, raw, resize, sampling, shape
from operators import case as one

__all__ = ["CASES", "write"]

TABLES = (convolution, pooling, activation, normalization, matrix, attention, resize, shape, sampling, fourier, quantized, expression, raw, graph)
CASES = {name: case for table in TABLES for name, case in table.CASES.items()}
assert len(CASES) == sum(len(table.CASES) for table in TABLES), "two cases have one name"


def write(name: str, target: Path) -> str:
    """Writes the case of that name; returns the types of its operators."""
    return one.write(name, CASES[name], target)

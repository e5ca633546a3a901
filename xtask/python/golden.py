"""Writes crates/plutino-tensor/tests/golden/: npy files as NumPy writes them, which our reader is tested on.

    python xtask/python/golden.py

Each holds -2 .. 3 as 2 rows of 3; what else is special says the name.
"""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "crates/plutino-tensor/tests/golden"


def write(name: str, array: np.ndarray, version: tuple[int, int] = (1, 0)):
    with open(FOLDER / f"{name}.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)


def main():
    FOLDER.mkdir(exist_ok=True)
    x = np.arange(-2, 4).reshape(2, 3)
    for dtype in ["b1", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]:
        write(dtype, (x * (1 - 2j) if dtype.startswith("c") else x).astype(dtype))
    write("f4_big_endian", x.astype(">f4"))
    write("c16_big_endian", (x * (1 - 2j)).astype(">c16"))
    write("i2_fortran", np.asfortranarray(x.astype("i2")))
    write("f4_version_2", x.astype("f4"), (2, 0))
    write("f4_version_3", x.astype("f4"), (3, 0))
    write("f8_scalar", np.array(-2.0))
    write("f4_empty", np.zeros((3, 0, 2), "f4"))
    write("i8_vector", np.arange(-2, 4))
    # Nothing of ours: refused by name.
    write("refused_u2", x.astype("u2"))
    write("refused_text", np.array(["a", "b"]))
    write("refused_date", np.array(["2026-01-01"], "M8[D]"))
    write("refused_fields", np.zeros(2, [("a", "f4"), ("b", [("c", "i4", (2,)), ("d]'", "S3")])]))
    write("refused_fields_version_3", np.zeros(2, [("größe", "f4")]), (3, 0))


if __name__ == "__main__":
    main()

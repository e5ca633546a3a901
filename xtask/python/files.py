"""The file formats that fixtures use, each written so that equal content gives equal bytes."""

import io
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32,
          "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_, "c64": np.complex64, "c128": np.complex128}  # fmt: skip


@dataclass
class Operator:
    kind: str
    name: str
    inputs: list[str]
    outputs: list[str]
    params: dict[str, str]
    attributes: dict[str, tuple[tuple[int, ...], str]]

    def integers(self, param: str) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"-?\d+", self.params[param]))


@dataclass
class Graph:
    """What the weight generator needs to know of a `.pnnx.param` file."""

    operators: list[Operator]

    @staticmethod
    def read(path: Path) -> "Graph":
        operators = []
        for line in path.read_text().splitlines()[2:]:
            kind, name, n_in, n_out, *rest = line.split()
            split = int(n_in) + int(n_out)
            op = Operator(kind, name, rest[: int(n_in)], rest[int(n_in) : split], {}, {})
            for word in rest[split:]:
                key, value = word.split("=", 1)
                if key.startswith("@"):
                    shape, dtype = re.fullmatch(r"\((.*)\)(\w+)", value).groups()
                    op.attributes[key[1:]] = (tuple(int(n) for n in shape.split(",") if n), dtype)
                elif key[0] not in "$#":
                    op.params[key] = value
            operators.append(op)
        return Graph(operators)

    def consumers(self, op: Operator) -> list[Operator]:
        return [other for other in self.operators if set(op.outputs) & set(other.inputs)]

    def consumer_kinds(self, op: Operator) -> set[str]:
        return {other.kind for other in self.consumers(op)}


def read_weights(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def checksum(graph: Graph, entries: dict[str, bytes]) -> int:
    """CRC-32 of all weights, operators in the file's order, the weights of each by name."""
    crc = 0
    for op in graph.operators:
        for attr in sorted(op.attributes):
            crc = zlib.crc32(entries[f"{op.name}.{attr}"], crc)
    return crc


def write_zip(path: Path, entries: dict[str, bytes]) -> None:
    """A store-only zip with fixed dates, entries in the given order."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def write_json(path: Path, value: dict) -> None:
    """Indented, with lists of numbers on one line."""
    text = json.dumps(value, indent=2)
    text = re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)
    path.write_text(text + "\n")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    entries = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
        entries[f"{name}.npy"] = buffer.getvalue()
    write_zip(path, entries)

"""Profiles, plans and memory: dictionaries that show themselves as tables."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Sequence


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


class _Report(Dict[str, Any]):
    """A plain dictionary that shows itself as a table, in a terminal and in a notebook."""

    def _title(self) -> str:
        raise NotImplementedError

    def _table(self) -> List[Sequence[str]]:
        """The heading, then the rows; the first column is text, the others are numbers."""
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = [[str(cell) for cell in row] for row in self._table()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [self._title()]
        for row in rows:
            first, *others = zip(row, widths)
            cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heading, *rows = self._table()

        def cells(row: Sequence[str], tag: str) -> str:
            return "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row)

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
        return (
            f"<table><caption>{escape(self._title())}</caption>"
            f"<thead><tr>{cells(heading, 'th')}</tr></thead><tbody>{body}</tbody></table>"
        )


class Memory(_Report):
    """Bytes that a model and a run take, by what takes them; ``total`` is what ``max_memory`` is
    compared with."""

    def _title(self) -> str:
        return f"{_bytes(self['total'])} in all"

    def _table(self) -> List[Sequence[str]]:
        return [("of", "bytes"), *((name, _bytes(count)) for name, count in self.items())]


class Plan(_Report):
    """What a run with inputs of some shapes does: ``steps``, ``memory``, ``warnings``."""

    def _title(self) -> str:
        return f"{len(self['steps'])} steps, {_bytes(self['memory']['total'])} of memory"

    def _table(self) -> List[Sequence[str]]:
        heading = ("operator", "type", "kernel", "Mflop", "output")
        rows = (
            (
                step["operator"],
                step["kind"],
                step["kernel"],
                f"{step['flops'] / 1e6:.2f}",
                " ".join(spec for _, spec in step["outputs"]),
            )
            for step in self["steps"]
        )
        return [heading, *rows]


class Profile(_Report):
    """What a run took: ``total`` seconds, ``steps`` with ``start`` and ``seconds``, ``between``
    steps, and what each of the ``threads`` was busy for."""

    def _title(self) -> str:
        return f"{_time(self['total'])}, of it {_time(self['between'])} between steps"

    def _table(self) -> List[Sequence[str]]:
        total = self["total"] or 1.0
        steps = sorted(self["steps"], key=lambda step: -step["seconds"])
        rows = (
            (
                step["operator"],
                step["kind"],
                step["kernel"],
                _time(step["seconds"]),
                f"{100 * step['seconds'] / total:.1f} %",
                f"{step['flops'] / (step['seconds'] or 1e-9) / 1e9:.1f}",
            )
            for step in steps
        )
        return [("operator", "type", "kernel", "time", "share", "Gflop/s"), *rows]


class Comparison(_Report):
    """Values of a run beside those of a reference: ``values``, in order, each a dictionary, and
    ``unseen``, names that the plan has no value for."""

    @property
    def wrong(self) -> List[Dict[str, Any]]:
        """The values that differ, the first one first."""
        return [value for value in self["values"] if value["wrong"]]

    def _title(self) -> str:
        wrong = self.wrong
        return f"{len(wrong)} of {len(self['values'])} values differ" if wrong else "all match"

    def _table(self) -> List[Sequence[str]]:
        def number(size: Any) -> str:
            return "" if size is None else f"{size:.1e}"

        rows: List[Sequence[str]] = [("operand", "type", "operator", "error", "allowed")]
        for value in self.wrong:
            found = (value["operand"], value["kind"], value["operator"])
            rows.append((*found, value["why"] or number(value["error"]), number(value["tolerance"])))
        return rows

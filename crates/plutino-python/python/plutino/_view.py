"""The page of a model, in notebooks and in files."""

from __future__ import annotations

import os
from html import escape
from typing import Union

from . import _arguments


class View:
    """A page that shows a model: graph, plan, times, memory and weights. It is one file that fetches
    nothing, and runs nothing of the model."""

    def __init__(self, html: str, title: str, inputs: int, outputs: int) -> None:
        self.html = html
        """The page, as a browser takes it."""
        self._title = title
        self._counts = f"{inputs} input(s), {outputs} output(s)"

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the page to a file."""
        with open(_arguments.path("path", path), "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self) -> str:
        return f"plutino.View({self._title}, {self._counts}): save() it, or look in a notebook"

    def _repr_html_(self) -> str:
        # A document of its own, which may run its script and reach nothing of the notebook.
        return (
            f'<iframe title="{escape(self._title)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 40em; border: 1px solid #8888" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )

"""Tests of the worker that runs other engines; ours has the same ones in `xtask/src/bench_peers/ours.rs`."""

import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from peers import worker


class Doubling:
    """An engine that doubles its input."""

    version = "1"

    def __init__(self, threads: int):
        self.threads = threads

    def load(self, folder: Path, inputs: worker.Arrays) -> None:
        self.inputs = inputs

    def run(self) -> worker.Arrays:
        return [2 * x for x in self.inputs]

    def arrays(self, result: worker.Arrays) -> worker.Arrays:
        return result


class Worker(unittest.TestCase):
    def test_errors_are_relative_to_the_largest_value(self):
        expected = [np.array([1.0, -4.0])]
        self.assertEqual(worker.largest_error([np.array([1.0, -3.0], np.float32)], expected), 0.25)
        with self.assertRaisesRegex(ValueError, "not finite"):
            worker.largest_error([np.array([np.nan, -4.0], np.float32)], expected)
        with self.assertRaisesRegex(ValueError, "0 outputs in place of 1"):
            worker.largest_error([], expected)

    def test_every_command_has_its_answer(self):
        commands = ({"do": "load"}, {"do": "run", "seconds": 0.0}, {"do": "check"})
        lines = "".join(json.dumps(command) + "\n" for command in commands)
        answers = io.StringIO()
        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch.dict(worker.ENGINES, doubling=Doubling),
            mock.patch.object(sys, "stdin", io.StringIO(lines)),
        ):
            np.save(Path(name) / "in0.npy", np.array([1.0, 2.0], np.float32))
            np.save(Path(name) / "out0.npy", np.array([2.0, 5.0]))
            worker.serve("doubling", Path(name), 1, answers)
        ready, loaded, ran, checked = (json.loads(line) for line in answers.getvalue().splitlines())
        self.assertEqual((ready["reply"], ready["version"]), ("ready", "1"))
        self.assertEqual((loaded["reply"], ran["reply"]), ("loaded", "ran"))
        self.assertEqual(len(ran["ms"]), worker.FEWEST)
        self.assertEqual(checked, {"reply": "checked", "error": 0.2})


if __name__ == "__main__":
    unittest.main()

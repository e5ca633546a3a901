"""Errors: which class, with which fields."""

import os
import pathlib
import pickle
import tempfile
import unittest
import zipfile
from unittest import mock

import numpy as np

import plutino
import support


class Errors(unittest.TestCase):
    def error(self, kind, work, *arguments, **options):
        with self.assertRaises(kind) as raised:
            work(*arguments, **options)
        error = raised.exception
        self.assertIs(type(error), kind)
        self.assertIsInstance(error, plutino.Error)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again)), (kind, str(error)))
        self.assertEqual(again.__dict__, error.__dict__)
        return error

    def test_every_class_is_an_error_and_what_python_calls_it(self):
        for name in plutino.__all__:
            kind = getattr(plutino, name)
            if isinstance(kind, type) and issubclass(kind, BaseException):
                self.assertTrue(issubclass(kind, plutino.Error), name)
        self.assertTrue(issubclass(plutino.ModelNotFound, FileNotFoundError))
        self.assertTrue(issubclass(plutino.DeadlineExceeded, TimeoutError))
        self.assertTrue(issubclass(plutino.BudgetExceeded, MemoryError))
        self.assertTrue(issubclass(plutino.InputError, ValueError))

    def test_no_model(self):
        error = self.error(plutino.ModelNotFound, plutino.Session, "/nowhere/model")
        self.assertIsInstance(error, FileNotFoundError)
        self.assertTrue(error.file.endswith("model"))
        self.assertIn("/nowhere/model.pnnx.param", error.tried)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.pnnx.param")
            path.write_bytes(support.DIGITS.read_bytes())
            error = self.error(plutino.ModelNotFound, plutino.Session, path)
            self.assertIn("model.pnnx.bin", str(error))
            self.assertIn("bin= says so", str(error))

    def test_files_that_are_wrong(self):
        text = support.param("pnnx.Input in 0 1 x", "nn.ReLU relu 1 1 x y", "pnnx.Output out 1 0 y")
        text = text.replace(b"1 1 x y", b"one 1 x y")
        error = self.error(plutino.ModelError, plutino.Session, text)
        self.assertEqual((error.file, error.line), ("<memory>", 4))
        self.assertGreater(error.column, 1)
        weights = support.DIGITS.with_suffix(".bin").read_bytes()
        text = support.DIGITS.read_bytes()
        self.error(plutino.ModelError, plutino.Session, text, bin=weights[:-50])

    def test_weights_that_are_damaged(self):
        text = support.param(
            "pnnx.Input in 0 1 x #x=(1,512)f32",
            "nn.Linear l 1 1 x y bias=False in_features=512 out_features=1024 "
            "@weight=(1024,512)f32",
            "pnnx.Output out 1 0 y",
        )
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "net.pnnx.param")
            path.write_bytes(text)
            weights = path.with_suffix(".bin")
            with zipfile.ZipFile(weights, "w") as archive:
                archive.writestr("l.weight", bytes(1024 * 512 * 4))
            archive = bytearray(weights.read_bytes())
            archive[1 << 20] = 1
            weights.write_bytes(archive)
            for mmap in (True, False):  # as it is loaded, and as it is needed
                run = lambda: plutino.Session(path, mmap=mmap)(np.zeros((1, 512), np.float32))
                error = self.error(plutino.ModelError, run)
                self.assertEqual(error.file, str(weights))

    def test_an_operator_that_the_environment_names(self):
        with mock.patch.dict(os.environ, PLUTINO_PASSES_OFF="fuse@no_such_operator"):
            with self.assertWarnsRegex(RuntimeWarning, "no_such_operator: the model has no"):
                session = plutino.Session(support.DIGITS)
        session(np.zeros((1, 1, 8, 8), np.float32))

    def test_operators_that_are_not_supported(self):
        text = support.param(
            "pnnx.Input in 0 1 a",
            "test.Unheard first 1 1 a b",
            "test.Unheard second 1 1 b c",
            "nn.Softmax third 1 1 c d dimension=1",
            "pnnx.Output out 1 0 d",
        )
        error = self.error(plutino.UnsupportedOperators, plutino.Session, text)
        self.assertEqual(error.kinds, [("test.Unheard", 2)])
        self.assertIn("definitions=", str(error))
        self.assertNotIn("--define", str(error))
        self.assertEqual((error.operator, error.line), ("first", 4))
        self.assertEqual(len(error.problems), 1)
        self.assertIn("third", error.problems[0])

    def test_what_is_fed(self):
        session = plutino.Session(support.DIGITS)
        good = np.zeros((1, 1, 8, 8), np.float32)
        error = self.error(plutino.InputError, session, good.astype(np.float64))
        self.assertEqual((error.input, error.expected), ("0", "f32"))
        self.error(plutino.InputError, session)
        self.error(plutino.InputError, session, good, good)
        error = self.error(plutino.InputError, session.run, None, {"nothing": good})
        self.assertEqual(error.input, "nothing")
        error = self.error(plutino.InputError, session.run, None, {})
        self.assertEqual(error.missing, ["0"])
        self.error(plutino.InputError, session.run, ["nothing"], [good])
        self.error(plutino.InputError, session.run, None, {"0": good, "pnnx_input_0": good})
        untidy = np.array([0, 2], np.uint8).view(bool)
        error = self.error(plutino.InputError, plutino.Session(support.ECHO), untidy)
        self.assertEqual(error.input, "x")

    def test_numbers_and_lists_that_are_fed(self):
        def session(dtype, size="()"):
            return plutino.Session(
                support.param(
                    f"pnnx.Input in 0 1 x #x={size}{dtype}",
                    "torch.clone c 1 1 x y",
                    "pnnx.Output out 1 0 y",
                )
            )

        for dtype, value in (
            ("f32", 2), ("f32", 2.7), ("f32", True), ("f16", float("inf")), ("i64", 7),
            ("i32", False), ("u8", 255), ("bool", True), ("c64", 1.5), ("f32", float("nan")),
        ):
            with self.subTest(dtype=dtype, value=value):
                found = session(dtype)(value)
                np.testing.assert_array_equal(found, np.asarray(value).astype(found.dtype))
        self.assertEqual(session("u8", "(2)")([1, 2]).tolist(), [1, 2])
        self.assertEqual(session("i64", "(0)")([]).shape, (0,))
        for dtype, value in (
            ("f32", None), ("i64", None), ("i64", "7"), ("f32", b"7"), ("f32", object()),
            ("i64", 2.7), ("i64", 2.0), ("u8", 300), ("u8", -1), ("i32", 2**31), ("i64", 2**70),
            ("bool", 0.5), ("bool", 1), ("f32", 1j), ("f16", 1e6), ("f32", 1e300),
        ):
            with self.subTest(dtype=dtype, value=value):
                error = self.error(plutino.InputError, session(dtype), value)
                self.assertEqual(error.input, "x")
        for value in ([300, 1], [None, 1], ["1", "2"], [[1], [1, 2]]):
            with self.subTest(value=value):
                self.error(plutino.InputError, session("u8", "(2)"), value)
        self.error(plutino.InputError, plutino.Session(support.ECHO), None)

    def test_arrays_with_a_mask(self):
        session = plutino.Session(support.ECHO)
        values = np.ma.masked_array(np.arange(3.0), mask=[False, True, False])
        self.assertIn("masked", str(self.error(plutino.InputError, session, values)))
        self.assertEqual(session(values.filled(7)).tolist(), [0, 7, 2])
        self.assertEqual(session(np.ma.masked_array(np.arange(3.0))).tolist(), [0, 1, 2])

    def test_arguments_of_other_types(self):
        session = plutino.Session(support.DIGITS)
        x = np.zeros((1, 1, 8, 8), np.float32)
        for run in (
            lambda: session.run(5, [x]),
            lambda: session.run([5], [x]),
            lambda: session.run(None, 5),
            lambda: session.run(None, {5: x}),
            lambda: session.run_keeping(5, None, [x]),
            lambda: session.compare([x]),
            lambda: session.compare({5: x}),
        ):
            self.error(plutino.InputError, run)
        self.error(plutino.StateError, session.run, None, [x], state=5)
        self.error(plutino.StateError, session.profile, [x], state=5)
        with tempfile.TemporaryFile() as file:  # a number is no path, though one can be opened
            for option, work in (
                ("timeout", lambda: session(x, timeout="1")),
                ("cancel", lambda: session.run(None, [x], cancel=5)),
                ("runs", lambda: session.view([x], runs=-1)),
                ("runs", lambda: session.view([x], runs=2**70)),
                ("path", lambda: session.view([x], path=file.fileno())),
                ("tolerance", lambda: session.compare({"0": x}, tolerance=float("nan"))),
                ("tolerance", lambda: session.isolate({"0": x}, tolerance="1")),
            ):
                self.assertEqual(self.error(plutino.OptionError, work).option, option)
            self.assertEqual(file.seek(0, 2), 0)

    def test_an_operator_refuses(self):
        session = plutino.Session(support.DIGITS)
        error = self.error(plutino.OperatorError, session, np.zeros((1, 2, 8, 8), np.float32))
        self.assertEqual((error.operator, error.kind, error.line), ("convbn2d_0", "nn.Conv2d", 4))
        self.assertEqual(error.file, str(support.DIGITS))
        self.assertIn("(1,2,8,8)f32", error.inputs)

    def test_memory_that_is_not_allowed(self):
        error = self.error(plutino.BudgetExceeded, plutino.Session, support.DIGITS, max_memory=1000)
        self.assertEqual(error.budget, 1000)
        self.assertGreater(error.needed, 1000)
        session = plutino.Session(support.DIGITS, max_memory=1 << 20)
        session(np.zeros((1, 1, 8, 8), np.float32))
        large = np.zeros((10000, 1, 8, 8), np.float32)
        error = self.error(plutino.BudgetExceeded, session, large)
        self.assertEqual(error.budget, 1 << 20)


if __name__ == "__main__":
    unittest.main()

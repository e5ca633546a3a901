"""Sessions: what goes in, what comes out, what is said of a model and of a run."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import numpy as np

import plutino
import support


class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = plutino.Session(support.DIGITS, threads=2)
        cls.inputs, cls.expected = support.digits()

    def close(self, found):
        bound = 1e-5 * np.abs(self.expected).max()  # the tolerance of fixture.json
        np.testing.assert_allclose(found, self.expected, rtol=0, atol=bound)

    def test_results_are_those_of_pytorch(self):
        found = self.session(self.inputs)
        self.assertIsInstance(found, np.ndarray)
        self.assertEqual((found.dtype, found.shape), (np.float32, (360, 10)))
        self.close(found)

    def test_any_path_or_bytes_will_do(self):
        path = support.DIGITS
        weights = path.with_suffix(".bin")
        stem = str(path)[: -len(".param")]
        models = [
            plutino.Session(str(path)),
            plutino.Session(stem),
            plutino.Session(path, mmap=True),
            plutino.Session(path, bin=weights),
            plutino.Session(path.read_bytes(), bin=weights.read_bytes()),
            plutino.Session(memoryview(path.read_bytes()), bin=weights),
        ]
        for session in models:
            with self.subTest(session=session):
                self.close(session(self.inputs))

    def test_weights_that_lie_elsewhere(self):
        stem = str(support.DIGITS)[: -len(".pnnx.param")]
        for path in (stem, stem + ".pnnx", support.DIGITS):  # those beside it: as without them
            session = plutino.Session(path, bin=stem + ".pnnx.bin", mmap=True)
            self.assertIn("model", repr(session))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            weights = shutil.copy(stem + ".pnnx.bin", folder / "weights")
            for path in (stem, support.DIGITS):
                for options in ({}, {"mmap": True}, {"verify": False, "max_memory": 1 << 24}):
                    session = plutino.Session(path, bin=weights, **options)
                    self.close(session(self.inputs))
            for path, bin in ((folder / "no", weights), (stem, folder / "no")):
                with self.assertRaises(plutino.ModelNotFound) as raised:
                    plutino.Session(path, bin=bin)
                self.assertIn(str(folder / "no"), raised.exception.tried)
            with self.assertRaisesRegex(plutino.ModelError, "no regular file"):
                plutino.Session(stem, bin=folder)
            (folder / "wrong.pnnx.param").write_text("7767517\n1\n")
            lines = ("pnnx.Input in 0 1 a", "test.Unheard x 1 1 a b", "pnnx.Output out 1 0 b")
            (folder / "unheard.param").write_bytes(support.param(*lines))
            for name, file in [("wrong", "wrong.pnnx.param"), ("unheard", "unheard.param")]:
                with self.assertRaises(plutino.ModelError) as raised:
                    plutino.Session(folder / name, bin=b"")
                self.assertEqual(raised.exception.file, str(folder / file))
                self.assertIn(str(folder / file), str(raised.exception))
            (folder / "weights").write_bytes(b"nothing")
            with self.assertRaises(plutino.ModelError) as raised:
                plutino.Session(stem, bin=weights)
            self.assertEqual(raised.exception.file, str(weights))
            with self.assertRaises(plutino.ModelError) as raised:
                plutino.Session(stem, bin=b"nothing")
            self.assertEqual(raised.exception.file, "<memory>")

    def test_the_words_of_onnxruntime(self):
        (value,) = self.session.get_inputs()
        self.assertEqual((value.name, value.operator), ("0", "pnnx_input_0"))
        self.assertEqual((value.type, value.shape), ("float32", (None, 1, 8, 8)))
        (output,) = self.session.get_outputs()
        self.assertEqual(output.shape, (None, 10))
        (found,) = self.session.run(None, {value.name: self.inputs})
        self.close(found)
        (found,) = self.session.run([output.name], {value.operator: self.inputs})
        self.close(found)
        (found,) = self.session.run(output.operator, [self.inputs])
        self.close(found)
        (found,) = self.session.run([], [self.inputs])  # all of them
        self.close(found)
        (found,) = self.session.run(["out0"], {"in0": self.inputs})  # by position
        self.close(found)
        (found,) = self.session.run(None, {"in0": self.inputs.tolist()})  # of the recorded dtype
        self.close(found)
        self.assertEqual(
            self.session.memory({"in0": (2, 1, 8, 8)}), self.session.memory({"0": (2, 1, 8, 8)})
        )
        for wrong in ({"in1": self.inputs}, {"x": self.inputs}):
            with self.assertRaisesRegex(plutino.InputError, "input '0'") as raised:
                self.session.run(None, wrong)
            self.assertEqual(raised.exception.input, next(iter(wrong)))
        with self.assertRaisesRegex(plutino.InputError, "two shapes: '0' and 'in0'"):
            self.session.plan({"0": (2, 1, 8, 8), "in0": (2, 1, 8, 8)})

    def test_parts_of_a_model(self):
        session = plutino.Session(support.PARTS)
        x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
        relu = np.maximum(x, 0)
        first, second = session(x)
        np.testing.assert_array_equal(first, relu)
        np.testing.assert_array_equal(second, -relu)
        self.assertEqual([name for name, _ in session.run_named(None, [x])], ["r", "n"])
        (found,) = session.run(["second"], {"r": x})  # fed in the middle
        np.testing.assert_array_equal(found, -x)
        negative, positive = session.run(["negative", "positive"], {"x": x})
        np.testing.assert_array_equal(negative, -relu)
        np.testing.assert_array_equal(positive, relu)

    def test_results_are_put_where_the_caller_wants_them(self):
        out = np.empty((360, 10), np.float32)
        (found,) = self.session.run(None, [self.inputs], out=[out])
        self.assertIs(found, out)
        self.close(out)
        name = self.session.get_outputs()[0].name
        out[:] = 0
        self.assertIs(self.session.run(None, [self.inputs], out={name: out})[0], out)
        self.close(out)
        wrong = [np.empty((360, 9), np.float32), np.empty((360, 10)), [0.0]]
        for array in wrong:
            with self.assertRaises(plutino.InputError):
                self.session.run(None, [self.inputs], out=[array])
        with self.assertRaisesRegex(plutino.InputError, "'nothing'"):
            self.session.run(None, [self.inputs], out={"nothing": out})
        fixed = out.copy()
        fixed.flags.writeable = False
        late = {"timeout": 0}  # what is wrong is said before the run
        for wrong, text in [
            ([fixed], "read-only"),
            ({name: fixed}, "read-only"),
            ({5: out, "q": out}, "5"),
            ([out, out], "several"),
            (5, "out must be"),
            ({name: [0.0]}, "array"),
        ]:
            with self.assertRaisesRegex(plutino.InputError, text):
                self.session.run(None, [self.inputs], out=wrong, **late)

    def test_options(self):
        self.assertEqual(self.session.threads, 2)
        for isa in plutino.instruction_sets():
            session = plutino.Session(support.DIGITS, isa=isa, threads=1, memory="low")
            self.assertEqual((session.isa, session.threads), (isa, 1))
            self.close(session(self.inputs))
        session = plutino.Session(support.DIGITS, threads=np.int64(1), max_memory=np.uint32(1 << 24))
        self.assertEqual(session.threads, 1)
        alone = plutino.Session(support.DIGITS, batch_invariant=True, winograd=False)
        rows = np.concatenate([alone(row[None]) for row in self.inputs[:3]])
        np.testing.assert_array_equal(alone(self.inputs)[:3], rows)
        for name in ("bf16", "int8", "nf4"):
            narrow = plutino.Session(support.DIGITS, weights=name)
            kernels = [step["kernel"] for step in narrow.plan([self.inputs])["steps"]]
            self.assertTrue(any(kernel.startswith(f"gemm.{name}") for kernel in kernels), kernels)
        less = plutino.Session(support.DIGITS, precision="medium")(self.inputs)
        bound = 2e-2 * np.abs(self.expected).max()  # bf16 where the machine multiplies it
        np.testing.assert_allclose(less, self.expected, rtol=0, atol=bound)
        kinds = {"nn.Conv2d": "highest", "head": "highest"}
        exact = plutino.Session(support.DIGITS, precision="medium", precision_of=kinds)
        np.testing.assert_array_equal(exact(self.inputs), self.session(self.inputs))
        plain = plutino.Session(support.DIGITS, passes_off="fuse")
        steps = lambda session: len(session.plan((360, 1, 8, 8))["steps"])
        self.assertGreater(steps(plain), steps(self.session))
        for wrong in [
            {"threads": 0},
            {"threads": -1},
            {"precision": "low"},
            {"precision_of": {"conv1": "low"}},
            {"precision_of": {"no.such": "high"}},
            {"precision_of": "conv1"},
            {"precision_of": {"conv1": 2}},
            {"threads": "two"},
            {"threads": True},
            {"threads": np.True_},
            {"threads": 2.0},
            {"max_memory": 2**70},
            {"isa": "mmx"},
            {"memory": "some"},
            {"weights": "int4"},
            {"passes_off": ["fuze"]},
            {"passes_off": "fuse@no_such_operator"},
            {"passes_off": [1]},
            {"passes_off": 1},
            {"passes_off": None},
            {"isa": "\ud800"},
            {"timeout": "soon"},
            {"timeout": True},
            {"bin": 5},
            {"definitions": 5},
            {"definitions": {"x": 5}},
            {"definitions": {5: b""}},
            {"definitions": {"x": (b"", b"", b"")}},
            {"verify": 1},
        ]:
            with self.subTest(wrong=wrong), self.assertRaises(plutino.OptionError) as raised:
                plutino.Session(support.DIGITS, **wrong)
            self.assertEqual(raised.exception.option, next(iter(wrong)))
        with self.assertRaisesRegex(plutino.OptionError, "model must be a path"):
            plutino.Session(5)

    def test_plan_memory_and_profile(self):
        plan = self.session.plan([(360, 1, 8, 8)])
        self.assertEqual(plan["steps"][0]["kind"], "nn.Conv2d")
        self.assertEqual(plan["warnings"], [])
        self.assertEqual(plan, self.session.plan([self.inputs]))
        self.assertEqual(plan, self.session.plan({"pnnx_input_0": (360, 1, 8, 8)}))
        memory = self.session.memory((360, 1, 8, 8))
        parts = ("weights", "packed", "tables", "arena", "outputs", "state")
        self.assertEqual(memory["total"], sum(memory[part] for part in parts))
        self.assertEqual(memory["outputs"], 360 * 10 * 4)
        self.assertGreater(memory["arena"], self.session.memory((1, 1, 8, 8))["arena"])
        profile = self.session.profile([self.inputs])
        self.assertEqual(len(profile["steps"]), len(plan["steps"]))
        self.assertLessEqual(sum(step["seconds"] for step in profile["steps"]), profile["total"])
        self.assertEqual(len(profile["threads"]), 2)
        for report in plan, memory, profile:
            self.assertEqual(json.loads(json.dumps(report)).keys(), report.keys())  # plain values
            self.assertGreater(len(repr(report).splitlines()), 3)
            self.assertIn("</table>", report._repr_html_())
        self.assertIn("convbn2d_0", repr(profile))
        recorded = plutino.Session(support.PARTS)
        self.assertEqual(recorded.plan(), recorded.plan((2, 6)))
        with self.assertRaisesRegex(plutino.InputError, "give arrays or shapes"):
            self.session.plan()
        shape = (1, 1, 8, 8)
        for wrong in [
            {"0": shape, "zz": (1,)},
            {"0": shape, "pnnx_input_0": shape},
            {0: shape},
            (2, 6, -9, 11),
            (2**70, 1, 8, 8),
            5,
        ]:
            with self.subTest(wrong=wrong), self.assertRaises(plutino.InputError):
                self.session.plan(wrong)

    def test_memory_goes_back(self):
        session = plutino.Session(support.DIGITS)
        before = session(self.inputs)
        session.release_memory()
        np.testing.assert_array_equal(session(self.inputs), before)

    def test_repr(self):
        self.assertIn("model.pnnx.param'", repr(self.session))
        self.assertIn("bytes>", repr(plutino.Session(support.ECHO)))


class Arrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.echo = plutino.Session(support.ECHO, threads=1)

    def check(self, array, expected=None):
        found = self.echo(array)
        expected = np.asarray(array) if expected is None else expected
        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
        np.testing.assert_array_equal(found, expected)
        return found

    def test_dtypes(self):
        numbers = np.array([[0, 1, 2], [3, 100, 101]])
        for name in plutino._arrays.DTYPES:
            if name != "bfloat16":
                with self.subTest(dtype=name):
                    self.check(numbers.astype(name))
        for name in ("uint16", "uint32", "S3", "object", "datetime64[s]"):
            with self.subTest(dtype=name), self.assertRaisesRegex(plutino.InputError, "no dtype"):
                self.echo(numbers.astype(name))

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        self.check(np.array([1.0, -2.5, 3e38], ml_dtypes.bfloat16))

    def test_bfloat16_without_its_dtype_is_widened(self):
        # 1.0 and -2.5, as ml_dtypes would have them.
        bits = np.array([0x3F80, 0xC020], np.uint16)
        feed = ("x", "bf16", [2], bits.view(np.uint8))
        ((_, memory),) = self.echo._native.run([feed], [], (None, None, True))
        self.assertEqual(memory.dtype, "bf16")
        dtype, plutino._arrays._bfloat16 = plutino._arrays._bfloat16, lambda: None
        try:
            found = plutino._arrays.result(memory)
        finally:
            plutino._arrays._bfloat16 = dtype
        self.assertEqual(found.dtype, np.float32)
        np.testing.assert_array_equal(found, [1.0, -2.5])

    def test_shapes_and_orders(self):
        base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        for array in [
            np.float32(3),
            base[0, 0, 0, None][:0],
            np.zeros((0, 3), np.float32),
            base.T,
            base[:, ::-1, 1:],
            np.asfortranarray(base),
            np.broadcast_to(base[0], (5, 3, 4)),
        ]:
            with self.subTest(shape=np.shape(array)):
                self.check(array)
        swapped = base.astype(">f4")
        self.check(swapped, base)
        shifted = np.frombuffer(bytes(1) + base.tobytes(), np.uint8)[1:].view(np.float32)
        self.assertFalse(shifted.flags.aligned)
        self.check(shifted, base.ravel())
        base.flags.writeable = False
        self.check(base)

    def test_what_is_no_array(self):
        class Wrapped:
            def __init__(self, array):
                self.array = array

        class Array(Wrapped):
            def __array__(self, dtype=None, copy=None):
                return self.array

        class Exported(Wrapped):
            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        array = np.arange(6, dtype=np.int64).reshape(2, 3)
        self.check(Array(array), array)
        self.check(Exported(array), array)
        self.check([[1.0, 2.0]], np.array([[1.0, 2.0]]))
        typed = plutino.Session(support.PARTS)
        first, _ = typed([[1, -2, 3, 0, 0, 0]] * 2)  # numbers take the dtype of the file
        self.assertEqual(first.dtype, np.float32)
        with self.assertRaises(plutino.InputError) as raised:
            self.echo(object())
        self.assertEqual(raised.exception.input, "x")

    def test_nothing_is_copied(self):
        x = np.arange(1 << 16, dtype=np.float32)
        _, _, _, lent = plutino._arrays.feed("x", x, None)
        self.assertTrue(np.shares_memory(lent, x))
        feeds = [("x", "f32", [1 << 16], lent)]
        ((_, memory),) = self.echo._native.run(feeds, [], (None, None, True))
        found = plutino._arrays.result(memory)
        self.assertIs(found.base, memory)
        self.assertEqual(found.ctypes.data, memory.__array_interface__["data"][0])
        self.assertFalse(np.shares_memory(found, x))

    def test_results_live_as_long_as_their_arrays(self):
        x = np.arange(1 << 20, dtype=np.float32)
        session = plutino.Session(support.ECHO)
        parts = [session(x + i)[i : i + 2] for i in range(8)]
        del session
        for i, part in enumerate(parts):
            np.testing.assert_array_equal(part, [2 * i, 2 * i + 1])
            part[:] = -1  # it is the caller's
            np.testing.assert_array_equal(part, -1)

    def test_results_are_nobody_elses(self):
        """An operand that is an input, or a constant, is a result as well: nothing that the caller
        does to it reaches the model or the input."""
        session = plutino.Session(
            support.param("pnnx.Input in 0 1 x", "pnnx.Output a 1 0 x", "pnnx.Output b 1 0 x")
        )
        x = np.ones(4, np.float32)
        a, b = session(x)
        a[:] = 5
        np.testing.assert_array_equal(x, 1)
        np.testing.assert_array_equal(b, 1)
        np.testing.assert_array_equal(session(x)[0], 1)


try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    def test_tensors_are_fed(self):
        echo = plutino.Session(support.ECHO)
        numbers = [[0, 1, 2], [3, 100, 101]]
        for dtype in (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64):
            tensor = torch.tensor(numbers).to(dtype)
            for given in (tensor, tensor.T):
                with self.subTest(dtype=dtype):
                    found = torch.from_numpy(echo(given))
                    self.assertEqual(found.dtype, dtype)
                    self.assertTrue(torch.equal(found, given))
        weights = torch.ones(3, requires_grad=True)
        np.testing.assert_array_equal(echo(weights), 1)
        tensor = torch.zeros(4)
        lent = plutino._arrays.feed("x", tensor, None)[3]
        self.assertEqual(lent.ctypes.data, tensor.data_ptr())

    def test_bfloat16(self):
        tensor = torch.tensor([1.0, -2.5, 3e38], dtype=torch.bfloat16)
        found = plutino.Session(support.ECHO)(tensor)
        np.testing.assert_array_equal(found.astype(np.float32), tensor.float().numpy())


class Operators(unittest.TestCase):
    """A sample of the graphs of one operator or a few, with PyTorch's outputs."""

    CHAPTERS = ("functions", "fourier", "halves", "matrix", "tensors", "native")

    def test_cases(self):
        count = 0
        for chapter in self.CHAPTERS:
            for path in sorted((support.OPS / chapter).iterdir()):
                with self.subTest(case=f"{chapter}/{path.name}"):
                    self.case(path)
                    count += 1
        self.assertGreater(count, 100)

    def case(self, path: pathlib.Path):
        bounds = json.loads((path / "meta.json").read_text())
        inputs, outputs = np.load(path / "inputs.npz"), np.load(path / "outputs.npz")
        session = plutino.Session(path / "model.pnnx.param", threads=2)
        feeds = [inputs[f"in{i}"] for i in range(len(inputs.files))]
        results = session.run(None, feeds)
        self.assertEqual(len(results), len(outputs.files))
        for i, found in enumerate(results):
            expected = outputs[f"out{i}"]
            self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
            np.testing.assert_allclose(
                found, expected, rtol=bounds["rtol"], atol=bounds["atol"], equal_nan=True
            )


class Documentation(unittest.TestCase):
    def test_examples_of_the_page_run(self):
        """Every block of docs/python.md, in one program, where a model lies."""
        text = (support.ROOT / "docs" / "python.md").read_text()
        blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
        self.assertGreater(len(blocks), 5)
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            for name in ("model.pnnx.param", "model.pnnx.bin", "inputs.npz"):
                shutil.copy(support.DIGITS.parent / name, folder)
            os.chdir(folder)
            try:
                program = {"__name__": "example"}
                for number, block in enumerate(blocks):
                    with contextlib.redirect_stdout(io.StringIO()):
                        code = compile(block, f"docs/python.md, block {number}", "exec")
                        exec(code, program)
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()

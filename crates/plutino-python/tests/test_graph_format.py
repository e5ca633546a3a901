"""The files that the exporter writes: nothing of PyTorch's is needed for this."""

import pathlib
import tempfile
import unittest
import zipfile

import numpy as np

import plutino
from plutino._export.graph import Graph, Type, Weight, literal


def weight(array, dtype):
    return Weight(array.shape, dtype, lambda: array.tobytes())


class Format(unittest.TestCase):
    def test_parameters_are_read_as_what_they_were(self):
        for value, text in [
            (None, "None"),
            (True, "True"),
            (3, "3"),
            (-1, "-1"),
            (2.0, "2.0"),
            (1e-5, "1.0e-05"),
            (1.5e300, "1.5e+300"),
            (float("-inf"), "-inf"),
            ((1,), "(1)"),
            ([], "()"),
            ([True, False], "(True,False)"),
            (1.5 - 2j, "(1.5-2.0j)"),
            ("reflect", "reflect"),
        ]:
            with self.subTest(value=value):
                self.assertEqual(literal(value), text)
        with self.assertRaises(plutino.ExportError):
            literal(object())

    def test_a_written_model_runs(self):
        matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
        graph = Graph()
        graph.types["x"] = Type((None, 2), "f32")
        graph.types["y"] = Type(("batch", 3), "f32")
        graph.add("pnnx.Input", "x", [], ["x"])
        params = {"in_features": 2, "out_features": 3, "bias": False}
        graph.add("nn.Linear", "head", ["x"], ["y"], params, {"weight": weight(matrix, "f32")})
        # Arguments by name, as the native function has them.
        graph.add(
            "aten::sum.dim_IntList", "total", [("input", "y")], ["z"], {"dim": [1], "keepdim": True}
        )
        graph.add("pnnx.Output", "out", ["z"])
        with tempfile.TemporaryDirectory() as folder:
            param, bin = pathlib.Path(folder, "m.pnnx.param"), pathlib.Path(folder, "m.pnnx.bin")
            graph.save(param, bin)
            self.assertIn("#y=(%batch,3)f32", param.read_text())
            with zipfile.ZipFile(bin) as archive:
                (entry,) = archive.infolist()
                self.assertEqual((entry.filename, entry.compress_type), ("head.weight", 0))
            session = plutino.Session(param)
        x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
        np.testing.assert_array_equal(session(x), (x @ matrix.T).sum(1, keepdims=True))

    def test_names_are_told_apart_and_made_fit(self):
        graph = Graph()
        names = [graph.free_name(name) for name in ("a", "a", "a_1", "a", "b c=d", "")]
        self.assertEqual(names, ["a", "a_1", "a_1_1", "a_2", "b_c_d", "operator"])

    def test_what_has_no_place_in_a_line_is_refused(self):
        graph = Graph()
        graph.add("torch.einsum", "e", [], ["y"], {"equation": "ij, jk"})
        with self.assertRaises(plutino.ExportError) as caught:
            graph.text()
        self.assertEqual((caught.exception.operator, caught.exception.kind), ("e", "torch.einsum"))


class Comparing(unittest.TestCase):
    """`Session.compare` and `isolate`."""

    @classmethod
    def setUpClass(cls):
        graph = Graph()
        graph.add("pnnx.Input", "x", [], ["x"])
        graph.add("torch.exp", "e", ["x"], ["y"])
        graph.add("torch.neg", "n", ["y"], ["z"])
        graph.add("pnnx.Output", "out", ["z"])
        cls.session = plutino.Session(graph.text().encode())
        x = np.linspace(0, 1, 8, dtype=np.float32)
        cls.right = {"x": x, "y": np.exp(x), "z": -np.exp(x)}

    def test_equal_values_match(self):
        found = self.session.isolate(self.right)
        self.assertEqual(
            ([v["verdict"] for v in found["values"]], found.wrong), (["match"] * 2, [])
        )
        self.assertEqual(self.session.compare(self.right).wrong, [])

    def test_the_operator_that_is_wrong_by_itself_is_named(self):
        # z is right for the y that the reference has.
        wrong = {**self.right, "y": self.right["y"] + 1, "z": -self.right["y"] - 1}
        (value,) = self.session.isolate(wrong).wrong
        self.assertEqual(
            (value["operator"], value["verdict"], value["kind"]), ("e", "differs", "torch.exp")
        )
        self.assertGreater(value["error"], value["tolerance"])
        self.assertEqual(self.session.isolate(wrong, tolerance=1.0).wrong, [])
        self.assertIn("torch.exp", repr(self.session.isolate(wrong)))
        self.assertIn("<table>", self.session.isolate(wrong)._repr_html_())


class WithoutTorch(unittest.TestCase):
    def test_what_cannot_be_exported_says_so(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(plutino.ExportError, "PyTorch is not installed"):
                plutino.export(None, "model", ())
        else:
            with self.assertRaisesRegex(plutino.ExportError, "torch.nn.Module"):
                plutino.export(None, "model", ())


if __name__ == "__main__":
    unittest.main()

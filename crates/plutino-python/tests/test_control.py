"""Branches and loops of PyTorch's programs, and Python's own. Skipped where PyTorch is not
installed."""

import os
import pathlib
import pickle
import tempfile
import unittest
from unittest import mock

import plutino

try:
    import torch
    from torch import nn
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from plutino._export import capture, control

if not capture.available():
    raise unittest.SkipTest("this release of PyTorch has no exporter that is good enough")

try:
    from torch._higher_order_ops import while_loop
    from torch._higher_order_ops.map import map as torch_map
    from torch._higher_order_ops.scan import scan
except ImportError:
    raise unittest.SkipTest("this release of PyTorch has no loops") from None


class EarlyExit(nn.Module):
    """Both branches have layers; one reads a buffer, which the other does not."""

    def __init__(self):
        super().__init__()
        self.stem, self.small, self.large = (nn.Linear(6, 6) for _ in range(3))
        self.register_buffer("shift", torch.arange(6.0))

    def forward(self, x):
        x = self.stem(x)

        def exit(x):
            return self.small(x), x + self.shift

        def rest(x):
            return self.large(x).relu(), x * 2

        return torch.cond(x.sum() > 0, exit, rest, (x,))


class Newton(nn.Module):
    def forward(self, a):
        def far(x, n):
            return ((x * x - a).abs().max() > 1e-4) & (n < 30)

        def step(x, n):
            return (x + a / x) / 2, n + 1

        return while_loop(far, step, (torch.ones_like(a), torch.tensor(0)))


class Count(nn.Module):
    """The state has a number of Python's."""

    def forward(self, a):
        return while_loop(lambda x, n: n < 5, lambda x, n: (x * a + n, n + 1), (a * 1, 0))


class Scanned(nn.Module):
    def __init__(self, cell, **options):
        super().__init__()
        self.cell, self.options = cell, options

    def forward(self, h, rows):
        def step(h, row):
            h = self.cell(row, h)
            return h, h * 2

        return scan(step, h, rows, **self.options)


class Nested(nn.Module):
    def forward(self, x):
        def inner(x):
            return torch.cond(x.sum() > 10, lambda x: x * 2, lambda x: x * 3, (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


class Sized(nn.Module):
    def forward(self, x):
        return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x, shift):
        return torch_map(lambda row, shift: self.layer(row) + shift, x, shift)


class Total(nn.Module):
    """A buffer that is written and decides."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return torch.cond(
            self.total.sum() > 5, lambda x: x + self.total, lambda x: x - 1, (x,)
        )


class Shared(nn.Module):
    """One layer before the branch and in both of its sides."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        x = self.layer(x)
        return torch.cond(
            x.sum() > 0, lambda x: self.layer(x), lambda x: self.layer(x).neg(), (x,)
        )


class Asks(nn.Module):
    """Python's branches, on a bool and on a number."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.small(x) if x.abs().max() < 10 else self.large(x)
        return {"y": x * int((x > 100).sum() + 2)}


class ControlFlow(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, module, *calls, **options):
        """The first call is the example."""
        found = plutino.compile(module.eval(), calls[0], exporter="torch.export", **options)
        self.assertEqual(found.assumptions, [])
        for call in calls:
            with torch.no_grad():
                expected = module(*call)
            torch.testing.assert_close(found(*call), expected, rtol=1e-5, atol=1e-5)
        return found

    def test_branches(self):
        x = torch.randn(2, 6)
        found = self.same(EarlyExit(), (x,), (x + 9,), (x - 9,))
        again = pickle.loads(pickle.dumps(found))
        self.assertTrue(torch.equal(again(x)[0], found(x)[0]))
        rows = {"x": {0: "rows"}}
        self.same(EarlyExit(), (x,), (torch.randn(5, 6),), (torch.randn(1, 6),), dynamic=rows)
        positive = torch.ones(3, 3)
        self.same(Nested(), (positive,), (-positive,), (positive * 9,))
        self.same(Sized(), (torch.randn(5, 2),), (torch.randn(3, 2),), dynamic={"x": {0: "n"}})

    def test_loops(self):
        a = torch.rand(6) + 1
        self.same(Newton(), (a,), (a * 50,))
        found = self.same(Count(), (a,), (a * 2,))
        self.assertEqual(type(found(a)[1]), int)

    def test_scans(self):
        h, rows = torch.randn(3, 7), torch.randn(9, 3, 5)
        dynamic = {"h": {0: "batch"}, "rows": {0: "rows", 1: "batch"}}
        cell = nn.GRUCell(5, 7)
        self.same(Scanned(cell), (h, rows), (torch.ones(2, 7), rows[:1, :2]), dynamic=dynamic)
        self.same(Scanned(cell, dim=1, reverse=True), (h, rows.transpose(0, 1).contiguous()))
        self.same(Scanned(nn.RNNCell(5, 7, bias=False)), (h, rows))
        self.same(Rows(), (torch.randn(5, 2, 3), torch.randn(4)))

    def test_a_buffer_that_is_written_decides(self):
        net, x = Total().eval(), torch.ones(3)
        found = plutino.compile(net, x)
        for _ in range(4):
            torch.testing.assert_close(found(x), net(x))

    def test_weights_belong_to_who_reads_them(self):
        x = torch.randn(2, 4)
        self.same(Shared(), (x,), (-x,), (x * 3,))

    def test_the_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net")
            x = torch.randn(2, 6)
            net = EarlyExit().eval()
            found = plutino.export(net, path, x)
            self.assertEqual(found.definitions, path + ".definitions")
            names = sorted(os.listdir(found.definitions))
            kinds = [name[: -len(".pnnx.param")] for name in names if name.endswith(".param")]
            self.assertEqual(kinds, ["cond.else", "cond.then"])
            then = pathlib.Path(found.definitions, "cond.then.pnnx.param").read_text()
            self.assertIn("nn.Linear small 1 1 ", then)
            self.assertNotIn("large", then)
            session = plutino.Session(path)  # finds them beside the model
            for input in (x + 9, x - 9):
                with torch.no_grad():
                    expected = net(input)
                for array, each in zip(session.run(None, [input]), expected):
                    torch.testing.assert_close(torch.from_numpy(array), each)
            with self.assertRaises(plutino.MismatchError) as caught:
                plutino.export(net, path, x, tolerance=0.0)
            self.assertEqual(caught.exception.operators, [])
            # What another model left there is not found by the next.
            self.assertIsNone(plutino.export(nn.Linear(2, 2).eval(), path, torch.ones(1, 2)).definitions)
            self.assertEqual(os.listdir(path + ".definitions"), [])

    def test_what_is_not_exported_is_named(self):
        with mock.patch.dict(control._MAKE, clear=True):
            with self.assertRaises(plutino.ExportError) as caught:
                plutino.compile(Nested().eval(), torch.ones(3), exporter="torch.export")
        self.assertEqual(caught.exception.kind, "torch.cond")


class Assumptions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def test_branches_of_python_are_those_of_the_example_and_checked(self):
        net, x = Asks().eval(), torch.randn(2, 4)
        found = plutino.compile(net, x)
        self.assertEqual((found.exporter, found.fallback), ("torch.export", None))
        (first, one, _), (second, other, _) = found.assumptions
        self.assertEqual((one, other), (True, 2))
        for where in (first, second):
            self.assertRegex(where, r"^test_control\.py:\d+$")
        torch.testing.assert_close(found(x), net(x), rtol=1e-5, atol=1e-5)
        with self.assertRaisesRegex(plutino.InputError, r"test_control\.py:\d+ gives False"):
            found(x * 1000)
        again = pickle.loads(pickle.dumps(found))
        with self.assertRaises(plutino.InputError):
            again(x * 1000)

    def test_files_have_an_output_for_each(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net")
            found = plutino.export(Asks().eval(), path, torch.randn(2, 4))
            self.assertEqual([each.number for each in found.assumptions], [1, 2])
            names = [value.operator for value in plutino.Session(path).get_outputs()]
            self.assertEqual(names, ["y", "assumed.0", "assumed.1"])

    def test_numbers_that_are_of_their_own_in_every_run_are_not_assumed(self):
        class Scales(nn.Module):
            def forward(self, x):
                return x * 2 if float(x.sum()) > 0 else x * 3

        with self.assertRaises(plutino.ExportError) as caught:
            plutino.compile(Scales().eval(), torch.ones(3), exporter="torch.export")
        self.assertIn("GuardOnDataDependent", caught.exception.reason)

    def test_the_module_is_as_it_was(self):
        net = Asks().eval()
        plutino.compile(net, torch.randn(2, 4))
        self.assertNotIn("forward", vars(net))


if __name__ == "__main__":
    unittest.main()

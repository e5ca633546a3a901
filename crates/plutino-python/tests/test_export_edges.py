"""What is easily lost between a module and its file: numbers, sizes, lists, weights. Skipped where
PyTorch is not installed."""

import math
import threading
import unittest

import plutino

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from plutino._export import capture

if not capture.available():
    raise unittest.SkipTest("this release of PyTorch has no exporter that is good enough")


class Function(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Weighted(nn.Module):
    def __init__(self, function, *weights):
        super().__init__()
        self.function = function
        for at, weight in enumerate(weights):
            self.register_buffer(f"w{at}", weight)

    def forward(self, x):
        return self.function(x, *self.buffers())


def exported(module, x, **options):
    return plutino.compile(module.eval(), (x,), exporter="torch.export", **options)


class Values(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, module, x, bound=0.0):
        module = module if isinstance(module, nn.Module) else Function(module)
        found = exported(module, x)
        torch.testing.assert_close(found(x), module(x), rtol=bound, atol=bound)

    def test_windows_that_are_written_to(self):
        def doubled(x):
            y = x.clone()
            y.unfold(1, 2, 2).mul_(2)
            return y

        self.same(doubled, torch.rand(3, 6))

    def test_the_largest_integer_is_no_end(self):
        most, x = torch.iinfo(torch.int64).max, torch.arange(5) - 2
        for function in (
            lambda x: x.masked_fill(x < 0, most),
            lambda x: torch.where(x > 0, x, most),
            lambda x: (x + most).clamp(max=most) & most,
            lambda x: x.new_full((5,), most) ^ x,
            lambda x: x[:3] + torch.arange(most - 3, most),
            # Slices end with the dimension.
            lambda x: torch.slice_scatter(x, x[2:most] * 7, 0, 2, most) + x[0:most],
        ):
            self.same(function, x)

    def test_lists_with_one_member(self):
        x, v = torch.randn(6, 3), torch.randn(5)
        for function in (
            lambda x: x[torch.where(x[:, 0] > 0)[0]],
            lambda x: torch.broadcast_tensors(x)[0] * 2,
            lambda x: torch.gradient(x, dim=0)[0] * 2,
            lambda x: torch.gradient(x)[1] * 2,
            lambda x: torch.split(x, 6)[0] * torch.chunk(x, 1)[0] + x[:1].unbind()[0],
        ):
            self.same(function, x)
        self.same(lambda v: torch.meshgrid(v, indexing="ij")[0] * 2, v)

    def test_weights_that_are_read_in_two_ways(self):
        weight = torch.randn(4, dtype=torch.complex64)
        views = (weight, weight.conj(), weight.imag, weight.conj().imag)

        def both(x, a, b, c, d):
            return (a * x).imag + 10 * (b * x).imag, c * x + 10 * d * x

        self.same(Weighted(both, *views), torch.randn(4), bound=1e-6)

    def test_weights_that_modules_do_not_take(self):
        x, y = torch.randn(6, 3), torch.randn(2, 3, 2, 2, 2, 3)
        self.same(Weighted(functional.prelu, torch.tensor(0.1)), x)
        norms = (
            Weighted(lambda x, m, v: functional.batch_norm(x, m, v), torch.rand(3), torch.rand(3)),
            Weighted(lambda x, w: functional.instance_norm(x, weight=w, bias=w), torch.rand(3)),
            Function(functional.instance_norm),
        )
        for norm in norms:
            self.same(norm, y, bound=1e-5)

    def test_a_module_that_writes_to_its_parameter(self):
        with self.assertRaisesRegex(plutino.ExportError, "writes to its parameter 'weight'"):
            exported(nn.Embedding(10, 4, max_norm=0.5), torch.arange(3))


class Sizes(unittest.TestCase):
    """Any size gives what the module gives, or is refused."""

    def right(self, function, runs, rows=6, refused=()):
        found = exported(Function(function), torch.rand(rows, 3), dynamic=True)
        for rows in runs:
            x = torch.rand(rows, 3)
            torch.testing.assert_close(found(x), function(x))
        for rows in refused:
            with self.assertRaises(plutino.InputError):
                found(torch.rand(rows, 3))

    def test_floats_that_are_made_of_sizes(self):
        self.right(lambda x: x[: int(x.shape[0] * 0.5)], (6, 7), refused=(5, 11))
        self.right(lambda x: x * 2 if x.shape[0] * 0.5 > 2.2 else x, (5, 9), refused=(1, 4))
        self.right(lambda x: x * 2 if round(x.shape[0] / 3) > 2 else x, (1, 7), refused=(8,))
        self.right(lambda x: x * 2 if round(x.shape[0] / 3, 1) > 2.2 else x, (1,), refused=(7,))
        self.right(lambda x: x * 2 if (x.shape[0] / 2).is_integer() else x, (2, 8), refused=(7,))
        self.right(lambda x: x * 2 if x.shape[0] ** 0.5 > 2.5 else x, (1, 6), refused=(7,))
        self.right(lambda x: x * 2 if x.shape[0] ** -0.5 > 0.35 else x, (1, 8), refused=(9,))
        self.right(lambda x: x * 2 if x.shape[0] // 2.5 > 2 else x, (1, 7), refused=(8,))
        self.right(lambda x: x[: math.floor(x.shape[0] * 0.4)], (1, 3, 11))
        self.right(lambda x: x.topk(int(x.shape[0] * 0.25), 0)[0], (4, 7), refused=(3, 8))

    def test_what_the_module_asks_and_pytorch_assumes(self):
        self.right(lambda x: x * 2 if x.shape[0] == 1 else x * 3, (2, 6), refused=(1,))
        self.right(lambda x: x * 2 if x.shape == (1, 3) else x * 3, (2, 6), refused=(1,))
        self.right(lambda x: x.sum(0, keepdim=True) + x, (1, 2, 6))
        self.right(lambda x: x[: math.trunc(x.shape[0] / 3)], (1, 3, 6))

        def checked(x):
            torch._check(x.shape[0] // 2 >= 2)
            return x * 2

        self.right(checked, (4, 6), refused=(3,))
        # It makes no difference, as a run with this size shows.
        self.right(lambda x: x + x.mean(0) if x.shape[0] != 1 else x * 2, (1, 2, 6))
        self.right(lambda x: x.squeeze(0) * 2, (1, 2, 6))

        def squeezed(x):
            x = x.squeeze(0)
            return x * 2 if x.dim() == 1 else x * 3

        self.right(squeezed, (2, 6), refused=(1,))
        # Guards of generated code are not the module's.
        self.right(
            lambda x: torch.cond(x.shape[0] > 3, lambda x: x * 2, lambda x: x * 3, (x,)), (1, 3, 5)
        )

    def test_nothing(self):
        right, ones = self.right, torch.ones(1, 3)
        for function in (
            lambda x: x * 2,
            lambda x: x.sum(0),
            lambda x: x.amax(1),
            lambda x: torch.cat([x, ones]),
            lambda x: (x @ x.t()).softmax(-1) @ x,
            lambda x: nn.functional.layer_norm(x, (3,)),
        ):
            right(function, (0, 1, 2))
        # What PyTorch knows of sizes that are at least 2 it does not ask.
        for function in (
            lambda x: ones if x.shape[0] == 0 else x.sum(0, keepdim=True),
            lambda x: ones if x.numel() == 0 else x.sum(0, keepdim=True),
            lambda x: x.sum(0, keepdim=True) if x.shape[0] else ones,
            lambda x: ones if 0 in x.shape else x.sum(0, keepdim=True),
            lambda x: (x.sum(0) + 1) / max(x.shape[0], 1),
            lambda x: (x.sum(0) + 1) / torch.sym_max(x.shape[0], 1),
            lambda x: x.sum(0) + abs(x.shape[0] - 1),
            lambda x: x.amax(0),
        ):
            right(function, (1, 2), refused=(0,))
        for function in (
            lambda x: x.new_zeros(x[:2].shape[0], 3),
            lambda x: x[:2].sum(0) / x[:2].shape[0],
            lambda x: torch.ones(3) * x[-2:].shape[0],
        ):
            right(function, (2, 3), refused=(0, 1))

    def test_nothing_is_refused_where_it_was_not_tried(self):
        found = exported(Function(lambda x: x * 2), torch.rand(6, 3), dynamic=True, check=False)
        found(torch.rand(1, 3))
        with self.assertRaisesRegex(plutino.InputError, "dimension 0 of 'x' is 0.* at least 1"):
            found(torch.rand(0, 3))

    def test_caches_that_are_empty(self):
        class Cached(nn.Module):
            def forward(self, x, past, mask):
                keys = torch.cat([past, x], 1)
                scores = (x @ keys.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e9)
                return scores.softmax(-1) @ keys, keys

        net, dims = Cached(), {"x": {1: "n"}, "past": {1: "past"}, "mask": {1: None}}
        for dynamic in (True, {**dims, "mask": {1: torch.export.Dim.AUTO}}):
            call = torch.rand(1, 2, 4), torch.rand(1, 3, 4), torch.ones(1, 5)
            found = plutino.compile(net.eval(), call, dynamic=dynamic)
            for new, old in ((2, 3), (1, 4), (3, 0), (1, 0)):
                call = torch.rand(1, new, 4), torch.rand(1, old, 4), torch.ones(1, new + old)
                for a, b in zip(found(*call), net(*call)):
                    torch.testing.assert_close(a, b)

    def test_functions_of_integers(self):
        for function in (
            lambda x: x * (x.shape[0] & 3),
            lambda x: x * (x.shape[0] | 1),
            lambda x: x * (x.shape[0] << 1),
            lambda x: x[: x.shape[0] >> 1],
            lambda x: x[: round(x.shape[0] / 3)],
            lambda x: x * abs(3 - x.shape[0]),
            lambda x: x * ((x.shape[0] > 3) & (x.shape[1] < 4)),
        ):
            self.right(function, range(1, 11))

    def test_what_is_not_understood_is_as_in_the_example(self):
        from unittest import mock

        from plutino._export import conditions

        with mock.patch.object(conditions, "text", return_value=None):
            self.right(lambda x: x * 2 if x.shape[0] * 0.5 > 2.2 else x, (6,), refused=(5, 7))

    def test_why_torch_export_refuses_a_named_size(self):
        half = Function(lambda x: x * 2 if x.shape[0] * 0.3 < 2 else x)
        with self.assertRaisesRegex(plutino.ExportError, "satisfy the generated guard 0.3"):
            exported(half, torch.rand(6, 3), dynamic={"x": {0: "n"}})

    def test_sizes_that_are_asked_for(self):
        x = torch.rand(6, 3)
        for dynamic in ("batch", 2, {"x": {2: "n"}}, {"x": {"n": 0}}):
            with self.assertRaisesRegex(plutino.OptionError, "^dynamic"):
                exported(Function(torch.neg), x, dynamic=dynamic)
        for dynamic in ({"x": {-2: "n"}}, {"x": {0: "n"}}, ({0: "n"},)):
            exported(Function(torch.neg), x, dynamic=dynamic)(x[:2])
        with self.assertRaisesRegex(plutino.InputError, "an example in which they are at least 2"):
            exported(Function(torch.neg), x[:1], dynamic=True)(x)


class Modes(unittest.TestCase):
    """What parts of a module set for themselves."""

    def test_gradients(self):
        class Enables(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 4)

            def forward(self, x):
                with torch.enable_grad():
                    return self.layer(x)

        net, x = Enables(), torch.rand(2, 3)
        torch.testing.assert_close(exported(net, x)(x), net(x).detach())

    def test_padding_of_transformers(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        net, x = nn.TransformerEncoder(layer, 2).eval(), torch.rand(2, 5, 8)
        mask = {"src_key_padding_mask": torch.arange(5) >= torch.tensor([[4], [3]])}
        with self.assertWarnsRegex(UserWarning, "zeros where a mask says padding"):
            found = plutino.compile(net, (x,), kwargs=mask, exporter="torch.export")
        expected = net(x, **mask)  # where gradients are wanted these are those of the layers
        torch.testing.assert_close(found(x, **mask), expected.detach(), rtol=1e-4, atol=1e-4)
        self.assertTrue(torch.backends.mha.get_fastpath_enabled())

    def test_norms_by_statistics_of_the_batch(self):
        net, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval(), torch.rand(2, 3, 5, 5)
        net[1].train()
        found = plutino.compile(net, (x,), exporter="torch.export", dynamic=True)
        for x in (x, x * 3, torch.rand(3, 3, 4, 6)):  # which the running ones follow
            torch.testing.assert_close(found(x), net(x).detach(), rtol=1e-4, atol=1e-5)
        found = {state.name: found._values[state.input] for state in found._states}
        for name, buffer in net[1].named_buffers():
            torch.testing.assert_close(found[f"1.{name}"], buffer)


class Kernels(unittest.TestCase):
    def test_one_for_each_image(self):
        """As many groups as there are images: cross-correlation, modulated convolutions."""

        def plain(x, w):
            images, kernels = x.flatten(0, 1)[None], w.flatten(0, 1)[:, None]
            return functional.conv2d(images, kernels, groups=x.shape[0] * x.shape[1])

        def transposed(x, w):
            images, kernels = x.flatten(0, 1)[None], w.flatten(0, 1)[:, None]
            groups = x.shape[0] * x.shape[1]
            return functional.conv_transpose2d(images, kernels, stride=2, groups=groups)

        sizes = {"x": {0: "batch"}, "w": {0: "batch"}}
        for function in (plain, transposed):
            net = Named(function).eval()
            args = torch.rand(2, 3, 6, 6), torch.rand(2, 3, 3, 3)
            found = plutino.compile(net, args, exporter="torch.export", dynamic=sizes)
            for batch in (2, 4):
                args = torch.rand(batch, 3, 6, 6), torch.rand(batch, 3, 3, 3)
                torch.testing.assert_close(found(*args), net(*args), rtol=1e-4, atol=1e-5)


class Ties(unittest.TestCase):
    def test_a_refusal_names_them(self):
        x = torch.tensor([2.0, 0, 0, 0, 0])
        expected, found = x.topk(2), exported(Function(lambda x: x.topk(2)), x, check=False)(x)
        torch.testing.assert_close(found[0], expected[0])
        if not torch.equal(found[1], expected[1]):
            with self.assertRaisesRegex(plutino.MismatchError, "topk.*equal elements"):
                exported(Function(lambda x: x.topk(2)), x)


class Places(unittest.TestCase):
    def test_a_folder_that_is_missing(self):
        for options in ({}, {"exporter": "torch.export"}, {"dynamic": True}):
            with self.assertRaises(FileNotFoundError) as caught:
                plutino.export(nn.ReLU().eval(), "no/such/folder/net", torch.rand(3), **options)
            self.assertEqual(caught.exception.filename, "no/such/folder")


class Named(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, w):
        return self.function(x, w)


class Threads(unittest.TestCase):
    def test_exports_take_turns(self):
        answer = torch.SymBool.__bool__
        inside, over, found = threading.Event(), threading.Event(), {}

        def first(x):
            if not isinstance(x.shape[0], int):  # while it is exported
                other.start()
                inside.wait(0.5)
            return x * 2 if x.shape[0] != 1 else x * 3

        def second(x):
            if not isinstance(x.shape[0], int):
                inside.set()
                over.wait(5)
            return x * 2 if x.shape[0] != 2 else x * 3

        def export(name, function):
            x = torch.rand(6, 3)
            found[name] = exported(Function(function), x, dynamic=True)

        other = threading.Thread(target=export, args=("second", second))
        export("first", first)
        over.set()
        other.join()
        self.assertIs(torch.SymBool.__bool__, answer)
        for name, refused in (("first", 1), ("second", 2)):
            with self.assertRaises(plutino.InputError):
                found[name](torch.rand(refused, 3))
            found[name](torch.rand(3 - refused, 3))


if __name__ == "__main__":
    unittest.main()

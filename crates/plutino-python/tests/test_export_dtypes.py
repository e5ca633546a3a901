"""Dtypes that nobody writes down, complex numbers, and operators that are others in a file. Skipped
where PyTorch is not installed."""

import contextlib
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


class Functions(nn.Module):
    """All of them at once: an export takes its time."""

    def __init__(self, *functions):
        super().__init__()
        self.functions = functions

    def forward(self, *args):
        return tuple(function(*args) for function in self.functions)


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Exported(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, module, args, bound, **options):
        found = plutino.compile(module.eval(), args, exporter="torch.export", **options)
        with torch.no_grad():
            expected = module(*args)
        results = found(*args)
        if not isinstance(expected, tuple):
            results, expected = (results,), (expected,)
        for at, (actual, each) in enumerate(zip(results, expected)):
            with self.subTest(result=at):
                torch.testing.assert_close(actual, each, rtol=bound, atol=bound)
        return found


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.rnn, self.head = nn.GRU(8, 4, batch_first=True), nn.Linear(4, 5)

    def forward(self, x):
        x = functional.gelu(self.norm(self.conv(x))).mean(3).transpose(1, 2)
        return self.head(self.rnn(x)[0] + torch.arange(4) / 7).softmax(-1)


class Defaults(Exported):
    """``torch.set_default_dtype``: a file is read with f32 as the default."""

    def test_modules_in_double(self):
        x = torch.rand(2, 3, 6, 6, dtype=torch.float64)
        self.same(Net().double(), (x,), 1e-6)  # PyTorch divides integers in f32
        with default_dtype(torch.float64):
            self.same(Net(), (x,), 1e-12, dynamic=True)

    def test_tensors_that_are_made(self):
        functions = (
            lambda x: x * torch.ones(3) / 3,
            lambda x: torch.zeros(x.shape[0]),
            lambda x: torch.full((3,), 0.1),
            lambda x: torch.eye(3) / 3,
            lambda x: torch.arange(0.0, 0.6, 0.2) + x,
            lambda x: torch.linspace(0, 1, 7),
            lambda x: torch.scalar_tensor(0.1) + x,
            lambda x: torch.tensor([0.1, 0.2, 0.3]),
            lambda x: torch.hann_window(5),
            lambda x: torch.fft.fftfreq(5),
            lambda x: torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -1e9),
            lambda x: torch.ones_like(torch.arange(3)) * 0.1,
            lambda x: x.float() * 0.1,
            lambda x: x > torch.full((3,), 0.5, dtype=torch.float32),
        )
        with default_dtype(torch.float64):
            self.same(Functions(*functions), (torch.rand(3),), 1e-12)

    def test_integers_become_the_default(self):
        functions = (
            lambda n, x: n / 3,
            lambda n, x: n * 0.1 + x,
            lambda n, x: n.sqrt(),
            lambda n, x: n**-0.5,
            lambda n, x: 2.0**n,
            lambda n, x: n.clamp(0.5, 1.5),
            lambda n, x: torch.atan2(n, n + 1),
            lambda n, x: torch.fft.fft(n),
            lambda n, x: (n > 1) * 0.1,
            lambda n, x: (n > 1).sum() / 7,
            lambda n, x: torch.where(n > 1, 0.1, 0.2),
            lambda n, x: torch.where(n > 1, n, 0.2),
            lambda n, x: torch.cond(n.sum() > 3, lambda n: n / 3, lambda n: n / 7, (n,)),
            lambda n, x: n // 2,
        )
        args = torch.arange(1, 4), torch.rand(3, dtype=torch.float64)
        with default_dtype(torch.float64):
            self.same(Functions(*functions), args, 1e-12)
        with default_dtype(torch.bfloat16):
            halves = (lambda n, x: n / 3, lambda n, x: torch.full((3,), 0.1) * n)
            self.same(Functions(*halves), args, 0.0)


class Gradients(Exported):
    def test_coordinates(self):
        x, rows, columns = torch.randn(3, 6), torch.tensor([0.0, 1, 3]), torch.tensor([0.0, 1, 3, 4, 7, 9])
        functions = (
            lambda x, r, c: torch.gradient(x, spacing=(c,), dim=1)[0],
            lambda x, r, c: torch.gradient(x, spacing=(r, c), edge_order=2)[0],
            lambda x, r, c: torch.gradient(x, spacing=(r, c), edge_order=2)[1],
        )
        self.same(Functions(*functions), (x, rows, columns), 1e-5)


class Complex(Exported):
    def test_functions(self):
        c = torch.randn(3, 4, dtype=torch.complex64)
        functions = (
            lambda c: torch.sigmoid(c),
            lambda c: torch.tanh(c),
            lambda c: torch.tanh(c * 100),
            lambda c: c.var(0),
            lambda c: c.std(1, correction=0),
            lambda c: c.var(),
            lambda c: torch.var_mean(c, 1)[0],
            lambda c: torch.std_mean(c, 0)[1],
            lambda c: functional.silu(c),
            lambda c: torch.addmm(c[:, :3], c, c.mT, beta=1 + 2j, alpha=2j),
            lambda c: torch.full_like(c, 1 + 2j),
            lambda c: torch.index_fill(c, 0, torch.tensor([0, 2]), 3j),
        )
        self.same(Functions(*functions), (c,), 1e-5)
        c[0, 0], c[1, 1] = complex(float("inf"), 0), complex(0, float("nan"))
        self.same(Functions(torch.isfinite, torch.isinf, torch.isnan, torch.nan_to_num), (c,), 0.0)

    def test_numbers_among_parameters(self):
        c, mask = torch.randn(3, 4, dtype=torch.complex64), torch.rand(3, 4) > 0.5

        def written(c, mask):
            c = c.clone()
            c[0] = 1j
            return c

        functions = (
            lambda c, mask: c.masked_fill(mask, 1 + 2j),
            lambda c, mask: c * torch.full((4,), 1 + 2j),
            lambda c, mask: torch.where(mask, c, 1j),
            lambda c, mask: torch.where(mask, 1j, c.real),
            lambda c, mask: (c * 0 + 1j) == 1j,
            lambda c, mask: c.real != 1j,
            written,
        )
        self.same(Functions(*functions), (c, mask), 0.0)


class Others(Exported):
    def test_operators_that_are_several(self):
        x, weight, bias = torch.randn(7, 2, 3), torch.randn(3, 3, 5), torch.randn(5)
        conv = Functions(torch.conv_tbc, lambda x, w, b: torch.conv_tbc(x, w, b, 1))
        self.same(conv, (x, weight, bias), 1e-5)
        a = torch.eye(24).reshape(4, 6, 8, 3) + torch.randn(4, 6, 8, 3) * 0.01
        functions = (
            lambda a, b: torch.linalg.tensorinv(a),
            lambda a, b: torch.linalg.tensorinv(a.reshape(24, 8, 3), ind=1),
            lambda a, b: torch.linalg.tensorsolve(a, b),
            lambda a, b: torch.linalg.tensorsolve(a.movedim(1, 3), b, dims=(0, 3)),
        )
        self.same(Functions(*functions), (a, torch.randn(4, 6)), 1e-4)

    def test_memory_that_is_written_through_views(self):
        functions = (
            lambda x: (x * 2).fill_diagonal_(7.0),
            lambda x: (x * 2).fill_diagonal_(7.0, wrap=True),
            lambda x: torch.as_strided_scatter(x, x[:2, :2], (2, 2), (1, 3), 2),
        )
        self.same(Functions(*functions), (torch.randn(7, 3),), 0.0)

    def test_activations_that_are_one_function_of_pytorch(self):
        functions = (
            lambda x: nn.SELU(inplace=True)(x + 1),
            lambda x: nn.CELU(0.3, inplace=True)(x + 1),
            lambda x: nn.ELU(0.3, inplace=True)(x + 1),
            lambda x: torch.ops.aten.elu(x, 1.5, 2.0, 0.5),
        )
        self.same(Functions(*functions), (torch.randn(7, 3),), 1e-6)

    def test_images_of_bytes_are_resized_in_integers(self):
        interpolate = nn.functional.interpolate
        for antialias in (False, True):
            functions = (
                lambda x: interpolate(x, (5, 23), mode="bilinear", antialias=antialias),
                lambda x: interpolate(x, (31, 7), mode="bicubic", antialias=antialias),
                lambda x: interpolate(
                    x, (9, 9), mode="bicubic", align_corners=True, antialias=antialias
                ),
            )
            x = torch.randint(0, 256, (2, 3, 17, 13), dtype=torch.uint8)
            self.same(Functions(*functions), (x,), 0.0)

    def test_weights_that_are_read_as_other_numbers(self):
        class Packed(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("packed", torch.randn(6).view(torch.uint8))

            def forward(self, x):
                return x * self.packed.view(torch.float32)

        self.same(Packed(), (torch.rand(6),), 0.0)


if __name__ == "__main__":
    unittest.main()

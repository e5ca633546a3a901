"""Modules of PyTorch as models. Skipped where PyTorch is not installed."""

import contextlib
import copy
import dataclasses
import io
import math
import os
import pathlib
import pickle
import tempfile
import threading
import unittest

import numpy as np

import plutino
import support

try:
    import pnnx as converter
except ImportError:
    converter = None

try:
    import torch
    from torch import nn
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from plutino._export import capture, pnnx, verify

if not capture.available():
    raise unittest.SkipTest("this release of PyTorch has no exporter that is good enough")


class Net(nn.Module):
    """Modules, functions, a loop over a list, a dictionary as a result."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, image, scale=None):
        x = self.stem(image)
        parts = torch.split(x, 4, dim=1)
        x = torch.cat([part * (i + 1) for i, part in enumerate(parts)], dim=1).mean((2, 3))
        scores = self.head(nn.functional.gelu(self.norm(x)))
        if scale is not None:
            scores = scores * scale
        return {"scores": scores, "best": (scores.argmax(-1), x)}


class Attention(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.qkv, self.heads = nn.Linear(width, 3 * width), heads

    def forward(self, x):
        b, length, width = x.shape
        q, k, v = self.qkv(x).view(b, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        y = (q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)).masked_fill(~mask, -math.inf)
        return (y.softmax(-1) @ v).transpose(1, 2).reshape(b, length, width)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return x - self.total


@dataclasses.dataclass
class Pair:
    """A class that pytree knows."""

    first: torch.Tensor
    others: list


torch.export.register_dataclass(Pair, serialized_type_name="test_export.Pair")


@dataclasses.dataclass
class Unknown:
    """One that it does not know."""

    y: torch.Tensor


class Indexing(nn.Module):
    def forward(self, x, at):
        y = x.clone()
        y[:, 1] = 5.0
        y[:, :, ::2] += 1
        return y[at], y[:, at, None], y[..., -1], torch.where(x > 0, x, -1)


class Broken(nn.Module):
    """Something that depends on data: no program, and no trace either."""

    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x.nonzero()


def lines(param, kind):
    text = pathlib.Path(param).read_text().splitlines()
    return [line.split() for line in text if line.startswith(kind + " ")]


class Compiling(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, module, *args, bound=1e-5, **kwargs):
        found = plutino.compile(module.eval(), args, kwargs=kwargs)
        self.assertEqual(found.exporter, "torch.export")
        with torch.no_grad():
            expected = module(*args, **kwargs)
        torch.testing.assert_close(found(*args, **kwargs), expected, rtol=bound, atol=bound)
        return found

    def test_a_module_and_its_signature(self):
        net, image = Net().eval(), torch.randn(2, 3, 9, 9)
        found = self.same(net, image, scale=torch.tensor(2.0))
        by_position = found(image, torch.tensor(2.0))
        by_name = found(scale=torch.tensor(2.0), image=image)
        self.assertIsInstance(by_name["best"], tuple)
        self.assertTrue(torch.equal(by_position["scores"], by_name["scores"]))
        self.assertLess(found.error, 1e-5)
        missing = "exported with arguments.*; missing: 'scale'$"
        with self.assertRaisesRegex(plutino.InputError, missing) as raised:
            found(image)
        self.assertEqual(raised.exception.missing, ["scale"])
        with self.assertRaisesRegex(plutino.InputError, r"not among them: 'scale\[0\]'$"):
            found(image, [torch.tensor(2.0)])
        with self.assertRaisesRegex(plutino.InputError, "not among them: 'size'"):
            found(image, scale=torch.tensor(2.0), size=image)
        self.same(net, image)

    def test_arguments_of_another_structure(self):
        class Difference(nn.Module):
            def forward(self, parts):
                return parts["a"] - parts["b"]

        one, two = torch.ones(2), torch.full((2,), 2.0)
        found = plutino.compile(Difference().eval(), ({"a": one, "b": two},))
        self.assertEqual(found({"a": two, "b": one}).tolist(), [1, 1])
        for parts, text in (
            ({"a": one}, r'missing: "parts\[\'b\'\]"$'),
            ({"a": one, "b": two, "c": one}, r'not among them: "parts\[\'c\'\]"$'),
            ([one, two], "missing"),
        ):
            with self.subTest(text=text), self.assertRaisesRegex(plutino.InputError, text):
                found(parts)
        with self.assertRaisesRegex(plutino.InputError, "missing") as raised:
            found()
        self.assertNotIn("TreeSpec", str(raised.exception))
        for tolerance in (-1, float("nan"), "1"):
            with self.assertRaises(plutino.OptionError):
                plutino.compile(Difference().eval(), ({"a": one, "b": two},), tolerance=tolerance)

    def test_arguments_by_name(self):
        net = Net().eval()
        found = plutino.compile(net, {"image": torch.randn(1, 3, 5, 5)})
        x = torch.randn(1, 3, 5, 5)
        torch.testing.assert_close(
            found(x)["scores"], net(x)["scores"].detach(), rtol=1e-5, atol=1e-5
        )

    def test_pickled_it_gives_equal_bits(self):
        net, image = Net().eval(), torch.randn(2, 3, 9, 9)
        found = plutino.compile(net, image)
        for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            self.assertTrue(torch.equal(again(image)["scores"], found(image)["scores"]))

    def test_sizes_that_vary(self):
        net = Attention().eval()
        found = plutino.compile(
            net, torch.randn(2, 6, 16), dynamic={"x": {0: "batch", 1: "length"}}
        )
        self.assertEqual(found.session.get_inputs()[0].shape, ("batch", "length", 16))
        for shape in ((2, 6, 16), (1, 9, 16), (5, 2, 16)):
            x = torch.randn(*shape)
            torch.testing.assert_close(found(x), net(x).detach(), rtol=1e-5, atol=1e-5)
        every = plutino.compile(Net().eval(), torch.randn(2, 3, 9, 9), dynamic=True)
        self.assertEqual(every(torch.randn(3, 3, 7, 5))["scores"].shape, (3, 4))

        class Starred(nn.Module):
            def forward(self, x, *others, by=None):
                return x * by + others[0]

        x = torch.randn(2, 3)
        starred = plutino.compile(Starred().eval(), (x, x), kwargs={"by": x}, dynamic=True)
        x = torch.randn(4, 5)
        self.assertTrue(torch.equal(starred(x, x, by=x), x * x + x))

    def test_indexing_and_writing(self):
        self.same(Indexing(), torch.randn(3, 4, 5), torch.tensor([2, 0, 1]))

    def test_memory_that_is_read_by_strides(self):
        class Windows(nn.Module):
            """Overlapping windows, as Longformer has them: of what lies otherwise in memory."""

            def forward(self, x):
                masked = x.t().masked_fill(x.t() > 1, 0.0)  # lies as x does
                turned = masked.as_strided((3, 4), (4, 1), 2)
                view = x.mul(2).view(2, 12)
                return view.as_strided((5, 6), (4, 1)), turned

        self.same(Windows(), torch.randn(4, 6))

        class Beyond(nn.Module):
            def forward(self, x):
                return x.mul(2)[1:, 2:].as_strided((2, 2), (6, 1), 0)

        self.same(Beyond(), torch.randn(4, 6))

    def test_equations_with_blanks(self):
        class Product(nn.Module):
            def forward(self, a, b):
                return torch.einsum("b i d, b j d -> b i j", a, b)

        self.same(Product(), torch.randn(2, 3, 4), torch.randn(2, 5, 4))

    def test_transforms_of_frames(self):
        class Spectrum(nn.Module):
            def forward(self, x, window):
                first = torch.stft(x, 16, 4, 12, window=window, return_complex=True)
                other = torch.stft(x, 16, center=False, normalized=True, return_complex=True)
                return torch.istft(first, 16, 4, 12, window=window), other.abs()

        self.same(Spectrum(), torch.randn(2, 64), torch.hann_window(12) + 0.1)

    def test_pnnx_gets_tensors_whatever_the_results_are(self):
        class Nested(nn.Module):
            def forward(self, x):
                return x + 1, [x * 2, {"third": x * 3}]

        try:
            found = plutino.compile(Nested().eval(), torch.ones(2), exporter="pnnx")
        except plutino.ExportError as error:
            self.skipTest(str(error))
        x = torch.randn(2)
        first, (second, third) = found(x)
        self.assertTrue(torch.equal(first, x + 1) and torch.equal(second, x * 2))
        self.assertTrue(torch.equal(third["third"], x * 3))

    def test_recurrent_layers(self):
        x = torch.randn(2, 7, 6)
        self.same(nn.LSTM(6, 8, 2, bidirectional=True, batch_first=True), x)
        self.same(nn.LSTM(6, 8, proj_size=4, batch_first=True), x)
        self.same(nn.GRU(6, 8, bias=False), x, torch.randn(1, 7, 8))
        self.same(nn.RNN(6, 8, nonlinearity="relu"), x)

    def test_convolutions_and_norms(self):
        x = torch.randn(2, 4, 9, 9)
        for module in (
            nn.Conv2d(4, 6, 3, stride=2, padding="valid", groups=2, bias=False),
            nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
            nn.Conv2d(4, 8, (1, 3), padding="same", dilation=(1, 2)),
            nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True),
            nn.BatchNorm2d(4, affine=False),
            nn.LayerNorm([9, 9], bias=False),
            nn.RMSNorm(9),
            nn.PReLU(4),
        ):
            with self.subTest(module=module):
                self.same(module, x)

    def test_dtypes(self):
        for dtype, bound in ((torch.float64, 1e-12), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)):
            with self.subTest(dtype=dtype):
                net = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)).to(dtype)
                found = self.same(net, torch.randn(3, 8, dtype=dtype), bound=bound)
                self.assertEqual(found(torch.randn(3, 8, dtype=dtype)).dtype, dtype)

        class Other(nn.Module):
            def forward(self, x, i):
                f = torch.fft.fft(x)
                return f * 2j, f.abs(), i // 2, i.to(torch.uint8), i > 2

        self.same(Other(), torch.randn(8), torch.arange(5))

    def test_buffers_that_are_written_are_states(self):
        net = Counter().eval()
        found = plutino.compile(net, torch.ones(2, 3))
        x = torch.rand(2, 3)
        expected = [net(x).clone() for _ in range(3)]
        for each in expected:
            torch.testing.assert_close(found(x), each)
        found.reset()
        torch.testing.assert_close(found(x), expected[0])
        again = copy.copy(found)  # from here on each has its own
        torch.testing.assert_close(found(x), expected[1])
        torch.testing.assert_close(again(x), expected[1])

    def test_threads_that_write_a_buffer_take_turns(self):
        found = plutino.compile(Counter().eval(), torch.ones(2, 3), threads=1)
        x, seen = torch.ones(2, 3), []
        threads = [
            threading.Thread(target=lambda: seen.extend(found(x)[0, 0].item() for _ in range(50)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Each call adds 2 to the buffer, which is taken from 1: none is lost.
        self.assertEqual(sorted(seen, reverse=True), [1 - 2 * n for n in range(1, 201)])

    def test_arguments_that_are_written(self):
        class Fill(nn.Module):
            def forward(self, x, out):
                out.copy_(x * 2)
                return x + 1

        found = plutino.compile(Fill().eval(), (torch.ones(3), torch.zeros(3)))
        x, out = torch.rand(3), torch.zeros(3)
        torch.testing.assert_close(found(x, out), x + 1)
        torch.testing.assert_close(out, x * 2)

    def test_results_that_are_inputs_constants_or_no_tensors(self):
        class Echo(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("table", torch.arange(4.0))

            def forward(self, x):
                return x, self.table, None, 7, [x.reshape(-1)]

        found = plutino.compile(Echo().eval(), torch.ones(2, 2))
        x, table, none, seven, (flat,) = found(torch.eye(2))
        self.assertTrue(torch.equal(x, torch.eye(2)) and torch.equal(table, torch.arange(4.0)))
        self.assertEqual((none, seven, flat.tolist()), (None, 7, [1, 0, 0, 1]))

    def test_options_are_those_of_sessions(self):
        found = plutino.compile(nn.Linear(2, 2).eval(), torch.ones(1, 2), threads=1, memory="low")
        self.assertEqual(found.session.threads, 1)
        with self.assertRaises(plutino.OptionError):
            plutino.compile(nn.Linear(2, 2).eval(), torch.ones(1, 2), memory="none")

    def test_inputs_are_not_copied_nor_changed(self):
        found = plutino.compile(nn.ReLU().eval(), torch.ones(4), dynamic=True)
        x = torch.randn(6).requires_grad_()
        self.assertFalse(found(x).requires_grad)
        torch.testing.assert_close(found(x[::2]), x[::2].relu().detach())

    def test_a_tensor_that_is_given_twice_is_two_inputs(self):
        class Minus(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3, 4))
                self.register_buffer("table", torch.randn(3, 4))
                self.plain = torch.randn(3, 4)

            def forward(self, a, b):
                return a - 2 * b + self.weight * self.table - self.plain

        net, same = Minus().eval(), torch.randn(3, 4)
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        for example in (
            (same, same),
            (net.weight, net.table),
            (net.plain, same),
            {"b": same, "a": same},
            (same, same.view(3, 4)),
        ):
            found = plutino.compile(net, example)
            self.assertEqual([v.name for v in found.session.get_inputs()], ["a", "b"])
            torch.testing.assert_close(found(x, y), net(x, y).detach())

        class Varying(nn.Module):
            def forward(self, a, b):
                return a - 2 * b

        found = plutino.compile(
            Varying().eval(), (same, same), dynamic={"a": {0: "n"}, "b": {0: "n"}}
        )
        self.assertTrue(torch.equal(found(x[:2], y[:2]), x[:2] - 2 * y[:2]))

    def test_arguments_that_are_written_behind_constants(self):
        class Adding(nn.Module):
            def forward(self, factor, parts, flag, out):
                out.mul_(factor).add_(parts["x"])
                return out.sum()

        net = Adding().eval()
        x, out, other = torch.rand(3), torch.rand(3), torch.rand(3)
        expected, own = out * 2 + x, other * 2 + x
        example = (2.0, {"n": 3, "x": torch.ones(3)}, None, torch.ones(3))
        found = plutino.compile(net, example)
        torch.testing.assert_close(found(2.0, {"n": 3, "x": x}, None, out), expected.sum())
        torch.testing.assert_close(out, expected)
        array = other.numpy()
        found(2.0, {"n": 3, "x": x.numpy()}, None, array)
        torch.testing.assert_close(torch.from_numpy(array), own)

    def test_buffers_that_are_results(self):
        class Returning(Counter):
            def forward(self, x):
                self.total.add_(x)
                return self.total, self.total[:2]

        net = Returning().eval()
        found = plutino.compile(net, torch.ones(3))
        self.assertEqual(found.error, 0.0)
        self.assertEqual(net.total.tolist(), [0, 0, 0])
        for count in (1, 2, 3):
            total, first = found(torch.ones(3))
            self.assertEqual((total.tolist(), first.tolist()), ([count] * 3, [count] * 2))

    def test_the_same_call_in_other_words(self):
        class Named(nn.Module):
            def forward(self, x, scale=2.0, other=None, *, mask, shift=None):
                x = x * scale * mask
                x = x if other is None else x - other
                return x if shift is None else x + shift

        net = Named().eval()
        x, mask, shift = torch.rand(3), torch.rand(3), torch.rand(3)
        found = plutino.compile(net, (x,), kwargs={"mask": mask, "shift": shift})
        expected = net(x, mask=mask, shift=shift)
        for again in (
            found(x, shift=shift, mask=mask),
            found(x, 2.0, mask=mask, shift=shift),
            found(scale=2.0, shift=shift, other=None, mask=mask, x=x),
        ):
            torch.testing.assert_close(again, expected)
        for wrong in ({"scale": 3.0}, {"scale": 2}, {"other": x}, {"none": x}):
            with self.subTest(wrong=wrong), self.assertRaises(plutino.InputError):
                found(x, mask=mask, shift=shift, **wrong)
        with self.assertRaises(plutino.InputError):
            found(x, mask=mask)
        # Defaults that the example spells out may be left out.
        found = plutino.compile(net, (x, 2.0, None), kwargs={"shift": None, "mask": mask})
        torch.testing.assert_close(found(x, mask=mask), net(x, mask=mask))
        for wrong in ({"scale": 3.0}, {"scale": torch.tensor(2.0)}, {"shift": x}):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(plutino.InputError, "was"):
                found(x, mask=mask, **wrong)

        class Positional(nn.Module):
            def forward(self, x, /, y, *, z):
                return x - y * z

        found = plutino.compile(Positional().eval(), (x,), kwargs={"y": mask, "z": shift})
        for again in (found(x, z=shift, y=mask), found(x, mask, z=shift)):
            torch.testing.assert_close(again, x - mask * shift)

        class Starred(nn.Module):
            def forward(self, *given, **named):
                return given[0] * named["a"] - named["b"]

        found = plutino.compile(Starred().eval(), (x,), kwargs={"a": mask, "b": shift})
        torch.testing.assert_close(found(x, b=shift, a=mask), x * mask - shift)

    def test_keys_of_dictionaries_stand_in_order(self):
        class Keyed(nn.Module):
            def forward(self, parts):
                return torch.cat(list(parts.values()))

        x, y = torch.rand(2), torch.rand(3)
        found = plutino.compile(Keyed().eval(), ({"x": x, "y": y},))
        self.assertTrue(torch.equal(found({"x": x, "y": y}), torch.cat([x, y])))
        with self.assertRaisesRegex(plutino.InputError, "order of the example"):
            found({"y": y, "x": x})

    def test_hooks_see_what_is_given_by_position(self):
        net = nn.Linear(4, 2).eval()
        net.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
        x = torch.rand(3, 4)
        found = plutino.compile(net, (x,), dynamic={"input": {0: "batch"}})
        self.assertEqual(found.session.get_inputs()[0].shape, ("batch", 4))
        x = torch.rand(5, 4)
        torch.testing.assert_close(found(x), net(x).detach(), rtol=1e-5, atol=1e-5)

    def test_what_is_no_tensor_is_refused_where_one_was(self):
        found = plutino.compile(Net().eval(), (torch.rand(1, 3, 5, 5), torch.tensor(2.0)))
        for wrong in (None, "two"):
            with self.subTest(wrong=wrong), self.assertRaises(plutino.InputError) as caught:
                found(torch.rand(1, 3, 5, 5), scale=wrong)
            self.assertIn("scale", str(caught.exception))
        self.assertEqual(found(torch.rand(1, 3, 5, 5), 2.0)["scores"].shape, (1, 4))

    def test_tensors_that_are_read_conjugated_or_negated(self):
        x = torch.randn(4, dtype=torch.complex64)

        class Twice(nn.Module):
            def forward(self, x):
                return x * 2

        for given in (x.conj(), x.conj().imag):
            found = plutino.compile(Twice().eval(), given)
            torch.testing.assert_close(found(given), given * 2)

    def test_arguments_that_an_operator_made(self):
        x = torch.rand(3, requires_grad=True)
        found = self.same(nn.ReLU(), x * 2)
        self.assertTrue(torch.equal(found(x * -2), torch.zeros(3)))
        plutino.compile(Net().eval(), {"image": torch.rand(1, 3, 5, 5), "scale": x.sum()})

    def test_buffers_that_are_expanded_or_set(self):
        class Setting(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("wide", torch.arange(8.0).expand(2, 4, 8))
                self.register_buffer("gaps", torch.full((1, 1), math.nan).expand(2, 4))
                self.register_buffer("steps", torch.zeros(1))

            def forward(self, x):
                self.steps = self.steps + 1
                self.steps.mul_(2)
                return x + self.wide, self.gaps, self.steps * 1

        net = Setting().eval()
        kept = dict(net.named_buffers())
        found = plutino.compile(net, torch.ones(2, 4, 8))
        for name, buffer in net.named_buffers():
            self.assertIs(buffer, kept[name])
        self.assertEqual((net.steps.tolist(), net.wide[1, 3].tolist()), ([0], list(range(8))))
        x = torch.rand(2, 4, 8)
        for steps in (2, 6):
            wide, gaps, counted = found(x)
            self.assertTrue(torch.equal(wide, x + net.wide) and bool(gaps.isnan().all()))
            self.assertEqual(counted.tolist(), [steps])

    def test_classes_that_are_registered(self):
        class Sums(nn.Module):
            def forward(self, pair, more):
                return Pair(pair.first * 2, [pair.others[0] + more["x"][1]])

        def example(first, second):
            return Pair(torch.rand(first), [torch.rand(second)]), {"x": (1, torch.rand(second))}

        net = Sums().eval()
        found = plutino.compile(net, example(3, 4), dynamic=True)
        for sizes in ((3, 4), (5, 6)):
            given = example(*sizes)
            result, expected = found(*given), net(*given)
            self.assertIsInstance(result, Pair)
            self.assertTrue(torch.equal(result.first, expected.first))
            self.assertTrue(torch.equal(result.others[0], expected.others[0]))

    def test_caches_of_transformers(self):
        try:
            from transformers import LlamaConfig, LlamaForCausalLM
            from transformers.cache_utils import DynamicCache
            from transformers.integrations.executorch import (  # noqa: F401
                register_dynamic_cache_export_support,
            )
        except ImportError as error:
            self.skipTest(str(error))
        config = LlamaConfig(
            num_hidden_layers=1,
            hidden_size=16,
            intermediate_size=32,
            num_attention_heads=2,
            num_key_value_heads=2,
            vocab_size=50,
        )
        net = LlamaForCausalLM(config).eval()
        example, prompt = torch.randint(0, 50, (2, 1, 5))
        token = torch.tensor([[7]])
        first = plutino.compile(net, {"input_ids": example})
        with torch.no_grad():
            seen = net(example).past_key_values
        then = plutino.compile(net, {"input_ids": token, "past_key_values": seen})
        self.assertEqual((first.exporter, then.exporter), ("torch.export", "torch.export"))

        result = first(input_ids=prompt)
        cache = result.past_key_values
        self.assertIsInstance(cache, DynamicCache)
        again = pickle.loads(pickle.dumps(then))(input_ids=token, past_key_values=cache)
        self.assertEqual(cache.get_seq_length(), 5)  # that of the caller is as it was
        with torch.no_grad():
            expected = net(torch.cat([prompt, token], 1))
        for found, logits in ((result, expected.logits[:, :5]), (again, expected.logits[:, 5:])):
            torch.testing.assert_close(found.logits, logits, rtol=1e-5, atol=1e-5)
        (layer,), (own,) = again.past_key_values.layers, expected.past_key_values.layers
        torch.testing.assert_close(layer.keys, own.keys, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(layer.values, own.values, rtol=1e-5, atol=1e-5)
        with self.assertRaisesRegex(plutino.InputError, "exported for 5"):
            then(input_ids=token, past_key_values=again.past_key_values)

        class Mixed(nn.Module):
            def forward(self, x):
                found = DynamicCache()
                found.layers = [object()]
                return x, found

        with self.assertRaisesRegex(plutino.ExportError, "use_cache=False"):
            plutino.compile(Mixed().eval(), torch.ones(2))
        with self.assertRaises(plutino.InputError):
            then(input_ids=token, past_key_values=Mixed()(token)[1])

    def test_sums_with_a_factor_have_the_dtype_of_pytorch(self):
        class Adding(nn.Module):
            def forward(self, a, b):
                return torch.add(a, b, alpha=2)

        flags = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
        whole = torch.arange(4)
        for a, b in (flags, (torch.rand(4).double(), whole), (torch.rand(4).double(), torch.rand(4))):
            found = self.same(Adding(), a, b)
            self.assertEqual(found(a, b).dtype, torch.add(a, b, alpha=2).dtype)


class Sizes(unittest.TestCase):
    """Shapes that the program of torch.export is not good for."""

    def refused(self, found, *args, **fields):
        with self.assertRaises(plutino.InputError) as caught:
            found(*args)
        for name, value in fields.items():
            self.assertEqual(getattr(caught.exception, name), value)
        return str(caught.exception)

    def test_those_of_the_example(self):
        class Mean(nn.Module):
            def forward(self, x):
                return x.sum(0) / x.shape[0]

        net, x = Mean().eval(), torch.rand(5, 4)
        found = plutino.compile(net, torch.rand(3, 4))
        for again in (found, pickle.loads(pickle.dumps(found))):
            message = self.refused(again, x, input="x", expected="3")
            self.assertIn("dimension 0 of 'x' is 5", message)
            self.assertIn("dynamic=", message)
        self.refused(found, x[0], input="x", expected="2 dimension(s)")
        self.refused(found, np.ones((3, 5), np.float32), expected="4")
        # A session of the same files runs them: sizes of files are hints.
        self.assertEqual(found.session(x).shape, (4,))
        varying = plutino.compile(net, torch.rand(3, 4), dynamic={"x": {0: "n"}})
        for size in (1, 3, 5):
            torch.testing.assert_close(varying(x[:size]), net(x[:size]))
        self.refused(varying, torch.rand(3, 5), expected="4")

    def test_parts_of_an_argument_are_named(self):
        class Parts(nn.Module):
            def forward(self, parts, *others):
                return parts["x"][1] + others[0]

        x = torch.rand(3)
        found = plutino.compile(Parts().eval(), ({"x": [1, x]}, x))
        self.assertIn("args[0]['x'][1]", self.refused(found, {"x": [1, x[:2]]}, x))
        self.assertIn("'args[1]'", self.refused(found, {"x": [1, x]}, x[:2]))

    def test_bounds(self):
        class Branch(nn.Module):
            def forward(self, x):
                return x[:4].sum(0) if x.shape[0] >= 4 else x.sum(0) * 100

        net = Branch().eval()
        named = {"x": {0: torch.export.Dim("rows", min=4, max=10)}}
        for dynamic, least in ((named, "4 to 10"), (True, "at least 4")):
            found = plutino.compile(net, torch.rand(6, 4), dynamic=dynamic)
            for rows in (4, 9):
                x = torch.rand(rows, 4)
                torch.testing.assert_close(found(x), net(x))
            self.refused(found, torch.rand(3, 4), input="x", expected=least)
        found = plutino.compile(net, torch.rand(6, 4), dynamic=named)
        self.refused(found, torch.rand(11, 4), expected="4 to 10")

    def test_sizes_that_are_one(self):
        class Both(nn.Module):
            def forward(self, x, y):
                return (x.sum(0) + y.sum(0)) / x.shape[0]

        net = Both().eval()
        found = plutino.compile(
            net, (torch.rand(3, 4), torch.rand(3, 4)), dynamic={"x": {0: "n"}, "y": {0: "n"}}
        )
        x, y = torch.rand(5, 4), torch.rand(5, 4)
        torch.testing.assert_close(found(x, y), net(x, y))
        self.assertIn("x.shape[0]", self.refused(found, x, y[:2], input="y", expected="5"))

    def test_conditions(self):
        class Even(nn.Module):
            def forward(self, x):
                rows = x.shape[0]
                return x.reshape(rows // 2, 2, 4).sum(1) if rows % 2 == 0 else x

        net, x = Even().eval(), torch.rand(8, 4)
        found = plutino.compile(net, torch.rand(6, 4), dynamic=True)
        torch.testing.assert_close(found(x), net(x))
        self.assertIn("x.shape[0] is 7", self.refused(found, x[:7]))
        half = 2 * torch.export.Dim("half")
        found = plutino.compile(net, torch.rand(6, 4), dynamic={"x": {0: half}})
        torch.testing.assert_close(found(x), net(x))
        self.refused(found, x[:7], input="x", expected="a multiple of 2")

    def test_sizes_that_pytorch_asks_whether_they_are_one(self):
        class Small(nn.Module):
            """Images of 4 pixels end as one, those of 8 as four."""

            def __init__(self):
                super().__init__()
                self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
                self.norm, self.second = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, 2, 1)
                self.down = nn.Conv2d(8, 8, 1, 2)

            def forward(self, x):
                x = nn.functional.relu(self.norm(self.first(x)))
                x = nn.functional.relu(self.second(x) + self.down(x))
                return nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

        net = Small().eval()
        found = plutino.compile(net, torch.rand(2, 3, 8, 8), dynamic=True)
        for size in (8, 4, 1, 12):
            x = torch.rand(1, 3, size, size)
            torch.testing.assert_close(found(x), net(x).detach(), rtol=1e-5, atol=1e-5)

        class Asking(nn.Module):
            def forward(self, x):
                x = nn.functional.max_pool2d(x, 2)
                return x * 2 if x.shape[2] == 1 else x + 1

        found = plutino.compile(Asking().eval(), torch.rand(2, 3, 8, 8), dynamic=True)
        x = torch.rand(1, 3, 6, 6)
        torch.testing.assert_close(found(x), Asking()(x))
        self.assertIn("x.shape[2] is 2", self.refused(found, x[:, :, :2]))

    def test_numbers_that_are_made_of_sizes(self):
        class Numbers(nn.Module):
            def forward(self, x):
                return x.shape[0] > 3, x.shape[0] * 2, x.shape[0] / 2, x + 1

        found = plutino.compile(Numbers().eval(), torch.rand(6, 7), dynamic=True)
        for rows in (3, 5):
            big, twice, half, _ = found(torch.rand(rows, 7))
            self.assertIs(big, rows > 3)
            self.assertEqual((twice, type(twice), half), (2 * rows, int, rows / 2))


class Exporting(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model")

    def test_slices_along_several_dimensions_are_one(self):
        class Corners(nn.Module):
            def forward(self, x):
                rows = x[:, 1:]
                even, inner = x[..., ::2, 1::2, :], rows[:, :, 1:-1]
                return even, inner, rows, x[0:1][:, -3:, 2:][:, 1:]

        found = plutino.export(Corners().eval(), self.path, torch.randn(2, 6, 8, 3))
        self.assertEqual(found.error, 0.0)
        kept = lines(found.param, "Tensor.slice")
        self.assertEqual(len(kept), 2)  # the corners
        dims = [word for line in kept for word in line if word.startswith("dims=")]
        self.assertEqual(dims, ["dims=(1,2)", "dims=(0,1,2,1)"])
        # Rows, which are read twice, and what is taken of them.
        self.assertEqual(len(lines(found.param, "aten::slice.Tensor")), 2)

    def test_the_files_keep_names_shapes_and_modules(self):
        found = plutino.export(Net().eval(), self.path + ".pt", torch.randn(2, 3, 9, 9))
        self.assertEqual(found.param, self.path + ".pnnx.param")
        self.assertLess(found.error, found.tolerance)
        (conv,) = lines(found.param, "nn.Conv2d")
        self.assertEqual(conv[1], "stem.0")
        self.assertIn("@weight=(8,3,3,3)f32", conv)
        self.assertTrue(any(word.endswith("=(2,8,9,9)f32") for word in conv))
        self.assertEqual(lines(found.param, "nn.LayerNorm")[0][1], "norm")
        session = plutino.Session(found.param)
        self.assertEqual([value.name for value in session.get_inputs()], ["image"])
        self.assertEqual(
            [value.operator for value in session.get_outputs()], ["scores", "best.0", "best.1"]
        )

    def test_states_stand_behind_what_the_caller_gives(self):
        found = plutino.export(Counter().eval(), self.path, torch.ones(2, 3))
        session = plutino.Session(found.param)
        self.assertEqual([v.operator for v in session.get_inputs()], ["x", "total"])
        self.assertEqual([v.operator for v in session.get_outputs()], ["out0", "total.next"])
        (state,) = found.states
        self.assertEqual((state.name, state.number, state.initial.tolist()), ("total", 1, [0] * 3))
        net, x, carried = Counter().eval(), torch.rand(2, 3), found.state(session)
        for _ in range(3):
            (y,) = session.run(None, [x], state=carried)
            torch.testing.assert_close(torch.from_numpy(y), net(x))
        carried.reset()
        (y,) = session.run(None, [x], state=carried)
        torch.testing.assert_close(torch.from_numpy(y), Counter()(x))

    def test_tied_weights_are_written_once(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.head = nn.Embedding(30, 16), nn.Linear(16, 30, bias=False)
                self.head.weight = self.embedding.weight

            def forward(self, tokens):
                return self.head(self.embedding(tokens))

        found = plutino.export(Tied().eval(), self.path, torch.tensor([[1, 2, 3]]))
        self.assertLess(os.path.getsize(found.bin), 30 * 16 * 4 + 500)

    def test_a_model_that_differs_names_the_operator(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
        forward = net.forward

        def other(input):  # what the module computes when nobody exports it
            y = forward(input)
            return y if torch.compiler.is_exporting() else y + 0.5

        net.forward = other
        with self.assertRaises(plutino.MismatchError) as caught:
            plutino.export(net, self.path, torch.rand(2, 4))
        error = caught.exception
        self.assertGreater(error.error, error.tolerance)
        self.assertEqual((error.output, error.operators), (0, []))
        self.assertIn("each operator is right by itself", str(error))
        plutino.export(net, self.path, torch.rand(2, 4), check=False)

    def test_what_is_asked_for_must_make_sense(self):
        net, x = nn.Linear(2, 2), torch.ones(1, 2)
        with self.assertRaisesRegex(plutino.ExportError, "call eval"):
            plutino.export(net, self.path, x)
        with self.assertRaises(plutino.OptionError):
            plutino.export(net.eval(), self.path, x, exporter="onnx")

    def test_what_torch_export_refuses_says_why(self):
        with self.assertRaises(plutino.ExportError) as caught:
            plutino.export(Broken().eval(), self.path, torch.ones(3), exporter="torch.export")
        self.assertIn("GuardOnDataDependent", caught.exception.reason)

        class Constant(nn.Module):
            def forward(self, x):
                return x + torch.ones(6, 4)

        with self.assertRaises(plutino.ExportError) as caught:
            plutino.export(Constant().eval(), self.path, torch.ones(6, 4), dynamic={"x": {0: "n"}})
        self.assertIn("Suggested fixes: n = 6", caught.exception.reason)

    def test_dtypes_of_results_are_compared(self):
        one, other = np.ones(3, np.int32), np.ones(3, np.int64)
        self.assertEqual(verify.deviation(one, one), 0.0)
        self.assertEqual(verify.deviation(one, other), math.inf)
        self.assertEqual(verify.deviation(one.astype("f4"), one.astype("f8")), math.inf)
        error = verify.refuse(math.inf, 0.0, 2, (one, other), None)
        verify.same_number(1.0, 1.0 + 1e-6, 0.0)
        for number in (2.0, 1, True):
            with self.subTest(number=number), self.assertRaises(plutino.MismatchError):
                verify.same_number(1.0, number, 0.0)
        self.assertIn("output 2 is int32 of shape (3,), the module's int64", str(error))

    def test_a_refusal_leaves_the_files_of_before(self):
        class Choice(nn.Module):
            def forward(self, x):
                return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))

        x = torch.ones(3)
        found = plutino.export(Choice().eval(), self.path, x)
        with self.assertRaises(plutino.ExportError):
            plutino.export(Broken().eval(), self.path, x, exporter="torch.export")
        (y,) = plutino.Session(self.path).run(None, [x])
        self.assertEqual(y.tolist(), [2, 2, 2])
        plutino.export(nn.ReLU().eval(), self.path, x)
        self.assertEqual(os.listdir(found.definitions), [])

    def test_pnnx_stands_in(self):
        if converter is None:
            self.skipTest("pnnx is not installed")

        class Traced(nn.Module):
            def forward(self, x, flag=True):
                return {"y": x * 2 if float(x.sum()) > 0 else x * 3}

        with self.assertWarnsRegex(UserWarning, "GuardOnDataDependent") as caught:
            found = plutino.compile(Traced().eval(), torch.ones(2, 3))
        self.assertEqual(os.path.basename(caught.filename), os.path.basename(__file__))
        self.assertEqual(found.exporter, "pnnx")
        self.assertIn("GuardOnDataDependent", found.fallback)
        torch.testing.assert_close(found(torch.ones(2, 3))["y"], torch.full((2, 3), 2.0))
        asked = plutino.compile(Net().eval(), torch.randn(1, 3, 8, 8), exporter="pnnx")
        self.assertEqual((asked.exporter, asked.fallback), ("pnnx", None))
        self.assertEqual(asked(torch.randn(1, 3, 8, 8))["best"][0].dtype, torch.int64)


    def test_traces_keep_no_results_that_are_no_tensors(self):
        class Hidden(nn.Module):
            def forward(self, x):
                return {"out": Unknown(y=x * 2)}

        net, x = Hidden().eval(), torch.ones(3)
        with self.assertRaises(plutino.ExportError) as caught:
            plutino.compile(net, x)
        for part in ("torch.export: ", "known type", "'out' is an Unknown", "register_dataclass"):
            self.assertIn(part, str(caught.exception))
        with self.assertRaisesRegex(plutino.ExportError, "use_cache=False"):
            plutino.export(net, self.path, x, exporter="pnnx")
        self.assertFalse(os.path.exists(self.path + ".pnnx.param"))

        class Counting(nn.Module):
            def __init__(self, number):
                super().__init__()
                self.number = number

            def forward(self, x, at):
                return x * 2, self.number(x, at), None, "word", True, 7

        example = torch.rand(3) + 1, torch.tensor([0, 2, 2])
        for number in (
            lambda x, at: float(x.sum()),
            lambda x, at: int(at[0]),
            lambda x, at: bool((x > 0).all()),
        ):
            with self.assertRaisesRegex(plutino.ExportError, "result 1 is .* for the example"):
                plutino.export(Counting(number).eval(), self.path, example, exporter="pnnx")
        if converter is None:
            self.skipTest("pnnx is not installed")
        net = Counting(lambda x, at: x.shape[0] / 2).eval()
        found = plutino.compile(net, example, exporter="pnnx")
        x = torch.rand(3)
        result, *others = found(x, example[1])
        self.assertTrue(torch.equal(result, x * 2))
        self.assertEqual(others, [1.5, None, "word", True, 7])

    def test_modules_that_are_traces(self):
        if converter is None:
            self.skipTest("pnnx is not installed")
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
        traced = torch.jit.trace(net, torch.rand(2, 3))
        with self.assertWarnsRegex(UserWarning, "ScriptModule"):
            found = plutino.compile(traced, torch.rand(2, 3))
        x = torch.rand(2, 3)
        torch.testing.assert_close(found(x), net(x).detach(), rtol=1e-5, atol=1e-5)
        for dynamic in (True, {"x": {0: "batch"}}):
            with self.assertRaisesRegex(plutino.ExportError, "ScriptModule"):
                plutino.compile(traced, torch.rand(2, 3), dynamic=dynamic)

    def test_a_converter_that_ends_early(self):
        class Ending:
            """What pnnx does where its program crashes."""

            def __init__(self, said):
                self.said = said

            def export(self, module, path, inputs):
                os.write(2, self.said)
                open(path.replace(".pt", "_pnnx.py")).close()

        folder = pathlib.Path(self.path).parent
        for number, (said, told) in enumerate(
            ((b"pass 1\nterminated: no such type\n\n", "no such type"), (b"", "printed nothing"))
        ):
            inner = folder / str(number)
            inner.mkdir()
            reason = pnnx._run(Ending(said), nn.ReLU(), inner / "model", [])
            self.assertIn("ended without writing its script, model_pnnx.py", reason)
            self.assertIn(told, reason)
            self.assertNotIn("FileNotFound", reason)


class Documentation(unittest.TestCase):
    def test_examples_of_the_page_run(self):
        """Every block of docs/exporting.md, in one program."""
        text = (support.ROOT / "docs" / "exporting.md").read_text()
        blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
        self.assertGreater(len(blocks), 3)
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                program = {"__name__": "example"}
                for number, block in enumerate(blocks):
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(block, f"docs/exporting.md, block {number}", "exec"), program)
            finally:
                os.chdir(before)


if __name__ == "__main__":
    unittest.main()

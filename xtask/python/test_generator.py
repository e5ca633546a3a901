"""Holds the generator to published test vectors, and to the answers that the Rust tests expect."""

import unittest

import numpy as np

import generator


class Generator(unittest.TestCase):
    def test_words_are_splitmix64_of_fnv_1a(self):
        # FNV-1a of "foobar" is 85944171f73967e8 by its authors' test vectors.
        state, gamma = 0x85944171F73967E8, int(generator.GOLDEN_GAMMA)
        z = (state + gamma) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        self.assertEqual(int(generator.words("foobar", 1)[0]), z ^ (z >> 31))

    def test_values_are_those_of_rust(self):
        def bits(values: np.ndarray) -> list[int]:
            return values.view(np.uint32).tolist()

        weights = generator.uniform("conv.weight", 4, 0.0, generator.fan_in_rule(2.0, 147).spread)
        self.assertEqual(bits(weights), [0xBE00BBB9, 0x3D847805, 0x3E16A850, 0x3D2EA5B5])
        norm = generator.uniform("norm.weight", 4, 1.0, 0.25)
        self.assertEqual(bits(norm), [0x3F61A845, 0x3F4371F2, 0x3F848373, 0x3F689E58])
        tokens = generator.integers("tokens", 4, -5, 30522)
        self.assertEqual(tokens.tolist(), [23169, 8908, 10716, 4632])


if __name__ == "__main__":
    unittest.main()

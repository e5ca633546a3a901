"""Transforms of torchvision as ``preprocess.json``; with stand-ins where torchvision is missing."""

import importlib.util
import json
import os
import tempfile
import unittest

import numpy as np

import plutino


def stand_in(name, **attributes):
    """An object of a class of that name."""
    return type(name, (), attributes)()


class Mode:
    def __init__(self, value):
        self.value = value


def save(transforms, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = plutino.save_preprocess(os.path.join(folder, "m.pnnx.param"), transforms, **options)
        assert os.path.basename(path) == "m.preprocess.json"
        with open(path, encoding="utf-8") as file:
            return json.load(file)


NORMAL = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


class Preprocess(unittest.TestCase):
    def test_presets(self):
        preset = stand_in(
            "ImageClassification",
            resize_size=[232],
            crop_size=[224],
            interpolation=Mode("bicubic"),
            antialias=True,
            **NORMAL,
        )
        expected = {"short": 232, "crop": [224, 224], "filter": "bicubic", "labels": "imagenet"}
        self.assertEqual(save(preset, labels="imagenet"), {**expected, **NORMAL})
        preset = stand_in("SemanticSegmentation", resize_size=None, interpolation=Mode("bilinear"), **NORMAL)
        self.assertEqual(save(preset, labels=["a", "b"]), {**NORMAL, "labels": ["a", "b"]})

    def test_compositions(self):
        steps = [
            stand_in("Resize", size=[48, 64], interpolation=Mode("bilinear"), max_size=None, antialias=True),
            stand_in("CenterCrop", size=(32, 32)),
            stand_in("Compose", transforms=[stand_in("ToTensor"), stand_in("Normalize", mean=(0.5,), std=(0.25,))]),
        ]
        made = save(stand_in("Compose", transforms=steps))
        expected = {"size": [48, 64], "filter": "bilinear", "crop": [32, 32], "mean": [0.5], "std": [0.25]}
        self.assertEqual(made, expected)

    def test_numbers_of_other_kinds(self):
        arrays = stand_in("Normalize", mean=np.array([0.5, 0.25, 0.5]), std=np.float32(0.5))
        made = save([stand_in("ToTensor"), arrays])
        self.assertEqual(made, {"mean": [0.5, 0.25, 0.5], "std": [0.5]})
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        columns = torch.full((3, 1, 1), 0.5)
        tensors = stand_in("Normalize", mean=columns, std=columns.bfloat16().requires_grad_())
        made = save([stand_in("ToTensor"), tensors])
        self.assertEqual(made, {"mean": [0.5] * 3, "std": [0.5] * 3})

    def test_numbers_and_labels_that_are_not_read_are_not_written(self):
        tensor = stand_in("ToTensor")
        good = stand_in("Normalize", mean=[0.5], std=[0.5])
        nan, inf = float("nan"), float("inf")
        numbers = [(nan, 1), (inf, 1), (1e39, 1), ([0.5] * 2, 1), ([0.5] * 4, 1), ([], 1), (None, 1)]
        numbers += [(0, 0), (0, nan), (0, 1e-60), (0, [1, 0, 1]), (0, [1, 1]), (0, "some"), (0, [[1], [1, 2]])]
        steps = [[tensor, stand_in("Normalize", mean=mean, std=std)] for mean, std in numbers]
        steps += [[tensor, good, good]]
        for size in (0, -1, 2.5, None, "8", [8, 8, 8], [], [8, None], 1 << 16):
            steps.append([stand_in("Resize", size=size, interpolation=Mode("bilinear"), max_size=None)])
            steps.append([stand_in("CenterCrop", size=size)])
        for transforms in steps:
            with self.subTest(transforms=[vars(type(step)) for step in transforms]):
                with self.assertRaises(plutino.OptionError) as caught:
                    save(transforms)
                self.assertEqual(caught.exception.option, "transforms")
        for labels in (5, "nowhere", "labels.txt", [], b"coco", {0: "a"}, {"a"}, ["\ud800"], ["a" * (4 << 20)]):
            with self.subTest(labels=str(labels)[:20]), self.assertRaises(plutino.OptionError) as caught:
                save([tensor, good], labels=labels)
            self.assertEqual(caught.exception.option, "labels")
        with self.assertRaises(plutino.OptionError):
            plutino.save_preprocess(5, [tensor, good])

    def test_what_cannot_be_said_is_refused(self):
        resize = stand_in("Resize", size=8, interpolation=Mode("bilinear"), max_size=None)
        crop = stand_in("CenterCrop", size=[8, 8])
        for steps, word in [
            ([stand_in("RandomHorizontalFlip", p=0.5)], "RandomHorizontalFlip"),
            ([stand_in("Resize", size=8, interpolation=Mode("nearest"), max_size=None)], "bicubic"),
            ([stand_in("Resize", size=8, interpolation=Mode("bilinear"), max_size=9)], "limit"),
            ([stand_in("Resize", size=8, interpolation=Mode("bilinear"), max_size=None, antialias=False)], "antialiasing"),
            ([crop, resize], "before"),
            ([crop, crop], "once"),
            ([stand_in("Normalize", mean=[0.5], std=[0.5])], "before"),
        ]:
            with self.assertRaises(plutino.OptionError) as caught:
                save(steps)
            self.assertIn(word, str(caught.exception))

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "needs torchvision")
    def test_torchvision(self):
        import torch
        from torchvision import models, transforms
        from torchvision.transforms import v2

        weights = models.ResNet18_Weights.DEFAULT
        made = save(weights.transforms(), labels=weights.meta["categories"])
        self.assertEqual({k: v for k, v in made.items() if k != "labels"}, {"short": 256, "crop": [224, 224], "filter": "bilinear", **NORMAL})
        self.assertEqual(len(made["labels"]), 1000)
        old = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor(), transforms.Normalize(0.5, 0.25)])
        new = v2.Compose([v2.Resize(40), v2.CenterCrop(32), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.25])])
        expected = {"short": 40, "crop": [32, 32], "filter": "bilinear", "mean": [0.5], "std": [0.25]}
        self.assertEqual(save(old), expected)
        self.assertEqual(save(new), expected)


if __name__ == "__main__":
    unittest.main()

"""Transforms of torchvision as ``preprocess.json``; with stand-ins where torchvision is missing."""

import importlib.util
import json
import os
import tempfile
import unittest

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

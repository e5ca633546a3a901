"""All models, by name, with the library that they come from."""

from collections.abc import Callable

from . import others, text

LIBRARIES = ("timm", "torchvision", "diffusers", "torchaudio", "segmentation-models", "PyTorch Geometric", "ultralytics", "torch")


def library(name: str) -> str:
    return next((each for each in LIBRARIES if name.startswith(f"{each} ")), "transformers")


CASES: dict[str, Callable] = {**text.CASES, **others.CASES}

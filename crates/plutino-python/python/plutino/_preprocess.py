"""How pictures are prepared: transforms of torchvision as ``model.preprocess.json``.

Transforms are known by the names of their classes, so that torchvision's two generations (``transforms``
and ``transforms.v2``) and its presets (``weights.transforms()``) are read alike, and nothing is imported.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

from . import _errors

Recipe = Dict[str, Any]

FILTERS = {"bilinear": "bilinear", "bicubic": "bicubic"}
"""By the value of torchvision's ``InterpolationMode``, what plutino calls it."""


def save_preprocess(
    model: Union[str, "os.PathLike[str]"],
    transforms: Any,
    *,
    labels: Union[None, str, Iterable[str]] = None,
) -> str:
    """Writes beside a model how its pictures are prepared: ``plutino classify``, ``segment``, ``detect``
    and ``run`` read it. Returns the path, ``model.preprocess.json`` for ``model.pnnx.param``.

    ``transforms`` are torchvision's: those of a model's weights, or a ``Compose`` of ``Resize``,
    ``CenterCrop``, ``Normalize`` and conversions to tensors. ``labels`` are the names of the classes, or
    ``"imagenet"``, ``"coco"`` or ``"voc"``, whose names plutino knows.

    >>> weights = ResNet18_Weights.DEFAULT                                           # doctest: +SKIP
    >>> plutino.save_preprocess("resnet18", weights.transforms(), labels="imagenet")  # doctest: +SKIP
    'resnet18.preprocess.json'

    A transform that plutino has not, such as one that draws numbers, is an :class:`OptionError`.
    """
    recipe = recipe_of(transforms)
    if labels is not None:
        recipe["labels"] = labels if isinstance(labels, str) else [str(name) for name in labels]
    stem = os.fsdecode(os.fspath(model))
    for end in (".param", ".bin", ".pnnx"):
        stem = stem[: -len(end)] if stem.endswith(end) else stem
    path = f"{stem}.preprocess.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(recipe, file)
        file.write("\n")
    return path


def recipe_of(transforms: Any) -> Recipe:
    """The members of ``preprocess.json`` for transforms of torchvision, but for the labels."""
    recipe: Recipe = {}
    scaled = False
    for step in _steps(transforms):
        name = type(step).__name__
        read = READERS.get(name)
        if read is None:
            raise _refusal(step, f"it is none of {', '.join(sorted(READERS))}")
        if name in CONVERSIONS:
            scaled = True
            continue
        members = read(step)
        if {"short", "size"} & members.keys() and {"short", "size", "crop"} & recipe.keys():
            raise _refusal(step, "pictures are resized once, before they are cut")
        if "crop" in members and "crop" in recipe:
            raise _refusal(step, "pictures are cut once")
        if "mean" in members and name == "Normalize" and not scaled:
            raise _refusal(step, "numbers from 0 to 255 are not normalized: convert to a tensor before it")
        recipe.update(members)
    if recipe.get("filter") is None:
        recipe.pop("filter", None)
    return recipe


def _steps(transforms: Any) -> List[Any]:
    """All of them, those of compositions one by one."""
    if type(transforms).__name__ in ("Compose", "Sequential"):
        inner = getattr(transforms, "transforms", transforms)
        return [step for part in inner for step in _steps(part)]
    if isinstance(transforms, (list, tuple)):
        return [step for part in transforms for step in _steps(part)]
    return [transforms]


def _refusal(step: Any, why: str) -> Exception:
    text = f"transform {step!r}: {why}"
    return _errors.OptionError(text, option="transforms", expected=", ".join(sorted(READERS)))


def _filter(step: Any) -> Optional[str]:
    mode = getattr(step, "interpolation", None)
    value = str(getattr(mode, "value", mode or "bilinear"))
    if value not in FILTERS:
        raise _refusal(step, f"pictures are resized by one of {', '.join(FILTERS)}")
    if getattr(step, "antialias", True) is False:
        raise _refusal(step, "pictures are resized with antialiasing")
    return FILTERS[value]


def _sizes(step: Any, size: Any) -> List[int]:
    """One number, or height and width."""
    sizes = [int(n) for n in (size if isinstance(size, (list, tuple)) else [size])]
    if len(sizes) not in (1, 2):
        raise _refusal(step, "a size is one number, or height and width")
    return sizes


def _resize(step: Any) -> Recipe:
    if getattr(step, "max_size", None) is not None:
        raise _refusal(step, "the longer side has no limit")
    sizes = _sizes(step, step.size)
    named: Recipe = {"size": sizes} if len(sizes) == 2 else {"short": sizes[0]}
    return {**named, "filter": _filter(step)}


def _crop(step: Any, size: Any) -> Recipe:
    sizes = _sizes(step, size)
    return {"crop": sizes * 2 if len(sizes) == 1 else sizes}


def _normalize(step: Any) -> Recipe:
    each = {key: getattr(step, key) for key in ("mean", "std")}
    return {
        key: [float(x) for x in (value if isinstance(value, (list, tuple)) else [value])]
        for key, value in each.items()
    }


def _classification(step: Any) -> Recipe:
    sizes = _sizes(step, step.resize_size)
    resized: Recipe = {"size": sizes} if len(sizes) == 2 else {"short": sizes[0]}
    return {**resized, **_crop(step, step.crop_size), "filter": _filter(step), **_normalize(step)}


def _segmentation(step: Any) -> Recipe:
    resized: Recipe = {}
    if step.resize_size is not None:
        sizes = _sizes(step, step.resize_size)
        resized = {"size": sizes} if len(sizes) == 2 else {"short": sizes[0]}
        resized["filter"] = _filter(step)
    return {**resized, **_normalize(step)}


def _nothing(step: Any) -> Recipe:
    return {}


CONVERSIONS = {"ToTensor", "ToImage", "PILToTensor", "ConvertImageDtype", "ToDtype", "ToPureTensor", "MaybeToTensor"}

READERS: Dict[str, Callable[[Any], Recipe]] = {
    "Resize": _resize,
    "CenterCrop": lambda step: _crop(step, step.size),
    "Normalize": _normalize,
    "ImageClassification": _classification,
    "SemanticSegmentation": _segmentation,
    "ObjectDetection": _nothing,
    "Identity": _nothing,
    **dict.fromkeys(CONVERSIONS, _nothing),
}
"""By name of the class, what a transform says."""

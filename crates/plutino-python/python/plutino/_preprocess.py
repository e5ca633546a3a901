"""How pictures are prepared: transforms of torchvision as ``model.preprocess.json``.

Transforms are known by the names of their classes, so that torchvision's two generations (``transforms``
and ``transforms.v2``) and its presets (``weights.transforms()``) are read alike, and nothing is imported.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

import numpy as np

from . import _arguments, _errors

Recipe = Dict[str, Any]

LABELS = ("imagenet", "coco", "voc")
"""Lists of names that ship with plutino."""

MOST_BYTES = 4 << 20
"""Of the file: a larger one is not read."""

MOST_SIDE = 1 << 15
"""Height or width that a picture is resized to, or the middle that is cut out."""

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

    A transform that plutino has not, such as one that draws numbers, is an :class:`OptionError`, and
    so are numbers and names that it would not read.
    """
    stem = _arguments.path("model", model)
    recipe = recipe_of(transforms)
    if labels is not None:
        recipe["labels"] = _labels(labels)
    text = json.dumps(recipe, allow_nan=False) + "\n"
    if len(text) > MOST_BYTES:
        raise _errors.OptionError(f"labels take more than {MOST_BYTES} bytes", option="labels")
    for end in (".param", ".bin", ".pnnx"):
        stem = stem[: -len(end)] if stem.endswith(end) else stem
    path = f"{stem}.preprocess.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _labels(labels: Any) -> Union[str, List[str]]:
    """A list that ships, by its name, or the names themselves."""
    expected = f"a list of names, or one of {', '.join(LABELS)}"
    if isinstance(labels, str):
        if labels not in LABELS:
            raise _arguments.refusal("labels", expected, labels)
        return labels
    unordered = (bytes, bytearray, Mapping, set, frozenset)  # or names of something else
    try:
        names = None if isinstance(labels, unordered) else [str(name) for name in labels]
    except TypeError:
        names = None
    if not names or not all(map(_arguments.is_text, names)):
        raise _arguments.refusal("labels", expected, labels)
    return names


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
        if "mean" in members and "mean" in recipe:
            raise _refusal(step, "numbers are normalized once")
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
    found = [_arguments.whole(n) for n in (size if isinstance(size, (list, tuple)) else [size])]
    sizes = [n for n in found if n is not None and 1 <= n <= MOST_SIDE]
    if len(sizes) not in (1, 2) or len(sizes) != len(found):
        raise _refusal(step, f"a size is one number, or height and width, from 1 to {MOST_SIDE}")
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
    recipe = {key: _numbers(step, key) for key in ("mean", "std")}
    if not all(np.float32(std) for std in recipe["std"]):
        raise _refusal(step, "std must not be zero")
    return recipe


def _numbers(step: Any, key: str) -> List[float]:
    """One number, or one for each channel: in a list, an array or a tensor."""
    value = getattr(step, key)
    try:
        value = value.tolist() if hasattr(value, "tolist") else value
        found = np.array(value, np.float64).ravel()
    except (TypeError, ValueError, OverflowError):
        found = np.array([np.nan])
    if len(found) not in (1, 3) or not all(abs(found) <= np.finfo(np.float32).max):
        raise _refusal(step, f"{key} must be one number, or three, all of them finite")
    return [float(number) for number in found]


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

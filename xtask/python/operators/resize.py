"""Upsampling and interpolation: https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html"""

import torch
from torch import nn
from torch.nn import functional as F

from operators.calls import written
from operators.case import case, ints

LINE, IMAGE, VOLUME = (2, 3, 7), (2, 3, 5, 4), (1, 2, 3, 4, 5)
BYTES = ints(2, 3, 9, 13, high=256, dtype=torch.uint8)


def resize(**options):
    return lambda x: F.interpolate(x, **options)


CASES = {
    "upsample_nearest": case(nn.Upsample(scale_factor=2), IMAGE),
    "bytes_bilinear": case(resize(size=(11, 7), mode="bilinear"), BYTES),
    "bytes_bilinear_aligned": case(resize(size=(4, 31), mode="bilinear", align_corners=True), BYTES),
    "bytes_bicubic": case(resize(scale_factor=(2.0, 0.5), mode="bicubic"), BYTES),
    "upsample_nearest_size": case(nn.Upsample(size=(7, 9)), IMAGE),
    "upsample_bilinear": case(nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "upsample_bilinear_aligned": case(nn.Upsample(scale_factor=(2, 3), mode="bilinear", align_corners=True), IMAGE),
    "upsample_bilinear_size": case(nn.Upsample(size=(3, 11), mode="bilinear", align_corners=False), IMAGE),
    "upsample_linear": case(nn.Upsample(scale_factor=2, mode="linear"), LINE),
    "upsample_trilinear": case(nn.Upsample(scale_factor=2, mode="trilinear"), VOLUME),
    "upsample_bicubic": case(nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    "upsample_any_size": case(nn.Upsample(scale_factor=2), IMAGE, inputs2=((1, 3, 4, 6),)),
    "upsample_function": case(lambda x: F.upsample(x, scale_factor=2, mode="bilinear", align_corners=True), IMAGE),
    "upsample_function_nearest": case(lambda x: F.upsample(x, size=(6, 5)), IMAGE),
    "interpolate_nearest_1d": case(resize(scale_factor=2), LINE),
    "interpolate_nearest_fraction": case(resize(scale_factor=(1.5, 2.5)), IMAGE),
    "interpolate_nearest_smaller": case(resize(size=(3, 3)), IMAGE),
    "interpolate_nearest_3d": case(resize(size=(5, 3, 7)), VOLUME),
    "interpolate_nearest_exact": case(resize(size=(8, 7), mode="nearest-exact"), IMAGE),
    "interpolate_nearest_exact_scale": case(resize(scale_factor=1.7, mode="nearest-exact"), IMAGE),
    "interpolate_bilinear_fraction": case(resize(scale_factor=1.3, mode="bilinear"), (1, 2, 11, 13)),
    "interpolate_bilinear_recomputed": case(
        resize(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True), (1, 2, 11, 13)
    ),
    "interpolate_bilinear_aligned": case(resize(size=(9, 9), mode="bilinear", align_corners=True), IMAGE),
    "interpolate_bilinear_one_pixel": case(resize(size=(1, 1), mode="bilinear", align_corners=True), IMAGE),
    "interpolate_linear_aligned": case(resize(size=10, mode="linear", align_corners=True), LINE),
    "interpolate_trilinear_aligned": case(resize(size=(4, 5, 9), mode="trilinear", align_corners=True), VOLUME),
    "interpolate_bicubic_aligned": case(resize(size=(9, 7), mode="bicubic", align_corners=True), IMAGE),
    "upsampling_bilinear2d": case(nn.UpsamplingBilinear2d(scale_factor=2), IMAGE),
    "upsample_bilinear_function": written("F.upsample_bilinear a scale_factor=2", IMAGE),
    "upsampling_nearest2d": case(nn.UpsamplingNearest2d(size=(10, 6)), IMAGE),
}

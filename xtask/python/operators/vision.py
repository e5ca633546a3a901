"""Boxes: suppression and pooling, and other operators of torchvision that pnnx leaves as they are."""

import torch
from torch import nn
from torchvision import ops

from operators.calls import written
from operators.case import case, floats
from operators.extremes import given

# Of 2 images of 22 x 18 pixels: within one, beyond its edges, of no size, mostly outside, and reversed.
ROIS = [(0, 1, 2, 15.5, 12), (1, -9, -5, 40, 30), (1, 3, 3, 3, 3), (0, 20, 16, 22, 18), (0, 9, 9, 2, 3)]

# Positions are rounded to f32 before they are interpolated between.
SAMPLED = {"rtol": 3e-5, "atol": 3e-5}


class OfBoxes(nn.Module):
    """A function of images and these boxes."""

    def __init__(self, function, rois=ROIS):
        super().__init__()
        self.function = function
        self.register_buffer("rois", torch.tensor(rois, dtype=torch.float32), persistent=False)

    def forward(self, x):
        return self.function(x, self.rois)


def suppressed(threshold: float):
    def forward(corners, sizes, scores):
        return ops.nms(torch.cat((corners, corners + sizes), 1), scores, threshold)

    return forward


def deformed(mask: bool):
    def forward(x, offset, weight, bias, *masks):
        return ops.deform_conv2d(x, offset, weight, bias, stride=(2, 1), padding=(1, 0), mask=masks[0] if mask else None)

    return forward


DEFORMED = ((2, 4, 7, 8), (2, 24, 4, 7), (6, 2, 3, 2), (6,))

CASES = {
    "nms": case(suppressed(0.3), floats(40, 2, low=0, high=12), floats(40, 2, low=2, high=6), (40,)),
    "nms_none_suppressed": case(suppressed(1.0), floats(9, 2), floats(9, 2, low=1, high=2), (9,)),
    "roi_pool": case(OfBoxes(lambda x, r: ops.roi_pool(x, r, (2, 3), 0.5)), (2, 3, 9, 11)),
    "ps_roi_pool": case(OfBoxes(lambda x, r: ops.ps_roi_pool(x, r, (2, 3), 0.5)), (2, 12, 9, 11)),
    "ps_roi_align": case(OfBoxes(lambda x, r: ops.ps_roi_align(x, r, 2, 0.5, 2)), (2, 8, 9, 11), **SAMPLED),
    "ps_roi_align_adaptive": case(
        OfBoxes(lambda x, r: ops.ps_roi_align(x, r, 2, 0.5), ROIS[:4]), (2, 8, 9, 11), **SAMPLED
    ),
    "roi_align_function": case(
        OfBoxes(lambda x, r: ops.roi_align(x, [r[:2, 1:], r[2:, 1:]], 2, 0.5, 2, True)), (2, 3, 9, 11), **SAMPLED
    ),
    # Sums of 24 products of samples, whose positions and values are rounded.
    "deform_conv2d_function": case(deformed(False), *DEFORMED, rtol=1e-4, atol=1e-4),
    "deform_conv2d_function_mask": case(deformed(True), *DEFORMED, (2, 12, 4, 7), rtol=1e-4, atol=1e-4),
    # pnnx writes them so where it finds the module, or the Python function, around the call.
    "pools_of_boxes": written(
        """
        torchvision.ops.roi_align a $boxes=c output_size=(2,3) spatial_scale=0.5 sampling_ratio=2 aligned=True
        torchvision.ops.roi_pool a $boxes=c output_size=(2,3) spatial_scale=0.5
        torchvision.ops.RoIPool a c output_size=3 spatial_scale=0.5
        torchvision.ops.ps_roi_align b $boxes=d output_size=(2,2) spatial_scale=0.5 sampling_ratio=2
        torchvision.ops.PSRoIAlign b d output_size=2 spatial_scale=0.5 sampling_ratio=-1
        torchvision.ops.ps_roi_pool b $boxes=c output_size=(2,2) spatial_scale=0.5
        torchvision.ops.PSRoIPool b c output_size=2 spatial_scale=0.5
        """,
        (2, 3, 9, 11), (2, 8, 9, 11), given(5, 5, values=sum(ROIS, ())), given(4, 5, values=sum(ROIS[:4], ())), **SAMPLED,
    ),
    "nms_function": written(
        "torchvision.ops.nms a b iou_threshold=0.3",
        given(4, 4, values=(0, 0, 9, 9, 1, 1, 9, 9, 20, 0, 25, 5, 0, 1, 8, 9)), (4,),
    ),
}

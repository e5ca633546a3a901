"""Normalisation: https://pytorch.org/docs/stable/nn.html#normalization-layers"""

from torch import nn
from torch.nn import functional as F

from operators.calls import exported, written
from operators.case import case

IMAGE = (2, 6, 5, 7)

CASES = {
    "batch_norm2d": case(nn.BatchNorm2d(6), IMAGE),
    "batch_norm2d_not_affine": case(nn.BatchNorm2d(6, eps=1e-3, affine=False), IMAGE),
    "batch_norm2d_any_batch": case(nn.BatchNorm2d(6), IMAGE, inputs2=((1, 6, 3, 4),)),
    "batch_norm1d_rank2": case(nn.BatchNorm1d(6), (4, 6)),
    "batch_norm1d_rank3": case(nn.BatchNorm1d(6, eps=0.1), (2, 6, 5)),
    "batch_norm3d": case(nn.BatchNorm3d(4), (2, 4, 3, 2, 5)),
    "layer_norm": case(nn.LayerNorm(7), IMAGE),
    "layer_norm_two_dims": case(nn.LayerNorm((5, 7), eps=1e-3), IMAGE),
    "layer_norm_not_affine": case(nn.LayerNorm(7, elementwise_affine=False), (3, 7)),
    "layer_norm_rank1": case(nn.LayerNorm(37), (37,)),
    "layer_norm_function": case(lambda x: F.layer_norm(x, (7,)), (2, 3, 7)),
    "group_norm": case(nn.GroupNorm(3, 6), IMAGE),
    "group_norm_one_group": case(nn.GroupNorm(1, 6), (2, 6, 9)),
    "group_norm_instance": case(nn.GroupNorm(6, 6, eps=1e-2), IMAGE),
    "group_norm_rank2": case(nn.GroupNorm(3, 12), (4, 12)),
    "instance_norm2d": case(nn.InstanceNorm2d(6, affine=True), IMAGE),
    "instance_norm2d_not_affine": case(nn.InstanceNorm2d(6), IMAGE),
    "normalize": case(lambda x: F.normalize(x, dim=1), (2, 5, 4)),
    "norms": exported(
        """
        nn.RMSNorm a normalized_shape=7 eps=1e-5
        nn.LocalResponseNorm a size=3 alpha=0.1
        F.local_response_norm a size=2
        F.instance_norm a
        F.group_norm a num_groups=2
        F.rms_norm a normalized_shape=(7,) eps=1e-6
        nn.InstanceNorm1d b num_features=3 affine=True
        nn.InstanceNorm3d c num_features=2
        """,
        IMAGE, (2, 3, 14), (1, 2, 3, 4, 5),
    ),
    "sync_batch_norm": written("nn.SyncBatchNorm a num_features=6 eps=0.001 affine=True", IMAGE),
}

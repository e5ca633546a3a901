"""Convolutions and transposed convolutions: https://pytorch.org/docs/stable/nn.html#convolution-layers"""

from torch import nn
from torch.nn import functional as F

from operators.calls import exported, written
from operators.case import case

IMAGE = (2, 6, 9, 11)
LINE = (2, 6, 13)


def conv(*args, **options) -> nn.Conv2d:
    return nn.Conv2d(6, *args, **options)


CASES = {
    "conv2d": case(conv(8, 3), IMAGE),
    "conv2d_1x1": case(conv(8, 1), IMAGE),
    "conv2d_1x1_stride2": case(conv(8, 1, stride=2), IMAGE),
    "conv2d_no_bias": case(conv(5, 3, bias=False), IMAGE),
    "conv2d_kernel_3x5": case(conv(4, (3, 5), padding=(1, 2)), IMAGE),
    "conv2d_stride": case(conv(8, 3, stride=(2, 3), padding=1), IMAGE),
    "conv2d_dilation": case(conv(4, 3, dilation=(2, 3), padding=(2, 3)), IMAGE),
    "conv2d_groups": case(conv(8, 3, groups=2, padding=1), IMAGE),
    "conv2d_groups3_uneven": case(conv(9, 3, groups=3, stride=2), IMAGE),
    "conv2d_depthwise": case(conv(6, 3, groups=6, padding=1), IMAGE),
    "conv2d_depthwise_stride2": case(conv(6, 5, groups=6, padding=2, stride=2), IMAGE),
    "conv2d_depthwise_multiplier": case(conv(12, 3, groups=6, padding=1), IMAGE),
    "conv2d_depthwise_dilation": case(conv(6, 3, groups=6, padding=2, dilation=2), IMAGE),
    "conv2d_padding_valid": case(conv(4, 3, padding="valid"), IMAGE),
    "conv2d_padding_same": case(conv(4, 3, padding="same"), IMAGE),
    "conv2d_padding_same_even": case(conv(4, (4, 2), padding="same", dilation=(1, 3)), IMAGE),
    "conv2d_padding_reflect": case(conv(4, 3, padding=(2, 1), padding_mode="reflect"), IMAGE),
    "conv2d_padding_replicate": case(conv(4, 3, padding=(1, 3), padding_mode="replicate"), IMAGE),
    "conv2d_padding_circular": case(conv(4, 3, padding=2, padding_mode="circular"), IMAGE),
    "conv2d_padding_same_reflect": case(conv(4, 4, padding="same", padding_mode="reflect"), IMAGE),
    "conv2d_padding_larger_than_input": case(conv(4, 5, padding=4), (1, 6, 2, 1)),
    "conv2d_kernel_is_input": case(conv(4, (9, 11)), IMAGE),
    "conv2d_unbatched": case(conv(4, 3, padding=1), (6, 7, 5)),
    "conv2d_any_batch_and_size": case(conv(4, 3, padding=1), IMAGE, inputs2=((3, 6, 7, 8),)),
    "conv2d_relu": case(nn.Sequential(conv(8, 3, padding=1), nn.ReLU()), IMAGE),
    "conv2d_batchnorm_folded": case(nn.Sequential(conv(8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU()), IMAGE),
    "conv2d_functional": case(lambda x, w: F.conv2d(x, w, stride=2, padding=1), IMAGE, (4, 6, 3, 3)),
    # Wide enough for Winograd's F(4x4, 3x3), which is off by up to 1e-5 of the largest output, 21.
    "conv2d_wide": case(nn.Conv2d(32, 48, 3, padding=1), (1, 32, 12, 12), atol=2e-4),
    "conv1d": case(nn.Conv1d(6, 8, 3, padding=1), LINE),
    "conv1d_stride_dilation_groups": case(nn.Conv1d(6, 4, 3, stride=2, dilation=2, groups=2), LINE),
    "conv1d_padding_circular": case(nn.Conv1d(6, 4, 4, padding=3, padding_mode="circular"), LINE),
    "conv1d_padding_same": case(nn.Conv1d(6, 4, 4, padding="same"), LINE),
    "conv1d_unbatched": case(nn.Conv1d(6, 4, 3), (6, 13)),
    "conv3d": case(nn.Conv3d(2, 4, 3, stride=(1, 2, 1), padding=(1, 0, 1)), (1, 2, 5, 6, 7)),
    "conv_transpose2d": case(nn.ConvTranspose2d(6, 4, 3), IMAGE),
    "conv_transpose2d_2x2_stride2": case(nn.ConvTranspose2d(6, 4, 2, stride=2), IMAGE),
    "conv_transpose2d_padding": case(nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1), IMAGE),
    "conv_transpose2d_output_padding": case(
        nn.ConvTranspose2d(6, 4, 3, stride=(2, 3), padding=1, output_padding=(1, 2)), IMAGE
    ),
    "conv_transpose2d_dilation": case(nn.ConvTranspose2d(6, 4, 3, dilation=(2, 3), padding=(1, 2)), IMAGE),
    "conv_transpose2d_groups": case(nn.ConvTranspose2d(6, 4, 3, stride=2, groups=2), IMAGE),
    "conv_transpose2d_depthwise": case(nn.ConvTranspose2d(6, 6, 4, stride=2, padding=1, groups=6), IMAGE),
    "conv_transpose2d_no_bias": case(nn.ConvTranspose2d(6, 4, (2, 5), bias=False), IMAGE),
    "conv_transpose2d_stride_over_kernel": case(nn.ConvTranspose2d(6, 4, 2, stride=3), IMAGE),
    "conv_transpose2d_unbatched": case(nn.ConvTranspose2d(6, 4, 3, stride=2), (6, 5, 4)),
    "conv_transpose1d": case(nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1, groups=2), LINE),
    "convolution_functions": exported(
        """
        F.conv1d a b stride=2
        F.conv_transpose1d a c stride=2 padding=1
        F.conv_transpose2d d e f stride=2 groups=2
        """,
        LINE, (5, 6, 3), (6, 5, 4), (2, 4, 5, 6), (4, 3, 3, 2), (6,),
    ),
    "convolutions_3d": exported(
        """
        F.conv3d a b c padding=1
        F.conv_transpose3d a d stride=2
        nn.ConvTranspose3d a in_channels=2 out_channels=3 kernel_size=2 stride=(1,2,1)
        """,
        (1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (3,), (2, 2, 2, 2, 2),
    ),
    "native_convolutions": written(
        """
        aten::convolution a b bias=None stride=[2,1] padding=[1,0] dilation=[1,1] transposed=False output_padding=[0,0] groups=2
        aten::_convolution a c bias=None stride=[2,2] padding=[1,0] dilation=[1,1] transposed=True output_padding=[1,0] groups=1 benchmark=False deterministic=False cudnn_enabled=False allow_tf32=False
        """,
        (2, 4, 5, 6), (6, 2, 3, 2), (4, 3, 3, 2),
    ),
}

"""Pooling: https://pytorch.org/docs/stable/nn.html#pooling-layers"""

from torch import nn
from torch.nn import functional as F

from operators.calls import exported, written
from operators.case import case, floats

IMAGE = (2, 3, 9, 11)
LINE = (2, 3, 14)

CASES = {
    "max_pool2d": case(nn.MaxPool2d(2), IMAGE),
    "max_pool2d_3x3_stride2_padding1": case(nn.MaxPool2d(3, stride=2, padding=1), IMAGE),
    "max_pool2d_5x5_stride1": case(nn.MaxPool2d(5, stride=1, padding=2), IMAGE),
    "max_pool2d_uneven": case(nn.MaxPool2d((2, 3), stride=(3, 2), padding=(1, 0)), IMAGE),
    "max_pool2d_dilation": case(nn.MaxPool2d(3, stride=1, dilation=(2, 3)), IMAGE),
    "max_pool2d_ceil": case(nn.MaxPool2d(2, ceil_mode=True), IMAGE),
    "max_pool2d_ceil_window_in_padding": case(nn.MaxPool2d(2, stride=3, padding=1, ceil_mode=True), (1, 2, 7, 8)),
    "max_pool2d_indices": case(nn.MaxPool2d(3, stride=2, padding=1, return_indices=True), IMAGE),
    "max_pool2d_unbatched": case(nn.MaxPool2d(2), (3, 8, 6)),
    "max_pool2d_functional": case(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "max_pool2d_any_size": case(nn.MaxPool2d(3, 2, 1), IMAGE, inputs2=((1, 3, 6, 12),)),
    "max_pool1d": case(nn.MaxPool1d(3, stride=2, padding=1), LINE),
    "max_pool1d_ceil_dilation": case(nn.MaxPool1d(3, stride=3, dilation=2, ceil_mode=True), LINE),
    "max_pool1d_indices": case(nn.MaxPool1d(2, return_indices=True), LINE),
    "avg_pool2d": case(nn.AvgPool2d(2), IMAGE),
    "avg_pool2d_padding_counted": case(nn.AvgPool2d(3, stride=2, padding=1), IMAGE),
    "avg_pool2d_padding_not_counted": case(nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), IMAGE),
    "avg_pool2d_ceil": case(nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), (2, 3, 8, 10)),
    "avg_pool2d_ceil_not_counted": case(
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False), (2, 3, 8, 10)
    ),
    "avg_pool2d_divisor": case(nn.AvgPool2d((2, 3), divisor_override=5), IMAGE),
    "avg_pool2d_divisor_padding": case(nn.AvgPool2d(3, padding=1, divisor_override=7, ceil_mode=True), IMAGE),
    "avg_pool2d_unbatched": case(nn.AvgPool2d((3, 2)), (3, 9, 6)),
    "avg_pool2d_functional": case(lambda x: F.avg_pool2d(x, 2, 1), IMAGE),
    "avg_pool1d": case(nn.AvgPool1d(3, stride=2, padding=1), LINE),
    "avg_pool1d_ceil_not_counted": case(
        nn.AvgPool1d(4, stride=3, padding=2, ceil_mode=True, count_include_pad=False), LINE
    ),
    "adaptive_avg_pool2d_1": case(nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive_avg_pool2d_uneven": case(nn.AdaptiveAvgPool2d((4, 7)), IMAGE),
    "adaptive_avg_pool2d_larger": case(nn.AdaptiveAvgPool2d((5, 6)), (1, 2, 3, 4)),
    "adaptive_avg_pool2d_none": case(nn.AdaptiveAvgPool2d((None, 3)), IMAGE),
    "adaptive_avg_pool2d_unbatched": case(nn.AdaptiveAvgPool2d((2, 2)), (3, 7, 5)),
    "adaptive_avg_pool2d_functional": case(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE),
    "adaptive_avg_pool2d_functional_1": case(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE, inputs2=((1, 3, 5, 6),)),
    "adaptive_avg_pool1d": case(nn.AdaptiveAvgPool1d(5), LINE),
    "adaptive_max_pool2d": case(nn.AdaptiveMaxPool2d((4, 3)), IMAGE),
    "pools_1d": exported(
        """
        F.adaptive_avg_pool1d a output_size=3
        F.adaptive_max_pool1d a output_size=4
        F.avg_pool1d a kernel_size=3 stride=2 padding=1
        F.max_pool1d a kernel_size=3 stride=2
        F.lp_pool1d a norm_type=3 kernel_size=2
        nn.AdaptiveMaxPool1d a output_size=5
        nn.LPPool1d a norm_type=2 kernel_size=3 stride=2
        """,
        floats(2, 3, 14, low=0.1),
    ),
    "lp_pools_2d": exported(
        """
        F.lp_pool2d a norm_type=2 kernel_size=(2,3) stride=2
        nn.LPPool2d a norm_type=3 kernel_size=2 ceil_mode=True
        """,
        floats(2, 3, 9, 11, low=0.1),
    ),
    "pools_3d": exported(
        """
        F.adaptive_avg_pool3d a output_size=(2,3,2)
        F.adaptive_max_pool3d a output_size=2
        F.avg_pool3d a kernel_size=2 stride=(1,2,2) padding=1
        F.max_pool3d a kernel_size=2 stride=2
        nn.AdaptiveAvgPool3d a output_size=(3,2,4)
        nn.AdaptiveMaxPool3d a output_size=3
        nn.AvgPool3d a kernel_size=3 stride=2 padding=1
        nn.MaxPool3d a kernel_size=(2,3,2) stride=2 padding=1
        """,
        (1, 2, 5, 6, 7),
    ),
    "lp_pools_3d": written(
        """
        F.lp_pool3d a norm_type=2 kernel_size=2
        nn.LPPool3d a norm_type=2 kernel_size=(1,2,3) stride=2
        """,
        floats(1, 2, 5, 6, 7, low=0.1),
    ),
    # pnnx cannot convert them: PyTorch refuses to trace how it checks the indices.
    "max_unpools": written(
        "\n".join(
            f"""
            y{rank} i{rank} = nn.MaxPool{rank}d {x} kernel_size=2 return_indices=True
            nn.MaxUnpool{rank}d y{rank} i{rank} kernel_size=2
            F.max_unpool{rank}d y{rank} i{rank} kernel_size=2
            """
            for rank, x in zip((1, 2, 3), "abc")
        ),
        (2, 3, 8), (2, 3, 4, 6), (1, 2, 4, 6, 4),
    ),
}

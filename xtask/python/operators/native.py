"""PyTorch's native functions that pnnx has no pass for: `aten::` in the name, all arguments as inputs."""

import torch
from torch.nn import functional as F

from operators.calls import written
from operators.extremes import Given
from operators.case import case, floats, ints

aten = torch.ops.aten
IMAGE = (2, 3, 9, 11)
BAGS = ints(7, high=10)
BYTES = ints(2, 3, 9, 13, high=256, dtype=torch.uint8)


def resize(**options):
    return lambda x: F.interpolate(x, **options)


def bag(mode: str, **options):
    """Bags of 3, 0 and 4 rows: offsets as an input would be random where pnnx runs the model."""

    def forward(weight, indices):
        return F.embedding_bag(indices, weight, torch.tensor([0, 3, 3]), mode=mode, **options)

    return forward


def weighted(weight, indices, factors):
    offsets = torch.tensor([0, 3, 3, 7])
    return F.embedding_bag(
        indices, weight, offsets, mode="sum", per_sample_weights=factors, include_last_offset=True, padding_idx=2
    )


def fractional2d(x, samples):
    return F.fractional_max_pool2d(x, (2, 3), output_size=(4, 3), _random_samples=samples, return_indices=True)


def fractional3d(x, samples):
    return F.fractional_max_pool3d(x, 2, output_ratio=(0.5, 0.6, 0.5), _random_samples=samples, return_indices=True)


def network(name: str, layers: int, directions: int, gates: int, state: int = 4):
    """A function of an input, states and a list of weights."""

    def forward(x, *rest):
        count = 2 if name == "lstm" else 1
        states, weights = rest[:count], list(rest[count:])
        states = states if name == "lstm" else states[0]
        function = getattr(torch, name)
        return function(x, states, weights, True, layers, 0.0, False, directions == 2, True)

    shapes = [(3, 6, 5)] + [(layers * directions, 3, n) for n in ([state, 4] if name == "lstm" else [4])]
    for layer in range(layers):
        for _ in range(directions):
            shapes += [(4 * gates, state * directions if layer else 5), (4 * gates, state), (4 * gates,), (4 * gates,)]
            shapes += [(state, 4)] * (state != 4)
    return case(forward, *shapes)


CASES = {
    "interpolate_bilinear_antialias": case(resize(size=(5, 4), mode="bilinear", antialias=True), IMAGE),
    "bytes_bilinear_antialias": case(resize(size=(5, 4), mode="bilinear", antialias=True), BYTES),
    "bytes_bicubic_antialias": case(resize(size=(4, 17), mode="bicubic", antialias=True), BYTES),
    "interpolate_bicubic_antialias": case(resize(scale_factor=(0.4, 1.7), mode="bicubic", antialias=True), IMAGE),
    "interpolate_bicubic_antialias_aligned": case(
        resize(size=(4, 5), mode="bicubic", antialias=True, align_corners=True), IMAGE
    ),
    "upsample_bilinear2d_scales": case(lambda x: aten.upsample_bilinear2d(x, [13, 8], False, 1.5, 0.8), IMAGE),
    "embedding_bag_sum": case(bag("sum"), (10, 4), BAGS),
    "embedding_bag_mean": case(bag("mean", padding_idx=3), (10, 4), BAGS),
    "embedding_bag_max": case(bag("max"), (10, 70), BAGS),
    "embedding_bag_weighted": case(weighted, (10, 4), BAGS, (7,)),
    "fractional_max_pool2d": case(fractional2d, IMAGE, floats(2, 3, 2, low=0, high=1)),
    "fractional_max_pool3d": case(fractional3d, (1, 2, 5, 7, 9), floats(1, 2, 3, low=0, high=1)),
    "lstm_of_weights": network("lstm", 2, 2, 4),
    "lstm_of_weights_projected": network("lstm", 1, 1, 4, 3),
    "gru_of_weights": network("gru", 1, 2, 3),
    "rnn_tanh_of_weights": network("rnn_tanh", 2, 1, 1),
    "native_layer_norm": case(lambda x, w, b: aten.native_layer_norm(x, [5, 6], w, b, 1e-3), (2, 3, 5, 6), (5, 6), (5, 6)),
    "fused_rms_norm": case(lambda x, w: aten._fused_rms_norm(x, [6], w, 1e-6), (2, 5, 6), (6,)),
    "native_group_norm": case(
        lambda x, w, b: aten.native_group_norm(x, w, b, 2, 6, 20, 3, 1e-5), (2, 6, 4, 5), (6,), (6,)
    ),
    "native_batch_norm": case(
        lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5)[0],
        (2, 4, 5), (4,), (4,), (4,), floats(4, low=0.5),
    ),
    # pnnx leaves out that it is of the batch.
    "batch_norm_of_the_batch": case(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (3, 4, 5), (4,), (4,), misread=True
    ),
    "native_batch_norm_of_the_batch": case(
        lambda x, w, b: aten._native_batch_norm_legit(x, w, b, True, 0.1, 1e-5), (3, 4, 5), (4,), (4,)
    ),
    "weight_norm_interface": case(lambda v, g: aten._weight_norm_interface(v, g, 0), (3, 4, 2), (3, 1, 1)),
    "prelu_kernel": case(lambda x, w: aten._prelu_kernel(x, w), (2, 3, 4), (1, 3, 1)),
    "safe_softmax": case(lambda x: aten._safe_softmax(torch.where(x > 0.8, x, -torch.inf), -1), (6, 3)),
    "native_dropout": case(lambda x: aten.native_dropout(x, 0.5, False), (2, 3)),
    "rrelu_with_noise": case(lambda x, n: aten.rrelu_with_noise(x, n, 0.1, 0.4, False), (2, 3), (2, 3)),
    "elu_factors": case(
        lambda x: (aten.elu(x, 1.5, 2.0, 0.5), aten.elu(x, 1.6732632423543772, 1.0507009873554805, 1), aten.elu(x, 0.5, 1, 2)),
        (3, 5),
    ),
    "sum_to_size": case(lambda x: (x.sum_to_size(3, 1), x.sum_to_size(4), x.sum_to_size(2, 1, 4)), (2, 3, 4)),
    "view_dtype": written(
        """
        Tensor.view.dtype $input=a dtype=torch.int32
        Tensor.view.dtype $input=a dtype=torch.uint8
        Tensor.view.dtype $input=b dtype=torch.int16
        """,
        (3, 4), ints(2, 6, high=256, dtype=torch.uint8),
    ),
    "nonzero_static": case(
        lambda x: (torch.nonzero_static(x, size=4), torch.nonzero_static(x, size=20, fill_value=7)), ints(3, 5, high=2)
    ),
    "logsumexp_whole": case(lambda x: (torch.logsumexp(x, 1), torch.logsumexp(x > 2, 0)), ints(3, 5, high=6)),
    "grid_sampler_native": case(lambda x, g: aten.grid_sampler_2d(x, g, 2, 1, False), (1, 2, 5, 6), (1, 3, 4, 2)),
    "pad_circular_native": case(lambda x: aten._pad_circular(x, [1, 2, 0, 3]), (1, 2, 4, 5)),
    "pad_enum": case(lambda x: aten._pad_enum(x, [1, 2, 0, 3], 1), (1, 2, 4, 5)),
    "attention_of_the_cpu": case(
        lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0], (1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)
    ),
    "native_multi_head_attention": case(
        lambda x, *w: torch._native_multi_head_attention(x, x, x, 8, 2, *w), (2, 5, 8), (24, 8), (24,), (8, 8), (8,)
    ),
    "upsamples_1d": written(
        """
        aten::upsample_nearest1d a output_size=[9] scales=None
        aten::upsample_linear1d a output_size=[9] align_corners=False scales=None
        aten::_upsample_nearest_exact1d a output_size=[4] scales=None
        """,
        (2, 3, 6),
    ),
    "upsamples_2d": written(
        """
        aten::upsample_nearest2d a output_size=[7,6] scales_h=None scales_w=None
        aten::upsample_bicubic2d a output_size=[7,6] align_corners=True scales_h=None scales_w=None
        aten::_upsample_nearest_exact2d a output_size=[7,6] scales_h=None scales_w=None
        """,
        (1, 2, 4, 5), rtol=3e-5, atol=3e-5,
    ),
    "upsamples_3d": written(
        """
        aten::upsample_nearest3d a output_size=[4,6,3] scales_d=None scales_h=None scales_w=None
        aten::upsample_trilinear3d a output_size=[4,6,3] align_corners=False scales_d=None scales_h=None scales_w=None
        aten::_upsample_nearest_exact3d a output_size=[4,6,3] scales_d=None scales_h=None scales_w=None
        """,
        (1, 2, 3, 4, 5),
    ),
    "grid_samplers": written(
        """
        aten::grid_sampler a b interpolation_mode=0 padding_mode=1 align_corners=True
        aten::grid_sampler_3d c d interpolation_mode=0 padding_mode=2 align_corners=False
        """,
        (1, 2, 5, 6), (1, 3, 4, 2), (1, 2, 3, 4, 5), (1, 2, 3, 4, 3), rtol=3e-5, atol=3e-5,
    ),
    "fake_quantize": written(
        """
        aten::fake_quantize_per_tensor_affine a scale=0.1 zero_point=3 quant_min=0 quant_max=25
        aten::fake_quantize_per_tensor_affine a b c quant_min=-8 quant_max=7
        aten::fake_quantize_per_channel_affine a d e axis=1 quant_min=-8 quant_max=7
        """,
        (3, 4), floats(1, low=0.1, high=0.3), ints(1, high=3, dtype=torch.int32),
        floats(4, low=0.1, high=0.3), ints(4, high=3, dtype=torch.int32), quantized=True,
    ),
    "other_spellings": written(
        """
        aten::alias a
        aten::_cast_Long a non_blocking=False
        aten::_cast_Double a non_blocking=False
        aten::linalg_diagonal a offset=1 dim1=-2 dim2=-1
        aten::linalg_matmul a a
        """,
        (2, 3, 3),
    ),
    "native_norms": written(
        """
        aten::_weight_norm a b dim=0
        aten::instance_norm c weight=None bias=None running_mean=None running_var=None use_input_stats=True momentum=0.1 eps=1e-5 cudnn_enabled=False
        """,
        (3, 4, 2), (3, 1, 1), IMAGE,
    ),
    "native_batch_norm_without_training": written(
        "aten::_native_batch_norm_legit_no_training/3 a b b c d momentum=0.1 eps=1e-5",
        (2, 4, 5), (4,), (4,), floats(4, low=0.5),
    ),
    "native_embedding_bags": case(
        lambda w, i: (
            aten._embedding_bag(w, i, torch.tensor([0, 3, 3]))[0],
            aten._embedding_bag_forward_only(w, i, torch.tensor([0, 3, 3]), False, 1)[0],
        ),
        (10, 4), BAGS,
    ),
    "native_attention": case(
        lambda q, k, v: aten._scaled_dot_product_attention_math(q, k, v)[0], (1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)
    ),
    "rnn_relu_of_weights": network("rnn_relu", 1, 1, 1),
    "cells_of_weights": written(
        """
        aten::rnn_tanh_cell a b d e f f
        aten::rnn_relu_cell a b d e b_ih=None b_hh=None
        aten::gru_cell a b g h i i
        s = prim::ListConstruct b c
        aten::lstm_cell/2 $input=a $hx=s $w_ih=j $w_hh=k $b_ih=l $b_hh=l
        """,
        (3, 5), (3, 4), (3, 4), (4, 5), (4, 4), (4,), (12, 5), (12, 4), (12,), (16, 5), (16, 4), (16,),
    ),
    "cells": written(
        """
        nn.LSTMCell/2 a b c input_size=5 hidden_size=4 bias=True
        nn.GRUCell a b input_size=5 hidden_size=4 bias=True
        nn.RNNCell a b input_size=5 hidden_size=4 bias=True nonlinearity=tanh
        nn.RNNCell a b input_size=5 hidden_size=4 bias=False nonlinearity=relu
        """,
        (3, 5), (3, 4), (3, 4),
    ),
    "max_unpools_native": written(
        """
        y i = F.max_pool2d a kernel_size=2 return_indices=True
        z j = F.max_pool3d b kernel_size=2 return_indices=True
        s = pnnx.Expression expr=[4,6]
        t = pnnx.Expression expr=[4,6,4]
        u = pnnx.Expression expr=[2,2,2]
        v = pnnx.Expression expr=[0,0,0]
        aten::max_unpool2d y i s
        aten::max_unpool3d z j t u v
        """,
        (2, 3, 4, 6), (1, 2, 4, 6, 4),
    ),
    "embedding_bag_functions": written(
        """
        F.embedding_bag $input=a $weight=b mode=sum
        nn.EmbeddingBag a num_embeddings=10 embedding_dim=4 mode=mean padding_idx=3
        """,
        ints(3, 4, high=10), (10, 4),
    ),
    "fractional_max_pools": written(
        """
        F.fractional_max_pool2d $input=a $_random_samples=b kernel_size=2 output_size=(4,3)
        nn.FractionalMaxPool2d $input=a $_random_samples=b kernel_size=(2,3) output_ratio=(0.5,0.4)
        F.fractional_max_pool3d $input=c $_random_samples=d kernel_size=2 output_size=(3,3,4)
        nn.FractionalMaxPool3d $input=c $_random_samples=d kernel_size=2 output_ratio=(0.5,0.6,0.5)
        """,
        (1, 2, 9, 8), floats(1, 2, 2, low=0.0, high=1.0), (1, 2, 5, 7, 9), floats(1, 2, 3, low=0.0, high=1.0),
    ),
    "grouped_mm": written(
        "aten::_grouped_mm $input=a $mat2=b $offs=c bias=None out_dtype=None",
        (6, 8), (3, 8, 8), Given((3,), dtype=torch.int32, values=(2, 2, 6)),
    ),
}

"""Operators that move values without changing them, and reductions."""

import torch
from torch import nn
from torch.nn import functional as F

from operators.calls import exported, written
from operators.case import case, ints

X = (2, 6, 4, 5)

CASES = {
    "cat_channels": case(lambda a, b, c: torch.cat((a, b, c), 1), (2, 3, 4), (2, 1, 4), (2, 5, 4)),
    "cat_last": case(lambda a, b: torch.cat((a, b), -1), (2, 3, 4), (2, 3, 2)),
    "cat_first": case(lambda a, b: torch.cat((a, b)), (2, 3), (1, 3)),
    "cat_same_twice": case(lambda a: torch.cat((a, a), 1), (2, 3, 4)),
    "cat_integers": case(lambda a, b: torch.cat((a, b), 0), ints(2, 3, high=9), ints(4, 3, high=9)),
    "stack": case(lambda a, b: torch.stack((a, b), 1), (2, 3), (2, 3)),
    "flatten": case(lambda x: torch.flatten(x, 1), X),
    "flatten_all": case(torch.flatten, X),
    "flatten_middle": case(lambda x: torch.flatten(x, 1, 2), X),
    "flatten_negative": case(lambda x: torch.flatten(x, -2, -1), X),
    "flatten_module": case(nn.Flatten(), X),
    "flatten_any_batch": case(lambda x: torch.flatten(x, 1), X, inputs2=((3, 6, 2, 2),)),
    "unflatten": case(nn.Unflatten(1, (2, 3)), X),
    "view": case(lambda x: x.view(2, 3, 40), X),
    "view_by_its_old_name": case(lambda x: x.view(2, -1, 4), X, renamed={"Tensor.reshape": "Tensor.view"}),
    "view_minus_one": case(lambda x: x.view(2, -1), X),
    "view_sizes": case(lambda x: x.view(x.size(0), x.size(1) // 2, -1), X, inputs2=((3, 4, 2, 3),)),
    "reshape": case(lambda x: x.reshape(4, 60), X),
    "reshape_after_permute": case(lambda x: x.permute(0, 2, 1, 3).reshape(2, 4, 30), X),
    "reshape_rank6": case(lambda x: x.reshape(1, 2, 2, 3, 4, 5).permute(0, 3, 1, 2, 5, 4), X),
    "permute": case(lambda x: x.permute(0, 2, 3, 1), X),
    "permute_negative": case(lambda x: x.permute(-1, 0, -2, 1), X),
    "transpose": case(lambda x: x.transpose(1, 3), X),
    "t": case(torch.t, (3, 5)),
    "slice": case(lambda x: x[:, 1:4], X),
    "slice_step": case(lambda x: x[:, ::2, 1::3], X),
    "slice_negative": case(lambda x: x[..., -3:-1], X),
    "slice_to_end": case(lambda x: x[:, :, 2:], X),
    "slice_and_select": case(lambda x: x[0, :, 1:3, -1], X),
    "slice_new_axis": case(lambda x: x[:, None, 1:3], (3, 4)),
    "slice_by_size": case(lambda x: x[:, : x.size(1) // 2], X, inputs2=((1, 8, 2, 2),)),
    "select": case(lambda x: x.select(1, 2), X),
    "select_negative": case(lambda x: x[..., -2], X),
    "select_to_scalar": case(lambda x: x[1], (3,)),
    "chunk": case(lambda x: torch.chunk(x, 2, 1), X),
    "chunk_uneven": case(lambda x: torch.chunk(x, 4, 0), (10, 3)),
    "chunk_one_used": case(lambda x: torch.chunk(x, 2, 1)[1], X),
    "split": case(lambda x: torch.split(x, 4, 1), X),
    "split_sections": case(lambda x: torch.split(x, (1, 2, 3), dim=1), X),
    "tensor_split": case(lambda x: torch.tensor_split(x, (1, 4), dim=1), X),
    "unbind": case(lambda x: torch.unbind(x, 0), X),
    "unbind_last": case(lambda x: torch.unbind(x, -1), (4, 3)),
    "squeeze": case(lambda x: x.squeeze(2), (2, 3, 1, 4)),
    "squeeze_not_one": case(lambda x: x.squeeze(1), (2, 3, 1, 4)),
    "squeeze_all": case(torch.squeeze, (1, 3, 1, 4)),
    "unsqueeze": case(lambda x: x.unsqueeze(1), (2, 3)),
    "unsqueeze_last": case(lambda x: x.unsqueeze(-1), (2, 3)),
    "expand": case(lambda x: x.expand(2, -1, 4), (1, 3, 1)),
    "expand_new_dims": case(lambda x: x.expand(2, 5, 3, 4), (3, 1)),
    "repeat": case(lambda x: x.repeat(2, 1, 3), (2, 3, 2)),
    "flip": case(lambda x: torch.flip(x, (1, -1)), X),
    "roll": case(lambda x: torch.roll(x, (2, -1), (1, 2)), X),
    "contiguous_clone": case(lambda x: x.transpose(1, 2).contiguous().clone(), X),
    "channel_shuffle": case(nn.ChannelShuffle(3), X),
    "channel_shuffle_spelled_out": case(
        lambda x: x.view(2, 2, 3, 4, 5).transpose(1, 2).contiguous().view(2, 6, 4, 5), X
    ),
    "pixel_shuffle": case(nn.PixelShuffle(2), (2, 8, 3, 4)),
    "pixel_unshuffle": case(nn.PixelUnshuffle(2), (2, 3, 4, 6)),
    "pad_constant": case(lambda x: F.pad(x, (1, 2, 3, 0), value=0.5), X),
    "pad_crops": case(lambda x: F.pad(x, (-1, 2, 0, -2)), X),
    "pad_channels": case(lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)), X),
    "pad_reflect": case(lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"), X),
    "pad_replicate": case(lambda x: F.pad(x, (2, 1, 5, 0), mode="replicate"), X),
    "pad_circular": case(lambda x: F.pad(x, (2, 1, 1, 3), mode="circular"), X),
    "pad_module_zero": case(nn.ZeroPad2d((1, 0, 2, 1)), X),
    "pad_module_constant": case(nn.ConstantPad2d((1, 0, 2, 1), -1.5), X),
    "pad_module_reflection1d": case(nn.ReflectionPad1d(2), (2, 3, 5)),
    "pad_module_replication2d": case(nn.ReplicationPad2d((1, 2, 3, 4)), X),
    "mean": case(lambda x: x.mean((2, 3)), X),
    "mean_keepdim": case(lambda x: x.mean(1, keepdim=True), X),
    "mean_negative_dims": case(lambda x: x.mean((-1, -3)), X),
    "mean_all": case(torch.mean, X),
    "sum": case(lambda x: x.sum(1), X),
    "sum_keepdim": case(lambda x: x.sum((0, 2), keepdim=True), X),
    "sum_all": case(torch.sum, X, atol=3e-5),
    "sum_integers": case(lambda x: x.sum(1), ints(3, 40, low=-1000, high=1000, dtype=torch.int32)),
    "sum_booleans": case(lambda x: (x > 0).sum(1), X),
    "amax": case(lambda x: x.amax((1, 2)), X),
    "amin_keepdim": case(lambda x: x.amin(-1, keepdim=True), X),
    "max_with_indices": case(lambda x: torch.max(x, 1), X),
    "min_values": case(lambda x: torch.min(x, 2, keepdim=True)[0], X),
    "max_all": case(torch.max, X),
    "argmax": case(lambda x: x.argmax(1), X),
    "argmax_keepdim": case(lambda x: x.argmax(-1, keepdim=True), X),
    "prod": case(lambda x: x.prod(1), (2, 5, 3)),
    "var": case(lambda x: x.var(1), X),
    "var_biased": case(lambda x: x.var((2, 3), unbiased=False, keepdim=True), X),
    "std": case(lambda x: x.std(-1), X),
    "norm": case(lambda x: torch.norm(x, p=2, dim=1), X),
    "cumsum": case(lambda x: x.cumsum(1), X),
    "to_i64": case(lambda x: x.to(torch.int64), X),
    "to_float": case(lambda x: x.float(), ints(3, 4, low=-9, high=9)),
    "to_bool": case(lambda x: x.bool(), ints(3, 4, low=-1, high=2)),
    "paddings": exported(
        """
        nn.ConstantPad1d a padding=(1,2) value=0.5
        nn.ReplicationPad1d a padding=(2,0)
        nn.ReflectionPad2d b padding=(1,2,0,1)
        nn.ConstantPad3d c padding=(1,2,0,1,1,1) value=-1.5
        nn.ReplicationPad3d c padding=(1,2,0,1,1,1)
        """,
        (2, 3, 6), X, (1, 2, 3, 4, 5),
    ),
    "paddings_that_pnnx_writes_as_functions": written(
        """
        nn.CircularPad1d a padding=(1,2)
        nn.CircularPad2d b padding=(1,2,0,1)
        nn.CircularPad3d c padding=(1,2,0,1,1,1)
        nn.ReflectionPad3d c padding=(1,2,0,1,1,1)
        nn.ZeroPad1d a padding=(1,1)
        nn.ZeroPad3d c padding=(1,2,0,1,1,1)
        """,
        (2, 3, 6), X, (1, 2, 3, 4, 5),
    ),
    "shuffles": exported(
        "F.pixel_shuffle a upscale_factor=2\nF.channel_shuffle a groups=2\nF.pixel_unshuffle b downscale_factor=2",
        (1, 4, 3, 5), (1, 2, 4, 6),
    ),
    "flatten_modules": written("nn.Flatten a start_dim=2\nnn.Unflatten a dim=1 unflattened_size=(2,3)", X),
}

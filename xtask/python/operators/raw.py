"""Operators that pnnx passes on as TorchScript has them: `aten::` in the name, all arguments as inputs."""

import torch
from torch import nn
from torch.nn import functional as F

from operators.case import case, floats, ints

X = (2, 6, 8)
ROWS = ((6, 8), (6, 8))


class EncoderLayer(nn.TransformerEncoderLayer):
    """The call that takes the fast path, which pnnx sees as one operator."""

    def forward(self, x):
        a, norms = self.self_attn, (self.norm1, self.norm2)
        return torch._transformer_encoder_layer_fwd(
            x,
            a.embed_dim,
            a.num_heads,
            a.in_proj_weight,
            a.in_proj_bias,
            a.out_proj.weight,
            a.out_proj.bias,
            self.activation_relu_or_gelu == 2,
            self.norm_first,
            self.norm1.eps,
            *(parameter for norm in norms for parameter in (norm.weight, norm.bias)),
            self.linear1.weight,
            self.linear1.bias,
            self.linear2.weight,
            self.linear2.bias,
        )


CASES = {
    "addcmul": case(lambda x, a, b: torch.addcmul(x, a, b, value=0.3), *ROWS, (8,)),
    "addcdiv": case(lambda x, a, b: torch.addcdiv(x, a, b, value=-2), *ROWS, floats(6, 1, low=0.5)),
    "lerp": case(lambda x, y: torch.lerp(x, y, 0.7), *ROWS),
    "lerp_tensor": case(lambda x, y, w: torch.lerp(x, y, w), *ROWS, (8,)),
    "any_all": case(lambda x: ((x > 1.9).any(-1), (x > 1).any(), (x > -1.9).all(1, keepdim=True)), X),
    "nan_to_num": case(lambda x: (torch.nan_to_num(x.sqrt(), 0.5), torch.isnan(x.sqrt())), X),
    "sort_descending": case(lambda x: torch.sort(x, 1, descending=True), X),
    "argsort": case(lambda x: torch.argsort(x, 1), X),
    "cosine_similarity": case(lambda x, y: F.cosine_similarity(x, y, -1), (6, 1, 8), (6, 8)),
    "triangles": case(lambda x: (torch.tril(x, -1), torch.triu(x)), X),
    "unfold_dimension": case(lambda x: x.unfold(1, 3, 2), X),
    "index_add": case(
        lambda x, i, y: torch.index_add(x, 1, i, y, alpha=2), (2, 3, 8), ints(6, high=3), X
    ),
    "scatter_reduce_amax": case(
        lambda x, i, y: torch.scatter_reduce(x, 1, i, y, "amax", include_self=False),
        (2, 3, 8),
        ints(2, 6, 8, high=3),
        X,
    ),
    "one_hot": case(lambda x: F.one_hot(x, 6), ints(2, 8, high=6)),
    "meshgrid": case(lambda x, y: torch.meshgrid(x, y, indexing="xy"), (3,), (4,)),
    "encoder_layer_fast_path": case(EncoderLayer(8, 2, 12, batch_first=True), (2, 5, 8)),
}

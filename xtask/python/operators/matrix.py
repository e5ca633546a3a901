"""Matrix products, linear layers and embeddings."""

import torch
from torch import nn
from torch.nn import functional as F

from operators.case import case, ints

CASES = {
    "linear_rank1": case(nn.Linear(7, 5), (7,)),
    "linear_rank2": case(nn.Linear(7, 5), (3, 7)),
    "linear_rank3": case(nn.Linear(7, 5), (2, 3, 7)),
    "linear_rank4": case(nn.Linear(7, 5), (2, 3, 2, 7)),
    "linear_no_bias": case(nn.Linear(7, 5, bias=False), (3, 7)),
    "linear_one_output": case(nn.Linear(33, 1), (4, 33)),
    "linear_large": case(nn.Linear(64, 40), (9, 64), atol=3e-5),
    "linear_relu_linear": case(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 3)), (5, 7)),
    "linear_any_batch": case(nn.Linear(7, 5), (3, 7), inputs2=((1, 7),)),
    "linear_function": case(lambda x, w, b: F.linear(x, w, b), (2, 3, 7), (5, 7), (5,)),
    "matmul_2x2": case(torch.matmul, (3, 4), (4, 5)),
    "matmul_vector_vector": case(torch.matmul, (9,), (9,)),
    "matmul_matrix_vector": case(torch.matmul, (3, 4), (4,)),
    "matmul_vector_matrix": case(torch.matmul, (4,), (4, 5)),
    "matmul_batched": case(torch.matmul, (2, 3, 4), (2, 4, 5)),
    "matmul_broadcast_right": case(torch.matmul, (2, 3, 4, 5), (5, 6)),
    "matmul_broadcast_left": case(torch.matmul, (3, 4), (2, 4, 5)),
    "matmul_broadcast_both": case(torch.matmul, (2, 1, 3, 4), (1, 5, 4, 2)),
    "matmul_batched_vector": case(torch.matmul, (2, 3, 4), (4,)),
    "matmul_transposed": case(lambda a, b: torch.matmul(a, b.transpose(-1, -2)), (2, 3, 4), (2, 5, 4)),
    "matmul_integers": case(torch.matmul, ints(3, 4, low=-9, high=9), ints(4, 5, low=-9, high=9)),
    "bmm": case(torch.bmm, (3, 4, 5), (3, 5, 2)),
    "mm": case(torch.mm, (4, 5), (5, 2)),
    "addmm": case(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), (5,), (3, 4), (4, 5)),
    "baddbmm": case(torch.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
    "embedding": case(nn.Embedding(11, 6), ints(2, 5, high=11)),
    "embedding_i32": case(nn.Embedding(11, 6), ints(4, high=11, dtype=torch.int32)),
    "embedding_padding_index": case(nn.Embedding(11, 6, padding_idx=0), ints(2, 5, high=11)),
    "embedding_any_length": case(nn.Embedding(11, 6), ints(2, 5, high=11), inputs2=(ints(1, 8, high=11),)),
}

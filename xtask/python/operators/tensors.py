"""Functions that arrange, choose and make elements; pnnx passes most of them on raw."""

import torch

from operators.case import case, ints

X = (2, 6, 4)
M = (3, 4)

CASES = {
    "numpy_t": case(lambda x: (x.T, x.mT.contiguous(), x.mH), (2, 3)),
    "unsafe_chunk": case(lambda x: x.unsafe_chunk(3, 1), X),
    "unsafe_split": case(lambda x: (*torch.unsafe_split(x, 4, 1), *torch.unsafe_split_with_sizes(x, [1, 3], 2)), X),
    "split_axes": case(lambda x: (*torch.hsplit(x, 3), *torch.vsplit(x, [1]), *torch.dsplit(x, 2)), X),
    "stacks": case(lambda x, y: (torch.hstack((x, y)), torch.vstack((x, y)), torch.dstack((x, y))), M, M),
    "column_stack": case(lambda x, y: torch.column_stack((x, y)), (3,), M[:1] + (2,)),
    "atleast": case(lambda x: (torch.atleast_2d(x), torch.atleast_3d(x)), (5,)),
    "rot90": case(lambda x: (torch.rot90(x, 1, [1, 2]), torch.rot90(x, -1, [0, 2])), X),
    "ravel": case(lambda x: x.permute(2, 0, 1).ravel(), X),
    "broadcast_tensors": case(lambda x, y: torch.broadcast_tensors(x, y), (3, 1), (4,)),
    "broadcast_to": case(lambda x: torch.broadcast_to(x, (2, 3, 4)), (3, 1)),
    "block_diag": case(lambda x, y, z: torch.block_diag(x, y, z), (2, 3), (3,), (2, 1)),
    "cartesian_prod": case(lambda x, y: torch.cartesian_prod(x, y), (3,), (2,)),
    "combinations": case(lambda x: (torch.combinations(x, 2), torch.combinations(x, 3, True)), (5,)),
    "diag_embed": case(lambda x: (torch.diag_embed(x), torch.diag_embed(x, 1, 0, 2), torch.diagflat(x, -1)), M),
    "diagonal_scatter": case(lambda x, y: torch.diagonal_scatter(x, y, 1), M, (3,)),
    "fill_diagonal": case(lambda x: (x * 2).fill_diagonal_(3.0, wrap=True), (7, 3)),
    "take": case(lambda x, i: (torch.take(x, i), x.take(i - 12)), M, ints(2, 5, high=12)),
    "take_along_dim": case(lambda x, i: (torch.take_along_dim(x, i, 1), torch.take_along_dim(x, i)), M, ints(1, 2, high=4)),
    "put_accumulated": case(lambda x, i, y: x.put(i, y, accumulate=True), M, ints(8, high=12), (8,)),
    "index_reduce": case(
        lambda x, i, y: (x.index_reduce(0, i, y, "amax"), x.index_reduce(0, i, y, "mean", include_self=False)),
        M,
        ints(5, high=3),
        (5, 4),
    ),
    "masked_scatter": case(lambda x, y: x.masked_scatter(x > 0.5, y), M, M),
    "where_alone": case(lambda x: torch.where(x > 0.5), M),
    "fftshift": case(lambda x: (torch.fft.fftshift(x), torch.fft.ifftshift(x, dim=(1,))), (4, 5)),
    "vander": case(lambda x: (torch.vander(x), torch.linalg.vander(x, N=3)), (4,)),
    "select_scatter": case(lambda x, y: (x.select_scatter(y, 1, 2), x.slice_scatter(y[:, None], 1, 1, 2)), M, (3,)),
    "linspace_of_a_size": case(
        lambda x: x + torch.linspace(-1, 1, x.size(1)), M, inputs2=((2, 7),)
    ),
    "eye_of_a_size": case(lambda x: x + torch.eye(x.size(0), x.size(1)), M, inputs2=((2, 7),)),
    "window_of_a_size": case(
        lambda x: x * torch.hann_window(x.size(1)) + torch.kaiser_window(x.size(1), False, 5.0), M, inputs2=((2, 7),)
    ),
    "frequencies_of_a_size": case(lambda x: x * torch.fft.fftfreq(x.size(1), 0.5), M, inputs2=((2, 7),)),
    "outer": case(lambda x, y: torch.outer(x, y), (3,), (4,)),
    "inner_products": case(lambda x, y: (torch.inner(x, y), torch.linalg.vecdot(x, y)), M, M),
    "dot": case(lambda x, y: (torch.dot(x, y), torch.vdot(x, y)), (7,), (7,)),
    "kron": case(lambda x, y: torch.kron(x, y), (2, 3), (3,)),
    "tensordot": case(lambda x, y: (torch.tensordot(x, y, ([2, 1], [0, 1])), torch.tensordot(x, y, 1)), X, (4, 6, 3)),
    "bilinear": case(torch.nn.Bilinear(4, 5, 3), (2, 3, 4), (2, 3, 5)),
    "add_products": case(
        lambda x, y, m, b: (
            torch.addmv(y, m, x, beta=0.5, alpha=2),
            torch.addr(m, y, x, alpha=-1),
            torch.addbmm(m, b, b[..., :1] * x),
        ),
        (4,),
        (3,),
        M,
        (2, 3, 3),
    ),
    "multi_dot": case(lambda x, y, z: torch.linalg.multi_dot((x, y, z)), (2, 5), (5, 3), (3, 4)),
    "matrix_power": case(lambda x: (torch.matrix_power(x, 3), torch.linalg.matrix_power(x, 0)), (2, 3, 3)),
}

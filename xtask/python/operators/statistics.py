"""Statistics, order, search and norms that pnnx passes on raw."""

import torch
from torch.nn import functional as F

from operators.case import case, floats, ints

X = (2, 6, 8)
RANKS = torch.tensor([0.1, 0.3, 0.7, 0.9])  # as f32 has them, in f64 as well
SORTED = (10,)


def with_nan(x):
    return x.sqrt()  # NaN where x is negative


CASES = {
    "aminmax": case(lambda x: (*torch.aminmax(x, dim=1), *torch.aminmax(x, dim=-1, keepdim=True)), X),
    "count_nonzero": case(lambda x: (torch.count_nonzero(x.relu(), 1), torch.count_nonzero(x.relu(), (0, 2))), X),
    "nan_reductions": case(
        lambda x: (torch.nanmean(with_nan(x), 1), torch.nansum(with_nan(x), (0, 2)), torch.nanmedian(with_nan(x), 1)), X
    ),
    "std_mean": case(lambda x: (*torch.std_mean(x, 1), *torch.std_mean(x, (0, 2), keepdim=True)), X),
    "var_mean": case(lambda x: (*torch.var_mean(x, 1, correction=0), *torch.var_mean(x, -1, unbiased=True)), X),
    "cummax": case(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, -1)), X),
    "logcumsumexp": case(lambda x: torch.logcumsumexp(x, 1), X),
    "median": case(lambda x: (*torch.median(x, 1), *torch.median(x, -1, keepdim=True)), X),
    "kthvalue": case(lambda x: (*torch.kthvalue(x, 3, 1), *torch.mode(x, -1)), X),
    "quantile": case(
        lambda x: (
            torch.quantile(x, 0.3, dim=1),
            torch.quantile(x, 0.7, dim=-1, keepdim=True, interpolation="nearest"),
            torch.quantile(x, 0.41, interpolation="midpoint"),
            torch.nanquantile(with_nan(x), 0.6, dim=1, interpolation="lower"),
        ),
        X,
    ),
    # Where they lie is rounded in f64, from what f32 makes of 0.1, 0.3, 0.7, 0.9.
    "quantile_ranks": case(
        lambda x: tuple(
            torch.quantile(x, RANKS.to(x.dtype), dim=-1, interpolation=between)
            for between in ("nearest", "lower", "higher", "linear")
        ),
        floats(3, 11),
    ),
    "quantile_tensor": case(lambda x, q: torch.quantile(x, q, dim=1), X, floats(3, low=0.0, high=1.0)),
    "bincount": case(lambda x: torch.bincount(x, minlength=9), ints(20, high=7)),
    "bincount_weights": case(lambda x, w: torch.bincount(x, w), ints(20, high=7), (20,)),
    "histc": case(lambda x: torch.histc(x, 5, -1.5, 1.5), X),
    "histogram": case(lambda x: torch.histogram(x, 5, range=(-1.5, 2.0)), X),
    "bucketize": case(lambda x, b: torch.bucketize(x, b.sort()[0]), X, SORTED),
    "searchsorted": case(
        lambda b, x: (
            torch.searchsorted(b.sort()[0], x, right=True),
            torch.searchsorted(b.sort()[0], 0.5, out_int32=True),
        ),
        SORTED,
        X,
    ),
    "searchsorted_rows": case(lambda b, x: torch.searchsorted(b.sort(-1)[0], x), (2, 6, 5), X),
    "isin": case(lambda x, y: torch.isin(x, y), ints(4, 5, high=9), ints(4, high=9)),
    "nonzero": case(lambda x: torch.nonzero(x > 0.5), X),
    "argwhere": case(lambda x: torch.argwhere(x.relu()), (4, 5)),
    "unique": case(lambda x: torch.unique(x, return_inverse=True, return_counts=True), ints(4, 5, high=9)),
    "unique_values": case(lambda x: torch.unique(x), ints(20, high=9)),
    "unique_consecutive": case(
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), ints(20, high=3)
    ),
    "unique_dim": case(lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True), ints(2, 20, high=3)),
    "diff": case(lambda x, y: (torch.diff(x, dim=1), torch.diff(x, n=2), torch.diff(x, append=y)), X, (2, 6, 1)),
    "trapezoid": case(
        lambda y, x: (torch.trapezoid(y, dim=1), torch.trapezoid(y, x), torch.cumulative_trapezoid(y, dx=0.5)), X, (8,)
    ),
    "gradient": case(lambda x: (*torch.gradient(x), *torch.gradient(x, spacing=0.5, dim=1, edge_order=2)), X),
    "cdist": case(lambda x, y: torch.cdist(x, y), (2, 5, 8), (2, 7, 8)),
    "cdist_orders": case(lambda x, y: (torch.cdist(x, y, 1.0), torch.cdist(x, y, float("inf"))), (2, 5, 8), (7, 8)),
    "pdist": case(lambda x: F.pdist(x, 3.0), (6, 8)),
    "dist": case(lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1)), X, (8,)),
    "linalg_norm": case(
        lambda x: (
            torch.linalg.norm(x, dim=-1),
            torch.linalg.norm(x, dim=(1, 2), ord=1),
            torch.linalg.norm(x, 3, 0),
            torch.linalg.norm(x),
        ),
        X,
    ),
    "matrix_norm": case(
        lambda x: (
            torch.linalg.matrix_norm(x),
            torch.linalg.matrix_norm(x, -1),
            torch.linalg.matrix_norm(x, 1, (0, 2), keepdim=True),
        ),
        X,
    ),
    "vector_norm": case(
        lambda x: (torch.linalg.vector_norm(x, 3, (0, 2)), torch.linalg.vector_norm(x, 1, 1, keepdim=True)),
        X,
    ),
    "covariance": case(lambda x: (torch.cov(x), torch.corrcoef(x)), (4, 9)),
    "trace_renorm_msort": case(lambda x: (torch.trace(x), torch.renorm(x, 2, 0, 2.5), torch.msort(x)), (4, 9)),
}

"""Inverses, determinants, systems of equations and factorisations of matrices: `torch.linalg`.

pnnx runs what it converts, with a PyTorch that was built without LAPACK, and cannot convert these. Their graphs are
written by hand, as raw operators.
"""

from collections.abc import Callable

import torch

from operators.case import Case, Values, Whole, case

A = (2, 4, 4)
WIDE = (2, 3, 5)


def definite(x: torch.Tensor) -> torch.Tensor:
    """Symmetric, and far from singular."""
    return x @ x.mT + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def graph(calls: list[tuple[str, str, int]], inputs: int) -> str:
    """The graph of raw calls: a name, arguments separated by blanks (`in0`, or a constant), a number of results; `name/1`
    keeps result 1 alone.

    The outputs are the absolute values: vectors are determined up to their sign.
    """
    lines = [f"pnnx.Input in{i} 0 1 in{i}" for i in range(inputs)]
    operands, results = inputs, []
    for n, (kind, arguments, count) in enumerate(calls):
        names = []
        for argument in arguments.split():
            if argument[:2] == "in" and argument[2:].isdigit():
                names.append(argument)
                continue
            names.append(f"c{operands}")
            lines.append(f"pnnx.Expression e{operands} 0 1 c{operands} expr={argument}")
            operands += 1
        own = [f"y{n}_{i}" for i in range(count)]
        kind, _, only = kind.partition("/")
        lines.append(f"aten::{kind} op{n} {len(names)} {count} {' '.join(names + own)}")
        operands += count
        for result in [own[int(only)]] if only else own:
            lines.append(f"torch.abs abs_{result} 1 1 {result} z{result} $input={result}")
            results.append(f"z{result}")
            operands += 1
    for i, result in enumerate(results):
        lines.append(f"pnnx.Output out{i} 1 0 {result}")
    return f"7767517\n{len(lines)} {operands}\n" + "\n".join(lines) + "\n"


def by_hand(op: Callable, *shapes: tuple[int, ...], calls: list[tuple[str, str, int]]) -> Case:
    def results(*inputs):
        found = op(*inputs)
        return tuple(y.abs() for y in (found if isinstance(found, (tuple, list)) else (found,)))

    return Case(
        Whole(results),
        tuple(Values(shape) for shape in shapes),
        rtol=1e-4,
        atol=1e-4,
        by_hand=(graph(calls, len(shapes)), {}),
    )


EIG = """7767517
13 17
pnnx.Input in0 0 1 x
aten::linalg_eig eig 1 2 x values vectors
aten::linalg_eigvals eigvals 1 1 x alone
torch.real real 1 1 values real $input=values
torch.imag imag 1 1 values imag $input=values
torch.abs sizes 1 1 vectors sizes $input=vectors
torch.abs sizes_alone 1 1 alone sizes_alone $input=alone
torch.sort sort0 1 2 real y0 i0 dim=-1 descending=False $input=real
torch.sort sort1 1 2 imag y1 i1 dim=-1 descending=False $input=imag
torch.sort sort2 1 2 sizes y2 i2 dim=-1 descending=False $input=sizes
torch.sort sort3 1 2 sizes_alone y3 i3 dim=-1 descending=False $input=sizes_alone
prim::TupleConstruct all 4 1 y0 y1 y2 y3 y
pnnx.Output out 1 0 y
"""


def eig(x):
    values, vectors = torch.linalg.eig(x)
    parts = (values.real, values.imag, vectors.abs(), torch.linalg.eigvals(x).abs())
    return tuple(part.sort(-1).values for part in parts)


CASES = {
    "inverse": by_hand(torch.linalg.inv, A, calls=[("linalg_inv", "in0", 1)]),
    "determinants": by_hand(
        lambda x: (torch.linalg.det(x), *torch.linalg.slogdet(x)),
        A,
        calls=[("linalg_det", "in0", 1), ("linalg_slogdet", "in0", 2)],
    ),
    "solve": by_hand(torch.linalg.solve, A, (2, 4, 3), calls=[("linalg_solve", "in0 in1 True", 1)]),
    "solve_vector": by_hand(torch.linalg.solve, A, (4,), calls=[("linalg_solve", "in0 in1 True", 1)]),
    "solve_triangular": case(
        lambda x, b: torch.linalg.solve_triangular(definite(x), b, upper=True), A, (2, 4, 3), rtol=1e-4, atol=1e-4
    ),
    "qr": by_hand(torch.linalg.qr, WIDE, calls=[("linalg_qr", "in0 reduced", 2)]),
    "qr_complete": by_hand(
        lambda x: torch.linalg.qr(x, mode="complete"), (2, 5, 3), calls=[("linalg_qr", "in0 complete", 2)]
    ),
    "svd": by_hand(
        lambda x: torch.linalg.svd(x, full_matrices=False), WIDE, calls=[("linalg_svd", "in0 False None", 3)]
    ),
    "svdvals": by_hand(torch.linalg.svdvals, WIDE, calls=[("linalg_svdvals", "in0 None", 1)]),
    "eigh": by_hand(
        lambda x: (*torch.linalg.eigh(x), torch.linalg.eigvalsh(x, UPLO="U")),
        A,
        calls=[("linalg_eigh", "in0 L", 2), ("linalg_eigvalsh", "in0 U", 1)],
    ),
    "pinv": by_hand(torch.linalg.pinv, WIDE, calls=[("linalg_pinv", "in0 None None False", 1)]),
    "matrix_rank": by_hand(torch.linalg.matrix_rank, WIDE, calls=[("linalg_matrix_rank", "in0 None None False", 1)]),
    "lu": by_hand(
        lambda x: (*torch.linalg.lu(x), *torch.linalg.lu_factor(x)),
        A,
        calls=[("linalg_lu", "in0 True", 3), ("linalg_lu_factor", "in0 True", 2)],
    ),
    # Neither the order of eigenvalues nor the factor of a vector is defined: absolute values, sorted.
    "eig": Case(Whole(eig), (Values((3, 5, 5)),), rtol=1e-4, atol=1e-4, by_hand=(EIG, {})),
    "lstsq": by_hand(
        lambda x, b: torch.linalg.lstsq(x, b, driver="gelsd"),
        (2, 5, 3), (2, 5, 2),
        calls=[("linalg_lstsq", "in0 in1 None gelsd", 4)],
    ),
    "lstsq_underdetermined": by_hand(torch.linalg.lstsq, WIDE, (2, 3, 2), calls=[("linalg_lstsq", "in0 in1 None None", 4)]),
    "lstsq_of_full_rank": by_hand(
        lambda x, b: torch.linalg.lstsq(x, b, driver="gels"), (2, 5, 3), (2, 5), calls=[("linalg_lstsq", "in0 in1 None gels", 4)]
    ),
    "condition_numbers": by_hand(
        lambda x: tuple(torch.linalg.cond(x, p) for p in (None, -2, 1, -1, float("inf"), float("-inf"), "fro", "nuc")),
        (2, 3, 3),
        calls=[("linalg_cond", f"in0 {p}", 1) for p in ("None", -2, 1, -1, "inf", "-inf", "fro", "nuc")],
    ),
    "cholesky_inverse": by_hand(
        lambda x: (torch.cholesky_inverse(x), torch.cholesky_inverse(x, upper=True)),
        (2, 3, 3),
        calls=[("cholesky_inverse", "in0 False", 1), ("cholesky_inverse", "in0 True", 1)],
    ),
    "with_info": by_hand(
        lambda x: (*torch.linalg.inv_ex(x), torch.linalg.cholesky_ex(x)[1]),
        (2, 3, 3),
        calls=[("linalg_inv_ex", "in0 False", 2), ("linalg_cholesky_ex/1", "in0 False False", 2)],
    ),
    "matrix_exp": case(torch.linalg.matrix_exp, A, rtol=1e-4, atol=1e-4),
}

"""Functions under each of their names: graphs of calls, one by one, as earlier versions of pnnx and other writers leave
them. pnnx itself writes arithmetic as expressions, folds what is constant, and leaves out what is inert.
"""

import torch

from operators.calls import each, written
from operators.case import floats, ints

X = (2, 3, 5)
UNIT = floats(2, 3, 5, low=0.05, high=0.95)
ABOVE_ONE = floats(2, 3, 5, low=1.05, high=4.0)
POSITIVE = floats(2, 3, 5, low=0.1, high=4.0)
WHOLE = ints(3, 5, low=1, high=7)
MASK = ints(2, 3, 5, high=2, dtype=torch.bool)
MATRIX = (4, 4)
LOOSE = {"rtol": 1e-4, "atol": 1e-4}

CASES = {
    "functions_of_one": written(
        each("torch", "absolute ceil cos cosh conj exp expm1 fix floor isfinite isinf isreal logical_not neg negative erf"
             " erfc positive relu round sign sin sinh square tanh trunc sigmoid arctan atan asinh arcsinh")
        + each("torch.special", "erf erfc exp2 expit expm1 round sinc i0 modified_bessel_i0 modified_bessel_i1"),
        X, **LOOSE,
    ),
    "functions_of_unit": written(
        each("torch", "acos arccos asin arcsin atanh arctanh lgamma log log10 log1p log2 reciprocal rsqrt sqrt tan")
        + each("torch.special", "bessel_j1 bessel_y0 bessel_y1 digamma erfinv gammaln log1p logit psi multigammaln/p=1"),
        UNIT, **LOOSE,
    ),
    "functions_above_one": written(
        "torch.acosh a\ntorch.arccosh a\ntorch.special.polygamma n=1 $input=a", ABOVE_ONE, **LOOSE
    ),
    "functions_of_conjugates": written(
        "x = torch.complex a b\ny = torch.conj x\nz = torch.conj_physical y\nw = torch._conj_physical x\n"
        "v = torch._neg_view x\nu = torch.resolve_neg v\nt = torch.polar a b\n"
        + "\n".join(f"torch.view_as_real {name}" for name in "zwut") + "\ntorch.real y\ntorch.imag y", X, X
    ),
    "functions_of_two": written(
        each("torch", "add sub subtract mul multiply maximum minimum atan2 arctan2 logaddexp nextafter rsub eq ne"
             " not_equal ge greater_equal greater le less_equal less lt logical_and logical_or logical_xor", "a b")
        + "\ntorch.equal a b\ntorch.allclose a a\ntorch.rsub a b alpha=0.5\ntorch.div a b rounding_mode=floor", X, X
    ),
    "functions_of_two_positive": written(
        each("torch", "div divide true_divide floor_divide fmod remainder pow special.xlogy special.gammainc"
             " special.gammaincc", "a b"), POSITIVE, POSITIVE
    ),
    "functions_of_bits": written(
        each("torch", "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift", "a b")
        + "\ntorch.bitwise_not a", WHOLE, WHOLE
    ),
    "functions_of_bounds": written(
        "torch.clamp a min=-1 max=0.5\ntorch.clip a min=-1\ntorch.clamp_max a max=0.5\ntorch.clamp_min a min=0.5", X
    ),
    "copies": written(
        each("Tensor", "clone contiguous detach") + """
        torch.positive a
        Tensor.expand_as b a
        Tensor.fill a value=1.5
        Tensor.zero a
        Tensor.copy a b
        Tensor.type_as c a
        Tensor.reshape_as b d
        Tensor.view_as b d
        """, X, (3, 5), ints(2, 3, high=9), (5, 3)
    ),
    "made_of_sizes": written(
        """
        torch.full size=(2,3) fill_value=0.5
        torch.ones size=(2,3) dtype=torch.long
        torch.zeros size=(2,3)
        torch.arange start=1 end=7 step=2
        torch.scalar_tensor s=2.5
        torch.logspace start=0 end=2 steps=5
        torch.bartlett_window window_length=7
        torch.blackman_window window_length=7
        torch.hamming_window window_length=7 periodic=False
        torch.fft.rfftfreq n=7 d=0.5
        torch.tril_indices row=3 col=4 offset=1
        torch.triu_indices row=3 col=4
        """
    ),
    "made_like_a_tensor": written(
        """
        torch.full_like a fill_value=2.5
        torch.ones_like a
        torch.zeros_like a dtype=torch.int
        Tensor.new_full a size=(2,3) fill_value=0.5
        Tensor.new_ones a size=(2,3)
        Tensor.new_zeros a size=(2,3)
        """, X
    ),
    "made_empty": written("torch.empty size=(0,3)\ntorch.empty_like a\nTensor.new_empty a size=(2,0)", (0, 4)),
    # Distributions of a single value: what may be compared of random numbers.
    "random_of_one_value": written(
        """
        Tensor.bernoulli a p=1.0
        Tensor.normal a mean=1.5 std=0.0
        torch.bernoulli b
        torch.multinomial e num_samples=1
        torch.normal $mean=a $std=c
        torch.randint low=3 high=4 size=(2,3)
        torch.randint_like a low=3 high=4
        torch.randperm n=1
        torch.rand size=(0,3)
        torch.rand_like d
        torch.randn size=(0,3)
        torch.randn_like d
        Tensor.exponential d
        Tensor.uniform d
        """,
        (2, 3), floats(2, 3, low=1.0, high=1.0), floats(2, 3, low=0.0, high=0.0), (0, 2), floats(1, low=1.0, high=1.0),
    ),
    "facts": written(
        "\n".join(f"n{i} = {kind} a\ntorch.mul b n{i}" for i, kind in enumerate((
            "Tensor.dim", "Tensor.ndim", "Tensor.ndimension", "Tensor.numel", "Tensor.nelement", "torch.numel",
            "Tensor.element_size", "Tensor.is_floating_point", "torch.is_floating_point", "Tensor.is_complex",
            "torch.is_complex", "Tensor.is_signed", "aten::len",
        )))
        + "\nn = Tensor.size a dim=1\nm = prim::NumToTensor n\ntorch.mul b m", ints(2, 3, 5, high=9), (3,)
    ),
    "numbers": written(
        "\n".join(f"n{i} = {kind} a\ntorch.mul b n{i}" for i, kind in enumerate((
            "Tensor.item", "aten::Int", "aten::IntImplicit", "aten::Float", "aten::FloatImplicit", "aten::Bool",
            "aten::ScalarImplicit",
        )))
        + "\n".join(f"\nc{i} = {kind} a\nz{i} = torch.mul b c{i}\ntorch.view_as_real z{i}"
                    for i, kind in enumerate(("aten::Complex", "aten::ComplexImplicit"))),
        ints(high=9, low=3), (3,)
    ),
    "rearranged": written(
        """
        Tensor.H b
        Tensor.T b
        Tensor.matrix_H b
        torch.adjoint a
        torch.atleast_1d c
        torch.diagonal a offset=1 dim1=1 dim2=2
        torch.diag b diagonal=-1
        torch.fliplr a
        torch.flipud a
        torch.moveaxis a source=(0,1) destination=(2,0)
        torch.movedim a source=0 destination=2
        torch.swapaxes a axis0=0 axis1=1
        torch.swapdims a dim0=0 dim1=2
        torch.permute a dims=(2,0,1)
        torch.reshape a shape=(3,-1)
        torch.tile a dims=(2,1,1)
        torch.unflatten a dim=2 sizes=(1,5)
        Tensor.narrow a dim=1 start=1 length=2
        torch.narrow a dim=2 start=1 length=3
        torch.select a dim=1 index=-1
        torch.as_strided a size=(2,2) stride=(3,1) storage_offset=1
        torch.split_with_sizes/2 a split_sizes=(2,3) dim=2
        """, X, (3, 5), ()
    ),
    "sizes_of_slices": written(
        """
        n = Tensor.size a dim=1
        i = pnnx.SliceIndexes n indexes=(@0,2)
        Tensor.new_zeros $input=a $size=i
        d = prim::device a
        aten::zeros size=[2,3] dtype=None layout=None $device=d pin_memory=None
        """, X
    ),
    "joined": written(
        """
        torch.concat b b dim=1
        torch.concatenate b b
        torch.row_stack b b
        torch.chain_matmul b c b
        """, X, (3, 5), (5, 3)
    ),
    "indexed": written(
        """
        torch.index_copy $input=a $index=g $source=b dim=2
        torch.index_fill $input=a $index=e dim=1 value=-1.0
        torch.scatter_add $input=a $index=f $src=b dim=1
        Tensor.index_reduce $input=a $index=g $source=b dim=2 reduce=amax
        Tensor.scatter_reduce $input=a $index=f $src=b dim=1 reduce=amin
        Tensor.put $input=a $index=e $source=c accumulate=True
        Tensor.masked_fill $input=a $mask=d value=-1.5
        Tensor.masked_scatter $input=a $mask=d $source=b
        torch.nonzero_numpy/3 d
        Tensor.slice_copy $self=a $src=h dim=2 start=1 end=4 step=2
        """, X, X, (3,), MASK, ints(3, high=3), ints(2, 3, 5, high=3), ints(5, high=5), (2, 3, 2)
    ),
    "different": written("torch.unique a\ntorch._unique/2 a\ntorch.unique_dim_consecutive/3 a dim=0 return_inverse=True return_counts=True", ints(4, 5, high=2)),
    "reduced": written(
        """
        torch.cumprod a dim=1
        torch.trapz a dim=1
        torch.logsumexp a dim=(1,2)
        torch.special.logsumexp a dim=1 keepdim=True
        torch.frobenius_norm a dim=(1,2)
        torch.nuclear_norm a dim=(1,2)
        torch.linalg.vector_norm a ord=3 dim=1
        torch.softmax a dim=1
        torch.log_softmax a dim=1
        torch.special.softmax a dim=2
        torch.special.log_softmax a dim=2
        Tensor.softmax a dim=1
        Tensor.log_softmax a dim=0
        """, X, **LOOSE
    ),
    "vectors": written("torch.mv b a\ntorch.ger a a\ntorch.linalg.cross c c dim=0", (4,), MATRIX, (3, 2)),
    "matrices": written(
        """
        torch.det a
        torch.inverse a
        torch.pinverse a
        torch.matrix_power a n=3
        torch.matrix_exp a
        torch.slogdet/2 a
        t = torch.t a
        p = torch.mm a t
        i = torch.eye n=4
        s = torch.add p i
        torch.logdet s
        torch.cholesky s
        torch.linalg.cholesky s upper=True
        l = torch.linalg.cholesky s
        torch.cholesky_solve b l
        """, MATRIX, (4, 2), **LOOSE
    ),
    "factored": written(
        """
        q r = torch.qr a
        torch.mm q r
        torch.abs r
        u s v = torch.svd a
        torch.abs u
        torch.abs v
        torch.positive s
        """, (4, 3), **LOOSE
    ),
    "inert": written(
        each("F", "dropout alpha_dropout feature_alpha_dropout dropout1d", "a", "training=False")
        + each("nn", "Dropout AlphaDropout FeatureAlphaDropout Dropout1d Identity")
        + "\nF.dropout2d b training=False\nF.dropout3d c training=False\nnn.Dropout2d b\nnn.Dropout3d c\n"
        + each("torch", "dropout alpha_dropout feature_dropout feature_alpha_dropout", "a", "p=0.5 train=False"),
        X, (2, 3, 4, 5), (1, 2, 3, 4, 5),
    ),
}

"""Special functions and other functions of single elements that pnnx passes on raw."""

import torch

from operators.case import case, floats, ints

X = (2, 6, 8)
ABOVE = floats(2, 6, 8, low=0.1, high=4.0)
WITHIN = floats(2, 6, 8, low=0.01, high=0.99)


CASES = {
    "parts_and_signs": case(
        lambda x, y: (
            torch.frac(x),
            torch.signbit(x),
            torch.copysign(x, y),
            torch.copysign(x, -1.5),
            torch.sgn(x),
        ),
        X,
        (8,),
    ),
    "exp2_sinc_angles": case(
        lambda x: (torch.exp2(x), torch.sinc(x), torch.rad2deg(x), torch.deg2rad(x), torch.angle(x)), X
    ),
    "error_functions": case(
        lambda x: (
            torch.erfinv(x),
            torch.special.erfcx(x),
            torch.special.ndtr(x),
            torch.special.log_ndtr(x),
            torch.special.ndtri(x),
            torch.logit(x),
            torch.logit(x, 0.2),
        ),
        WITHIN,
        rtol=1e-4,
        atol=1e-4,
    ),
    "gamma_functions": case(
        lambda x: (torch.digamma(x), torch.polygamma(1, x), torch.polygamma(2, x), torch.mvlgamma(x + 1, 3)),
        ABOVE,
        rtol=1e-4,
        atol=1e-4,
    ),
    "incomplete_gamma": case(
        lambda x, y: (
            torch.special.gammainc(x, y),
            torch.special.gammaincc(x, 8 * y),
            torch.igamma(40 * x, 40 * y),
            torch.igammac(x, y),
        ),
        ABOVE,
        floats(8, low=0.5, high=3.0),
    ),
    "frexp": case(lambda x: torch.frexp(100 * x), X),
    "zeta": case(lambda x, y: torch.special.zeta(x + 1, y), ABOVE, floats(8, low=0.5, high=3.0), rtol=1e-4),
    "bessel_functions": case(
        lambda x: (
            torch.i0(x),
            torch.special.i0e(x),
            torch.special.i1(x),
            torch.special.i1e(x),
            torch.special.bessel_j0(x),
        ),
        X,
    ),
    "entropies": case(
        lambda x, y: (torch.special.entr(x), torch.xlogy(x, y), torch.special.xlog1py(x, y)),
        ABOVE,
        floats(8, low=0.1, high=4.0),
    ),
    "heaviside": case(lambda x, y: (torch.heaviside(x, y), torch.heaviside(torch.trunc(x), y)), X, (8,)),
    "two_arguments": case(
        lambda x, y: (
            torch.hypot(x, y),
            torch.fmax(x, y),
            torch.fmin(x.sqrt(), y),
            torch.logaddexp2(x, y),
            torch.ldexp(x, torch.trunc(y)),
        ),
        X,
        (8,),
    ),
    "float_power": case(lambda x, y: (torch.float_power(x, y), torch.float_power(x, 3)), ABOVE, (8,)),
    "gcd_lcm": case(
        lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), ints(2, 8, low=-30, high=30), ints(8, low=-9, high=9)
    ),
    "isclose": case(
        lambda x, y: (torch.isclose(x, y, 0.3, 0.1), torch.isposinf(x / 0), torch.isneginf(x / 0)), X, X
    ),
    "complex_parts": case(
        lambda x: tuple(
            part
            for z in [torch.view_as_complex(x)]
            for part in (
                torch.angle(z),
                torch.view_as_real(torch.conj(z).resolve_conj()),
                torch.view_as_real(torch.sgn(z)),
            )
        ),
        (3, 4, 2),
    ),
}

//! Vectors against single elements in f64, programs against naive broadcasting, dtypes against
//! PyTorch's documented rules; on every ISA and with several numbers of threads.

use super::lanes::Lane;
use super::*;
use crate::{Activation, Isa, Par, Pool};
use half::{bf16, f16};
use num_complex::Complex;
use plutino_reference::elementwise::paired;
use plutino_reference::testkit::random;
use plutino_tensor::Element;

/// An input: its shape and elements.
type Given<'a> = (&'a [usize], &'a [u8]);

fn bytes<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// Runs the program on every ISA with 1, 2 and 3 threads; the results agree to the bit within an
/// ISA. `check` sees those of each ISA. The input number `in_place`, if any, lies where the result
/// will.
fn on_all<R: Element>(
    program: &Program,
    shape: &[usize],
    inputs: &[Given<'_>],
    in_place: Option<usize>,
    check: impl Fn(Isa, &[R]),
) {
    let shapes: Vec<_> = inputs.iter().map(|i| i.0).collect();
    let nest = LoopNest::new(shape, &shapes).unwrap();
    let len = nest.numel() * size_of::<R>();
    for isa in Isa::available() {
        let results = [1, 2, 3].map(|threads| {
            let mut memory = vec![0u64; len.div_ceil(8)]; // aligned for every dtype
            let result = &mut bytemuck::cast_slice_mut(&mut memory)[..len];
            let mut sources: Vec<_> = inputs.iter().map(|i| Source::Bytes(i.1)).collect();
            if let Some(i) = in_place {
                result.copy_from_slice(inputs[i].1);
                sources[i] = Source::Result;
            }
            let mut scratch = vec![u64::MAX; program.scratch_bytes(threads).div_ceil(8)];
            let scratch = bytemuck::cast_slice_mut(&mut scratch);
            let run = |par: &Par| program.run(isa, par, &nest, &sources, result, scratch);
            Pool::new(threads).enter(run).unwrap();
            memory
        });
        assert!(results.iter().all(|r| *r == results[0]), "{isa}: threads change the result");
        let result = &bytemuck::cast_slice::<u64, u8>(&results[0])[..len];
        check(isa, bytemuck::checked::try_cast_slice(result).unwrap());
    }
}

/// The result for a program that is small enough to run once.
fn value<R: Element>(program: &Program, inputs: &[&[u8]]) -> R {
    let result = std::cell::Cell::new(R::default());
    let inputs: Vec<Given<'_>> = inputs.iter().map(|&b| (&[][..], b)).collect();
    on_all(program, &[], &inputs, None, |_, r: &[R]| result.set(r[0]));
    result.get()
}

fn unary(op: Unary, dtype: DType) -> Program {
    let mut f = Builder::new();
    let x = f.input(dtype);
    let y = f.unary(op, x).unwrap();
    f.finish(y)
}

fn binary(op: Binary, dtype: DType) -> Program {
    let mut f = Builder::new();
    let (a, b) = (f.input(dtype), f.input(dtype));
    let y = f.binary(op, a, b).unwrap();
    f.finish(y)
}

fn apply2<T: Element, R: Element>(op: Binary, a: T, b: T) -> R {
    value(&binary(op, T::DTYPE), &[bytes(&[a]), bytes(&[b])])
}

fn apply1<T: Element, R: Element>(op: Unary, x: T) -> R {
    value(&unary(op, T::DTYPE), &[bytes(&[x])])
}

/// Numbers at which functions change their mind.
const EDGES: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -3.0,
    7.25,
    1e-40,
    -1e-40,
    1e30,
    -1e30,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

fn assert_within(found: f32, exact: f64, ulps: f64, what: &dyn Fn() -> String) {
    let rounded = exact as f32;
    let ulp = (exact.abs().clamp(1.2e-38, 3e38).log2().floor() - 23.0).exp2();
    let same = found == rounded || (found.is_nan() && exact.is_nan());
    let near = (f64::from(found) - exact).abs() <= ulps * ulp;
    let at_limit = rounded.is_infinite() && found == f32::MAX.copysign(rounded);
    assert!(same || near || at_limit, "{} = {found:e}, not {exact:e}", what());
}

/// The bounds of [`crate::math`], in ULP.
fn stated(op: Unary) -> f64 {
    match op {
        Unary::Activation(_) | Unary::Erfc => 5.0,
        Unary::Erfinv | Unary::Tan | Unary::Asinh | Unary::Acosh | Unary::Atanh => 3.5,
        Unary::Asin | Unary::Acos | Unary::Atan | Unary::Sinh | Unary::Cosh => 2.5,
        _ => 2.0,
    }
}

#[test]
fn unary_vectors_match_single_elements() {
    let mut x: Vec<f32> = EDGES.to_vec();
    x.extend(random(500, 1).iter().map(|v| v * 20.0));
    x.extend(random(2055, 2));
    let activations = [Activation::Relu, Activation::Silu, Activation::Elu { alpha: 1.5 }];
    let all = Unary::ALL.iter().copied().chain(activations.map(Unary::Activation));
    for op in all.filter(|op| op.is_defined(DType::F32)) {
        let mut f = Builder::new();
        let input = f.input(DType::F32);
        let y = f.unary(op, input).unwrap();
        let y = f.cast(y, DType::F32); // of those that give bool
        let program = f.finish(y);
        for in_place in [None, Some(0)] {
            on_all(&program, &[x.len()], &[(&[x.len()], bytes(&x))], in_place, |isa, y: &[f32]| {
                for (&x, &y) in x.iter().zip(y) {
                    assert_within(y, f64::unary(op, x.into()), stated(op), &|| {
                        format!("{isa} {op:?}({x:e})")
                    });
                }
            });
        }
    }
}

#[test]
fn binary_vectors_match_single_elements() {
    // Every pair of edges, and random numbers; a length that ends inside a vector.
    let n = EDGES.len();
    let mut a: Vec<f32> = (0..n * n).map(|i| EDGES[i / n]).collect();
    let mut b: Vec<f32> = (0..n * n).map(|i| EDGES[i % n]).collect();
    a.extend(random(2055, 3).iter().map(|v| v * 9.0));
    b.extend(random(2055, 4).iter().map(|v| v * 9.0));
    for &op in Binary::ALL.iter().filter(|op| op.is_defined(DType::F32)) {
        if matches!(op, Binary::Complex | Binary::Polar | Binary::NextAfter) {
            continue; // the number after one of f32 is none after one of f64
        }
        let mut f = Builder::new();
        let (x, y) = (f.input(DType::F32), f.input(DType::F32));
        let z = f.binary(op, x, y).unwrap();
        let z = f.cast(z, DType::F32);
        let program = f.finish(z);
        let inputs: [Given<'_>; 2] = [(&[a.len()], bytes(&a)), (&[b.len()], bytes(&b))];
        for in_place in [None, Some(0), Some(1)] {
            on_all(&program, &[a.len()], &inputs, in_place, |isa, z: &[f32]| {
                for ((&a, &b), &z) in a.iter().zip(&b).zip(z) {
                    let exact = f64::binary(op, a.into(), b.into());
                    // ln(e^a + e^b) = max + tail: each rounded, and near 0 they cancel.
                    let slack = if matches!(op, Binary::LogAddExp | Binary::LogAddExp2) {
                        2e-7 * f64::from(a.abs().max(b.abs()))
                    } else {
                        0.0
                    };
                    if (f64::from(z) - exact).abs() <= slack {
                        continue;
                    }
                    let ulps = if op == Binary::Atan2 { 2.5 } else { 2.0 };
                    assert_within(z, exact, ulps, &|| format!("{isa} {op:?}({a:e}, {b:e})"));
                }
            });
        }
    }
}

/// Two arguments and the result.
type Cases<'a, T> = &'a [(T, T, T)];

#[test]
fn single_elements_follow_pytorch() {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    #[rustfmt::skip]
    let unary: &[(Unary, &[(f64, f64)])] = &[
        (Unary::Sign, &[(NAN, 0.0), (-0.0, 0.0), (-3.0, -1.0), (INF, 1.0)]),
        (Unary::Round, &[(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, 0.0), (-1.5, -2.0)]),
        (Unary::Rsqrt, &[(0.0, INF), (-1.0, NAN), (INF, 0.0), (4.0, 0.5)]),
        (Unary::Reciprocal, &[(0.0, INF), (-0.0, -INF), (-INF, 0.0)]),
        (Unary::Acosh, &[(0.9, NAN), (1.0, 0.0), (-6646.0, NAN), (-INF, NAN)]),
        (Unary::Atanh, &[(1.0, INF), (-1.0, -INF), (1.1, NAN)]),
        (Unary::Lgamma, &[(0.0, INF), (-2.0, INF), (1.0, 0.0), (2.0, 0.0), (-0.5, 1.265_512_123_484_645_4)]),
        (Unary::Log10, &[(1000.0, 3.0), (0.0, -INF), (-1.0, NAN)]),
        (Unary::LogicalNot, &[(NAN, 0.0), (-0.0, 1.0), (0.1, 0.0)]),
    ];
    let same = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() < 1e-14;
    for &(op, cases) in unary {
        for &(x, y) in cases {
            assert!(same(f64::unary(op, x), y), "{op:?}({x}) = {}, not {y}", f64::unary(op, x));
        }
    }
    #[rustfmt::skip]
    let binary: &[(Binary, Cases<'_, f64>)] = &[
        (Binary::FloorDivide, &[(7.0, 2.0, 3.0), (-7.0, 2.0, -4.0), (7.0, -2.0, -4.0), (1.0, 0.0, INF), (-1.0, 0.0, -INF), (0.0, 0.0, NAN), (INF, 1.0, NAN), (1.0, INF, 0.0), (-1.0, INF, -1.0), (0.9, 0.3, 3.0)]),
        (Binary::Remainder, &[(7.0, 3.0, 1.0), (-7.0, 3.0, 2.0), (7.0, -3.0, -2.0), (-7.0, -3.0, -1.0), (1.0, 0.0, NAN), (-1.0, INF, INF), (1.0, INF, 1.0)]),
        (Binary::Fmod, &[(7.0, 3.0, 1.0), (-7.0, 3.0, -1.0), (7.0, -3.0, 1.0), (1.0, 0.0, NAN), (-1.0, INF, -1.0)]),
        (Binary::Maximum, &[(NAN, 1.0, NAN), (1.0, NAN, NAN), (-INF, 1.0, 1.0)]),
        (Binary::Minimum, &[(NAN, 1.0, NAN), (1.0, NAN, NAN), (-INF, 1.0, -INF)]),
        (Binary::LogAddExp, &[(INF, INF, INF), (-INF, -INF, -INF), (INF, -INF, INF), (0.0, -INF, 0.0), (1000.0, 1000.0, 1000.0 + std::f64::consts::LN_2), (NAN, 0.0, NAN)]),
        (Binary::LogAddExp2, &[(INF, INF, INF), (-INF, -INF, -INF), (3.0, 3.0, 4.0), (NAN, 0.0, NAN), (1.0, 0.0, 1.584_962_500_721_156)]),
        (Binary::Hypot, &[(3.0, 4.0, 5.0), (INF, NAN, INF), (1e200, 0.0, 1e200)]),
        (Binary::CopySign, &[(3.0, -0.0, -3.0), (-3.0, 1.0, 3.0), (NAN, 1.0, NAN)]),
        (Binary::Pow, &[(0.0, 0.0, 1.0), (NAN, 0.0, 1.0), (-8.0, 1.0 / 3.0, NAN), (2.0, -1.0, 0.5), (0.0, -1.0, INF)]),
        (Binary::Atan2, &[(0.0, -1.0, std::f64::consts::PI), (-1.0, 0.0, -std::f64::consts::FRAC_PI_2)]),
        (Binary::Ne, &[(NAN, NAN, 1.0)]),
        (Binary::Eq, &[(NAN, NAN, 0.0)]),
        (Binary::LogicalAnd, &[(NAN, 1.0, 1.0), (0.0, NAN, 0.0)]),
        (Binary::Prelu, &[(-2.0, 0.25, -0.5), (2.0, 0.25, 2.0), (NAN, 1.0, NAN)]),
    ];
    for &(op, cases) in binary {
        for &(a, b, y) in cases {
            let found = f64::binary(op, a, b);
            assert!(same(found, y), "{op:?}({a}, {b}) = {found}, not {y}");
        }
    }
    #[rustfmt::skip]
    let integer: &[(Binary, Cases<'_, i64>)] = &[
        (Binary::FloorDivide, &[(7, 2, 3), (-7, 2, -4), (7, -2, -4), (-7, -2, 3), (i64::MIN, -1, i64::MIN)]),
        (Binary::Remainder, &[(7, 3, 1), (-7, 3, 2), (7, -3, -2), (-7, -3, -1), (i64::MIN, -1, 0)]),
        (Binary::Fmod, &[(-7, 3, -1), (7, -3, 1)]),
        (Binary::Pow, &[(2, 10, 1024), (2, 63, i64::MIN), (2, 64, 0), (-3, 3, -27), (0, 0, 1), (2, -1, 0), (1, -5, 1), (-1, -5, -1), (-1, -4, 1), (3, i64::MAX, INVERSE_OF_3)]),
        (Binary::ShiftLeft, &[(1, 3, 8), (1, 64, 0), (1, -1, 0), (-1, 63, i64::MIN)]),
        (Binary::ShiftRight, &[(8, 3, 1), (-8, 1, -4), (-8, 100, -1), (8, -1, 0)]),
        (Binary::BitwiseXor, &[(6, 3, 5)]),
        (Binary::Gcd, &[(12, -18, 6), (0, 0, 0)]),
        (Binary::Lcm, &[(4, -6, 12), (0, 5, 0)]),
    ];
    for &(op, cases) in integer {
        for &(a, b, y) in cases {
            assert_eq!(i64::binary(op, a, b), y, "{op:?}({a}, {b})");
        }
    }
}

/// 1/3 modulo 2^64, which is 3^(2^63 - 1), since 3^(2^62) is 1.
const INVERSE_OF_3: i64 = 0xaaaa_aaaa_aaaa_aaab_u64.cast_signed();

#[test]
fn the_next_number_is_one_of_the_dtype() {
    assert_eq!(apply2::<f32, f32>(Binary::NextAfter, 1.0, 2.0), 1.0f32.next_up());
    assert_eq!(apply2::<f32, f32>(Binary::NextAfter, f32::MAX, f32::INFINITY), f32::INFINITY);
    assert_eq!(apply2::<f64, f64>(Binary::NextAfter, 1.0, 0.0), 1.0f64.next_down());
}

#[test]
fn narrow_dtypes_wrap_and_round_after_each_function() {
    assert_eq!(apply2::<u8, u8>(Binary::Add, 200, 100), 44);
    assert_eq!(apply2::<i8, i8>(Binary::Mul, 100, 2), -56);
    assert_eq!(apply2::<i32, i32>(Binary::Add, i32::MAX, 1), i32::MIN);
    assert_eq!(apply2::<i32, i32>(Binary::ShiftLeft, 1, 40), 0);
    assert_eq!(apply2::<i32, i32>(Binary::ShiftRight, -5, 40), -1);
    assert_eq!(apply1::<u8, u8>(Unary::Neg, 1), 255);
    assert_eq!(apply1::<i16, i16>(Unary::BitwiseNot, 5), -6);
    assert!(apply2::<bool, bool>(Binary::Add, true, true));
    assert!(!apply2::<bool, bool>(Binary::BitwiseXor, true, true));
    assert!(apply1::<bool, bool>(Unary::BitwiseNot, false));
    assert!(apply2::<i64, bool>(Binary::Lt, 1 << 53, (1 << 53) + 1)); // no detour through floats
    assert!(apply2::<Complex<f32>, bool>(
        Binary::Eq,
        Complex::new(1.0, 2.0),
        Complex::new(1.0, 2.0)
    ));
    // (2048 + 1) - 2048 is 0 in f16, whatever is fused.
    let mut f = Builder::new();
    let x = f.input(DType::F16);
    let (big, one) =
        (f.constant(Scalar::Float(2048.0), DType::F16), f.constant(Scalar::Int(1), DType::F16));
    let sum = f.binary(Binary::Add, big, one).unwrap();
    let sum = f.binary(Binary::Mul, sum, x).unwrap();
    let y = f.binary(Binary::Sub, sum, big).unwrap();
    assert_eq!(value::<f16>(&f.finish(y), &[bytes(&[f16::ONE])]), f16::ZERO);
    assert_eq!(
        apply2::<bf16, bf16>(Binary::Add, bf16::from_f32(256.0), bf16::ONE),
        bf16::from_f32(256.0)
    );
}

#[test]
fn complex_numbers() {
    type C = Complex<f32>;
    let close = |x: C, re: f32, im: f32| assert!((x - C::new(re, im)).norm() < 1e-6, "{x}");
    close(apply2(Binary::Mul, C::new(1.0, 2.0), C::new(3.0, -1.0)), 5.0, 5.0);
    close(apply2(Binary::Pow, C::new(0.0, 1.0), C::new(2.0, 0.0)), -1.0, 0.0);
    close(apply2(Binary::Pow, C::new(0.0, 0.0), C::new(0.0, 0.0)), 1.0, 0.0);
    close(apply1(Unary::Sqrt, C::new(-4.0, 0.0)), 0.0, 2.0);
    close(apply2::<f32, C>(Binary::Complex, 1.5, -2.5), 1.5, -2.5);
    close(apply2::<f32, C>(Binary::Polar, 2.0, std::f32::consts::FRAC_PI_2), 0.0, 2.0);
    assert_eq!(apply1::<C, f32>(Unary::Abs, C::new(3.0, -4.0)), 5.0);
    assert_eq!(apply1::<C, f32>(Unary::Imag, C::new(3.0, -4.0)), -4.0);
    assert_eq!(
        apply1::<Complex<f16>, f16>(Unary::Real, Complex::new(f16::ONE, f16::ZERO)),
        f16::ONE
    );
}

#[test]
fn every_dtype_converts_to_every_other() {
    // What all dtypes have.
    fn numbers(dtype: DType) -> Vec<u8> {
        let mut f = Builder::new();
        let x = f.input(DType::I64);
        let y = f.cast(x, dtype);
        let program = f.finish(y);
        let nest = LoopNest::new(&[2], &[&[2]]).unwrap();
        let mut memory = vec![0u64; 4];
        let result = &mut bytemuck::cast_slice_mut(&mut memory)[..2 * dtype.size_of()];
        let mut scratch = vec![0; program.scratch_bytes(1)];
        let sources = [Source::of(&[0i64, 1])];
        program.run(Isa::best(), &Par::serial(), &nest, &sources, result, &mut scratch).unwrap();
        result.to_vec()
    }
    for from in DType::ALL {
        for to in DType::ALL {
            let mut f = Builder::new();
            let x = f.input(from);
            let y = f.cast(x, to);
            let given = numbers(from).repeat(1000);
            let expected = numbers(to).repeat(1000);
            let aligned: Vec<u64> = bytemuck::pod_collect_to_vec(&given);
            let given = &bytemuck::cast_slice(&aligned)[..given.len()];
            let program = f.finish(y);
            let in_place = (from.size_of() == to.size_of()).then_some(0);
            let nest = LoopNest::new(&[2000], &[&[2000]]).unwrap();
            let mut memory = vec![0u64; 4000];
            let result = &mut bytemuck::cast_slice_mut(&mut memory)[..expected.len()];
            let mut source = Source::Bytes(given);
            if in_place.is_some() {
                result.copy_from_slice(given);
                source = Source::Result;
            }
            let mut scratch = vec![0u64; program.scratch_bytes(1).div_ceil(8)];
            let scratch = bytemuck::cast_slice_mut(&mut scratch);
            program.run(Isa::best(), &Par::serial(), &nest, &[source], result, scratch).unwrap();
            assert_eq!(result, expected, "{from} to {to}");
        }
    }
}

#[test]
fn conversions_lose_what_pytorch_loses() {
    fn cast<T: Element, R: Element>(x: T) -> R {
        let mut f = Builder::new();
        let input = f.input(T::DTYPE);
        let y = f.cast(input, R::DTYPE);
        value(&f.finish(y), &[bytes(&[x])])
    }
    assert_eq!(cast::<f32, i64>(-2.7), -2);
    assert_eq!(cast::<f32, u8>(-1.0), 255);
    assert_eq!(cast::<i64, i32>((1 << 32) + 5), 5);
    assert_eq!(cast::<i64, f32>((1 << 24) + 1), 16_777_216.0);
    assert_eq!(cast::<f64, f32>(0.1), 0.1);
    assert!(cast::<f32, bool>(0.5) && cast::<f32, bool>(f32::NAN) && !cast::<f32, bool>(-0.0));
    assert!(cast::<Complex<f32>, bool>(Complex::new(0.0, 1.0)));
    assert_eq!(cast::<Complex<f32>, f32>(Complex::new(3.0, 1.0)), 3.0);
    assert_eq!(cast::<f32, f16>(1e6), f16::INFINITY);
    assert_eq!(cast::<bool, f64>(true), 1.0);
}

/// a[broadcast] * 2 - (b[broadcast] > c[broadcast] ? b : a), which needs several registers.
fn mixed() -> Program {
    let mut f = Builder::new();
    let [a, b, c] = [(); 3].map(|()| f.input(DType::F32));
    let two = f.constant(Scalar::Float(2.0), DType::F32);
    let twice = f.binary(Binary::Mul, a, two).unwrap();
    let greater = f.binary(Binary::Gt, b, c).unwrap();
    let chosen = f.select(greater, b, a).unwrap();
    let y = f.binary(Binary::Sub, twice, chosen).unwrap();
    f.finish(y)
}

#[test]
fn fused_programs_broadcast_like_naive_loops() {
    let program = mixed();
    assert!(program.scratch_bytes(1) > 0);
    let cases: &[(&[usize], [&[usize]; 3])] = &[
        (&[3, 5, 7], [&[3, 5, 7], &[3, 5, 7], &[3, 5, 7]]),
        (&[3, 5, 7], [&[3, 5, 7], &[7], &[5, 1]]),
        (&[3, 5, 7], [&[3, 1, 1], &[1, 5, 1], &[1, 1, 7]]),
        (&[2, 3, 4, 50], [&[2, 1, 4, 50], &[3, 1, 50], &[]]),
        (&[9, 3000], [&[9, 1], &[9, 3000], &[3000]]),
        (&[40_000], [&[40_000], &[1], &[40_000]]),
        (&[500, 70], [&[500, 70], &[500, 1], &[500, 70]]),
        // Rows of one vector, for each width.
        (&[2, 11, 8], [&[2, 11, 8], &[2, 1, 8], &[11, 1]]),
        (&[2, 7, 16], [&[2, 7, 16], &[2, 1, 16], &[16]]),
        (&[9, 4], [&[9, 4], &[9, 1], &[4]]),
        (&[1], [&[1], &[], &[1]]),
        (&[2, 0, 3], [&[2, 1, 3], &[3], &[]]),
    ];
    for (to, from) in cases {
        let numel = |shape: &[usize]| shape.iter().product::<usize>();
        let data: Vec<Vec<f32>> = (5..).zip(from).map(|(s, f)| random(numel(f), s)).collect();
        let given: Vec<Given<'_>> = from.iter().zip(&data).map(|(&s, d)| (s, bytes(d))).collect();
        let expected: Vec<f32> = (0..numel(to))
            .map(|i| {
                let [a, b, c] = [0, 1, 2].map(|k| data[k][paired(to, i, from[k])]);
                a * 2.0 - if b > c { b } else { a }
            })
            .collect();
        let whole = (0..3).filter(|&k| numel(from[k]) == numel(to)).map(Some);
        for in_place in whole.chain([None]) {
            on_all(&program, to, &given, in_place, |_, y: &[f32]| assert_eq!(y, expected));
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let program = binary(Binary::Remainder, DType::I16);
    let nest = LoopNest::new(&[4], &[&[4], &[]]).unwrap();
    let run = |a: &[i16], b: &[i16], n: usize, scratch: usize| {
        let mut y = vec![0i16; n];
        let mut scratch = vec![0u64; scratch.div_ceil(8)];
        program.run(
            Isa::best(),
            &Par::serial(),
            &nest,
            &[Source::of(a), Source::of(b)],
            bytemuck::cast_slice_mut(&mut y),
            bytemuck::cast_slice_mut(&mut scratch),
        )
    };
    let scratch = program.scratch_bytes(1);
    // As many bytes as wrap to none.
    let wide = LoopNest::new(&[1 << 62], &[&[1 << 62]]).unwrap();
    let negated = unary(Unary::Neg, DType::F32);
    let found = negated.run(
        Isa::best(),
        &Par::serial(),
        &wide,
        &[Source::of::<f32>(&[])],
        &mut [],
        &mut [],
    );
    assert!(matches!(found, Err(ElementwiseError::Size { .. })), "{found:?}");
    assert_eq!(run(&[1, 2, 3, 4], &[3], 4, scratch), Ok(()));
    assert_eq!(run(&[1, 2, 3, 4], &[0], 4, scratch), Err(ElementwiseError::ZeroDivision));
    assert!(matches!(run(&[1, 2, 3], &[3], 4, scratch), Err(ElementwiseError::Size { .. })));
    assert!(matches!(run(&[1, 2, 3, 4], &[3], 5, scratch), Err(ElementwiseError::Size { .. })));
    assert!(matches!(run(&[1, 2, 3, 4], &[3], 4, scratch / 2), Err(ElementwiseError::Size { .. })));

    let mut f = Builder::new();
    let (x, y, b) = (f.input(DType::F32), f.input(DType::I32), f.input(DType::Bool));
    assert!(matches!(f.binary(Binary::Add, x, y), Err(ElementwiseError::Mixed { .. })));
    assert!(matches!(f.binary(Binary::BitwiseAnd, x, x), Err(ElementwiseError::Undefined { .. })));
    assert!(matches!(f.binary(Binary::Sub, b, b), Err(ElementwiseError::Undefined { .. })));
    assert!(matches!(f.unary(Unary::Exp, y), Err(ElementwiseError::Undefined { .. })));
    assert!(matches!(f.select(x, x, x), Err(ElementwiseError::Undefined { .. })));
}

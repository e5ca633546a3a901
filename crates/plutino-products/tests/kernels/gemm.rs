//! Products against the reference: instruction sets x threads x tails x strides x packing x
//! post-ops.

use plutino_cpu::activation::Activation;
use plutino_cpu::{Isa, Par, Pool};
use plutino_products::gemm::*;
use plutino_reference::elementwise as reference;
use plutino_reference::gemm::{gamma, gemm};
use plutino_reference::testkit::{LARGE, Piecewise, assert_close, on_every_machine, random};

/// How an operand is handed over.
#[derive(Clone, Copy, Debug)]
enum Given {
    Dense,
    Transposed,
    Packed,
}

/// Plans and runs one product.
fn product(
    isa: Isa,
    par: &Par,
    (m, n, k): (usize, usize, usize),
    (a, given_a): (&[f32], Given),
    (b, given_b): (&[f32], Given),
    post_ops: PostOps<'_>,
    c: &mut [f32],
) {
    let target = Target::this(isa);
    let transpose = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
        (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect()
    };
    let (at, bt) = (transpose(a, m, k), transpose(b, k, n));
    let left = Strided::left(a, (m, k), (k, 1));
    let right = Strided::right(b, (k, n), (n, 1));
    let packed_a = PackedMatrix::of(target, Side::Left, &left, par).unwrap();
    let packed_b = PackedMatrix::of(target, Side::Right, &right, par).unwrap();
    let a = match given_a {
        Given::Dense => Operand::Source(left),
        Given::Transposed => Operand::Source(Strided::left(&at, (m, k), (1, m))),
        Given::Packed => Operand::Packed(&packed_a),
    };
    let b = match given_b {
        Given::Dense => Operand::Source(right),
        Given::Transposed => Operand::Source(Strided::right(&bt, (k, n), (1, k))),
        Given::Packed => Operand::Packed(&packed_b),
    };
    let packed = (matches!(given_a, Given::Packed), matches!(given_b, Given::Packed));
    let gemm = Gemm::new(target, par.threads(), Size { batch: 1, m, n, k }, packed);
    let mut scratch = vec![f32::NAN; gemm.scratch(par.threads())];
    gemm.run(par, &Product { a, b, post_ops }, c, n, &mut scratch);
}

fn check(size: (usize, usize, usize), given: (Given, Given)) {
    let (m, n, k) = size;
    let (a, b) = (random(m * k, 1), random(k * n, 2));
    let abs = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| v.abs()).collect() };
    let expected = gemm(m, n, k, &a, &b);
    let scale = gemm(m, n, k, &abs(&a), &abs(&b));
    on_every_machine(
        |isa, par| {
            let mut c = vec![f32::NAN; m * n];
            let post_ops = PostOps::default();
            product(isa, par, size, (&a, given.0), (&b, given.1), post_ops, &mut c);
            c
        },
        |c| assert_close(c, &expected, |i| gamma(k, scale[i])),
    );
}

#[test]
fn every_tail() {
    for m in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 25] {
        for n in [1, 7, 8, 9, 15, 16, 17, 32, 33, 70] {
            check((m, n, 19), (Given::Packed, Given::Dense));
        }
    }
}

#[test]
fn every_depth() {
    for k in [0, 1, 2, 191, 256, 257, 600] {
        check((7, 17, k), (Given::Packed, Given::Dense));
        check((7, 17, k), (Given::Dense, Given::Packed));
    }
}

#[test]
fn rows_that_are_longer_than_a_depth_block() {
    // Packed, for there are many panels of columns.
    check((13, 800, 520), (Given::Dense, Given::Packed));
    // In place.
    check((13, 70, 520), (Given::Dense, Given::Packed));
    // Packed, where the tile has more rows than L1 has room for: they lie 4 KiB apart.
    check((13, 70, 1024), (Given::Dense, Given::Packed));
    check((3, 70, 1024), (Given::Dense, Given::Packed));
}

#[test]
fn rows_of_nothing_need_no_memory() {
    on_every_machine(
        |isa, par| {
            let size = Size { batch: 1, m: 3, n: 2, k: 0 };
            let gemm = Gemm::new(Target::this(isa), par.threads(), size, (false, false));
            let a = Operand::Source(Strided::left(&[], (3, 0), (4, 1)));
            let b = Operand::Source(Strided::right(&[], (0, 2), (2, 1)));
            let mut c = vec![f32::NAN; 6];
            let mut scratch = vec![f32::NAN; gemm.scratch(par.threads())];
            let post_ops = PostOps::default();
            gemm.run(par, &Product { a, b, post_ops }, &mut c, 2, &mut scratch);
            c
        },
        |c| assert_eq!(c, [0.0; 6]),
    );
}

#[test]
fn every_way_to_hand_over() {
    let all = [Given::Dense, Given::Transposed, Given::Packed];
    for a in all {
        for b in all {
            for size in [(30, 50, 40), (3, 200, 300), (200, 3, 300), (320, 330, 20), (1, 1, 1)] {
                check(size, (a, b));
            }
        }
    }
}

#[test]
fn nothing_to_do() {
    for size in [(0, 5, 5), (5, 0, 5), (0, 0, 0)] {
        check(size, (Given::Dense, Given::Dense));
        check(size, (Given::Packed, Given::Dense));
    }
}

#[test]
fn post_ops() {
    let (m, n, k) = (14, 37, 300);
    let (a, b) = (random(m * k, 1), random(k * n, 2));
    let (rows, cols, other) = (random(m, 3), random(n, 4), random(m * n, 5));
    let plain = gemm(m, n, k, &a, &b);
    let abs = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| v.abs()).collect() };
    let scale = gemm(m, n, k, &abs(&a), &abs(&b));
    for bias in [Bias::None, Bias::Rows(&rows), Bias::Cols(&cols)] {
        for residual in [Residual::None, Residual::Output, Residual::Other(&other)] {
            for activation in [
                None,
                Some(Activation::Relu),
                Some(Activation::Clamp { lo: -1.0, hi: 1.5 }),
                Some(Activation::LeakyRelu { slope: 0.5 }),
            ] {
                let post_ops = PostOps { bias, residual, activation };
                let expected: Vec<f64> = (0..m * n)
                    .map(|i| {
                        let bias = match bias {
                            Bias::None => 0.0,
                            Bias::Rows(v) => v[i / n],
                            Bias::Cols(v) => v[i % n],
                        };
                        let add = if matches!(residual, Residual::None) { 0.0 } else { other[i] };
                        let x = plain[i] + f64::from(bias) + f64::from(add);
                        activation.map_or(x, |a| reference::activation(a, x))
                    })
                    .collect();
                on_every_machine(
                    |isa, par| {
                        let mut c = other.clone();
                        let (a, b) = ((&a[..], Given::Packed), (&b[..], Given::Dense));
                        product(isa, par, (m, n, k), a, b, post_ops, &mut c);
                        c
                    },
                    |c| assert_close(c, &expected, |i| gamma(k + 2, scale[i] + 2.0)),
                );
            }
        }
    }
}

#[test]
fn what_is_added_takes_no_digits_of_the_product() {
    let (m, n) = (14, 37);
    let (rows, cols, other) = (vec![LARGE; m], vec![LARGE; n], vec![LARGE; m * n]);
    for k in [20, 300, 600] {
        let (a, b) = (vec![1.0; m * k], vec![1.0; k * n]);
        for (bias, residual) in [
            (Bias::Rows(&rows), Residual::None),
            (Bias::Cols(&cols), Residual::None),
            (Bias::None, Residual::Other(&other)),
            (Bias::None, Residual::Output),
        ] {
            let post_ops = PostOps { bias, residual, activation: None };
            for given in [Given::Packed, Given::Dense] {
                on_every_machine(
                    |isa, par| {
                        let mut c = other.clone();
                        let (a, b) = ((&a[..], given), (&b[..], Given::Packed));
                        product(isa, par, (m, n, k), a, b, post_ops, &mut c);
                        c
                    },
                    |c| assert!(c.iter().all(|&c| c == LARGE + k as f32), "{post_ops:?} {k}"),
                );
            }
        }
    }
}

#[test]
fn nan_reaches_the_output_and_relu_keeps_it() {
    let mut a = random(6 * 8, 1);
    a[8] = f32::NAN;
    let b = random(8 * 16, 2);
    let post_ops = PostOps { activation: Some(Activation::Relu), ..PostOps::default() };
    on_every_machine(
        |isa, par| {
            let mut c = vec![0.0; 6 * 16];
            product(
                isa,
                par,
                (6, 16, 8),
                (&a, Given::Packed),
                (&b, Given::Dense),
                post_ops,
                &mut c,
            );
            c
        },
        |c| {
            let bad: Vec<usize> = (0..96).filter(|&i| c[i].is_nan()).collect();
            assert_eq!(bad, (16..32).collect::<Vec<_>>());
        },
    );
}

/// Products of f64 are right to the last digits, in any order of the operands' elements, and do not
/// depend on the number of threads.
#[test]
fn products_of_f64() {
    let wide = |n, seed| -> Vec<f64> { random(n, seed).iter().map(|&x| f64::from(x)).collect() };
    for (m, n, k) in [(1, 5, 3), (3, 300, 40), (260, 1, 70), (270, 517, 33), (20, 9, 700)] {
        let (a, b) = (wide(m * k, 1), wide(k * n, 2));
        // The same values, b transposed in memory.
        let turned: Vec<f64> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let left = AnyMatrix { data: &a, strides: (k, 1) };
        let run = |par: &Par, right| {
            let mut c = vec![f64::NAN; m * n];
            gemm_any(
                Isa::best(),
                par,
                (m, n, k),
                left,
                right,
                &|i, sum| sum + (i % n) as f64,
                &mut c,
            );
            c
        };
        for right in
            [AnyMatrix { data: &b, strides: (n, 1) }, AnyMatrix { data: &turned, strides: (1, k) }]
        {
            let found = run(&Par::serial(), right);
            for (i, found) in found.iter().enumerate() {
                let terms = || (0..k).map(|l| a[i / n * k + l] * b[l * n + i % n]);
                let (sum, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                let column = (i % n) as f64;
                // Two sums of k terms, and the rounding of what is added.
                let bound = (2 * k) as f64 * f64::EPSILON * scale + f64::EPSILON * (column + scale);
                let error = (found - (sum + column)).abs();
                assert!(error <= bound, "{m} {n} {k} [{i}]: {error:e} > {bound:e}");
            }
            for threads in [2, 3] {
                let threaded = Pool::new(threads).enter(|par| run(par, right));
                assert!(found.iter().zip(&threaded).all(|(x, y)| x.to_bits() == y.to_bits()));
            }
        }
    }
}

/// Products of integers wrap and are exact, on every instruction set, whichever way the operands
/// lie and however many threads compute.
#[test]
fn products_of_integers() {
    let numbers = |n: usize, seed: u64| -> Vec<i64> {
        (0..n as u64)
            .map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3) as i64)
            .collect()
    };
    for (m, n, k) in [(1, 1, 1), (3, 17, 0), (5, 16, 129), (67, 35, 130), (64, 33, 5)] {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 7));
        let turned: Vec<i64> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let exact = |i: usize| {
            let terms = (0..k).map(|l| a[i / n * k + l].wrapping_mul(b[l * n + i % n]));
            terms.fold(0i64, i64::wrapping_add)
        };
        let left = AnyMatrix { data: &a, strides: (k, 1) };
        let rights =
            [AnyMatrix { data: &b, strides: (n, 1) }, AnyMatrix { data: &turned, strides: (1, k) }];
        for isa in Isa::available() {
            for (right, threads) in rights.into_iter().flat_map(|right| [(right, 1), (right, 3)]) {
                let mut c = vec![-1i64; m * n];
                let run = |par: &Par| {
                    gemm_any(isa, par, (m, n, k), left, right, &|_, sum| sum, &mut c);
                };
                Pool::new(threads).enter(run);
                assert!((0..m * n).all(|i| c[i] == exact(i)), "{isa}: {m} {n} {k}, {threads}");
            }
        }
        // Of fewer bits, what is left of the sum.
        let (narrow, wide): (Vec<i16>, Vec<i16>) =
            (a.iter().map(|&x| x as i16).collect(), b.iter().map(|&x| x as i16).collect());
        let (left, right) = (
            AnyMatrix { data: &narrow, strides: (k, 1) },
            AnyMatrix { data: &wide, strides: (n, 1) },
        );
        let mut c = vec![-1i16; m * n];
        let par = Par::serial();
        gemm_any(Isa::best(), &par, (m, n, k), left, right, &|_, sum| sum as i16, &mut c);
        assert!((0..m * n).all(|i| c[i] == exact(i) as i16), "{m} {n} {k}");
    }
}

/// Rows times a narrow matrix: the bits of the f32 product with its numbers rounded, at every
/// number of rows where tiles and blocks change, depth that is cut, and number of columns.
#[test]
fn narrow_matrices_are_those_of_rounded_numbers() {
    for size in [
        [1, 1, 1],
        [1, 300, 37],
        [1, 64, 256],
        [2, 257, 129],
        [3, 600, 70],
        [4, 300, 33],
        [13, 513, 65],
        [40, 64, 200],
        [2, 0, 5],
        [0, 3, 4],
        [7, 5, 0],
    ] {
        for narrow in [Narrow::Bf16, Narrow::F16] {
            on_every_machine(|isa, par| narrow_product(isa, par, size, narrow), |_| ());
        }
    }
}

#[test]
fn what_narrow_weights_do_not_reach_is_refused() {
    let plan = |narrow: Compact| {
        LinearProduct::plan_narrow(Target::default(), 1, [1, 2, 1], narrow, None).unwrap()
    };
    let pack = |narrow: Narrow, w: f32| {
        plan(narrow.into()).pack(&[1.0, w][..], (1, 2), &Par::serial()).err()
    };
    for scaled in [Compact::Int8, Compact::Nf4] {
        let pack = |w: f32| plan(scaled).pack(&[1.0, w][..], (1, 2), &Par::serial()).err();
        assert_eq!(pack(f32::MAX), None);
        assert_eq!(pack(f32::INFINITY), Some(GemmError::Range { value: f32::INFINITY }));
    }
    assert_eq!(pack(Narrow::F16, -65520.0), Some(GemmError::Range { value: -65520.0 }));
    for fits in [65519.0, f32::INFINITY, f32::NAN] {
        assert_eq!(pack(Narrow::F16, fits), None);
    }
    assert_eq!(pack(Narrow::Bf16, 1e30), None);
}

/// Integers, and levels of four bits, with scales: as near as half a step of the largest weight of
/// each column is, and the same bits whether a row comes alone, which reads them as they are, or
/// with others, for which they are widened.
#[test]
fn products_with_scales() {
    // Half of 1 / 127, and half of the widest gap of levels.
    for (narrow, step) in [(Compact::Int8, 1.0 / 254.0), (Compact::Nf4, 0.152)] {
        for size in [
            [1, 1, 1],
            [1, 300, 37],
            [2, 257, 129],
            [3, 600, 300],
            [5, 513, 65],
            [40, 64, 200],
            [2, 0, 5],
        ] {
            products_with(narrow, step, size);
        }
    }
}

fn products_with(narrow: Compact, step: f64, [m, k, n]: [usize; 3]) {
    let run = |isa: Isa, par: &Par| {
        let (x, w) = (random(m * k, 1), random(k * n, 2));
        let (bias, target) = (random(n, 3), Target::this(isa));
        let product = |rows: usize, x: &[f32], packed: Option<&PackedMatrix>| {
            let sizes = [rows, k, n];
            let product =
                LinearProduct::plan_narrow(target, par.threads(), sizes, narrow, None).unwrap();
            let made;
            let packed = match packed {
                Some(packed) => packed,
                None => {
                    made = product.pack_from(&mut Piecewise::new(&w), (1, k), par).unwrap();
                    &made
                }
            };
            assert_eq!(packed.is_narrow(), Some(narrow));
            let mut y = vec![f32::NAN; rows * n];
            let mut workspace = vec![f32::NAN; product.workspace() / 4];
            let args = LinearArgs {
                x,
                w: Matrix::Packed(packed),
                bias: Some(&bias),
                residual: None,
                y: &mut y,
                stride: n,
                workspace: bytemuck::cast_slice_mut(&mut workspace),
            };
            product.run(args, par).unwrap();
            y
        };
        let y = product(m, &x, None);
        for (row, x) in x.chunks_exact(k.max(1)).enumerate() {
            assert_eq!(product(1, x, None), y[row * n..][..n], "row {row} of {m}, {isa}");
        }
        for (i, &y) in y.iter().enumerate() {
            let (row, col) = (i / n, i % n);
            let w = |t: usize| f64::from(w[col * k + t]);
            let x = |t: usize| f64::from(x[row * k + t]);
            let exact: f64 = (0..k).map(|t| x(t) * w(t)).sum::<f64>() + f64::from(bias[col]);
            let largest = (0..k).map(|t| w(t).abs()).fold(0.0, f64::max);
            let size: f64 = (0..k).map(|t| x(t).abs()).sum();
            let rounding = (k as f64 + 4.0) * f64::from(f32::EPSILON) * (size * largest + 1.0);
            let bound = size * largest * step + rounding;
            assert!((f64::from(y) - exact).abs() <= bound, "{y} for {exact}: {m}x{k}x{n}");
        }
        y
    };
    on_every_machine(run, |_| ());
}

fn narrow_product(isa: Isa, par: &Par, size: [usize; 3], narrow: Narrow) -> Vec<f32> {
    let ([m, k, n], threads) = (size, par.threads());
    let (x, w) = (random(m * k, 1), random(k * n, 2));
    let (bias, add) = (random(n, 3), random(m * n, 4));
    let rounded: Vec<f32> = w.iter().map(|&w| rounded(w, narrow)).collect();
    let (target, relu) = (Target::this(isa), Some(Activation::Relu));
    let half = LinearProduct::plan_narrow(target, threads, size, narrow, relu).unwrap();
    let single = LinearProduct::plan(target, threads, size, true, relu).unwrap();
    assert_ne!(half.pack_key(), single.pack_key());
    let run = |product: &LinearProduct, w: &PackedMatrix| {
        let mut y = vec![f32::NAN; m * n];
        let mut workspace = vec![f32::NAN; product.workspace() / 4];
        let args = LinearArgs {
            x: &x,
            w: Matrix::Packed(w),
            bias: Some(&bias),
            residual: Some(&add),
            y: &mut y,
            stride: n,
            workspace: bytemuck::cast_slice_mut(&mut workspace),
        };
        product.run(args, par).map(|()| y)
    };
    // Columns that are neighbours, as a linear layer has them, and rows.
    let [first, second] = [(1, k), (n, 1)].map(|strides| {
        let packed = half.pack_from(&mut Piecewise::new(&w), strides, par).unwrap();
        let wide = single.pack_from(&mut Piecewise::new(&rounded), strides, par).unwrap();
        assert_eq!(2 * packed.bytes(), wide.bytes());
        assert_eq!(packed.is_narrow(), Some(narrow.into()));
        let y = run(&half, &packed).unwrap();
        assert_eq!(y, run(&single, &wide).unwrap(), "{size:?}, {narrow:?}, {isa}");
        assert_eq!(run(&half, &wide), Err(GemmError::Packed));
        assert_eq!(run(&single, &packed), Err(GemmError::Packed));
        y
    });
    [first, second].concat()
}

fn rounded(x: f32, narrow: Narrow) -> f32 {
    match narrow {
        Narrow::Bf16 => plutino_tensor::bf16::from_f32(x).to_f32(),
        Narrow::F16 => plutino_tensor::f16::from_f32(x).to_f32(),
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let target = Target::default();
    assert!(matches!(
        LinearProduct::plan(target, 1, [usize::MAX, 2, 2], true, None),
        Err(GemmError::Overflow)
    ));
    let plan = |packed| LinearProduct::plan(target, 1, [3, 4, 2], packed, None).unwrap();
    let (product, par) = (plan(true), Par::serial());
    assert!(matches!(product.pack(&[0.0; 7][..], (2, 1), &par), Err(GemmError::Length { .. })));
    let huge = (usize::MAX, 2);
    assert_eq!(product.pack(&[0.0; 8][..], huge, &par).err(), Some(GemmError::Overflow));
    let packed = product.pack(&[1.0; 8][..], (2, 1), &par).unwrap();
    let other = LinearProduct::plan(target, 1, [3, 2, 4], true, None).unwrap();
    let others = other.pack(&[1.0; 8][..], (4, 1), &par).unwrap();
    let attempt = |x: usize, w: Matrix<'_>, bias: usize, y: usize, stride: usize, less: usize| {
        let mut workspace = vec![0.0f32; product.workspace() / 4];
        let workspace: &mut [u8] = bytemuck::cast_slice_mut(&mut workspace);
        let end = workspace.len().saturating_sub(less);
        let args = LinearArgs {
            x: &vec![1.0; x],
            w,
            bias: Some(&vec![0.0; bias]),
            residual: None,
            y: &mut vec![0.0; y],
            stride,
            workspace: &mut workspace[..end],
        };
        product.run(args, &par)
    };
    let packed = Matrix::Packed(&packed);
    assert_eq!(attempt(12, packed, 2, 6, 2, 0), Ok(()));
    assert_eq!(attempt(12, packed, 2, 8, 3, 0), Ok(()));
    for (x, bias, y, stride) in [(11, 2, 6, 2), (12, 1, 6, 2), (12, 2, 5, 2), (12, 2, 6, 1)] {
        let found = attempt(x, packed, bias, y, stride, 0);
        assert!(matches!(found, Err(GemmError::Length { .. })), "{found:?}");
    }
    assert_eq!(attempt(12, Matrix::Packed(&others), 2, 6, 2, 0), Err(GemmError::Packed));
    let strided = Matrix::Strided(&[0.0; 8], (2, 1));
    assert_eq!(attempt(12, strided, 2, 6, 2, 0), Err(GemmError::Packed));
}

use super::*;
use crate::Par;
use plutino_reference::reduce::{argmax, groups, norm, variance};
use plutino_reference::testkit::{assert_close, on_every_machine, random};

const EPS: f64 = f32::EPSILON as f64 / 2.0;
/// The bound of the module, in roundings, with room for the lanes of every instruction set.
const ROUNDINGS: f64 = 64.0 + 6.0 + 2.0;

/// Rows, columns, both, neither; all tails; several blocks.
fn cases() -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut all = vec![
        (vec![2, 3, 4, 5], vec![0, 2]),
        (vec![2, 3, 4, 5], vec![1, 3]),
        (vec![2, 3, 4, 5], vec![]),
        (vec![2, 3, 4, 5], vec![0, 1, 2, 3]),
        (vec![], vec![]),
        (vec![3, 1, 7, 1, 11], vec![1, 2]),
        (vec![5, 64, 7, 7], vec![2, 3]),
        (vec![2, 200, 131], vec![1]),
        (vec![3, 9001], vec![1]),
        (vec![4500, 3], vec![0]),
        (vec![2, 0, 3], vec![0]),
        (vec![300, 2, 150], vec![0]),
    ];
    for n in 1..40 {
        all.push((vec![3, n], vec![1]));
        all.push((vec![2, 3, n], vec![1]));
    }
    all
}

#[test]
fn every_reduction_agrees_with_its_reference() {
    for (shape, reduced) in cases() {
        let fold = Fold::new(&shape, |d| reduced.contains(&d));
        let input = random(shape.iter().product(), 3);
        let groups = groups(&shape, &reduced, &input);
        assert_eq!(fold.outputs(), groups.len());
        let of = |f: &dyn Fn(&[f64]) -> f64| groups.iter().map(|g| f(g)).collect::<Vec<_>>();
        let abs = of(&|g| g.iter().map(|x| x.abs()).sum());
        let n = fold.count() as f64;
        let check = |r: Reduction, expected: Vec<f64>, bound: &dyn Fn(usize) -> f64| {
            on_every_machine(
                |isa, par| {
                    let mut out = vec![f32::NAN; fold.outputs()];
                    reduce_f32(isa, par, &fold, r, &input, &mut out);
                    out
                },
                |found| assert_close(found, &expected, bound),
            );
        };
        let max = |g: &[f64]| g.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        check(Reduction::Sum, of(&|g| g.iter().sum()), &|i| ROUNDINGS * EPS * abs[i]);
        check(Reduction::Mean, of(&|g| g.iter().sum::<f64>() / n), &|i| {
            ROUNDINGS * EPS * abs[i] / n
        });
        check(Reduction::AbsSum, of(&|g| norm(g, 1.0)), &|i| ROUNDINGS * EPS * abs[i]);
        check(Reduction::Euclidean, of(&|g| norm(g, 2.0)), &|i| {
            ROUNDINGS * EPS * norm(&groups[i], 2.0)
        });
        if n > 0.0 {
            check(Reduction::Max, of(&|g| max(g)), &|_| 0.0);
            check(Reduction::Min, of(&|g| g.iter().fold(f64::INFINITY, |a, &b| a.min(b))), &|_| {
                0.0
            });
            check(Reduction::AbsMax, of(&|g| g.iter().fold(0.0, |a, b| a.max(b.abs()))), &|_| 0.0);
        }
        if n > 1.0 {
            for root in [false, true] {
                let expected =
                    of(&|g| if root { variance(g, 1.0).sqrt() } else { variance(g, 1.0) });
                on_every_machine(
                    |isa, par| {
                        let mut out = vec![f32::NAN; fold.outputs()];
                        variance_f32(isa, par, &fold, n as f32 - 1.0, root, &input, &mut out);
                        out
                    },
                    |found| {
                        assert_close(found, &expected, |i| 2.0 * ROUNDINGS * EPS * (abs[i] + 1.0))
                    },
                );
            }
        }
    }
}

#[test]
fn logsumexp() {
    for (shape, reduced) in cases() {
        let fold = Fold::new(&shape, |d| reduced.contains(&d));
        let input: Vec<f32> = random(shape.iter().product(), 5).iter().map(|x| x * 100.0).collect();
        let expected: Vec<f64> = groups(&shape, &reduced, &input)
            .iter()
            .map(|g| {
                let m = g.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
                if g.is_empty() { m } else { m + g.iter().map(|x| (x - m).exp()).sum::<f64>().ln() }
            })
            .collect();
        on_every_machine(
            |isa, par| {
                let mut out = vec![f32::NAN; fold.outputs()];
                logsumexp_f32(isa, par, &fold, &input, &mut out);
                out
            },
            // The sum's relative error is the logarithm's absolute one; x - m is rounded at up to
            // 200.
            |found| assert_close(found, &expected, |_| (ROUNDINGS + 400.0) * EPS),
        );
    }
    let fold = Fold::new(&[3, 2], |d| d == 1);
    let inf = f32::INFINITY;
    let mut out = [0.0; 3];
    let x = [-inf, -inf, 1.0, inf, f32::NAN, 1.0];
    logsumexp_f32(crate::Isa::best(), &Par::serial(), &fold, &x, &mut out);
    assert!(out[0] == -inf && out[1] == inf && out[2].is_nan());
    super::logsumexp(&Par::serial(), &fold, &x, &mut out);
    assert!(out[0] == -inf && out[1] == inf && out[2].is_nan());
}

#[test]
fn long_sums_stay_accurate() {
    // A plain f32 sum of these would be off by about 1e-2.
    let n = 1 << 22;
    let input: Vec<f32> = random(n, 1).iter().map(|x| x + 1.0).collect();
    let exact: f64 = input.iter().map(|&x| f64::from(x)).sum();
    let fold = Fold::new(&[n], |_| true);
    on_every_machine(
        |isa, par| {
            let mut out = [0.0];
            reduce_f32(isa, par, &fold, Reduction::Sum, &input, &mut out);
            out.to_vec()
        },
        |found| assert_close(found, &[exact], |_| ROUNDINGS * EPS * exact),
    );
}

#[test]
fn not_a_number_and_infinity() {
    for (shape, reduced) in [(vec![2, 77], 1), (vec![77, 2], 0)] {
        let fold = Fold::new(&shape, |d| d == reduced);
        let at = |row: usize, i: usize| if reduced == 1 { row * 77 + i } else { i * 2 + row };
        for i in [0, 5, 40, 76] {
            let mut input = vec![1.0; 154];
            input[at(0, i)] = f32::NAN;
            input[at(1, i)] = f32::INFINITY;
            for (r, expected) in [
                (Reduction::Max, [f64::NAN, f64::INFINITY]),
                (Reduction::Min, [f64::NAN, 1.0]),
                (Reduction::Sum, [f64::NAN, f64::INFINITY]),
                (Reduction::AbsMax, [f64::NAN, f64::INFINITY]),
            ] {
                on_every_machine(
                    |isa, par| {
                        let mut out = [0.0; 2];
                        reduce_f32(isa, par, &fold, r, &input, &mut out);
                        out.to_vec()
                    },
                    |found| assert_close(found, &expected, |_| 0.0),
                );
            }
        }
    }
}

#[test]
fn every_dtype_and_every_norm() {
    for (shape, reduced) in cases() {
        let fold = Fold::new(&shape, |d| reduced.contains(&d));
        if fold.count() == 0 {
            continue;
        }
        let input: Vec<f32> =
            random(shape.iter().product(), 4).iter().map(|x| (x * 4.0).round()).collect();
        let groups = groups(&shape, &reduced, &input);
        let par = Par::serial();
        let ints: Vec<i32> = input.iter().map(|&x| x as i32).collect();
        let mut sums = vec![0i64; fold.outputs()];
        sum(&par, &fold, 1, &ints, &mut sums);
        let mut at = vec![0i64; fold.outputs()];
        let mut best = vec![0.0f32; fold.outputs()];
        arg_extremum(&par, &fold, true, &input, Some(&mut best), Some(&mut at));
        let mut norms = vec![0.0f32; fold.outputs()];
        power_norm(&par, &fold, 3.0, &input, &mut norms);
        let mut products = vec![0.0f32; fold.outputs()];
        product(&par, &fold, &input, &mut products);
        let mut variances = vec![0.0f32; fold.outputs()];
        super::variance(&par, &fold, 0.5, false, &input, &mut variances);
        let mut logs = vec![0.0f32; fold.outputs()];
        super::logsumexp(&par, &fold, &input, &mut logs);
        for (k, g) in groups.iter().enumerate() {
            let exact = variance(g, 0.5);
            assert!((f64::from(variances[k]) - exact).abs() <= 2.0 * EPS * exact);
            let exact = g.iter().map(|x| x.exp()).sum::<f64>().ln();
            assert!((f64::from(logs[k]) - exact).abs() <= 2.0 * EPS * exact.abs());
            assert_eq!(sums[k], g.iter().sum::<f64>() as i64);
            assert_eq!(at[k] as usize, argmax(g));
            assert_eq!(f64::from(best[k]), g[argmax(g)]);
            assert!((f64::from(norms[k]) - norm(g, 3.0)).abs() <= EPS * norm(g, 3.0));
            assert_eq!(products[k], g.iter().product::<f64>() as f32);
        }
    }
}

#[test]
fn indices_of_the_first_extremum_and_the_first_nan() {
    let fold = Fold::new(&[2, 4], |d| d == 1);
    let mut at = [0; 2];
    let x = [1.0, 3.0, 3.0, 0.0, 2.0, f32::NAN, 5.0, f32::NAN];
    arg_extremum(&Par::serial(), &fold, true, &x, None, Some(&mut at));
    assert_eq!(at, [1, 1]);
    arg_extremum(&Par::serial(), &fold, false, &x, None, Some(&mut at));
    assert_eq!(at, [3, 1]);
    let x = [f32::NEG_INFINITY; 8];
    arg_extremum(&Par::serial(), &fold, true, &x, None, Some(&mut at));
    assert_eq!(at, [0, 0]);
}

#[test]
fn scans() {
    let x = [1i32, 2, 3, 4, 5, 6];
    let mut out = [0i64; 6];
    scan(&Par::serial(), Scan::Sum, [1, 6, 1], &x, &mut out);
    assert_eq!(out, [1, 3, 6, 10, 15, 21]);
    scan(&Par::serial(), Scan::Product, [1, 3, 2], &x, &mut out);
    assert_eq!(out, [1, 2, 3, 8, 15, 48]);
    let x = random(2 * 5 * 70, 2);
    on_every_machine(
        |_, par| {
            let mut out = vec![0.0f32; x.len()];
            scan(par, Scan::Sum, [2, 5, 70], &x, &mut out);
            out
        },
        |found| {
            for (i, &y) in found.iter().enumerate() {
                let (o, l, k) = (i / 350, i / 70 % 5, i % 70);
                let sum: f64 = (0..=l).map(|l| f64::from(x[o * 350 + l * 70 + k])).sum();
                assert_eq!(y, sum as f32);
            }
        },
    );
}

#[test]
fn running_extrema_and_log_sums() {
    let (par, nan) = (Par::serial(), f32::NAN);
    let run = |max, x: &[f32]| {
        let (mut values, mut at) = (vec![0.0; x.len()], vec![0; x.len()]);
        running_extremum(&par, max, [1, x.len(), 1], x, Some(&mut values), Some(&mut at));
        (values, at)
    };
    // The last of equals.
    let x = [1.0, 3.0, 2.0, 3.0, -1.0, -1.0];
    assert_eq!(run(true, &x), (vec![1.0, 3.0, 3.0, 3.0, 3.0, 3.0], vec![0, 1, 1, 3, 3, 3]));
    assert_eq!(run(false, &x).1, [0, 0, 0, 0, 4, 5]);
    assert_eq!(run(true, &[1.0, nan, 3.0, nan]).1, [0, 1, 1, 3]);
    assert!(run(false, &[1.0, nan, 0.0]).0[2].is_nan());
    let x = [f64::NEG_INFINITY, 0.0, 0.0, 1000.0, f64::INFINITY, f64::NAN];
    let mut y = [0.0; 6];
    running_logsumexp(&par, [1, 6, 1], &x, &mut y);
    assert_eq!(y[..5], [x[0], 0.0, std::f64::consts::LN_2, 1000.0, x[4]]);
    assert!(y[5].is_nan());
}

/// PyTorch adds f32, f16 and bf16 in f32, and f64 in f64.
#[test]
fn means_overflow_in_the_sum() {
    use plutino_tensor::{bf16, f16};
    fn mean<T: crate::number::Float>(x: f64, n: usize) -> f64 {
        let fold = Fold::new(&[n, 1], |d| d == 0);
        let mut out = [T::default()];
        sum(&Par::serial(), &fold, n as i64, &vec![T::narrow(x); n], &mut out);
        out[0].widen()
    }
    for n in [2, 40] {
        assert_eq!(mean::<f32>(3e38, n), f64::INFINITY);
        assert_eq!(mean::<bf16>(-3e38, n), f64::NEG_INFINITY);
        assert_eq!(mean::<f64>(1.7e308, n), f64::INFINITY);
        let error = (mean::<f64>(3e38, n) - 3e38).abs();
        assert!(error <= n as f64 * f64::EPSILON * 3e38); // one rounding for each sum
        assert_eq!(mean::<f16>(6e4, n), 6e4);
        for shape in [vec![1, n], vec![n, 1], vec![n, 50]] {
            let reduced = usize::from(shape[0] == 1);
            let fold = Fold::new(&shape, |d| d == reduced);
            on_every_machine(
                |isa, par| {
                    let mut out = vec![f32::NAN; fold.outputs()];
                    let x = vec![3e38; shape.iter().product()];
                    reduce_f32(isa, par, &fold, Reduction::Mean, &x, &mut out);
                    out
                },
                |found| assert!(found.iter().all(|&x| x == f32::INFINITY)),
            );
            // The variance is one of f64.
            on_every_machine(
                |isa, par| {
                    let mut out = vec![f32::NAN; fold.outputs()];
                    let x = vec![3e38; shape.iter().product()];
                    variance_f32(isa, par, &fold, n as f32 - 1.0, false, &x, &mut out);
                    out
                },
                |found| assert!(found.iter().all(|&x| x == 0.0), "{found:?}"),
            );
        }
    }
}

/// One number has no variance, whatever the roundings of its mean are.
#[test]
fn one_number_has_no_variance() {
    for x in [3.3f32, -1000.1, 1e-3] {
        for (n, inner) in [(7, 1), (768, 1), (5000, 1), (100, 40), (3000, 17)] {
            let input = vec![x; n * inner];
            let fold = Fold::new(&[n, inner], |d| d == 0);
            let of = |isa: crate::Isa, par: &Par| {
                let mut out = vec![f32::NAN; inner];
                variance_f32(isa, par, &fold, n as f32 - 1.0, true, &input, &mut out);
                out
            };
            on_every_machine(of, |found| assert!(found.iter().all(|&v| v == 0.0), "{found:?}"));
        }
    }
}

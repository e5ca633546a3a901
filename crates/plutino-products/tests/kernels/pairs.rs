//! Products of bf16 against sums of f64: of the rounded numbers, or of all of them where they are
//! given as several terms.

use plutino_cpu::simd::Pairs;
use plutino_cpu::tiles::{Terms, TileUnit};
use plutino_cpu::{Activation, Isa, Par, Pool};
use plutino_products::gemm::*;
use plutino_reference::testkit::{Piecewise, random, words_of_bf16};
use plutino_tensor::bf16;

/// What multiplies pairs here: the emulation, and what the CPU has.
fn pairs() -> Vec<MatrixUnit> {
    let real = Isa::available().into_iter().filter_map(Pairs::of);
    [Pairs::EMULATED].into_iter().chain(real).map(MatrixUnit::Pairs).collect()
}

/// The same of tiles.
fn tiles(terms: Terms) -> Vec<MatrixUnit> {
    let real = TileUnit::of_cpu();
    [TileUnit::EMULATED].into_iter().chain(real).map(|u| MatrixUnit::Tiles(u, terms)).collect()
}

fn rounded(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| bf16::from_f32(x).to_f64()).collect()
}

struct Case {
    size: [usize; 3],
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    add: Vec<f32>,
}

impl Case {
    fn new(size @ [m, k, n]: [usize; 3]) -> Self {
        let (x, w) = (random(m * k, 1), random(k * n, 2));
        Self { size, x, w, bias: random(n, 3), add: random(m * n, 4) }
    }

    fn run(&self, unit: MatrixUnit, par: &Par, (down, right): (usize, usize)) -> Vec<f32> {
        let [m, k, n] = self.size;
        let relu = Some(Activation::Relu);
        let target = Target::default();
        let product =
            LinearProduct::plan_on_unit(target, par.threads(), self.size, unit, relu).unwrap();
        assert_eq!(product.sizes(), self.size);
        // Element (k, n) of the matrix at its strides.
        let mut w = vec![0.0; k * n];
        for (i, &value) in self.w.iter().enumerate() {
            w[i / n.max(1) * down + i % n.max(1) * right] = value;
        }
        let w = product.pack_from(&mut Piecewise::new(&w), (down, right), par).unwrap();
        let mut y = vec![f32::NAN; m * n];
        let mut workspace = vec![f32::NAN; product.workspace() / 4];
        let args = LinearArgs {
            x: &self.x,
            w: Matrix::Packed(&w),
            bias: Some(&self.bias),
            residual: Some(&self.add),
            y: &mut y,
            stride: n,
            workspace: bytemuck::cast_slice_mut(&mut workspace),
        };
        product.run(args, par).unwrap();
        y
    }

    /// Against sums of f64: what is left is the rounding of each sum to f32, in chains of f32, and
    /// what terms leave out.
    fn check(&self, found: &[f32], unit: MatrixUnit) {
        let [m, k, n] = self.size;
        let exact = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect();
        let (x, w, left_out): (Vec<f64>, Vec<f64>, _) = match unit {
            // Of x and y what lies beyond two terms, 2^-18 of each at most, and the product of both
            // second ones.
            MatrixUnit::Tiles(_, Terms::Two) => {
                (exact(&self.x), exact(&self.w), 3.0 * 0.5f64.powi(17))
            }
            // Products of terms that add up to 3, some 2^-27 each.
            MatrixUnit::Tiles(_, Terms::Three) => (exact(&self.x), exact(&self.w), 0.5f64.powi(24)),
            _ => (rounded(&self.x), rounded(&self.w), 0.0),
        };
        assert_eq!(found.len(), m * n);
        for (i, &found) in found.iter().enumerate() {
            let terms = || (0..k).map(|t| x[i / n * k + t] * w[t * n + i % n]);
            let ends = [f64::from(self.bias[i % n]), f64::from(self.add[i])];
            let sum = (terms().sum::<f64>() + ends[0] + ends[1]).max(0.0);
            let scale: f64 = terms().chain(ends).map(f64::abs).sum();
            let bound = ((k + 3) as f64 * f64::from(f32::EPSILON / 2.0) + left_out) * scale;
            let error = (f64::from(found) - sum).abs();
            assert!(error <= bound, "{unit} {:?} [{i}]: {found} for {sum}", self.size);
        }
    }
}

/// At every number of rows where tiles and blocks change, odd depths, depths that are cut, columns
/// that fill no panel, matrices of either order; the same bits on all machines and with any number
/// of threads.
#[test]
fn products_are_those_of_rounded_numbers() {
    let sizes = [
        [1, 1, 1],
        [1, 2, 300],
        [2, 257, 129],
        [3, 33, 64],
        [5, 31, 32],
        [11, 64, 33],
        [12, 512, 32],
        [13, 1029, 65],
        [30, 100, 7],
        [200, 37, 70],
        [2, 0, 5],
        [0, 3, 4],
        [7, 5, 0],
    ];
    for size @ [_, k, n] in sizes {
        let case = Case::new(size);
        let kinds = [Terms::One, Terms::Two, Terms::Three].map(tiles);
        for units in [pairs()].into_iter().chain(kinds) {
            let expected = case.run(units[0], &Par::serial(), (n, 1));
            case.check(&expected, units[0]);
            for unit in units {
                for threads in [1, 2, 3] {
                    for strides in [(n, 1), (1, k)] {
                        let found = Pool::new(threads).enter(|par| case.run(unit, par, strides));
                        let mut both = found.iter().zip(&expected);
                        let same = both.all(|(x, y)| x.to_bits() == y.to_bits());
                        assert!(same, "{unit} {size:?} on {threads} threads, {strides:?}");
                    }
                }
            }
        }
    }
}

/// A block of rows that is larger than the second-level cache, by rows and by columns.
#[test]
fn blocks_of_many_rows() {
    for size in [[700, 530, 40], [40, 530, 700]] {
        let case = Case::new(size);
        for unit in pairs().into_iter().rev().take(1).chain(tiles(Terms::One)) {
            let alone = case.run(unit, &Par::serial(), (size[2], 1));
            case.check(&alone, unit);
            let three = Pool::new(3).enter(|par| case.run(unit, par, (size[2], 1)));
            assert_eq!(alone, three);
        }
    }
}

/// Rows that are bf16 in memory give what rows of f32 do that become such; results that are bf16
/// are those of f32, rounded: where blocks, panels and steps end, where rows lie a page apart, with
/// any number of threads.
#[test]
fn matrices_of_bf16_change_no_bit() {
    let sizes = [
        [1, 2, 2],
        [1, 768, 130],
        [2, 64, 66],
        [3, 514, 64],
        [5, 32, 34],
        [13, 40, 30],
        [49, 96, 64],
        [50, 1030, 96],
        [65, 64, 36],
        [30, 2048, 40],
        [400, 96, 80],
        [7, 0, 4],
    ];
    let gelu = Some(Activation::Gelu);
    for (size @ [m, k, n], activation) in
        sizes.into_iter().flat_map(|size| [(size, None), (size, gelu)])
    {
        let (x, w, bias) = (random(m * k, 1), random(k * n, 2), random(n, 3));
        for unit in pairs().into_iter().chain(tiles(Terms::One)) {
            let run = |bf16: Bf16Matrices, x: &[f32], stride: usize, par: &Par| {
                let (target, threads) = (Target::default(), par.threads());
                let plan = LinearProduct::plan_on_unit(target, threads, size, unit, activation);
                let product = plan.unwrap().with_bf16(bf16).unwrap();
                let w = product.pack(&w[..], (n, 1), par).unwrap();
                let mut y = vec![f32::NAN; m * stride];
                let mut workspace = vec![f32::NAN; product.workspace() / 4];
                let args = LinearArgs {
                    x,
                    w: Matrix::Packed(&w),
                    bias: Some(&bias),
                    residual: None,
                    y: &mut y,
                    stride,
                    workspace: bytemuck::cast_slice_mut(&mut workspace),
                };
                product.run(args, par).unwrap();
                y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let expected = run(Bf16Matrices::NONE, &x, n, &Par::serial());
            let numbers: Vec<f32> = expected.iter().map(|&bits| f32::from_bits(bits)).collect();
            let rounded: Vec<u32> = words_of_bf16(&numbers).into_iter().map(f32::to_bits).collect();
            for threads in [1, 2, 3] {
                Pool::new(threads).enter(|par| {
                    let words = words_of_bf16(&x);
                    let case = format!("{unit} {size:?} on {threads} threads");
                    if k > 0 {
                        let found = run(Bf16Matrices { x: true, y: false }, &words, n, par);
                        assert_eq!(found, expected, "{case}");
                        let found = run(Bf16Matrices { x: true, y: true }, &words, n / 2, par);
                        assert_eq!(found, rounded, "{case}");
                    }
                    let found = run(Bf16Matrices { x: false, y: true }, &x, n / 2, par);
                    assert_eq!(found, rounded, "{case}");
                    // With gaps between rows, which stay.
                    let found = run(Bf16Matrices { x: false, y: true }, &x, n / 2 + 1, par);
                    for (found, rounded) in found.chunks(n / 2 + 1).zip(rounded.chunks(n / 2)) {
                        assert_eq!(found[..n / 2], *rounded, "{case}");
                        assert_eq!(found[n / 2], f32::NAN.to_bits(), "{case}");
                    }
                });
            }
        }
    }
}

#[test]
fn matrices_that_cannot_be_bf16() {
    let both = Bf16Matrices { x: true, y: true };
    let plan =
        |size, unit| LinearProduct::plan_on_unit(Target::default(), 1, size, unit, None).unwrap();
    let unit = MatrixUnit::Pairs(Pairs::EMULATED);
    assert_eq!(plan([3, 4, 6], unit).bf16_matrices(), both);
    assert_eq!(plan([3, 4, 5], unit).bf16_matrices(), Bf16Matrices { x: true, y: false });
    assert_eq!(plan([3, 5, 6], unit).bf16_matrices(), Bf16Matrices { x: false, y: true });
    assert_eq!(plan([3, 5, 6], unit).with_bf16(both).unwrap_err(), GemmError::Bf16);
    let three = MatrixUnit::Tiles(TileUnit::EMULATED, Terms::Three);
    assert_eq!(plan([3, 4, 6], three).bf16_matrices(), Bf16Matrices::NONE);
    let f32 = LinearProduct::plan(Target::default(), 1, [3, 4, 6], true, None).unwrap();
    assert_eq!(f32.bf16_matrices(), Bf16Matrices::NONE);
    // Nothing is added to results that are bf16, and all of them are to be there.
    let product = plan([3, 4, 6], unit).with_bf16(both).unwrap();
    let w = product.pack(&random(24, 1)[..], (6, 1), &Par::serial()).unwrap();
    let mut workspace = vec![0.0f32; product.workspace() / 4];
    let mut run = |x: &[f32], y: &mut [f32], residual| {
        let workspace = bytemuck::cast_slice_mut(&mut workspace);
        let w = Matrix::Packed(&w);
        let args = LinearArgs { x, w, bias: None, residual, y, stride: 3, workspace };
        product.run(args, &Par::serial())
    };
    assert_eq!(run(&[0.0; 6], &mut [0.0; 9], None), Ok(()));
    assert_eq!(run(&[0.0; 6], &mut [0.0; 9], Some(&[0.0; 9])), Err(GemmError::Bf16));
    let short = |what, found, expected| Err(GemmError::Length { what, found, expected });
    assert_eq!(run(&[0.0; 5], &mut [0.0; 9], None), short("x", 5, 6));
    assert_eq!(run(&[0.0; 6], &mut [0.0; 8], None), short("y", 8, 9));
}

#[test]
fn a_matrix_of_f32_is_refused_and_takes_twice_the_memory() {
    let (size, par) = ([3, 10, 4], Par::serial());
    let target = Target { isa: Isa::PORTABLE, machine: Machine::this() };
    let unit = MatrixUnit::Pairs(Pairs::EMULATED);
    let half = LinearProduct::plan_on_unit(target, 1, size, unit, None).unwrap();
    let single = LinearProduct::plan(target, 1, size, true, None).unwrap();
    assert_ne!(half.pack_key(), single.pack_key());
    let w = random(40, 1);
    let [packed, wide] = [half, single].map(|p| p.pack(&w[..], (4, 1), &par).unwrap());
    assert_eq!(2 * packed.bytes(), wide.bytes());
    // One of as many words is not one of numbers.
    let five = LinearProduct::plan(target, 1, [3, 5, 4], true, None).unwrap();
    let mut workspace = vec![0.0f32; half.workspace().max(five.workspace()) / 4];
    for (product, matrix, k) in [(&half, &wide, 10), (&single, &packed, 10), (&five, &packed, 5)] {
        let args = LinearArgs {
            x: &vec![0.0; 3 * k],
            w: Matrix::Packed(matrix),
            bias: None,
            residual: None,
            y: &mut [0.0; 12],
            stride: 4,
            workspace: bytemuck::cast_slice_mut(&mut workspace),
        };
        assert_eq!(product.run(args, &par), Err(GemmError::Packed));
    }
}

/// Sums that cancel: what is left is as small beside the sizes of their terms as that of f32.
#[test]
fn six_products_cancel_as_f32_does() {
    let (m, k, n) = (33, 128, 40);
    let (half, w) = (random(m * k / 2, 1), random(k / 2 * n, 2));
    // x and -x times the same weights, which are off by little.
    let x: Vec<f32> =
        half.chunks(k / 2).flat_map(|r| r.iter().copied().chain(r.iter().map(|x| -x))).collect();
    let w: Vec<f32> = w.iter().copied().chain(w.iter().map(|w| w * 1.0001)).collect();
    let case = Case { size: [m, k, n], x, w, bias: vec![0.0; n], add: vec![0.0; m * n] };
    let unit = MatrixUnit::Tiles(TileUnit::EMULATED, Terms::Three);
    case.check(&case.run(unit, &Par::serial(), (n, 1)), unit);
}

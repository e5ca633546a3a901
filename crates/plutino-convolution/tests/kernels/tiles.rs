//! Convolutions on tiles, at every number of terms, against the definition.

use crate::harness::*;
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::tiles::{Terms, TileUnit};
use plutino_cpu::{Isa, Par, Pool};
use plutino_products::gemm::MatrixUnit;
use plutino_reference::conv::conv;
use plutino_reference::testkit::{assert_close, random};
use plutino_tensor::bf16;
use std::collections::BTreeSet;

const TERMS: [Terms; 3] = [Terms::One, Terms::Two, Terms::Three];

/// Those that compute on tiles, the last one only where that pays.
const ON_TILES: [&str; 4] = ["tiles", "tiles_plain", "phases_tiles", "single_pixel"];

/// The emulation, and what the CPU has.
fn units() -> Vec<TileUnit> {
    [TileUnit::EMULATED].into_iter().chain(TileUnit::of_cpu()).collect()
}

fn request<'a>(p: ConvProblem, isa: Isa, unit: TileUnit, terms: Terms) -> Request<'a> {
    let unit = Some(MatrixUnit::Tiles(unit, terms));
    Request { isa, unit, layouts: &ConvLayout::ALL, ..Request::plain(p) }
}

fn abs(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| x.abs()).collect()
}

/// What terms leave out of a product, in parts of it: of two terms 2^-18 of each number and the
/// product of both second ones; of three, products of terms that add up to 3, some 2^-27 each.
fn left_out(terms: Terms) -> f64 {
    match terms {
        Terms::One => 0.0, // compared with rounded numbers
        Terms::Two => 3.0 * 0.5f64.powi(17),
        Terms::Three => 0.5f64.powi(24),
    }
}

/// Each algorithm on tiles on all machines with 1 to 3 threads, whose bits are the same. Which
/// there were.
fn check(p: ConvProblem, post_ops: PostOps) -> BTreeSet<&'static str> {
    let given = Tensors::random(&p, post_ops);
    let rounded = |x: &[f32]| x.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    let sizes = conv(&p, &abs(&given.x), &abs(&given.weight));
    let mut all = BTreeSet::new();
    for terms in TERMS {
        let exact = match terms {
            Terms::One => {
                Tensors { x: rounded(&given.x), weight: rounded(&given.weight), ..given.clone() }
            }
            _ => given.clone(),
        };
        let (expected, bound) = definition(&p, post_ops, &exact);
        let bound = |i: usize| bound(i) + 1.13 * left_out(terms) * sizes[i];
        for (isa, unit) in
            Isa::available().into_iter().flat_map(|i| units().into_iter().map(move |u| (i, u)))
        {
            for name in ON_TILES {
                let mut alone: Option<Vec<f32>> = None;
                for threads in [1, 2, 3] {
                    let of = Request { post_ops, threads, ..request(p, isa, unit, terms) };
                    let found = of.candidates().find(|c| c.algorithm().name == name);
                    let Some(conv) = found.filter(|c| c.name().contains("bf16x")) else { continue };
                    all.insert(name);
                    let found = Pool::new(threads).enter(|par: &Par| run(&conv, isa, &given, par));
                    assert_close(&found, &expected, bound);
                    let alone = alone.get_or_insert_with(|| found.clone());
                    assert_eq!(*alone, found, "{} on {threads} threads", conv.name());
                }
            }
        }
    }
    all
}

fn square(size: usize, w: Window) -> [Dim; 2] {
    [(size, w), (size + 2, w)]
}

#[test]
fn single_pixels_and_strides() {
    let residual = with_residual(Some(Activation::Silu), ResidualOrder::BeforeActivation);
    let after = with_residual(Some(Activation::Gelu), ResidualOrder::AfterActivation);
    for (stride, post_ops) in [(1, relu()), (2, residual), (3, after)] {
        let w = window(1, stride, 1, (0, 0));
        // Channels of less than a block, of an odd number of them, of several.
        for inp in [1, 7, 16, 33, 80] {
            let p = problem(2, 1, [inp, 21], &square(9, w));
            assert!(check(p, post_ops).contains("tiles"));
        }
    }
    // Several panels; blocks of depth that are added up; a pixel of many images.
    let one = window(1, 1, 1, (0, 0));
    check(problem(1, 1, [40, 200], &square(7, one)), after);
    check(problem(1, 1, [1100, 33], &square(5, one)), residual);
    assert!(
        check(problem(64, 1, [64, 32], &[(1, one), (1, one)]), relu()).contains("single_pixel")
    );
}

#[test]
fn windows() {
    let hard = with_residual(Some(Activation::HardSwish), ResidualOrder::AfterActivation);
    for (w, channels) in [
        (window(3, 1, 1, (1, 1)), [16, 32]),
        (window(3, 2, 1, (1, 1)), [33, 19]),
        (window(3, 1, 3, (3, 3)), [64, 16]),
        (window(5, 2, 1, (0, 1)), [7, 40]),
        (window(2, 2, 1, (0, 0)), [96, 70]),
        (window(3, 3, 2, (9, 4)), [20, 5]),
    ] {
        for batch in [1, 3] {
            assert!(check(problem(batch, 1, channels, &square(11, w)), hard).contains("tiles"));
        }
    }
    // Windows that are not square, and padding as large as they are and larger.
    let of = |k, stride, pad| window(k, stride, 1, (pad, pad));
    for (channels, dims) in [
        ([16, 20], [(14, of(2, 2, 2)), (14, of(4, 1, 2))]),
        ([20, 24], [(9, of(1, 1, 2)), (15, of(3, 1, 4))]),
        ([20, 24], [(9, of(1, 1, 0)), (15, of(3, 1, 0))]),
        ([40, 24], [(9, of(1, 1, 0)), (15, of(5, 2, 2))]),
        ([12, 16], [(9, of(3, 1, 0)), (15, of(1, 1, 0))]),
        ([16, 16], [(2, of(3, 1, 1)), (200, of(3, 1, 100))]),
        ([33, 16], [(2, of(3, 2, 1)), (150, of(3, 2, 90))]),
    ] {
        assert!(check(problem(1, 1, channels, &dims), hard).contains("tiles"), "{dims:?}");
    }
    // More pixels than a task has.
    let p = problem(1, 1, [16, 16], &square(40, window(3, 1, 1, (1, 1))));
    assert!(check(p, relu()).contains("tiles"));
}

#[test]
fn first_layers() {
    for (channels, w) in [
        (3, window(7, 2, 1, (3, 3))),
        (1, window(3, 1, 1, (1, 1))),
        (4, window(4, 4, 1, (0, 0))),
        (3, window(3, 2, 2, (2, 1))),
    ] {
        let p = problem(2, 1, [channels, 40], &square(17, w));
        assert!(check(p, relu()).is_superset(&["tiles", "tiles_plain"].into()));
    }
}

#[test]
fn groups_of_whole_blocks() {
    for w in [window(3, 1, 1, (1, 1)), window(1, 2, 1, (0, 0))] {
        for channels in [[16, 16], [32, 48]] {
            assert!(check(problem(2, 3, channels, &square(9, w)), relu()).contains("tiles"));
        }
        assert!(check(problem(2, 3, [6, 6], &square(9, w)), relu()).is_empty());
    }
}

#[test]
fn transposed_convolutions() {
    for p in of_phases() {
        assert!(check(p, relu()).contains("phases_tiles"));
    }
    // Several panels, blocks of depth, tasks.
    let silu = PostOps { activation: Some(Activation::Silu), ..PostOps::default() };
    let (two, four) = (window(2, 2, 1, (0, 0)), window(4, 2, 1, (1, 1)));
    for (w, channels) in [(two, [1300, 40]), (four, [300, 40])] {
        let p = transposed(1, 1, channels, &square(3, w).map(|(size, w)| (size, w, 0)));
        assert!(check(p, silu).contains("phases_tiles"));
    }
}

/// Those whose phases share the words of an image have them in one convolution; the packed weights
/// are the same, whichever do.
#[test]
fn weights_of_phases_fit_images_of_any_size() {
    let (isa, w) = (Isa::best(), window(3, 2, 1, (1, 1)));
    let plan = |size: usize, more: usize| {
        let p = transposed(1, 1, [32, 32], &[(size, w, more), (size, w, more)]);
        let of = request(p, isa, TileUnit::EMULATED, Terms::One);
        of.candidates().find(|c| c.algorithm().name == "phases_tiles").unwrap()
    };
    let weight = random(32 * 32 * 9, 1);
    let (small, large) = (plan(4, 1), plan(9, 0));
    let packed = small.pack(&weight[..], &Par::serial()).unwrap();
    assert_eq!(small.pack_key(), large.pack_key());
    let mut t = Tensors::random(large.problem(), PostOps::default());
    (t.weight, t.bias) = (weight, None);
    let expected = run(&large, isa, &t, &Par::serial());
    let found = run_packed(&large, isa, &t, &packed, &Par::serial());
    assert_eq!(expected, found);
}

/// What three terms err by is at most what chains of multiply-adds do: in the mean of many sums,
/// also of such that cancel, against the sum of their terms' sizes.
#[test]
fn six_products_err_no_more_than_multiply_adds() {
    let rms = |found: &[f32], exact: &[f64], sizes: &[f64]| {
        let each = found.iter().zip(exact).zip(sizes);
        let squares: f64 = each.map(|((&x, y), s)| ((f64::from(x) - y) / s).powi(2)).sum();
        (squares / found.len() as f64).sqrt()
    };
    let (one, three) = (window(1, 1, 1, (0, 0)), window(3, 1, 1, (1, 1)));
    for (channels, w) in [(64, one), (512, one), (1200, one), (16, three), (128, three)] {
        let p = problem(1, 1, [channels, 32], &[(24, w), (24, w)]);
        let plane = p.in_plane();
        for cancels in [false, true] {
            let mut t = Tensors::random(&p, PostOps::default());
            t.bias = None;
            if cancels {
                // Channel 2 i + 1 is that of 2 i with the other sign, under weights that are off by
                // little.
                let taps = p.taps();
                for c in (1..channels).step_by(2) {
                    for i in 0..plane {
                        t.x[c * plane + i] = -t.x[(c - 1) * plane + i];
                    }
                    for o in 0..32 {
                        for i in 0..taps {
                            let at = (o * channels + c) * taps + i;
                            t.weight[at] = t.weight[at - taps] * 1.0001;
                        }
                    }
                }
            }
            let exact = conv(&p, &t.x, &t.weight);
            let sizes = conv(&p, &abs(&t.x), &abs(&t.weight));
            let isa = Isa::best();
            let of = request(p, isa, TileUnit::EMULATED, Terms::Three);
            let found = |name: &str| {
                let conv = of.candidates().find(|c| c.algorithm().name == name).unwrap();
                rms(&run(&conv, isa, &t, &Par::serial()), &exact, &sizes)
            };
            let (tiles, vectors) = (found("tiles"), found("direct"));
            println!(
                "{channels} x {taps}, cancelling {cancels}: {tiles:.2e} {vectors:.2e}",
                taps = p.taps()
            );
            assert!(tiles <= vectors, "{channels} {w:?} {cancels}: {tiles:e} {vectors:e}");
        }
    }
}

/// By what they cost, where memory is dear as well.
#[test]
fn tiles_are_chosen_where_they_are_given_and_pay() {
    let chosen = |channels: [usize; 2], size: usize, kernel: usize, terms: Terms, save_memory| {
        let w = window(kernel, 1, 1, (kernel / 2, kernel / 2));
        let p = problem(1, 1, channels, &[(size, w), (size, w)]);
        let of = request(p, Isa::best(), TileUnit::EMULATED, terms);
        choose(&Request { save_memory, ..of }).unwrap()
    };
    let name = |conv: &Convolution| conv.algorithm().name;
    for terms in TERMS {
        let conv = chosen([256, 256], 14, 1, terms, false);
        assert_eq!(name(&conv), "tiles");
        assert!(conv.name().ends_with(&format!(".bf16x{}.amx-emulated", terms.count())));
        // A single channel: most of a block is computed for nothing.
        assert_eq!(name(&chosen([256, 1], 14, 1, terms, false)), "pointwise");
    }
    // Six products have more to compute than Winograd's algorithms.
    assert!(name(&chosen([64, 64], 56, 3, Terms::Three, false)).starts_with("winograd"));
    // Weights take no more than those of the file.
    for terms in TERMS {
        assert_eq!(name(&chosen([256, 256], 14, 1, terms, true)), "tiles");
    }
    // One image is multiplied with as many weights as many are.
    assert!(!chosen([512, 512], 1, 1, Terms::Three, false).name().contains("bf16"));
}

/// Weights are in one form for each number of terms, whatever the size of the image.
#[test]
fn weights_of_other_terms_are_refused() {
    let w = window(3, 1, 1, (1, 1));
    let isa = Isa::best();
    let plan = |size: usize, terms| {
        let p = problem(1, 1, [32, 32], &[(size, w), (size, w)]);
        let of = request(p, isa, TileUnit::EMULATED, terms);
        of.candidates().find(|c| c.algorithm().name == "tiles").unwrap()
    };
    let [two, three, other] = [plan(9, Terms::Two), plan(9, Terms::Three), plan(5, Terms::Three)];
    assert_eq!(three.pack_key(), other.pack_key());
    // Of 16 channels a step takes several taps, where they are neighbours.
    let dilated = |dilation| {
        let w = window(3, 1, dilation, (dilation, dilation));
        let p = problem(1, 1, [16, 32], &[(9, w), (9, w)]);
        let of = request(p, isa, TileUnit::EMULATED, Terms::Three);
        of.candidates().find(|c| c.algorithm().name == "tiles").unwrap()
    };
    if isa.lanes() == 16 {
        assert_ne!(dilated(1).pack_key(), dilated(2).pack_key());
    }
    assert_ne!(two.pack_key(), three.pack_key());
    let weight = random(32 * 32 * 9, 1);
    let [two_terms, three_terms] =
        [&two, &three].map(|c| c.pack(&weight[..], &Par::serial()).unwrap());
    // Of three terms they are kept as numbers.
    assert_eq!((two_terms.bytes(), three_terms.bytes()), (4 * weight.len(), 4 * weight.len()));
    let mut workspace = plutino_tensor::AlignedBuf::zeroed(three.workspace()).unwrap();
    let found = three.run(
        ConvArgs {
            x: &vec![0.0; three.input_len()],
            weights: &two_terms,
            bias: &three.bias(None).unwrap(),
            factors: None,
            residual: None,
            y: &mut vec![0.0; three.output_len()],
            workspace: workspace.as_mut_bytes(),
        },
        &Par::serial(),
    );
    assert!(matches!(found, Err(ConvError::Packed { .. })));
}

//! Every algorithm on a problem, against the definition.

use plutino_convolution::nchwc::{from_blocked, to_blocked};
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::simd::pair;
use plutino_cpu::{Isa, Par};
use plutino_reference::conv::conv;
use plutino_reference::elementwise::activation;
use plutino_reference::gemm::gamma;
use plutino_reference::testkit::{Piecewise, assert_close, on_every_machine, random};
use plutino_tensor::{AlignedBuf, bf16};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Channels of a group, in and out.
pub(crate) type Channels = [usize; 2];

/// One dimension: elements, and the window on it.
pub(crate) type Dim = (usize, Window);

pub(crate) fn window(
    kernel: usize,
    stride: usize,
    dilation: usize,
    padding: (usize, usize),
) -> Window {
    Window { kernel, stride, dilation, padding, mode: PadMode::Zeros }
}

pub(crate) fn problem(
    batch: usize,
    groups: usize,
    [inp, out]: Channels,
    dims: &[Dim],
) -> ConvProblem {
    let axes: Vec<Axis> = dims.iter().map(|&(n, w)| Axis::new(n, w).unwrap()).collect();
    ConvProblem::new(batch, groups, groups * inp, groups * out, &axes).unwrap()
}

/// A transposed one, with output padding for each dimension.
pub(crate) fn transposed(
    batch: usize,
    groups: usize,
    [inp, out]: Channels,
    dims: &[(usize, Window, usize)],
) -> ConvProblem {
    let axes: Vec<Axis> =
        dims.iter().map(|&(n, w, more)| Axis::transposed(n, w, more).unwrap()).collect();
    ConvProblem::new(batch, groups, groups * inp, groups * out, &axes).unwrap()
}

pub(crate) fn relu() -> PostOps {
    PostOps { activation: Some(Activation::Relu), ..PostOps::default() }
}

pub(crate) fn with_residual(activation: Option<Activation>, order: ResidualOrder) -> PostOps {
    PostOps { activation, residual: Some(order), factors: false }
}

/// The tensors of a problem, plain.
#[derive(Debug, Clone)]
pub(crate) struct Tensors {
    pub(crate) x: Vec<f32>,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) factors: Option<Vec<f32>>,
    pub(crate) residual: Option<Vec<f32>>,
}

impl Tensors {
    pub(crate) fn random(p: &ConvProblem, post_ops: PostOps) -> Self {
        Self {
            x: random(p.input_len(), 1),
            weight: random(p.weight_len(), 2),
            bias: Some(random(p.out_channels(), 3)),
            factors: post_ops.factors.then(|| random(p.batch() * p.in_channels(), 4)),
            residual: post_ops.residual.map(|_| random(p.output_len(), 5)),
        }
    }
}

/// A plain tensor in channel blocks, with NaN in the surplus lanes: nobody may read them.
pub(crate) fn in_blocks(
    isa: Isa,
    plain: &[f32],
    channels: usize,
    pixels: usize,
    par: &Par,
) -> Vec<f32> {
    let b = isa.lanes();
    let images = plain.len() / (channels * pixels).max(1);
    let mut blocked = vec![f32::NAN; images * channels.next_multiple_of(b) * pixels];
    to_blocked(isa, plain, &mut blocked, channels, pixels, b, par);
    let blocks = channels.div_ceil(b);
    for (i, v) in blocked.iter_mut().enumerate() {
        if i / (pixels * b).max(1) % blocks * b + i % b >= channels {
            *v = f32::NAN;
        }
    }
    blocked
}

/// A plain tensor in blocks of bf16, with NaN in what is surplus.
pub(crate) fn in_bf16(isa: Isa, plain: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let block = 2 * isa.lanes();
    let images = plain.len() / (channels * pixels).max(1);
    let nan = bf16::NAN.to_bits();
    let mut words = vec![pair(nan, nan); images * channels.div_ceil(block) * pixels * block / 2];
    for (i, &x) in plain.iter().enumerate() {
        let (pixel, c, n) = (i % pixels, i / pixels % channels, i / (pixels * channels));
        let at = ((n * channels.div_ceil(block) + c / block) * pixels + pixel) * block + c % block;
        let bits = words[at / 2].to_bits();
        let [lower, upper] = [bits as u16, (bits >> 16) as u16];
        let own = bf16::from_f32(x).to_bits();
        words[at / 2] = if at.is_multiple_of(2) { pair(own, upper) } else { pair(lower, own) };
    }
    words
}

/// The other way round.
pub(crate) fn from_bf16(isa: Isa, words: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let block = 2 * isa.lanes();
    let image = channels.div_ceil(block) * pixels * block;
    let number = |at: usize| {
        let bits = words[at / 2].to_bits() >> (at % 2 * 16);
        bf16::from_bits(bits as u16).to_f32()
    };
    (0..2 * words.len() / image * channels * pixels)
        .map(|i| {
            let (pixel, c, n) = (i % pixels, i / pixels % channels, i / (pixels * channels));
            number(n * image + (c / block * pixels + pixel) * block + c % block)
        })
        .collect()
}

/// Runs a convolution on plain tensors. Its weights come piece by piece, as those of a file do.
pub(crate) fn run(conv: &Convolution, isa: Isa, t: &Tensors, par: &Par) -> Vec<f32> {
    let weights = conv.pack_from(&mut Piecewise::new(&t.weight), par).unwrap();
    run_packed(conv, isa, t, &weights, par)
}

/// The same with weights that are packed already.
pub(crate) fn run_packed(
    conv: &Convolution,
    isa: Isa,
    t: &Tensors,
    weights: &ConvWeights,
    par: &Par,
) -> Vec<f32> {
    let p = conv.problem();
    let layout = conv.layout();
    let input = |x: &[f32], pixels: usize| match layout.reads_blocks() {
        true if conv.bf16().input => in_bf16(isa, x, p.in_channels(), pixels),
        true => in_blocks(isa, x, p.in_channels(), pixels, par),
        false => x.to_vec(),
    };
    let x = input(&t.x, p.in_plane());
    let factors = t.factors.as_ref().map(|f| input(f, 1));
    let residual = t.residual.as_ref().map(|r| match layout.writes_blocks() {
        true if conv.bf16().residual => in_bf16(isa, r, p.out_channels(), p.out_plane()),
        true => in_blocks(isa, r, p.out_channels(), p.out_plane(), par),
        false => r.clone(),
    });
    let bias = conv.bias(t.bias.as_deref()).unwrap();
    let mut workspace = AlignedBuf::zeroed(conv.workspace()).unwrap();
    workspace.as_mut_bytes().fill(0xff); // NaN
    let mut y = vec![f32::NAN; conv.output_len()];
    conv.run(
        ConvArgs {
            x: &x,
            weights,
            bias: &bias,
            factors: factors.as_deref(),
            residual: residual.as_deref(),
            y: &mut y,
            workspace: workspace.as_mut_bytes(),
        },
        par,
    )
    .unwrap();
    if !layout.writes_blocks() {
        return y;
    }
    if conv.bf16().output {
        return from_bf16(isa, &y, p.out_channels(), p.out_plane());
    }
    let mut plain = vec![0.0; p.output_len()];
    from_blocked(isa, &y, &mut plain, p.out_channels(), p.out_plane(), isa.lanes(), par);
    plain
}

/// The algorithm of this name, if it computes the problem.
pub(crate) fn bound(
    name: &str,
    p: ConvProblem,
    post_ops: PostOps,
    isa: Isa,
    threads: usize,
) -> Option<Convolution> {
    let layouts = &ConvLayout::ALL;
    let request = Request { problem: p, post_ops, isa, threads, layouts, ..Request::plain(p) };
    request.candidates().find(|conv| conv.algorithm().name == name)
}

/// Runs every algorithm that computes the problem on every machine, and compares with `expected`,
/// whose elements are off by `allowed` at most (but for Winograd's, by 1e-5 of the largest). Which
/// algorithms there were.
pub(crate) fn check_against(
    p: ConvProblem,
    post_ops: PostOps,
    tensors: &Tensors,
    expected: &[f64],
    allowed: impl Fn(usize) -> f64,
) -> BTreeSet<&'static str> {
    let largest = expected.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    let ran = RefCell::new(BTreeSet::new());
    for algorithm in ALGORITHMS {
        on_every_machine(
            |isa, par| match bound(algorithm.name, p, post_ops, isa, par.threads()) {
                Some(conv) => {
                    ran.borrow_mut().insert(algorithm.name);
                    run(&conv, isa, tensors, par)
                }
                None => Vec::new(), // not for vectors of this length
            },
            |found| {
                if found.len() == expected.len() {
                    let winograd = algorithm.name.starts_with("winograd");
                    let bound = |i| if winograd { 1e-5 * largest } else { allowed(i) };
                    assert_close(found, expected, bound);
                } else {
                    assert!(found.is_empty(), "{}", algorithm.name);
                }
            },
        );
    }
    ran.into_inner()
}

/// [`check_against`] the definition in f64, with a derived bound.
pub(crate) fn check(p: ConvProblem, post_ops: PostOps) -> BTreeSet<&'static str> {
    let t = Tensors::random(&p, post_ops);
    let (expected, bound) = definition(&p, post_ops, &t);
    check_against(p, post_ops, &t, &expected, bound)
}

/// The results by definition, in f64, and how far sums of f32 may be off.
pub(crate) fn definition<'a>(
    p: &'a ConvProblem,
    post_ops: PostOps,
    t: &'a Tensors,
) -> (Vec<f64>, impl Fn(usize) -> f64 + 'a) {
    let scaled = match &t.factors {
        Some(f) => t.x.iter().enumerate().map(|(i, x)| x * f[i / p.in_plane()]).collect(),
        None => t.x.clone(),
    };
    let abs = |x: &[f32]| -> Vec<f32> { x.iter().map(|v| v.abs()).collect() };
    let (sums, sizes) = (conv(p, &scaled, &t.weight), conv(p, &abs(&scaled), &abs(&t.weight)));
    let bias =
        move |i: usize| t.bias.as_ref().map_or(0.0, |b| f64::from(b[i / p.out_plane() % b.len()]));
    let residual = move |i: usize| t.residual.as_ref().map_or(0.0, |r| f64::from(r[i]));
    let act = |v: f64| post_ops.activation.map_or(v, |a| activation(a, v));
    let expected: Vec<f64> = (0..sums.len())
        .map(|i| match post_ops.residual {
            Some(ResidualOrder::AfterActivation) => act(sums[i] + bias(i)) + residual(i),
            _ => act(sums[i] + bias(i) + residual(i)),
        })
        .collect();
    let channels = if p.is_transposed() { p.in_channels() / p.groups() } else { p.group_in() };
    // Terms of a sum, bias and residual, and two roundings of each product with factors.
    let terms = channels * p.taps() + 2 + if post_ops.factors { 3 } else { 0 };
    let results = expected.clone();
    let bound = move |i: usize| {
        let size = sizes[i] + bias(i).abs() + residual(i).abs();
        // Slopes of activations are below 1.13, their own errors a few ULP of a result.
        1.13 * gamma(terms, size) + 4.0 * f64::from(f32::EPSILON) * results[i].abs()
    };
    (expected, bound)
}

/// Transposed convolutions of phases: which share windows, or have taps, padding or sizes of their
/// own.
pub(crate) fn of_phases() -> Vec<ConvProblem> {
    let by = |kernel: usize, stride: usize, pad: usize| window(kernel, stride, 1, (pad, pad));
    [
        (2, [19, 37], [(13, by(2, 2, 0), 0), (11, by(2, 2, 0), 0)]),
        (1, [40, 16], [(4, by(4, 2, 1), 0), (5, by(4, 2, 1), 0)]),
        (1, [16, 24], [(9, by(3, 2, 1), 1), (30, by(3, 2, 1), 1)]),
        (2, [8, 16], [(5, by(3, 1, 1), 0), (6, by(5, 3, 2), 0)]),
        (1, [5, 21], [(3, by(4, 4, 0), 1), (1, by(3, 2, 1), 1)]),
        (1, [33, 16], [(1, by(4, 1, 0), 0), (1, by(4, 1, 0), 0)]),
        // Phases whose output channels are cut into different numbers of tasks.
        (4, [4, 64], [(31, window(5, 2, 1, (2, 2)), 0), (33, by(1, 1, 0), 0)]),
        (2, [16, 128], [(31, by(3, 2, 1), 0), (33, by(3, 2, 1), 0)]),
        (7, [4, 17], [(32, by(3, 2, 1), 0), (2, by(3, 2, 1), 0)]),
    ]
    .map(|(batch, channels, dims)| transposed(batch, 1, channels, &dims))
    .into()
}

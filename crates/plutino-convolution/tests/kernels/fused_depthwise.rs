//! Depthwise convolutions together with the 1x1 convolutions beside them: the same bits as those of
//! the layers one after the other.

use crate::harness::*;
use plutino_convolution::nchwc::from_blocked;
use plutino_convolution::*;
use plutino_cpu::activation::Activation;
use plutino_cpu::simd::Pairs;
use plutino_cpu::{Isa, Par, Pool};
use plutino_products::gemm::MatrixUnit;
use plutino_reference::testkit::{random, same_bits};
use plutino_tensor::AlignedBuf;

/// Bytes of a second-level cache: rows one by one, some rows, whole bands.
const CACHES: [usize; 4] = [8 << 10, 60 << 10, 400 << 10, 64 << 20];

/// A depthwise layer and those beside it: images, sizes and post-ops.
struct Net {
    batch: usize,
    /// Of the image, where there is a layer before.
    inp: Option<usize>,
    channels: usize,
    dims: [Dim; 2],
    /// Channels of the output, where there is a layer after.
    out: Option<usize>,
    /// Of each layer.
    post_ops: Vec<PostOps>,
}

impl Net {
    /// Without post-ops but a ReLU before the last layer.
    fn new(inp: Option<usize>, channels: usize, dims: [Dim; 2], out: Option<usize>) -> Self {
        let layers = 1 + usize::from(inp.is_some()) + usize::from(out.is_some());
        let mut post_ops = vec![relu(); layers - 1];
        post_ops.push(PostOps::default());
        Self { batch: 2, inp, channels, dims, out, post_ops }
    }

    fn problems(&self) -> Vec<ConvProblem> {
        let one = window(1, 1, 1, (0, 0));
        let depthwise = problem(self.batch, self.channels, [1, 1], &self.dims);
        let mut all = Vec::new();
        if let Some(inp) = self.inp {
            let dims = self.dims.map(|(n, _)| (n, one));
            all.push(problem(self.batch, 1, [inp, self.channels], &dims));
        }
        all.push(depthwise);
        if let Some(out) = self.out {
            let [h, w] = self.dims.map(|(n, w)| Axis::new(n, w).unwrap().output());
            all.push(problem(self.batch, 1, [self.channels, out], &[(h, one), (w, one)]));
        }
        all
    }

    /// Compares on every machine, with every cache; how many ways of computing it there were.
    fn check(&self, units: &[(Isa, Option<MatrixUnit>)]) -> usize {
        let problems = self.problems();
        let tensors: Vec<Tensors> =
            problems.iter().zip(&self.post_ops).map(|(p, &ops)| Tensors::random(p, ops)).collect();
        let x = random(problems[0].input_len(), 7);
        let mut ways = 0;
        for &(isa, unit) in units {
            for threads in [1, 2, 3] {
                let convs = || {
                    problems.iter().zip(&self.post_ops).map(move |(&problem, &post_ops)| {
                        let layouts = &[ConvLayout::Blocked];
                        let plain = Request::plain(problem);
                        choose(&Request { post_ops, isa, threads, unit, layouts, ..plain }).unwrap()
                    })
                };
                Pool::new(threads).enter(|par: &Par| {
                    let mut expected = x.clone();
                    for (conv, t) in convs().zip(&tensors) {
                        expected = run(&conv, isa, &Tensors { x: expected, ..t.clone() }, par);
                    }
                    for cache in CACHES {
                        let mut convs = convs();
                        let before = self.inp.and_then(|_| convs.next());
                        let depthwise = convs.next().unwrap();
                        let Some(fused) =
                            FusedDepthwise::new(before, depthwise, convs.next(), cache)
                        else {
                            continue;
                        };
                        ways += 1;
                        let found = run_fused(&fused, isa, &x, &tensors, par);
                        assert!(same_bits(&found, &expected), "{} {cache}", fused.name());
                    }
                });
            }
        }
        ways
    }
}

fn run_fused(
    fused: &FusedDepthwise,
    isa: Isa,
    x: &[f32],
    tensors: &[Tensors],
    par: &Par,
) -> Vec<f32> {
    let convs: Vec<&Convolution> = fused.layers().collect();
    let (first, last) = (convs[0].problem(), convs[convs.len() - 1].problem());
    let weights: Vec<_> =
        convs.iter().zip(tensors).map(|(conv, t)| conv.pack(&t.weight[..], par).unwrap()).collect();
    let biases: Vec<_> =
        convs.iter().zip(tensors).map(|(conv, t)| conv.bias(t.bias.as_deref()).unwrap()).collect();
    let layers: Vec<Layer<'_>> =
        weights.iter().zip(&biases).map(|(weights, bias)| Layer { weights, bias }).collect();
    let x = in_blocks(isa, x, first.in_channels(), first.in_plane(), par);
    let residual = tensors[tensors.len() - 1].residual.as_ref();
    let residual = residual.map(|r| in_blocks(isa, r, last.out_channels(), last.out_plane(), par));
    let mut workspace = AlignedBuf::zeroed(fused.workspace()).unwrap();
    workspace.as_mut_bytes().fill(0xff); // NaN
    let mut y = vec![f32::NAN; convs[convs.len() - 1].output_len()];
    let args = FusedArgs {
        x: &x,
        layers: &layers,
        residual: residual.as_deref(),
        y: &mut y,
        workspace: workspace.as_mut_bytes(),
    };
    fused.run(args, par).unwrap();
    let mut plain = vec![0.0; last.output_len()];
    from_blocked(isa, &y, &mut plain, last.out_channels(), last.out_plane(), isa.lanes(), par);
    plain
}

/// Vectors of every length, of f32.
fn vectors() -> Vec<(Isa, Option<MatrixUnit>)> {
    Isa::available().into_iter().map(|isa| (isa, None)).collect()
}

/// The emulation of pairs of bf16, and what the CPU has.
fn pairs() -> Vec<(Isa, Option<MatrixUnit>)> {
    let real = Isa::available().into_iter().filter_map(Pairs::of);
    let all = [Pairs::EMULATED].into_iter().chain(real);
    all.map(|pairs| (pairs.isa(), Some(MatrixUnit::Pairs(pairs)))).collect()
}

const BESIDE: [[Option<usize>; 2]; 3] = [[Some(20), None], [None, Some(24)], [Some(17), Some(40)]];

#[test]
fn windows() {
    for (kernel, stride, dilation, padding) in [
        (3, 1, 1, (1, 1)),
        (3, 2, 1, (1, 1)),
        (5, 1, 1, (2, 2)),
        (5, 2, 1, (2, 2)),
        (3, 1, 2, (2, 2)),
        (2, 1, 1, (0, 1)),
        (3, 1, 1, (0, 0)),
        (1, 3, 1, (0, 0)), // rows that nothing reads
        (4, 3, 1, (3, 1)),
    ] {
        let w = window(kernel, stride, dilation, padding);
        for [inp, out] in BESIDE {
            let ways = Net::new(inp, 37, [(23, w), (14, w)], out).check(&vectors());
            assert!(ways >= vectors().len() * CACHES.len() / 2, "{kernel} {stride}: {ways}");
        }
    }
}

#[test]
fn rows_of_all_channels() {
    for (kernel, stride) in [(3, 1), (3, 2), (5, 1)] {
        let w = window(kernel, stride, 1, (kernel / 2, kernel / 2));
        let net = Net::new(Some(9), 50, [(61, w), (40, w)], Some(8));
        let net = Net { batch: 1, ..net };
        assert!(net.check(&vectors()) >= vectors().len() * 3 * 2);
    }
}

#[test]
fn sizes_and_channels() {
    let w = window(3, 1, 1, (1, 1));
    for (size, channels) in [([1, 1], 40), ([2, 50], 9), ([50, 3], 96), ([7, 7], 130)] {
        let dims = size.map(|n| (n, w));
        for [inp, out] in BESIDE {
            assert!(Net::new(inp, channels, dims, out).check(&vectors()) > 0);
        }
        for batch in [1, 5] {
            let net = Net { batch, ..Net::new(Some(33), channels, dims, Some(16)) };
            assert!(net.check(&vectors()) > 0);
        }
    }
}

#[test]
fn post_ops() {
    let w = window(3, 2, 1, (1, 1));
    let activation = |activation| PostOps { activation: Some(activation), ..PostOps::default() };
    let add = with_residual(None, ResidualOrder::BeforeActivation);
    let after = with_residual(Some(Activation::Silu), ResidualOrder::AfterActivation);
    for [inp, out] in BESIDE {
        for last in [PostOps::default(), add, after, relu()] {
            let mut net = Net::new(inp, 50, [(29, w), (13, w)], out);
            let layers = net.post_ops.len();
            net.post_ops = vec![activation(Activation::Silu), activation(Activation::HardSwish)];
            net.post_ops.truncate(layers - 1);
            net.post_ops.push(last);
            assert!(net.check(&vectors()) > 0);
        }
    }
}

#[test]
fn pairs_of_bf16() {
    for stride in [1, 2] {
        let w = window(3, stride, 1, (1, 1));
        for [inp, out] in BESIDE {
            for channels in [48, 70] {
                let net = Net::new(inp, channels, [(20, w), (17, w)], out);
                assert!(net.check(&pairs()) > 0);
            }
        }
    }
}

#[test]
fn what_is_none_is_refused() {
    let (isa, one) = (Isa::PORTABLE, window(1, 1, 1, (0, 0)));
    let conv = |problem, post_ops| {
        let layouts = &[ConvLayout::Blocked];
        choose(&Request { isa, post_ops, layouts, ..Request::plain(problem) }).unwrap()
    };
    let pad = window(3, 1, 1, (1, 1));
    let depthwise = |ops| conv(problem(1, 20, [1, 1], &[(9, pad), (8, pad)]), ops);
    let plain = PostOps::default();
    let pointwise =
        |ops, sizes: [usize; 2], w| conv(problem(1, 1, [12, 20], &sizes.map(|n| (n, w))), ops);
    let new = |before, depthwise, after| FusedDepthwise::new(before, depthwise, after, 1 << 20);
    let one_of = |ops, sizes| Some(pointwise(ops, sizes, one));
    assert!(new(one_of(plain, [9, 8]), depthwise(plain), None).is_some());
    assert!(new(None, depthwise(plain), None).is_none());
    // Other sizes, a larger window, strides, no depthwise convolution, residuals on the way.
    assert!(new(one_of(plain, [8, 9]), depthwise(plain), None).is_none());
    assert!(new(Some(pointwise(plain, [9, 8], pad)), depthwise(plain), None).is_none());
    let strided = pointwise(plain, [17, 15], window(1, 2, 1, (0, 0)));
    assert!(new(Some(strided), depthwise(plain), None).is_none());
    assert!(new(None, pointwise(plain, [9, 8], one), one_of(plain, [9, 8])).is_none());
    let add = with_residual(None, ResidualOrder::BeforeActivation);
    assert!(new(one_of(add, [9, 8]), depthwise(plain), None).is_none());
    assert!(new(one_of(plain, [9, 8]), depthwise(add), None).is_some());
    // A window that lies in the padding alone.
    let far = window(1, 1, 1, (2, 0));
    let all_padding = conv(problem(1, 20, [1, 1], &[(9, far), (8, one)]), plain);
    assert!(new(one_of(plain, [9, 8]), all_padding, None).is_none());
}

#[test]
fn what_does_not_fit_is_an_error() {
    let net = Net::new(Some(8), 16, [(5, window(3, 1, 1, (1, 1))); 2], None);
    let layouts = &[ConvLayout::Blocked];
    let convs: Vec<Convolution> = net
        .problems()
        .into_iter()
        .map(|p| choose(&Request { isa: Isa::PORTABLE, layouts, ..Request::plain(p) }).unwrap())
        .collect();
    let weights: Vec<_> = convs
        .iter()
        .map(|c| c.pack(&vec![1.0; c.problem().weight_len()][..], &Par::serial()).unwrap())
        .collect();
    let biases: Vec<_> = convs.iter().map(|c| c.bias(None).unwrap().into_owned()).collect();
    let [before, depthwise] = <[Convolution; 2]>::try_from(convs).unwrap();
    let fused = FusedDepthwise::new(Some(before), depthwise, None, 1 << 20).unwrap();
    let both: Vec<Layer<'_>> =
        weights.iter().zip(&biases).map(|(weights, bias)| Layer { weights, bias }).collect();
    let run = |layers: &[Layer<'_>], short: usize, residual: Option<&[f32]>| {
        let mut workspace = AlignedBuf::zeroed(fused.workspace()).unwrap();
        let (inputs, outputs) = fused.layers().fold((None, 0), |(first, _), conv| {
            (first.or(Some(conv.input_len())), conv.output_len())
        });
        let (x, mut y) = (vec![1.0; inputs.unwrap() - short], vec![0.0; outputs]);
        let workspace = workspace.as_mut_bytes();
        fused.run(FusedArgs { x: &x, layers, residual, y: &mut y, workspace }, &Par::serial())
    };
    assert_eq!(run(&both, 0, None), Ok(()));
    for (layers, short, residual) in [
        (&both[..1], 0, None),
        (&[both[1], both[0]][..], 0, None),
        (&both[..], 1, None),
        (&both[..], 0, Some(&[0.0][..])),
    ] {
        assert!(run(layers, short, residual).is_err());
    }
}

//! Convolutions of real networks on channel blocks. Their flops are those of the direct
//! convolution.

use plutino_kernels::activation::Activation;
use plutino_kernels::conv::{
    Axis, Bf16Tensors, ConvArgs, ConvLayout, ConvProblem, PostOps, Request, Window,
};
use plutino_tensor::AlignedBuf;

use crate::suite::Suite;
use crate::yardstick::Work;

/// A square convolution with "same" padding.
struct Layer {
    network: &'static str,
    /// Channels in and out.
    channels: [usize; 2],
    /// Height and width of the input.
    image: usize,
    kernel: usize,
    stride: usize,
}

const fn layer(
    network: &'static str,
    channels: [usize; 2],
    image: usize,
    kernel: usize,
    stride: usize,
) -> Layer {
    Layer { network, channels, image, kernel, stride }
}

const LAYERS: [Layer; 24] = [
    layer("resnet", [3, 64], 224, 7, 2),
    layer("yolo", [3, 32], 640, 6, 2),
    layer("mobilenet", [3, 32], 224, 3, 2),
    layer("unet", [64, 64], 256, 3, 1),
    layer("resnet", [64, 64], 56, 3, 1),
    layer("resnet", [128, 128], 28, 3, 1),
    layer("resnet", [256, 256], 14, 3, 1),
    layer("resnet", [512, 512], 7, 3, 1),
    layer("squeezenet", [16, 64], 54, 3, 1),
    layer("resnet", [64, 128], 56, 3, 2),
    layer("resnet", [128, 128], 56, 3, 2),
    layer("resnet", [256, 256], 28, 3, 2),
    layer("resnet", [256, 512], 14, 3, 2),
    layer("yolo", [32, 64], 320, 3, 2),
    layer("yolo", [64, 128], 160, 3, 2),
    layer("yolo", [256, 512], 40, 3, 2),
    layer("resnet", [64, 256], 56, 1, 1),
    layer("resnet", [512, 128], 28, 1, 1),
    layer("resnet", [1024, 256], 14, 1, 1),
    layer("resnet", [512, 1024], 28, 1, 2),
    layer("mobilenet", [16, 96], 112, 1, 1),
    layer("mobilenet", [144, 24], 56, 1, 1),
    layer("shufflenet", [58, 58], 28, 1, 1),
    layer("mobilenet", [960, 320], 7, 1, 1),
];

const DEPTHWISE: [Layer; 7] = [
    layer("mobilenet", [96, 96], 112, 3, 2),
    layer("mobilenet", [144, 144], 56, 3, 1),
    layer("mobilenet", [384, 384], 14, 3, 1),
    layer("mobilenet", [960, 960], 7, 3, 1),
    layer("efficientnet", [144, 144], 56, 5, 2),
    layer("efficientnet", [480, 480], 14, 5, 1),
    layer("convnext", [96, 96], 56, 7, 1),
];

impl Layer {
    fn problem(&self, groups: usize) -> ConvProblem {
        let pad = self.kernel / 2;
        let (kernel, stride) = (self.kernel, self.stride);
        let window = Window { kernel, stride, padding: (pad, pad), ..Window::default() };
        let axis = Axis::new(self.image, window).expect("a window that fits");
        let [inp, out] = self.channels;
        ConvProblem::new(1, groups, inp, out, &[axis, axis]).expect("sizes that fit")
    }

    fn setting(&self, kind: &str) -> String {
        let Self { network, channels: [inp, out], image, kernel, stride } = self;
        format!("{kind} {network} {inp}x{image}x{image} -> {out}, {kernel}x{kernel} by {stride}")
    }
}

/// Every algorithm that computes a layer in channel blocks.
fn run(suite: &mut Suite<'_>, kind: &str, layer: &Layer, groups: usize, activation: Activation) {
    let (isa, par, problem) = (suite.isa, suite.par, layer.problem(groups));
    let request = Request {
        problem,
        post_ops: PostOps { activation: Some(activation), ..PostOps::default() },
        isa,
        threads: par.threads(),
        save_memory: false,
        winograd: true,
        unit: None,
        bf16: Bf16Tensors::NONE,
        batch_invariant: false,
        layouts: &[ConvLayout::PlainToBlocked, ConvLayout::Blocked],
    };
    let work = Work::Flops(problem.flops() as u64);
    for conv in request.candidates() {
        let weights = conv.pack(&vec![0.01; problem.weight_len()][..], par).expect("weights");
        let bias = conv.bias(None).expect("no bias");
        let x = vec![0.5; conv.input_len()];
        let mut y = vec![0.5; conv.output_len()];
        let mut workspace = AlignedBuf::zeroed(conv.workspace()).expect("memory");
        suite.bench(&layer.setting(kind), conv.algorithm().name, work, || {
            let args = ConvArgs {
                x: &x,
                weights: &weights,
                bias: &bias,
                factors: None,
                residual: None,
                y: &mut y,
                workspace: workspace.as_mut_bytes(),
            };
            conv.run(args, par).expect("slices that fit");
        });
    }
}

pub(crate) fn convolutions(suite: &mut Suite<'_>) {
    for layer in &LAYERS {
        run(suite, "conv", layer, 1, Activation::Relu);
    }
}

pub(crate) fn depthwise(suite: &mut Suite<'_>) {
    for layer in &DEPTHWISE {
        run(suite, "depthwise", layer, layer.channels[0], Activation::Relu6);
    }
}

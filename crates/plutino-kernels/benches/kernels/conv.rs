//! Convolutions of real networks on channel blocks. Their flops are those of the direct
//! convolution.

use plutino_kernels::activation::Activation;
use plutino_kernels::nchwc::{
    ConvInput, DepthwiseConv, DepthwiseWeights, DirectConv, DirectWeights, FEW, Window,
    WinogradAlgorithm, WinogradConv,
};

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
    fn window(&self) -> Window {
        let output = self.image.div_ceil(self.stride);
        let pad = self.kernel / 2;
        let square = |n| [n, n];
        let [image, output] = [self.image, output].map(square);
        let [kernel, stride, dilation, pad] = [self.kernel, self.stride, 1, pad].map(square);
        Window::new(image, output, kernel, stride, dilation, pad).expect("a window that fits")
    }

    fn setting(&self, kind: &str) -> String {
        let Self { network, channels: [inp, out], image, kernel, stride } = self;
        format!("{kind} {network} {inp}x{image}x{image} -> {out}, {kernel}x{kernel} by {stride}")
    }

    /// Multiplications and additions where each output channel reads `inputs` channels.
    fn work(&self, inputs: usize) -> Work {
        let window = self.window();
        Work::Flops((2 * inputs * self.channels[1] * window.taps() * window.pixels()) as u64)
    }
}

/// f32 of a blocked tensor.
fn blocked(channels: usize, pixels: usize, block: usize) -> Vec<f32> {
    vec![0.5; channels.next_multiple_of(block) * pixels]
}

pub(crate) fn convolutions(suite: &mut Suite<'_>) {
    for layer in LAYERS {
        let (isa, par) = (suite.isa, suite.par);
        let (block, window) = (isa.lanes(), layer.window());
        let (setting, work) = (layer.setting("conv"), layer.work(layer.channels[0]));
        let [inp, out] = layer.channels;
        let relu = Some(Activation::Relu);
        let weights = vec![0.01f32; out * inp * window.taps()];
        let bias = DirectConv::pad_bias(None, 1, out, block);
        let (input, x) = if inp <= FEW {
            (ConvInput::Plain, vec![0.5; inp * window.input_pixels()])
        } else {
            (ConvInput::Blocked, blocked(inp, window.input_pixels(), block))
        };
        let mut y = blocked(out, window.pixels(), block);

        let packed = DirectWeights::pack(&weights, 1, [out, inp], window.taps(), block, input)
            .expect("weights that fit");
        let threads = par.threads();
        let conv = DirectConv::new(isa, window.clone(), input, inp, out, 1, relu, threads);
        let mut scratch = vec![0; conv.scratch(threads)];
        suite.bench(&setting, "direct", work, || {
            conv.run(&x, &packed, &bias, None, &mut y, &mut scratch, par);
        });

        for algorithm in WinogradAlgorithm::ALL {
            let conv = WinogradConv::new(
                isa,
                algorithm,
                window.clone(),
                input,
                [out, inp],
                1,
                relu,
                par.threads(),
            );
            let Some(conv) = conv else { continue };
            let packed = conv.pack(&weights).expect("weights that fit");
            let mut scratch = vec![0.0; conv.scratch()];
            suite.bench(&setting, &conv.name(), work, || {
                conv.run(&x, &packed, &bias, None, &mut y, &mut scratch, par);
            });
        }
    }
}

pub(crate) fn depthwise(suite: &mut Suite<'_>) {
    for layer in DEPTHWISE {
        let (isa, par) = (suite.isa, suite.par);
        let (block, window) = (isa.lanes(), layer.window());
        let [channels, _] = layer.channels;
        let weights = vec![0.01f32; channels * window.taps()];
        let weights =
            DepthwiseWeights::pack(&weights, None, window.taps(), block).expect("weights that fit");
        let x = blocked(channels, window.input_pixels(), block);
        let mut y = blocked(channels, window.pixels(), block);
        let conv = DepthwiseConv::new(isa, window, Some(Activation::Relu6));
        suite.bench(&layer.setting("depthwise"), "blocked", layer.work(1), || {
            conv.run(&x, &weights, None, &mut y, par);
        });
    }
}

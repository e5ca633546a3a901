//! Convolution by the definition.

use plutino_convolution::{Axis, ConvProblem, PadMode};

/// Visits every product of a convolution: (index in the output, in the input, in the weights).
pub(crate) fn each_product(g: &ConvProblem, mut f: impl FnMut(usize, usize, usize)) {
    let axes = g.axes();
    let outputs = axes.map(|a| a.output());
    let inputs = axes.map(|a| a.input());
    let kernels = axes.map(|a| a.window().kernel);
    let split = |i: usize, sizes: [usize; 3]| {
        [i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1], i % sizes[2]]
    };
    for n in 0..g.batch() {
        for oc in 0..g.out_channels() {
            for o in 0..g.out_plane() {
                for c in 0..g.group_in() {
                    for tap in 0..g.taps() {
                        let (place, tap3) = (split(o, outputs), split(tap, kernels));
                        let mut at = 0;
                        let inside = (0..3).all(|d| {
                            let w = axes[d].window();
                            let x = source(&axes[d], place[d] * w.stride + tap3[d] * w.dilation);
                            at = at * inputs[d] + x.unwrap_or(0);
                            x.is_some()
                        });
                        if inside {
                            let ic = oc / g.group_out() * g.group_in() + c;
                            f(
                                (n * g.out_channels() + oc) * g.out_plane() + o,
                                (n * g.in_channels() + ic) * g.in_plane() + at,
                                (oc * g.group_in() + c) * g.taps() + tap,
                            );
                        }
                    }
                }
            }
        }
    }
}

/// The element of the image at a position of the padded image, by the definition of the padding.
fn source(axis: &Axis, padded: usize) -> Option<usize> {
    let n = axis.input() as isize;
    let x = padded as isize - axis.window().padding.0 as isize;
    let x = match axis.window().mode {
        PadMode::Zeros => x,
        PadMode::Reflect if x < 0 => -x,
        PadMode::Reflect if x >= n => 2 * (n - 1) - x,
        PadMode::Replicate => x.clamp(0, n - 1),
        PadMode::Circular => x.rem_euclid(n),
        PadMode::Reflect => x,
    };
    (0..n).contains(&x).then_some(x as usize)
}

/// In f64, by the definition:
///
/// ```text
/// output[n, o, p] = sum over (channel, tap) of weight[o, channel, tap]
///                                            * input[n, channel, p stride - padding + tap dilation]
/// ```
/// Of a transposed problem, the gradient of that with respect to its input.
pub fn conv(problem: &ConvProblem, input: &[f32], weights: &[f32]) -> Vec<f64> {
    let mut output = vec![0.0; problem.output_len()];
    let product = |x: f32, w: f32| f64::from(x) * f64::from(w);
    match problem.is_transposed() {
        false => each_product(problem, |o, i, w| output[o] += product(input[i], weights[w])),
        true => each_product(&problem.adjoint(), |o, i, w| {
            output[i] += product(input[o], weights[w]);
        }),
    }
    output
}

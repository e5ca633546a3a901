//! Convolution by the definition.

use crate::conv::ConvGeometry;

/// Visits every product of a convolution: (index in the output, in the input, in the weights).
pub(crate) fn each_product(g: &ConvGeometry, mut f: impl FnMut(usize, usize, usize)) {
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
                            let x = place[d] * w.stride + tap3[d] * w.dilation;
                            let x = x.wrapping_sub(w.padding.0);
                            at = at * inputs[d] + x.min(inputs[d]);
                            x < inputs[d]
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

/// output\[n, oc, o\] = sum over (channel, tap) of weight\[oc, channel, tap\] input\[n, channel, o stride
/// - padding + tap dilation\], in f64.
pub fn conv(geometry: &ConvGeometry, input: &[f32], weights: &[f32]) -> Vec<f64> {
    let mut output = vec![0.0; geometry.output_len()];
    each_product(geometry, |o, i, w| {
        output[o] += f64::from(input[i]) * f64::from(weights[w]);
    });
    output
}

//! Convolution and transposed convolution of any dtype, with wide sums: products of weights and
//! windows, and the definition.

use crate::problem::{ConvError, ConvProblem, check_len};
use plutino_cpu::Isa;
use plutino_cpu::number::{Number, Wide};
use plutino_cpu::par::stop::Watch;
use plutino_cpu::par::{Par, Refusal, SharedMut};
use plutino_products::gemm::{AnyMatrix, gemm_any};
use plutino_tensor::alloc;

/// Places whose windows are copied for one product.
const PLACES: usize = 256;

/// Calls `f(index in the image's channel, tap)` for each tap of the window at place `o` that does
/// not lie on a zero.
fn taps(g: &ConvProblem, o: usize, mut f: impl FnMut(usize, usize)) {
    let [ad, ah, aw] = g.axes();
    let (z, y, x) = (o / aw.output() / ah.output(), o / aw.output() % ah.output(), o % aw.output());
    let mut tap = 0;
    for tz in 0..ad.window().kernel {
        let z = ad.tap(z, tz);
        for ty in 0..ah.window().kernel {
            let y = ah.tap(y, ty);
            for tx in 0..aw.window().kernel {
                if let (Some(z), Some(y), Some(x)) = (z, y, aw.tap(x, tx)) {
                    f((z * ah.input() + y) * aw.input() + x, tap);
                }
                tap += 1;
            }
        }
    }
}

/// Computes `output = conv(input) + bias`, transposed or not, of row-major tensors.
///
/// # Errors
/// [`ConvError::Length`]; [`ConvError::Memory`] where none is left for windows or a plane of sums.
#[inline(never)] // compiled here, see below
pub fn conv_any<T: Number>(
    isa: Isa,
    problem: &ConvProblem,
    input: &[T],
    weights: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
    par: &Par,
) -> Result<(), ConvError> {
    check_len("input", input.len(), problem.input_len())?;
    check_len("weight", weights.len(), problem.weight_len())?;
    check_len("output", output.len(), problem.output_len())?;
    let channels = problem.out_channels();
    check_len("bias", bias.map_or(channels, <[T]>::len), channels)?;
    match problem.is_transposed() {
        true => transposed(&problem.adjoint(), input, weights, bias, output, par),
        false => forward(isa, problem, input, weights, bias, output, par),
    }
}

plutino_cpu::compiled_for_numbers!(conv_any_compiled: conv_any);

/// Products of each group's weights with the windows of [`PLACES`] places at a time.
fn forward<T: Number>(
    isa: Isa,
    g: &ConvProblem,
    input: &[T],
    weights: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
    par: &Par,
) -> Result<(), ConvError> {
    let (m, k, plane) = (g.group_out(), g.group_in() * g.taps(), g.out_plane());
    let (blocks, shared) = (plane.div_ceil(PLACES), SharedMut::new(output));
    let refusal = Refusal::default();
    let zeros = |n| alloc::filled(n, T::default());
    par.run(g.batch() * g.groups() * blocks, |task| {
        let (task, first) = (task / blocks, task % blocks * PLACES);
        let (image, group, n) = (task / g.groups(), task % g.groups(), PLACES.min(plane - first));
        let Some(mut windows) = refusal.of(zeros(k * n)) else { return };
        let Some(mut products) = refusal.of(zeros(m * n)) else { return };
        let input = &input[(image * g.in_channels() + group * g.group_in()) * g.in_plane()..];
        for place in 0..n {
            taps(g, first + place, |i, tap| {
                for c in 0..g.group_in() {
                    windows[(c * g.taps() + tap) * n + place] = input[c * g.in_plane() + i];
                }
            });
        }
        let a = AnyMatrix { data: &weights[group * m * k..], strides: (k, 1) };
        let b = AnyMatrix { data: &windows, strides: (n, 1) };
        let bias = |i: usize| bias.map_or(Wide::ZERO, |b| b[group * m + i / n].widen());
        let store = |i: usize, sum: T::Wide| T::narrow(sum.plus(bias(i)));
        gemm_any(isa, &Par::serial(), (m, n, k), a, b, &store, &mut products);
        for (channel, products) in products.chunks_exact(n).enumerate() {
            let start = (image * g.out_channels() + group * m + channel) * plane + first;
            // SAFETY: each place of each channel belongs to one task.
            unsafe { shared.slice(start..start + n) }.copy_from_slice(products);
        }
    });
    Ok(refusal.outcome()?)
}

/// The transposed convolution that is the gradient of `g`.
fn transposed<T: Number>(
    g: &ConvProblem,
    input: &[T],
    weights: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
    par: &Par,
) -> Result<(), ConvError> {
    let planes = g.batch() * g.in_channels();
    let shared = SharedMut::new(output);
    let refusal = Refusal::default();
    par.run(planes, |plane| {
        let (image, channel) = (plane / g.in_channels(), plane % g.in_channels());
        let (group, c) = (channel / g.group_in(), channel % g.group_in());
        let bias = bias.map_or(Wide::ZERO, |b| b[channel].widen());
        let sums = alloc::filled::<T::Wide>(g.in_plane(), Wide::ZERO);
        let Some(mut sums) = refusal.of(sums) else { return };
        let mut watch = Watch::new();
        for oc in group * g.group_out()..(group + 1) * g.group_out() {
            let input = &input[(image * g.out_channels() + oc) * g.out_plane()..];
            let weights = &weights[(oc * g.group_in() + c) * g.taps()..];
            for (o, x) in input[..g.out_plane()].iter().enumerate() {
                if watch.stops(g.taps()) {
                    return;
                }
                taps(g, o, |i, tap| {
                    sums[i] = sums[i].plus(x.widen().times(weights[tap].widen()));
                });
            }
        }
        // SAFETY: planes are disjoint, and each is written by one task.
        let output = unsafe { shared.slice(plane * g.in_plane()..(plane + 1) * g.in_plane()) };
        for (y, sum) in output.iter_mut().zip(sums) {
            *y = T::narrow(sum.plus(bias));
        }
    });
    Ok(refusal.outcome()?)
}

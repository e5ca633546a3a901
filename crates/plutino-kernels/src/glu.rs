//! The gated linear unit.
//!
//! `y = a sigmoid(b)`, where a and b are the halves of the input
//! (<https://pytorch.org/docs/stable/generated/torch.nn.GLU.html>).
//!
//! Loops: for each index before the halved dimension (parallel) - its half, one vector after the
//! other.

use crate::math::sigmoid;
use crate::number::Float;
use crate::par::SharedMut;
use crate::simd::{Simd, Vectorized};
use crate::{Isa, Par};

/// Elements of a task.
const GRAIN: usize = 1 << 13;

/// Calls `f(a, b, y)` for parts of the halves of each `[2 * half]` of the input and of the output.
fn halves<T: Copy + Send + Sync>(
    par: &Par,
    half: usize,
    input: &[T],
    output: &mut [T],
    f: impl Fn(&[T], &[T], &mut [T]) + Sync,
) {
    assert!(input.len() / 2 == output.len() && input.len().is_multiple_of(2), "halves of a GLU");
    if output.is_empty() {
        return;
    }
    assert!(output.len().is_multiple_of(half), "output of a GLU");
    let parts = half.div_ceil(GRAIN);
    let output_parts = SharedMut::new(output);
    par.split(output_parts.len() / half * parts, GRAIN / half, |range| {
        for item in range {
            let (outer, first) = (item / parts, item % parts * GRAIN);
            let n = GRAIN.min(half - first);
            let (at, a) = (outer * half + first, 2 * outer * half + first);
            // SAFETY: items have disjoint parts of the output.
            let y = unsafe { output_parts.slice(at..at + n) };
            f(&input[a..a + n], &input[a + half..a + half + n], y);
        }
    });
}

/// Computes the unit for inputs of `[outer, 2, half]` f32.
///
/// # Panics
/// Where the lengths of the slices do not fit.
pub fn glu(isa: Isa, par: &Par, half: usize, input: &[f32], output: &mut [f32]) {
    halves(par, half, input, output, |a, b, y| isa.run(Gate { a, b, y }));
}

/// As [`glu`], for any float, in f64.
///
/// # Panics
/// Where the lengths of the slices do not fit.
pub fn glu_any<T: Float>(par: &Par, half: usize, input: &[T], output: &mut [T]) {
    halves(par, half, input, output, |a, b, y| {
        for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b)) {
            *y = T::narrow(a.widen() / (1.0 + (-b.widen()).exp()));
        }
    });
}

struct Gate<'a> {
    a: &'a [f32],
    b: &'a [f32],
    y: &'a mut [f32],
}

impl Vectorized for Gate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.y.len() {
            let n = S::LANES.min(self.y.len() - at);
            let (a, b) = (s.load_up_to(&self.a[at..], n), s.load_up_to(&self.b[at..], n));
            s.store_up_to(s.mul(a, sigmoid(s, b)), &mut self.y[at..], n);
            at += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_reference::testkit::{assert_close, on_every_machine, random};

    #[test]
    fn both_agree_with_the_formula() {
        for (outer, half) in [(1, 1), (3, 17), (2, 20_000), (500, 8)] {
            let x: Vec<f32> = random(outer * 2 * half, 1).iter().map(|x| x * 20.0).collect();
            let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            let pairs = wide.chunks(2 * half).flat_map(|c| (0..half).map(|i| (c[i], c[half + i])));
            let expected: Vec<f64> = pairs.map(|(a, b)| a / (1.0 + (-b).exp())).collect();
            let mut any = vec![0.0f64; outer * half];
            glu_any(&Par::serial(), half, &wide, &mut any);
            assert_eq!(any, expected);
            on_every_machine(
                |isa, par| {
                    let mut y = vec![f32::NAN; outer * half];
                    glu(isa, par, half, &x, &mut y);
                    y
                },
                // Sigmoid is good to 2.5 units in the last place, the product to half of one.
                |found| {
                    assert_close(found, &expected, |i| {
                        4.0 * f64::from(f32::EPSILON) * expected[i].abs()
                    })
                },
            );
        }
        glu(Isa::best(), &Par::serial(), 0, &[], &mut []);
    }
}

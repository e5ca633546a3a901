//! Maxima of windows that lie at random: fractional max pooling.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.FractionalMaxPool2d.html>. Inputs are (C,
//! spatial...) or (N, C, spatial...). Where the windows of a channel begin follows from one number
//! in 0..1 for each spatial dimension, the last dimension's first in 2-D and the first's in 3-D;
//! the numbers are an input.

use super::build::rank;
use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, BuildProblem, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::number::{Float, Real};
use plutino_tensor::{DType, Shape};
use std::marker::PhantomData;

#[derive(Debug)]
struct FractionalMaxPool {
    input: usize,
    samples: usize,
    kernel: Vec<usize>,
    output: Output,
    /// Whether positions of the maxima are an output, too.
    indices: bool,
}

/// How many windows there are.
#[derive(Debug)]
enum Output {
    Size(Vec<usize>),
    Ratio(Vec<f64>),
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let rank = rank(r);
    let native = r.kind().starts_with("aten::");
    let kernel = r.sizes("kernel_size", rank, 1, None)?;
    let ratio: Vec<f64> = r.or("output_ratio", Vec::new())?;
    let sized = r.optional::<Vec<i64>>("output_size")?.is_some_and(|sizes| !sizes.is_empty());
    let output = match (sized, ratio.len()) {
        (true, 0) => Output::Size(r.sizes("output_size", rank, 1, None)?),
        (false, 1) => Output::Ratio(vec![ratio[0]; rank]),
        (false, n) if n == rank => Output::Ratio(ratio),
        _ => return Err(r.bad("output_size", format!("{rank} sizes, or None beside output_ratio"))),
    };
    let indices = match (native || r.or("return_indices", false)?, r.output_count()) {
        (_, 1) => false,
        (true, 2) => true,
        (asked, found) => {
            let expected = if asked { "1 or 2" } else { "1" }.into();
            return Err(r.error(BuildProblem::Outputs { expected, found }));
        }
    };
    let input = r.required_input("input")?;
    let key = if native { "random_samples" } else { "_random_samples" };
    let Some(samples) = r.input(key) else {
        return Err(r.error(BuildProblem::Invalid(format!(
            "where the windows lie is random: export the model with {key}"
        ))));
    };
    Ok(Box::new(FractionalMaxPool { input, samples, kernel, output, indices }))
}
register_op!(build => "aten::fractional_max_pool2d", "aten::fractional_max_pool3d",
    "F.fractional_max_pool2d", "F.fractional_max_pool3d", "nn.FractionalMaxPool2d", "nn.FractionalMaxPool3d");

impl FractionalMaxPool {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Geometry, Shape), ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        let (rank, shape) = (self.kernel.len(), x.shape());
        if !x.dtype().is_float() {
            return Err(ShapeError::DType { input, expected: "a float".into(), found: x.dtype() });
        }
        let leading = shape.rank().checked_sub(rank).filter(|n| (1..=2).contains(n));
        let leading = leading.ok_or_else(|| ShapeError::Rank {
            input,
            expected: format!("{} or {}", rank + 1, rank + 2),
            found: shape.clone(),
        })?;
        let (mut axes, mut output) = (Vec::with_capacity(rank), shape.clone());
        for (a, &kernel) in self.kernel.iter().enumerate() {
            let size = shape[leading + a];
            let windows = match &self.output {
                Output::Size(sizes) => sizes[a],
                Output::Ratio(ratios) => (size as f64 * ratios[a]) as usize,
            };
            let fits = windows.checked_add(kernel).is_some_and(|sum| sum <= size.saturating_add(1));
            if windows == 0 || !fits {
                return Err(invalid(format!(
                    "{windows} windows of {kernel} do not fit into dimension {} of {shape}",
                    leading + a
                )));
            }
            output[leading + a] = windows;
            axes.push(Axis { size, windows, kernel });
        }
        output.checked_numel()?;
        let samples = TensorValue::at(inputs, self.samples)?;
        let images = if leading == 2 { shape[0] } else { 1 };
        let expected = [images, shape[leading - 1], rank];
        if samples.dtype() != x.dtype() || samples.shape().dims() != expected {
            return Err(invalid(format!(
                "random samples must be {:?} numbers of dtype {}, found {}",
                expected,
                x.dtype(),
                samples.spec
            )));
        }
        Ok((x.dtype(), Geometry { axes }, output))
    }
}

impl Operator for FractionalMaxPool {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, _, shape) = self.bind(inputs)?;
        let mut outputs = vec![ValueSpec::tensor(dtype, shape.clone())];
        if self.indices {
            outputs.push(ValueSpec::tensor(DType::I64, shape));
        }
        Ok(outputs)
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, geometry, _) = self.bind(cx.inputs)?;
        let (input, samples) = (leaf(cx.inputs, self.input), leaf(cx.inputs, self.samples));
        if halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let indices = self.indices;
        for_floats!(dtype,
            T => Ok(Planned::new(PoolKernel::<T> {
                input, samples, geometry, indices, element: PhantomData,
            })),
            _ => Err(PlanError::Unsupported(format!("fractional pooling of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let taps = self.kernel.iter().fold(1u64, |n, &k| n.saturating_mul(k as u64));
        Cost::elementwise(inputs, outputs, taps)
    }
}

/// A spatial dimension.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    windows: usize,
    kernel: usize,
}

#[derive(Debug)]
struct Geometry {
    axes: Vec<Axis>,
}

impl Axis {
    /// Where window `i` begins. Each step is rounded as PyTorch's arithmetic in this precision is.
    fn start<R: Real>(&self, sample: R, i: usize) -> usize {
        let room = self.size - self.kernel;
        if i + 1 == self.windows {
            return room;
        }
        let real = R::nearest;
        let alpha = real(room as f64) / real((self.windows - 1) as f64);
        let whole = |x: R| x.wide() as usize;
        whole((real(i as f64) + sample) * alpha).saturating_sub(whole(sample * alpha)).min(room)
    }
}

impl Geometry {
    fn volume(&self, size: impl Fn(&Axis) -> usize) -> usize {
        self.axes.iter().map(size).product()
    }

    /// The place of the maximum of window `at` in a channel: the first, or the last that is no
    /// number.
    fn maximum<T: Float>(&self, samples: &[T], at: usize, x: &[T]) -> usize {
        let rank = self.axes.len();
        let (mut rest, mut first, mut pitch) = (at, 0, 1);
        let mut pitches = [0; 3];
        for (a, axis) in self.axes.iter().enumerate().rev() {
            // Of a plane, the first sample is that of the width.
            let sample = samples[if rank == 2 { 1 - a } else { a }].to_real();
            first += axis.start(sample, rest % axis.windows) * pitch;
            rest /= axis.windows;
            pitches[a] = pitch;
            pitch *= axis.size;
        }
        let (mut best, mut place) = (T::LOWEST, first);
        for tap in 0..self.volume(|a| a.kernel) {
            let (mut rest, mut here) = (tap, first);
            for (a, axis) in self.axes.iter().enumerate().rev() {
                here += rest % axis.kernel * pitches[a];
                rest /= axis.kernel;
            }
            if x[here] > best || x[here].is_nan() {
                (best, place) = (x[here], here);
            }
        }
        place
    }
}

struct PoolKernel<T> {
    input: usize,
    samples: usize,
    geometry: Geometry,
    indices: bool,
    element: PhantomData<T>,
}

impl<T: Float> Kernel for PoolKernel<T> {
    fn name(&self) -> &str {
        "pool.fractional_max"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (x, samples) = (cx.inputs.get::<T>(self.input)?, cx.inputs.get::<T>(self.samples)?);
        let g = &self.geometry;
        let (volume, windows, rank) = (g.volume(|a| a.size), g.volume(|a| a.windows), g.axes.len());
        let channel = |i: usize| (&x[i * volume..][..volume], &samples[i * rank..][..rank]);
        if self.indices {
            let indices = cx.outputs.take::<i64>(1)?;
            cx.par.chunks_mut(indices, windows, |i, indices| {
                let (x, samples) = channel(i);
                for (at, index) in indices.iter_mut().enumerate() {
                    *index = g.maximum(samples, at, x) as i64;
                }
            });
        }
        cx.par.chunks_mut(cx.outputs.take::<T>(0)?, windows, |i, values| {
            let (x, samples) = channel(i);
            for (at, value) in values.iter_mut().enumerate() {
                *value = x[g.maximum(samples, at, x)];
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_line, iota, line_error, op, random, tensor, try_op, values};
    use plutino_tensor::Tensor;

    #[test]
    fn windows_follow_the_samples() {
        let line = "aten::fractional_max_pool2d f 4 2 0 =[2,2] =[2,3] 1 2 3";
        let samples = tensor([1, 1, 2], &[0.7f32, 0.2]);
        let y = check_line(line, &[iota([1, 1, 5, 6]), samples]);
        // Columns begin at 0, int(1.7 * 2) - int(0.7 * 2) = 2 and 4; rows at 0 and 3.
        assert_eq!(values::<f32>(&y[0]), [7.0, 9.0, 11.0, 25.0, 27.0, 29.0]);
        assert_eq!(values::<i64>(&y[1]), [7, 9, 11, 25, 27, 29]);
    }

    #[test]
    fn functions_and_ratios() {
        let line = "F.fractional_max_pool2d f 2 1 0 1 2 kernel_size=2 output_ratio=(0.5,0.5) $input=0 $_random_samples=1";
        let y = check(&*op(line), &[iota([1, 5, 6]), tensor([1, 1, 2], &[0.7f32, 0.2])]);
        assert_eq!(values::<f32>(&y[0]), [7.0, 9.0, 11.0, 25.0, 27.0, 29.0]);
        let missing = "nn.FractionalMaxPool2d f 1 1 0 1 kernel_size=2 output_size=(2,2) $input=0";
        assert!(try_op(missing, &[]).unwrap_err().to_string().contains("random"));
    }

    /// Values of PyTorch: the last of what is no number, and the first of what is least.
    #[test]
    fn what_is_no_number() {
        let line = "aten::fractional_max_pool2d f 4 2 0 =[2,2] =[1,1] 1 2 3";
        let run = |x: &[f32]| -> Vec<Tensor> {
            check_line(line, &[tensor([1, 2, 2], x), tensor([1, 1, 2], &[0.5f32; 2])])
        };
        let y = run(&[1.0, f32::NAN, f32::NAN, 2.0]);
        assert!(values::<f32>(&y[0])[0].is_nan());
        assert_eq!(values::<i64>(&y[1]), [2]);
        assert_eq!(values::<i64>(&run(&[f32::NEG_INFINITY; 4])[1]), [0]);
    }

    #[test]
    fn what_does_not_fit() {
        let line = "aten::fractional_max_pool3d f 4 2 0 =[2,2,2] =[2,2,3] 1 2 3";
        let samples = random([1, 2, 3], 1);
        line_error(line, &[iota([1, 2, 3, 3, 3]), samples.clone()]);
        line_error(line, &[iota([1, 3, 3, 3, 4]), samples.clone()]);
        line_error(line, &[iota([3, 3, 4]), samples]);
    }
}

//! Images sampled at the points of a grid, and grids of affine maps: `F.grid_sample`,
//! `F.affine_grid`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html>: images `(N, C,
//! H, W)` and grids `(N, h, w, 2)`, or volumes `(N, C, D, H, W)` and grids `(N, d, h, w, 3)`.

use crate::support::assemble::{leaf, same_dtype};
use crate::support::halves::{self, Parts};
use crate::support::rearrange::{ints, invalid};
use crate::{
    Arg, BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx,
    RunError, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::sample::grid::{GridSample, Mode, Padding, affine_points};
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Shape};

#[derive(Debug)]
struct Sample {
    input: usize,
    grid: usize,
    mode: Mode,
    padding: Padding,
    align_corners: bool,
}

const MODES: [(&str, Mode); 3] =
    [("bilinear", Mode::Linear), ("nearest", Mode::Nearest), ("bicubic", Mode::Cubic)];
const PADDINGS: [(&str, Padding); 3] =
    [("zeros", Padding::Zeros), ("border", Padding::Border), ("reflection", Padding::Reflection)];

fn grid_sample(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mode = r.one_of("mode", &MODES, Some(Mode::Linear))?;
    let padding = r.one_of("padding_mode", &PADDINGS, Some(Padding::Zeros))?;
    let align_corners = r.or("align_corners", false)?;
    let (input, grid) = (r.required_input("input")?, r.required_input("grid")?);
    Ok(Box::new(Sample { input, grid, mode, padding, align_corners }))
}
register_op!(grid_sample => "F.grid_sample");

/// The native functions, which number the modes.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (mode, padding): (usize, usize) =
        (r.required("interpolation_mode")?, r.required("padding_mode")?);
    let wrong = |key| r.bad(key, "0, 1 or 2");
    let mode = MODES.get(mode).ok_or_else(|| wrong("interpolation_mode"))?.1;
    let padding = PADDINGS.get(padding).ok_or_else(|| wrong("padding_mode"))?.1;
    let align_corners = r.or("align_corners", false)?;
    let (input, grid) = (r.required_input("input")?, r.required_input("grid")?);
    Ok(Box::new(Sample { input, grid, mode, padding, align_corners }))
}
register_op!(native => "aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d");

impl Sample {
    /// Dtype and shape of the result, and the sampling.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, GridSample), ShapeError> {
        let (x, grid) = (TensorValue::at(inputs, self.input)?, TensorValue::at(inputs, self.grid)?);
        let dtype = same_dtype((self.input, x.dtype()), [(self.grid, grid.dtype())])?;
        if !dtype.is_float() {
            let (input, expected) = (self.input, "a float".into());
            return Err(ShapeError::DType { input, expected, found: dtype });
        }
        let &[batch, channels, ref size @ ..] = x.shape().dims() else {
            let (expected, found) = ("4 or 5".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let rank = size.len();
        if !(2..=3).contains(&rank) || (self.mode == Mode::Cubic && rank != 2) {
            let expected = if self.mode == Mode::Cubic { "4" } else { "4 or 5" }.into();
            let found = x.shape().clone();
            return Err(ShapeError::Rank { input: self.input, expected, found });
        }
        let places = match grid.shape().dims() {
            [n, places @ .., last] if (*n, places.len(), *last) == (batch, rank, rank) => places,
            _ => {
                return Err(invalid(format!(
                    "a grid of shape {} has no points of {rank} coordinates for images of shape {}",
                    grid.shape(),
                    x.shape()
                )));
            }
        };
        if size.contains(&0) {
            return Err(invalid(format!("images of shape {} have no pixels", x.shape())));
        }
        let shape: Shape = [batch, channels].into_iter().chain(places.iter().copied()).collect();
        let Self { mode, padding, align_corners, .. } = *self;
        let points = places.iter().fold(1, |n: usize, &p| n.saturating_mul(p));
        let size = size.to_vec();
        let sample = GridSample { batch, channels, size, points, mode, padding, align_corners };
        Ok((dtype, shape, sample))
    }
}

impl Operator for Sample {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, sample) = self.bind(cx.inputs)?;
        if halves::is_half(dtype) {
            return halves::widened_by(cx, Parts { dims: 1, of: &[self.input, self.grid] }, |cx| {
                self.plan(cx)
            });
        }
        let at = [self.input, self.grid].map(|i| leaf(cx.inputs, i));
        Ok(Planned::new(SampleKernel { isa: cx.isa, dtype, at, sample }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let taps = match self.mode {
            Mode::Nearest => 1,
            Mode::Linear => 8,
            Mode::Cubic => 32,
        };
        Cost::elementwise(inputs, outputs, taps)
    }
}

struct SampleKernel {
    isa: Isa,
    dtype: DType,
    /// Leaves of images and grids.
    at: [usize; 2],
    sample: GridSample,
}

impl Kernel for SampleKernel {
    fn name(&self) -> &str {
        "grid_sample"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let [x, grid] = self.at;
        for_floats!(self.dtype,
            T => {
                let (x, grid) = (cx.inputs.get::<T>(x)?, cx.inputs.get::<T>(grid)?);
                Ok(self.sample.run(self.isa, cx.par, x, grid, cx.outputs.take::<T>(0)?)?)
            },
            _ => Err(RunError::Internal("samples are floats".into())),
        )
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html>
#[derive(Debug)]
struct AffineGrid {
    theta: usize,
    size: Arg<Vec<i64>>,
    align_corners: bool,
}

fn affine_grid(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (size, align_corners) = (ints(r, &["size"])?, r.or("align_corners", false)?);
    Ok(Box::new(AffineGrid { theta: r.required_input("theta")?, size, align_corners }))
}
register_op!(affine_grid => "F.affine_grid");

impl AffineGrid {
    /// Dtype, number of grids, and the size of each.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, usize, Vec<usize>), ShapeError> {
        let (input, theta) = (self.theta, TensorValue::at(inputs, self.theta)?);
        if !theta.dtype().is_float() {
            let (expected, found) = ("a float".into(), theta.dtype());
            return Err(ShapeError::DType { input, expected, found });
        }
        let asked = self.size.ints(inputs)?;
        let size: Option<Vec<usize>> =
            asked.iter().map(|&n| usize::try_from(n).ok().filter(|&n| n > 0)).collect();
        let refuse = || {
            invalid(format!(
                "a grid of size {asked:?} has no maps of shape {}: (N, 2, 3) goes with (N, C, H, W), (N, 3, 4) with \
                 (N, C, D, H, W)",
                theta.shape()
            ))
        };
        let Some([batch, _, image @ ..]) = size.as_deref() else { return Err(refuse()) };
        let rank = image.len();
        if !(2..=3).contains(&rank) || theta.shape().dims() != [*batch, rank, rank + 1] {
            return Err(refuse());
        }
        Ok((theta.dtype(), *batch, image.to_vec()))
    }
}

impl Operator for AffineGrid {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, batch, size) = self.bind(inputs)?;
        let rank = size.len();
        let shape: Shape = [batch].into_iter().chain(size).chain([rank]).collect();
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, size) = self.bind(cx.inputs)?;
        let (theta, align_corners) = (leaf(cx.inputs, self.theta), self.align_corners);
        Ok(Planned::new(AffineKernel { dtype, theta, size, align_corners }))
    }
}

struct AffineKernel {
    dtype: DType,
    theta: usize,
    size: Vec<usize>,
    align_corners: bool,
}

impl Kernel for AffineKernel {
    fn name(&self) -> &str {
        "affine_grid"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let rank = self.size.len();
        let grid = self.size.iter().product::<usize>() * rank;
        for_floats!(self.dtype,
            T => {
                let (theta, y) = (cx.inputs.get::<T>(self.theta)?, cx.outputs.take::<T>(0)?);
                cx.par.chunks_mut(y, grid, |n, y| {
                    let theta = &theta[n * rank * (rank + 1)..][..rank * (rank + 1)];
                    affine_points(&self.size, self.align_corners, theta, y);
                });
                Ok(())
            },
            _ => Err(RunError::Internal("an affine grid is made of floats".into())),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{
        assert_close, check, check_line, error, iota, op, random, tensor, try_op,
    };
    use plutino_tensor::DType;

    #[test]
    fn points_between_pixels() {
        let sample =
            |options: &str| op(&format!("F.grid_sample g 2 1 0 1 2 {options} $input=0 $grid=1"));
        let (x, grid) = (iota([1, 1, 2, 3]), tensor([1, 1, 2, 2], &[0.0f32, 0.0, 1.0, -1.0]));
        let inputs = [x, grid];
        let y = check(&*sample("align_corners=True mode=bilinear padding_mode=zeros"), &inputs);
        assert_close(&y[0], &tensor([1, 1, 1, 2], &[2.5f32, 2.0]), 0.0);
        // The corner of the outermost pixel: a quarter of it, the rest is zero.
        let y = check(&*sample("align_corners=False mode=bilinear padding_mode=zeros"), &inputs);
        assert_close(&y[0], &tensor([1, 1, 1, 2], &[2.5f32, 0.5]), 0.0);
        let y = check(&*sample("align_corners=None mode=nearest padding_mode=border"), &inputs);
        assert_close(&y[0], &tensor([1, 1, 1, 2], &[1.0f32, 2.0]), 0.0);
        let y = check(&*sample("mode=bicubic padding_mode=reflection align_corners=True"), &inputs);
        assert_close(&y[0], &tensor([1, 1, 1, 2], &[2.5f32, 2.0]), 1e-6);
        let wide = inputs.each_ref().map(|t| t.cast(DType::F64).unwrap());
        let wide =
            check(&*sample("mode=bicubic padding_mode=reflection align_corners=True"), &wide);
        assert_close(&wide[0].cast(DType::F32).unwrap(), &y[0], 1e-6);
    }

    #[test]
    fn volumes_and_nothing() {
        let sample =
            op("F.grid_sample g 2 1 0 1 2 align_corners=True mode=bilinear padding_mode=zeros");
        let y = check(&*sample, &[iota([1, 2, 2, 2, 2]), tensor([1, 1, 1, 1, 3], &[0.0f32; 3])]);
        assert_close(&y[0], &tensor([1, 2, 1, 1, 1], &[3.5f32, 11.5]), 0.0);
        assert_eq!(
            check(&*sample, &[iota([0, 2, 3, 3]), iota([0, 4, 5, 2])])[0],
            iota([0, 2, 4, 5])
        );
        assert_eq!(
            check(&*sample, &[iota([1, 0, 3, 3]), random([1, 4, 5, 2], 1)])[0],
            iota([1, 0, 4, 5])
        );
        error(&*sample, &[iota([1, 2, 0, 3]), iota([1, 4, 5, 2])]);
        error(&*sample, &[iota([1, 2, 3, 3]), iota([1, 4, 5, 3])]);
        error(&*sample, &[iota([1, 2, 3, 3]), iota([2, 4, 5, 2])]);
        error(&*sample, &[iota([2, 3, 3]), iota([2, 5, 2])]);
        let cubic =
            op("F.grid_sample g 2 1 0 1 2 align_corners=True mode=bicubic padding_mode=zeros");
        error(&*cubic, &[iota([1, 2, 2, 2, 2]), iota([1, 1, 1, 1, 3])]);
        assert!(try_op("F.grid_sample g 2 1 0 1 2 mode=cubic", &[]).is_err());
    }

    #[test]
    fn affine_grids() {
        let grid = op("F.affine_grid a 1 1 0 1 align_corners=False size=(2,7,1,2) $theta=0");
        let theta = tensor([2, 2, 3], &[1.0f32, 0., 0., 0., 1., 0., 0., 1., 5., 2., 0., 6.]);
        let y = check(&*grid, std::slice::from_ref(&theta));
        let expected = [-0.5f32, 0., 0.5, 0., 5., 5., 5., 7.];
        assert_close(&y[0], &tensor([2, 1, 2, 2], &expected), 0.0);
        let volume = op("F.affine_grid a 1 1 0 1 align_corners=True size=(1,1,1,1,1) $theta=0");
        let y = check(&*volume, &[iota([1, 3, 4])]);
        assert_close(&y[0], &tensor([1, 1, 1, 1, 3], &[3.0f32, 7., 11.]), 0.0);
        error(&*volume, std::slice::from_ref(&theta));
        error(&*op("F.affine_grid a 1 1 0 1 size=(2,7,0,2) $theta=0"), &[theta]);
    }

    #[test]
    fn native_functions() {
        let given = [random([1, 2, 4, 5], 3), random([1, 3, 3, 2], 4)];
        let spelled =
            op("F.grid_sample g 2 1 0 1 2 mode=nearest padding_mode=border align_corners=True");
        let expected = check(&*spelled, &given);
        for name in ["grid_sampler", "grid_sampler_2d"] {
            let line = format!("aten::{name} g 5 1 0 1 =1 =1 =True 2");
            assert_eq!(check_line(&line, &given), expected);
        }
        assert!(try_op("aten::grid_sampler g 5 1 0 1 =3 =1 =True 2", &[]).is_err());
    }
}

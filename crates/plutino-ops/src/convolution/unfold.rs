//! Images cut into windows and back: `F.unfold`, `F.fold` and their modules.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.Unfold.html>: `(N, C, H, W)` to `(N, C x
//! taps, places)`; <https://pytorch.org/docs/stable/generated/torch.nn.Fold.html>: the reverse,
//! where what overlaps is added up. The batch may be missing.

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::fold::{FoldGeometry, fold, unfold};
use plutino_kernels::for_numbers;
use plutino_tensor::{DType, Shape};

/// A window, and what is done with it.
#[derive(Debug)]
struct Windows {
    input: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    /// Size of the images that windows are added up to; none where images are cut.
    image: Option<[usize; 2]>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (kernel, stride) = (r.pair("kernel_size", 1, None)?, r.pair("stride", 1, Some(1))?);
    let (padding, dilation) = (r.pair("padding", 0, Some(0))?, r.pair("dilation", 1, Some(1))?);
    let folds = matches!(r.kind(), "F.fold" | "nn.Fold");
    let image = match folds {
        true => Some(r.pair("output_size", 1, None)?),
        false => None,
    };
    Ok(Box::new(Windows {
        input: r.required_input("input")?,
        kernel,
        stride,
        padding,
        dilation,
        image,
    }))
}
register_op!(build => "F.unfold", "nn.Unfold", "F.fold", "nn.Fold");

impl Windows {
    /// Dtype and shape of the result, and how windows lie in images.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, FoldGeometry), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (shape, dtype) = (x.shape(), x.dtype());
        let refuse = |what: &str| invalid(format!("a tensor of shape {shape} {what}"));
        let taps = self.kernel[0].checked_mul(self.kernel[1]);
        let taps = taps.ok_or_else(|| refuse("cannot be cut into so large windows"))?;
        let (lead, rest) =
            shape.split_at(shape.rank().saturating_sub(if self.image.is_some() { 2 } else { 3 }));
        if lead.len() > 1 || rest.len() < 2 {
            let expected = if self.image.is_some() { "2 or 3" } else { "3 or 4" }.into();
            return Err(ShapeError::Rank { input: self.input, expected, found: shape.clone() });
        }
        let image = match (self.image, rest) {
            (Some(image), _) => image,
            (None, &[_, h, w]) => [h, w],
            _ => return Err(refuse("is no image")),
        };
        let mut g = FoldGeometry {
            image,
            places: [0; 2],
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        };
        for (d, size) in image.into_iter().enumerate() {
            let padded = self.padding[d].checked_mul(2).and_then(|p| p.checked_add(size));
            let window = (self.kernel[d] - 1).checked_mul(self.dilation[d]);
            let places = padded
                .zip(window)
                .and_then(|(padded, window)| padded.checked_sub(window.checked_add(1)?));
            let places = places.ok_or_else(|| refuse("is too small for the window"))?;
            g.places[d] = places / self.stride[d] + 1;
        }
        let all = g.places[0].checked_mul(g.places[1]);
        let all = all.ok_or_else(|| refuse("has too many places for the window"))?;
        let mut out: Shape = lead.iter().copied().collect();
        match (self.image, rest) {
            (Some([h, w]), &[rows, places]) => {
                if !rows.is_multiple_of(taps) || places != all {
                    return Err(invalid(format!(
                        "windows of {taps} elements at {all} places cannot be taken from {shape}"
                    )));
                }
                [rows / taps, h, w].into_iter().for_each(|n| out.push(n));
            }
            _ => {
                let rows = rest[0].checked_mul(taps);
                out.push(rows.ok_or_else(|| refuse("has too many channels"))?);
                out.push(all);
            }
        }
        out.checked_numel()?;
        Ok((dtype, out, g))
    }
}

impl Operator for Windows {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, geometry) = self.bind(cx.inputs)?;
        // A copy of windows computes nothing; their sums do.
        if self.image.is_some() && halves::is_half(dtype) {
            return halves::widened(cx, |cx| self.plan(cx));
        }
        let input = leaf(cx.inputs, self.input);
        Ok(Planned::new(WindowsKernel { dtype, input, geometry, folds: self.image.is_some() }))
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        Cost::elementwise(inputs, outputs, u64::from(self.image.is_some()))
    }
}

struct WindowsKernel {
    dtype: DType,
    input: usize,
    geometry: FoldGeometry,
    folds: bool,
}

impl Kernel for WindowsKernel {
    fn name(&self) -> &str {
        if self.folds { "fold" } else { "unfold" }
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        for_numbers!(self.dtype, T => {
            let (x, y) = (cx.inputs.get::<T>(self.input)?, cx.outputs.take::<T>(0)?);
            match self.folds {
                true => fold(cx.par, &self.geometry, x, y),
                false => unfold(cx.par, &self.geometry, x, y),
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, random, tensor, try_op, values};

    #[test]
    fn windows_are_columns() {
        let unfold =
            op("nn.Unfold u 1 1 0 1 dilation=(1,1) kernel_size=(2,2) padding=(0,0) stride=(1,1)");
        let y = check(&*unfold, &[iota([1, 1, 2, 3])]);
        assert_eq!(y[0], tensor([1, 4, 2], &[0.0f32, 1., 1., 2., 3., 4., 4., 5.]));
        let y = check(&*unfold, &[iota([1, 2, 3])]);
        assert_eq!(y[0].shape().dims(), [4, 2]);
        let padded = op(
            "F.unfold u 1 1 0 1 dilation=(2,1) kernel_size=(2,1) padding=(1,0) stride=(1,2) $input=0",
        );
        let y = check(&*padded, &[tensor([1, 1, 2, 3], &[1i64, 2, 3, 4, 5, 6])]);
        assert_eq!(y[0], tensor([1, 2, 4], &[0i64, 0, 1, 3, 4, 6, 0, 0]));
        assert_eq!(check(&*unfold, &[iota([0, 3, 2, 2])])[0], iota([0, 12, 1]));
        error(&*unfold, &[iota([1, 1, 1, 3])]);
        error(&*unfold, &[iota([2, 3])]);
        assert!(try_op("F.unfold u 1 1 0 1 kernel_size=(0,2) $input=0", &[]).is_err());
        error(
            &*op("F.unfold u 1 1 0 1 kernel_size=(9223372036854775807,2) padding=1 $input=0"),
            &[iota([1, 1, 3])],
        );
    }

    #[test]
    fn folding_adds_what_overlaps() {
        let line = "dilation=1 kernel_size=(2,3) padding=(1,0) stride=(1,2)";
        let unfold = op(&format!("F.unfold u 1 1 0 1 {line} $input=0"));
        let fold = op(&format!("F.fold f 1 1 0 1 {line} output_size=(3,5) $input=0"));
        let ones = tensor([1, 2, 3, 5], &[1.0f32; 30]);
        // How many windows an element is in: 2 rows of them, and 2 in the middle column.
        let counts = check(&*fold, &check(&*unfold, &[ones]));
        let row = [2.0, 2.0, 4.0, 2.0, 2.0];
        assert_eq!(values::<f32>(&counts[0]), row.repeat(6));
        let x = random([2, 3, 5], 1);
        let back = check(&*fold, &check(&*unfold, std::slice::from_ref(&x)));
        let expected = values::<f32>(&x).into_iter().zip(values::<f32>(&counts[0]));
        assert_eq!(values::<f32>(&back[0]), expected.map(|(x, n)| x * n).collect::<Vec<_>>());
        error(&*fold, &[iota([1, 12, 7])]);
        error(&*fold, &[iota([1, 11, 8])]);
        error(&*fold, &[iota([8])]);
    }
}

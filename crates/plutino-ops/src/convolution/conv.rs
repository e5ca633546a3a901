//! Convolution: `nn.Conv1d`, `nn.Conv2d`, `nn.Conv3d` and `F.conv1d`, `F.conv2d`, `F.conv3d`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html>,
//! <https://pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html>

use crate::convolution::{conv_transpose, kernel};
use crate::support::weighted::Weighted;
use crate::support::weights::{self, Source, Stored};
use crate::{
    Bf16Support, BuildError, BuildProblem, Cost, LayoutCx, LayoutSupport, Neighbour, NodeReader,
    Operator, PlanCx, PlanError, Planned, ShapeError, StrideRule, TensorValue, ValueSpec,
    register_op,
};
use kernel::shape_error;
use plutino_kernels::Isa;
use plutino_kernels::conv::{Axis, ConvProblem, PadMode, PostOps, Window};
use plutino_tensor::{DType, Shape, TensorSpec};

register_op!(module => "nn.Conv1d", "nn.Conv2d", "nn.Conv3d");
register_op!(function => "F.conv1d", "F.conv2d", "F.conv3d");

/// Zero or other padding of a convolution.
#[derive(Debug, Clone)]
pub(crate) enum Padding {
    /// Before and after each dimension.
    Sizes(Vec<(usize, usize)>),
    /// As much as keeps the size; the odd element goes behind.
    Same,
}

/// A convolution, transposed or not, with its bias and what it has absorbed. One in channel blocks
/// may also read its input times factors.
#[derive(Debug, Clone)]
pub struct Conv {
    /// Spatial dimensions.
    pub(crate) dims: usize,
    pub(crate) weighted: Weighted,
    pub(crate) stride: Vec<usize>,
    pub(crate) padding: Padding,
    pub(crate) dilation: Vec<usize>,
    pub(crate) groups: usize,
    pub(crate) mode: PadMode,
    /// Output padding of a transposed convolution.
    pub(crate) transposed: Option<Vec<usize>>,
    /// Whether all its tensors stay f32, whatever its precision is.
    pub(crate) keeps_f32: bool,
}

/// Spatial dimensions, from the digit in the type's name.
pub(crate) fn spatial_dims(reader: &NodeReader<'_>) -> Result<usize, BuildError> {
    let digit = reader.kind().chars().find_map(|c| c.to_digit(10));
    digit.map(|d| d as usize).filter(|d| (1..=3).contains(d)).ok_or_else(|| {
        reader.error(BuildProblem::Invalid("a convolution has 1, 2 or 3 dimensions".into()))
    })
}

fn module(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    with_weights(r, weights::of_module)
}

/// A module whose weight, of the shape that it is given, and bias `read` reads.
pub(crate) fn with_weights(
    r: &mut NodeReader<'_>,
    read: impl FnOnce(&mut NodeReader<'_>, &[usize]) -> Result<Stored, BuildError>,
) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    let (inp, out): (usize, usize) = (r.required("in_channels")?, r.required("out_channels")?);
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 || inp % groups != 0 || out % groups != 0 {
        return Err(r.bad("groups", format!("a divisor of {inp} and {out} channels")));
    }
    let mut shape = vec![out, inp / groups];
    shape.extend(r.sizes("kernel_size", dims, 1, None)?);
    let modes = [
        ("zeros", PadMode::Zeros),
        ("reflect", PadMode::Reflect),
        ("replicate", PadMode::Replicate),
        ("circular", PadMode::Circular),
    ];
    let (weight, bias) = read(r, &shape)?;
    let mode = r.one_of("padding_mode", &modes, Some(PadMode::Zeros))?;
    let weights = |r: &mut NodeReader<'_>| {
        let input = r.required_input("input")?;
        Ok(Weighted::new(input, Source::Stored(weight), bias.map(Source::Stored)))
    };
    Ok(Box::new(Conv { mode, ..common(r, dims, groups, weights)? }))
}

fn function(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = spatial_dims(r)?;
    functional(r, dims)
}

/// The native functions of any number of dimensions, transposed or not.
fn native(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    // A list of one stands for all dimensions: then the recorded weight says how many there are.
    let dims = match r.required::<Vec<i64>>("stride")?.len() {
        1 => r.recorded_input(1).map_or(1, |weight| weight.len().saturating_sub(2)),
        dims => dims,
    };
    if !(1..=3).contains(&dims) {
        return Err(r.bad("stride", "1, 2 or 3 integers"));
    }
    match r.or("transposed", false)? {
        true => conv_transpose::functional(r, dims),
        false => {
            let _: Vec<i64> = r.or("output_padding", Vec::new())?;
            functional(r, dims)
        }
    }
}
register_op!(native => "aten::convolution", "aten::_convolution");

/// A function whose weights are inputs.
fn functional(r: &mut NodeReader<'_>, dims: usize) -> Result<Box<dyn Operator>, BuildError> {
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 {
        return Err(r.bad("groups", "a positive integer"));
    }
    Ok(Box::new(common(r, dims, groups, Weighted::of_function)?))
}

/// What modules and functions share.
fn common(
    r: &mut NodeReader<'_>,
    dims: usize,
    groups: usize,
    weights: impl FnOnce(&mut NodeReader<'_>) -> Result<Weighted, BuildError>,
) -> Result<Conv, BuildError> {
    let stride = r.sizes("stride", dims, 1, Some(1))?;
    let both = |sizes: &[i64]| sizes.len() == 2 * dims;
    let padding = match r.raw("padding").and_then(|p| p.as_str()) {
        Some("valid") => Padding::Sizes(vec![(0, 0); dims]),
        Some("same") if stride.iter().all(|&s| s == 1) => Padding::Same,
        Some("same") => return Err(r.bad("stride", "1 where padding is 'same'")),
        Some(_) => return Err(r.bad("padding", "sizes, same or valid")),
        // Of other modes pnnx may write what it pads with: before and behind, the last dimension
        // first.
        None if dims > 1 && r.raw("padding").and_then(|p| p.as_ints()).is_some_and(both) => {
            let sizes = r.sizes("padding", 2 * dims, 0, None)?;
            Padding::Sizes(sizes.as_chunks::<2>().0.iter().rev().map(|&[a, b]| (a, b)).collect())
        }
        None => {
            let sizes = r.sizes("padding", dims, 0, Some(0))?;
            Padding::Sizes(sizes.into_iter().map(|size| (size, size)).collect())
        }
    };
    let dilation = r.sizes("dilation", dims, 1, Some(1))?;
    let (mode, transposed, weighted) = (PadMode::Zeros, None, weights(r)?);
    let keeps_f32 = false;
    Ok(Conv { dims, weighted, stride, padding, dilation, groups, mode, transposed, keeps_f32 })
}

/// The batch (1 where there is none) and the rest of an input of `dims + 1` or `dims + 2`
/// dimensions.
pub(crate) fn batch_and_image(
    shape: &Shape,
    dims: usize,
    input: usize,
) -> Result<(usize, &[usize]), ShapeError> {
    match shape.dims() {
        [batch, image @ ..] if image.len() == dims + 1 => Ok((*batch, image)),
        image if image.len() == dims + 1 => Ok((1, image)),
        _ => Err(ShapeError::Rank {
            input,
            expected: format!("{} or {}", dims + 1, dims + 2),
            found: shape.clone(),
        }),
    }
}

impl Conv {
    /// The sizes, and the output.
    pub(crate) fn problem(
        &self,
        inputs: &[ValueSpec],
    ) -> Result<(ConvProblem, TensorSpec), ShapeError> {
        let x = &TensorValue::at(inputs, self.weighted.input)?.spec;
        let weight = self.weighted.weight.spec(inputs)?;
        let (batch, image) = batch_and_image(&x.shape, self.dims, self.weighted.input)?;
        let &[first, second, ref kernel @ ..] = weight.shape.dims() else {
            return Err(ShapeError::Invalid(format!("the weight cannot be {weight}")));
        };
        // The weight's second dimension is that of one group.
        let all = second.saturating_mul(self.groups);
        let (inp, out) = if self.transposed.is_some() { (first, all) } else { (all, first) };
        if kernel.len() != self.dims || image[0] != inp || weight.dtype != x.dtype {
            return Err(ShapeError::Invalid(format!(
                "a weight {weight} in {} groups does not suit an input {x}",
                self.groups
            )));
        }
        self.weighted.check_bias(&[out], x.dtype, inputs)?;
        let mut axes = Vec::with_capacity(self.dims);
        for (i, &kernel) in kernel.iter().enumerate() {
            let window = self.window(i, kernel);
            let axis = match &self.transposed {
                None => Axis::new(image[i + 1], window),
                Some(output_padding) => Axis::transposed(image[i + 1], window, output_padding[i]),
            };
            axes.push(axis.map_err(shape_error)?);
        }
        let problem = ConvProblem::new(batch, self.groups, inp, out, &axes).map_err(shape_error)?;
        let mut shape = x.shape.clone();
        let first = shape.rank() - self.dims;
        shape[first - 1] = out;
        for (dim, axis) in shape[first..].iter_mut().zip(&axes) {
            *dim = axis.output();
        }
        Ok((problem, TensorSpec::new(x.dtype, shape)))
    }

    /// The window of spatial dimension `i`, with so many taps.
    pub(crate) fn window(&self, i: usize, kernel: usize) -> Window {
        let dilation = self.dilation[i];
        let padding = match &self.padding {
            Padding::Sizes(sizes) => sizes[i],
            Padding::Same => {
                let all = kernel.saturating_sub(1).saturating_mul(dilation);
                (all / 2, all - all / 2)
            }
        };
        Window { kernel, stride: self.stride[i], dilation, padding, mode: self.mode }
    }

    /// The same, with all tensors in f32 where others could be bf16.
    #[must_use]
    pub fn keeping_f32(&self) -> Self {
        Self { keeps_f32: true, ..self.clone() }
    }

    /// Whether it may be one whose groups are single channels.
    pub fn has_groups(&self) -> bool {
        self.groups > 1
    }

    /// The padding with these zeros around the input, by dimension, if they lie around pixels.
    fn with_zeros(&self, zeros: &[(usize, usize)]) -> Option<Padding> {
        let (others, spatial) = zeros.split_at_checked(zeros.len().checked_sub(self.dims)?)?;
        let Padding::Sizes(own) = &self.padding else { return None };
        if self.mode != PadMode::Zeros
            || self.transposed.is_some()
            || self.weighted.input != 0
            || others.iter().any(|&z| z != (0, 0))
        {
            return None;
        }
        let sum = |(a, b): (&(usize, usize), &(usize, usize))| {
            Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?))
        };
        Some(Padding::Sizes(own.iter().zip(spatial).map(sum).collect::<Option<_>>()?))
    }

    /// Whether factors of its channels are multiplied on the way, and faster so.
    fn takes_factors(&self, inputs: &[ValueSpec]) -> bool {
        let (Ok((problem, _)), Ok(x)) = (self.problem(inputs), TensorValue::at(inputs, 0)) else {
            return false;
        };
        kernel::takes_factors(&self.weighted, problem, x.spec.layout, Isa::best())
    }
}

impl Operator for Conv {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::LikeInputs
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (problem, output) = self.problem(inputs)?;
        if self.weighted.post_ops.factors {
            let factors = &TensorValue::at(inputs, 1)?.spec;
            let shape = [problem.batch(), problem.in_channels(), 1, 1];
            if factors.shape.dims() != shape || factors.dtype != DType::F32 {
                let expected = TensorSpec::new(DType::F32, shape);
                return Err(ShapeError::Invalid(format!(
                    "factors must be {expected}, found {factors}"
                )));
            }
        }
        self.weighted.check_residual(&output, inputs)?;
        Ok(vec![output.into()])
    }

    fn layouts(&self, cx: &LayoutCx<'_>) -> LayoutSupport {
        let Ok((problem, output)) = self.problem(cx.inputs) else { return LayoutSupport::PLAIN };
        let batched = output.dtype == DType::F32 && output.shape.rank() == problem.dims() + 2;
        kernel::layouts(&self.weighted, problem, batched, cx)
    }

    fn bf16(&self, cx: &LayoutCx<'_>) -> Bf16Support {
        let problem = self.problem(cx.inputs).ok().filter(|_| !self.keeps_f32);
        problem.map(|(problem, _)| kernel::bf16(&self.weighted, problem, cx)).unwrap_or_default()
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        kernel::plan(&self.weighted, self.problem(cx.inputs)?.0, cx)
    }

    fn absorb(&self, neighbour: &Neighbour, inputs: &[ValueSpec]) -> Option<Box<dyn Operator>> {
        let mut conv = self.clone();
        match neighbour {
            Neighbour::Factors if self.takes_factors(inputs) => {
                conv.weighted.post_ops = PostOps { factors: true, ..conv.weighted.post_ops };
            }
            Neighbour::Zeros(zeros) => conv.padding = self.with_zeros(zeros)?,
            // Rows of the weight of a transposed convolution are inputs, and pixels that it writes
            // lie apart.
            Neighbour::Affine(affine) => return Some(Box::new(self.with_affine(affine)?)),
            Neighbour::Add if self.transposed.is_some() => return None,
            other => conv.weighted = self.weighted.absorb(other)?,
        }
        Some(Box::new(conv))
    }

    fn convolution(&self) -> Option<&Conv> {
        Some(self)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.problem(inputs).map_or(0, |(problem, _)| problem.flops() as u64);
        self.weighted.cost(flops, inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    use crate::Neighbour;
    use crate::testkit::{check, check_line, error, op, random, tensor, try_op, values};
    use plutino_tensor::DType;

    #[test]
    fn a_padded_convolution_with_bias() {
        let conv = op("F.conv1d c 3 1 0 1 2 9 stride=(1) padding=(1) dilation=(1) groups=1");
        let x = tensor([1, 1, 4], &[1.0f32, 2.0, 3.0, 4.0]);
        let w = tensor([2, 1, 3], &[1.0f32, 0.0, -1.0, 1.0, 1.0, 1.0]);
        let y = check(&*conv, &[x, w, tensor([2], &[0.5f32, 0.0])]);
        assert_eq!(y[0].shape().dims(), [1, 2, 4]);
        assert_eq!(values::<f32>(&y[0]), [-1.5, -1.5, -1.5, 3.5, 3.0, 6.0, 9.0, 7.0]);
    }

    #[test]
    fn same_padding_puts_the_odd_element_behind() {
        let conv = op("F.conv1d c 2 1 0 1 9 bias=None stride=(1) padding=same");
        let x = tensor([1, 3], &[1.0f32, 2.0, 4.0]); // without batch
        let y = check(&*conv, &[x, tensor([1, 1, 2], &[1.0f32, 10.0])]);
        assert_eq!(y[0].shape().dims(), [1, 3]);
        assert_eq!(values::<f32>(&y[0]), [21.0, 42.0, 4.0]);
    }

    #[test]
    fn other_dtypes_agree_with_f32() {
        let conv = op("F.conv2d c 3 1 0 1 2 9 stride=(2,1) padding=(1,0) groups=2");
        let inputs = [random([2, 4, 5, 6], 1), random([6, 2, 3, 2], 2), random([6], 3)];
        let expected = check(&*conv, &inputs);
        let wide = inputs.map(|t| t.cast(DType::F64).unwrap());
        let found = check(&*conv, &wide)[0].cast(DType::F32).unwrap();
        // 12 terms below 1 in all.
        crate::testkit::assert_close(&found, &expected[0], 13.0 * 13.0 * f32::EPSILON);
    }

    #[test]
    fn padding_as_pnnx_writes_it_for_volumes_of_other_modes() {
        let text = "out_channels=1 in_channels=1 kernel_size=(1,3,1) bias=False padding_mode=replicate \
                    @weight=(1,1,1,3,1)f32";
        let sides = |padding: &str| {
            let op = op(&format!("nn.Conv3d c 1 1 0 1 padding={padding} {text}"));
            let conv = op.convolution().unwrap();
            (0..3).map(|i| conv.window(i, 1).padding).collect::<Vec<_>>()
        };
        assert_eq!(sides("(2,3,1,1,0,0)"), [(0, 0), (1, 1), (2, 3)]);
        assert_eq!(sides("(0,1,2)"), [(0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn absorbed_operators_act_in_order() {
        let conv = op("F.conv1d c 2 1 0 1 9 bias=None");
        let conv = conv.absorb(&Neighbour::Add, &[]).unwrap();
        let relu = Neighbour::Activation(plutino_kernels::Activation::Relu);
        let conv = conv.absorb(&relu, &[]).unwrap();
        assert!(conv.absorb(&Neighbour::Add, &[]).is_none());
        let x = tensor([1, 1, 3], &[1.0f32, -2.0, 3.0]);
        let other = tensor([1, 1, 3], &[0.5f32, 1.0, -9.0]);
        let y = check(&*conv, &[x, tensor([1, 1, 1], &[2.0f32]), other]);
        assert_eq!(values::<f32>(&y[0]), [2.5, 0.0, 0.0]);
    }

    #[test]
    fn a_module_pads_as_it_is_told() {
        let line = "nn.Conv1d c 1 1 0 9 bias=False dilation=(1) groups=1 in_channels=1 \
                    kernel_size=(3) out_channels=1 padding=(2) padding_mode=reflect stride=(2)";
        let weight = [("weight", tensor([1, 1, 3], &[1.0f32, 10.0, 100.0]))];
        let conv = try_op(line, &weight).unwrap();
        let y = check(&*conv, &[tensor([1, 1, 3], &[1.0f32, 2.0, 3.0])]);
        // 3 2 1 2 3 2 1, every second window
        assert_eq!(values::<f32>(&y[0]), [123.0, 321.0, 123.0]);
    }

    #[test]
    fn bad_parameters_are_named() {
        let text = |line: &str| try_op(line, &[]).unwrap_err().to_string();
        let module = "nn.Conv2d c 1 1 0 9 in_channels=4 out_channels=6";
        let found = text(&format!("{module} kernel_size=(3,3) groups=3"));
        assert!(found.contains("'groups' must be a divisor of 4 and 6 channels"), "{found}");
        let found = text(&format!("{module} kernel_size=(3,0)"));
        assert!(found.contains("'kernel_size' must be 2 integers of at least 1"), "{found}");
        let found = text("F.conv2d c 1 1 0 9 stride=(2,2) padding=same");
        assert!(found.contains("'stride' must be 1 where padding is 'same'"), "{found}");
    }

    #[test]
    fn inputs_that_do_not_suit_are_errors() {
        let conv = op("F.conv2d c 2 1 0 1 9 bias=None");
        for (x, w) in [
            (&[1, 3, 5, 5][..], &[4, 2, 3, 3][..]),
            (&[1, 2, 2, 5], &[4, 2, 3, 3]),
            (&[2, 5], &[4, 2, 3, 3]),
            (&[1, 2, 5, 5], &[4, 2, 3]),
        ] {
            error(&*conv, &[random(x, 1), random(w, 2)]);
        }
    }

    #[test]
    fn native_functions() {
        let given = [random([1, 4, 7, 8], 1), random([6, 2, 3, 2], 2), random([6], 3)];
        let spelled =
            op("F.conv2d c 3 1 0 1 2 9 stride=(2,1) padding=(1,0) dilation=(1,2) groups=2");
        let expected = check(&*spelled, &given);
        for line in [
            "aten::convolution c 9 1 0 1 2 =[2,1] =[1,0] =[1,2] =False =[0,0] =2 3",
            "aten::_convolution c 13 1 0 1 2 =[2,1] =[1,0] =[1,2] =False =[0,0] =2 =False =False =True =True 3",
        ] {
            assert_eq!(check_line(line, &given), expected, "{line}");
        }
        // A single number stands for both dimensions of the recorded weight.
        let line =
            "aten::convolution c 9 1 0 1 =None =[1] =[0] =[1] =False =[0] =2 3 #1=(6,2,3,2)f32";
        let spelled = op("F.conv2d c 2 1 0 1 9 bias=None groups=2");
        assert_eq!(check_line(line, &given[..2]), check(&*spelled, &given[..2]));
        let given = [random([1, 6, 3, 4], 1), random([6, 2, 3, 2], 2), random([4], 3)];
        let spelled = op(
            "F.conv_transpose2d c 3 1 0 1 2 9 stride=(2,2) padding=(1,0) output_padding=(1,0) groups=2",
        );
        let line = "aten::convolution c 9 1 0 1 2 =[2,2] =[1,0] =[1,1] =True =[1,0] =2 3";
        assert_eq!(check_line(line, &given), check(&*spelled, &given));
        assert!(
            try_op("aten::convolution c 9 1 0 1 2 =[1,1,1,1] =[0] =[1] =False =[0] =1 3", &[])
                .is_err()
        );
    }
}

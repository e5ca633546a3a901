//! Deformable convolution: `torchvision.ops.DeformConv2d`.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html>: a convolution
//! whose taps are moved by an offset of their own at each place, and weighted by a mask where there
//! is one. The samples of an image are gathered as columns; the rest is a matrix product for each
//! group.

use crate::support::assemble::leaf;
use crate::support::halves;
use crate::support::rearrange::invalid;
use crate::support::weights::{Bound, Source, optional};
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::gemm::{AnyMatrix, Batch, Gemm, PostOps, Size, Target, gemm_any};
use plutino_kernels::number::Float;
use plutino_kernels::sample::deform::{DeformGeometry, deform_columns};
use plutino_kernels::{Isa, for_floats};
use plutino_tensor::{DType, Shape, alloc};

#[derive(Debug)]
struct DeformConv {
    input: usize,
    offset: usize,
    mask: Option<usize>,
    /// (out channels, channels of a group, kernel height, kernel width)
    weight: Source,
    bias: Option<Source>,
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    /// Groups of channels that are read at the same places; none: as many as the offsets are for.
    offset_groups: Option<usize>,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (inp, out): (usize, usize) = (r.required("in_channels")?, r.required("out_channels")?);
    let groups: usize = r.or("groups", 1)?;
    if groups == 0 || inp % groups != 0 || out % groups != 0 {
        return Err(r.bad("groups", format!("a divisor of {inp} and {out} channels")));
    }
    let (kernel, stride) = (r.pair("kernel_size", 1, None)?, r.pair("stride", 1, Some(1))?);
    let (padding, dilation) = (r.pair("padding", 0, Some(0))?, r.pair("dilation", 1, Some(1))?);
    let bias = r.or("bias", true)?;
    let (input, offset) = (r.required_input("input")?, r.required_input("offset")?);
    Ok(Box::new(DeformConv {
        input,
        offset,
        mask: r.input("mask"),
        weight: Source::Stored(r.weight("weight", &[out, inp / groups, kernel[0], kernel[1]])?),
        bias: r.weight_if(bias, "bias", &[out])?.map(Source::Stored),
        stride,
        padding,
        dilation,
        groups,
        offset_groups: None,
    }))
}
register_op!(build => "torchvision.ops.DeformConv2d");

/// The function as PNNX leaves it: arguments by their place, a mask and a bias whether they count
/// or not.
fn raw(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mut pair = |keys: [&str; 2], least: usize| {
        let [h, w] = keys.map(|key| r.sizes(key, 1, least, None));
        Ok::<_, BuildError>([h?[0], w?[0]])
    };
    let stride = pair(["arg_5", "arg_6"], 1)?;
    let padding = pair(["arg_7", "arg_8"], 0)?;
    let dilation = pair(["arg_9", "arg_10"], 1)?;
    let [groups, offset_groups] = pair(["arg_11", "arg_12"], 1)?;
    let masked = r.or("arg_13", true)?;
    let (input, weight) = (r.required_input("arg_0")?, r.required_input("arg_1")?);
    let (offset, mask) = (r.required_input("arg_2")?, r.required_input("arg_3")?);
    Ok(Box::new(DeformConv {
        input,
        offset,
        mask: masked.then_some(mask),
        weight: Source::Input(weight),
        bias: Some(Source::Input(r.required_input("arg_4")?)),
        stride,
        padding,
        dilation,
        groups,
        offset_groups: Some(offset_groups),
    }))
}
register_op!(raw => "pnnx.custom_op.torchvision.deform_conv2d");

/// A deformable convolution of these inputs.
struct Problem {
    dtype: DType,
    batch: usize,
    out_channels: usize,
    geometry: DeformGeometry,
}

impl DeformConv {
    /// Sizes and dtype, checked.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Problem, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (dtype, offset) = (x.dtype(), TensorValue::at(inputs, self.offset)?);
        let mask = self.mask.map(|m| TensorValue::at(inputs, m)).transpose()?;
        let weight = self.weight.spec(inputs)?;
        let bias = self.bias.as_ref().map(|b| b.spec(inputs)).transpose()?;
        let weights = [Some(weight), bias].into_iter().flatten().map(|w| w.dtype);
        let others =
            [offset.dtype()].into_iter().chain(mask.map(TensorValue::dtype)).chain(weights);
        if !dtype.is_float() || others.into_iter().any(|d| d != dtype) {
            return Err(invalid("images, offsets, mask and weights must be floats of one dtype"));
        }
        let &[batch, channels, height, width] = x.shape().dims() else {
            let (expected, found) = ("4".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        let &[out_channels, of_group, rows, columns] = weight.shape.dims() else {
            return Err(invalid(format!("the weight must have 4 dimensions, found {weight}")));
        };
        if of_group.checked_mul(self.groups) != Some(channels) {
            let expected = format!("{} x {of_group}", self.groups);
            let found = x.shape().clone();
            return Err(ShapeError::Size { input: self.input, dim: 1, expected, found });
        }
        if rows == 0 || columns == 0 || !out_channels.is_multiple_of(self.groups) {
            return Err(invalid(format!("a weight {weight} in {} groups", self.groups)));
        }
        if let Some(bias) = bias.filter(|b| b.shape.dims() != [out_channels]) {
            return Err(invalid(format!("the bias must be ({out_channels}){dtype}, found {bias}")));
        }
        let kernel = [rows, columns];
        let input = [height, width];
        let mut output = [0; 2];
        for (d, places) in output.iter_mut().enumerate() {
            let padded = self.padding[d].checked_mul(2).and_then(|p| p.checked_add(input[d]));
            let window = (kernel[d] - 1).checked_mul(self.dilation[d]);
            let steps = padded.zip(window).and_then(|(p, w)| p.checked_sub(w.checked_add(1)?));
            let steps = steps.ok_or_else(|| {
                invalid(format!("images of shape {} are too small for the window", x.shape()))
            })?;
            *places = steps / self.stride[d] + 1;
        }
        let [h, w] = output;
        let taps = rows * columns; // of a weight that exists
        let own = offset.shape().get(1).map_or(0, |n| n / taps.saturating_mul(2).max(1));
        let offset_groups = self.offset_groups.unwrap_or(own);
        let fits = |t: &TensorValue, fields: Option<usize>| {
            fields.is_some_and(|fields| t.shape().dims() == [batch, fields, h, w])
        };
        let fields = offset_groups.checked_mul(taps);
        let shared = offset_groups > 0 && channels.is_multiple_of(offset_groups);
        if !shared || !fits(offset, fields.and_then(|f| f.checked_mul(2))) {
            return Err(invalid(format!(
                "offsets of shape {} do not suit {channels} channels, {taps} taps and {h} x {w} places",
                offset.shape()
            )));
        }
        if let Some(mask) = mask.filter(|m| !fits(m, fields)) {
            return Err(invalid(format!(
                "a mask of shape {} does not suit offsets of shape {}",
                mask.shape(),
                offset.shape()
            )));
        }
        Shape::from([channels, taps, h, w, size_of::<f64>()]).checked_numel()?;
        let geometry = DeformGeometry {
            channels,
            offset_groups,
            input,
            output,
            kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        };
        Ok(Problem { dtype, batch, out_channels, geometry })
    }

    fn planned<T: Float + bytemuck::Pod>(
        &self,
        cx: &PlanCx<'_>,
        problem: &Problem,
    ) -> Result<Planned, PlanError> {
        let elements = |w: &Source| w.shared_elements::<T>(cx.inputs, cx.packs);
        let size = problem.size(self.groups);
        let gemm = (T::DTYPE == DType::F32)
            .then(|| Gemm::new(Target::this(cx.isa), cx.threads, size, (false, false)));
        let own = gemm.as_ref().map_or(0, |g| g.scratch(cx.threads));
        let columns = problem.geometry.columns_len().next_multiple_of(16);
        let kernel = DeformKernel::<T> {
            isa: cx.isa,
            input: leaf(cx.inputs, self.input),
            offset: leaf(cx.inputs, self.offset),
            mask: self.mask.map(|m| leaf(cx.inputs, m)),
            weight: elements(&self.weight)?,
            bias: self.bias.as_ref().map(elements).transpose()?,
            offsets: alloc::collect(
                (0..size.batch).map(|g| (g * size.m * size.k, g * size.k * size.n)),
            )?,
            size,
            gemm,
            geometry: problem.geometry,
            columns,
        };
        let scratch = columns.saturating_add(own).saturating_mul(size_of::<T>());
        Ok(Planned::new(kernel).with_scratch(scratch))
    }
}

impl Problem {
    /// The product of each group.
    fn size(&self, groups: usize) -> Size {
        let g = &self.geometry;
        Size {
            batch: groups,
            m: self.out_channels / groups,
            n: g.places(),
            k: g.channels / groups * g.taps(),
        }
    }
}

impl Operator for DeformConv {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let Problem { dtype, batch, out_channels, geometry } = self.bind(inputs)?;
        let [h, w] = geometry.output;
        Ok(vec![ValueSpec::tensor(dtype, [batch, out_channels, h, w])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let problem = self.bind(cx.inputs)?;
        if halves::is_half(problem.dtype) {
            return halves::widened(cx, |cx| self.planned::<f32>(cx, &problem));
        }
        for_floats!(problem.dtype,
            T => self.planned::<T>(cx, &problem),
            _ => Err(PlanError::Unsupported(format!("a deformable convolution of {}", problem.dtype))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0, |p| {
            let Size { batch: groups, m, n, k } = p.size(self.groups);
            let product =
                [2, p.batch, groups, m, n, k].iter().fold(1u64, |f, &x| f.saturating_mul(x as u64));
            let columns = (p.batch as u64).saturating_mul(p.geometry.columns_len() as u64);
            product.saturating_add(columns.saturating_mul(8))
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

struct DeformKernel<T> {
    isa: Isa,
    input: usize,
    offset: usize,
    mask: Option<usize>,
    weight: Bound<[T]>,
    bias: Option<Bound<[T]>>,
    size: Size,
    /// First elements of the weights and the columns of each group.
    offsets: Vec<(usize, usize)>,
    /// For f32.
    gemm: Option<Gemm>,
    geometry: DeformGeometry,
    /// Elements of scratch memory for the columns of an image.
    columns: usize,
}

impl<T: Float + bytemuck::Pod> Kernel for DeformKernel<T> {
    fn name(&self) -> &str {
        "deform_conv"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (g, size) = (&self.geometry, self.size);
        let (x, offset) = (cx.inputs.get::<T>(self.input)?, cx.inputs.get::<T>(self.offset)?);
        let mask = self.mask.map(|m| cx.inputs.get::<T>(m)).transpose()?;
        let weight = self.weight.get(&cx.inputs)?;
        let bias = optional(&self.bias, &cx.inputs)?;
        let (y, scratch) = (cx.outputs.take::<T>(0)?, cx.take_scratch::<T>()?);
        let short = || RunError::Internal("scratch memory of a deformable convolution".into());
        let (columns, own) = scratch.split_at_mut_checked(self.columns).ok_or_else(short)?;
        let columns = &mut columns[..g.columns_len()];
        let (image, fields) =
            (g.channels * g.input[0] * g.input[1], g.offset_groups * g.taps() * g.places());
        for (n, y) in y.chunks_exact_mut((size.batch * size.m * size.n).max(1)).enumerate() {
            let mask = mask.map(|m| &m[n * fields..][..fields]);
            let offset = &offset[n * 2 * fields..][..2 * fields];
            deform_columns(cx.par, g, &x[n * image..][..image], offset, mask, columns);
            match &self.gemm {
                Some(gemm) => {
                    let batch = Batch {
                        size,
                        a: (bytemuck::cast_slice(weight), (size.k, 1)),
                        b: (bytemuck::cast_slice(columns), (size.n, 1)),
                        offsets: &self.offsets,
                        scale: 1.0,
                        post_ops: PostOps::default(),
                    };
                    let (y, own) = (bytemuck::cast_slice_mut(y), bytemuck::cast_slice_mut(own));
                    gemm.run_batch(cx.par, &batch, y, size.n, own);
                    let bias: &[f32] = bias.map_or(&[], |b| bytemuck::cast_slice(b));
                    for (y, bias) in y.chunks_exact_mut(size.n.max(1)).zip(bias) {
                        y.iter_mut().for_each(|y| *y += bias);
                    }
                }
                None => {
                    for (group, &(a, b)) in self.offsets.iter().enumerate() {
                        let first = group * size.m;
                        let a = AnyMatrix { data: &weight[a..], strides: (size.k, 1) };
                        let b = AnyMatrix { data: &columns[b..], strides: (size.n, 1) };
                        let start =
                            |at: usize| bias.map_or(0.0, |b| b[first + at / size.n].widen());
                        let store = |at: usize, sum: f64| T::narrow(sum + start(at));
                        let y = &mut y[first * size.n..][..size.m * size.n];
                        gemm_any(self.isa, cx.par, (size.m, size.n, size.k), a, b, &store, y);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, op_with, random, tensor, values};
    use plutino_tensor::{DType, Tensor};

    fn weights(out: usize, inp: usize) -> [(&'static str, Tensor); 2] {
        [("weight", random([out, inp, 3, 2], 8)), ("bias", random([out], 9))]
    }

    const LINE: &str = "dilation=(2,1) kernel_size=(3,2) padding=(1,1) stride=(2,1)";

    /// Without offsets it is a convolution, and a mask of ones changes nothing.
    #[test]
    fn without_offsets_it_is_a_convolution() {
        for groups in [1, 2] {
            let weights = weights(6, 4 / groups);
            let line = format!("bias=True {LINE} groups={groups} in_channels=4 out_channels=6");
            let x = random([2, 4, 9, 7], 1);
            let conv = op_with(&format!("nn.Conv2d c 1 1 0 1 {line} padding_mode=zeros"), &weights);
            let expected = check(&*conv, std::slice::from_ref(&x)).remove(0);
            let (h, w) = (expected.shape()[2], expected.shape()[3]);
            let zeros = |c: usize| tensor([2, c, h, w], &vec![0.0f32; 2 * c * h * w]);
            let deform =
                op_with(&format!("torchvision.ops.DeformConv2d c 2 1 0 1 2 {line}"), &weights);
            // 24 products below 1, in another order.
            let bound = 24.0 * 24.0 * f32::EPSILON;
            for offset_groups in [1, 2] {
                let y = check(&*deform, &[x.clone(), zeros(offset_groups * 12)]);
                assert_close(&y[0], &expected, bound);
            }
            let masked =
                op_with(&format!("torchvision.ops.DeformConv2d c 3 1 0 1 2 3 {line}"), &weights);
            let ones = tensor([2, 6, h, w], &vec![1.0f32; 12 * h * w]);
            assert_close(&check(&*masked, &[x.clone(), zeros(12), ones])[0], &expected, bound);
            let wide = weights.each_ref().map(|(name, w)| (*name, w.cast(DType::F64).unwrap()));
            let deform =
                op_with(&format!("torchvision.ops.DeformConv2d c 2 1 0 1 2 {line}"), &wide);
            let inputs = [x, zeros(12)].map(|t| t.cast(DType::F64).unwrap());
            let y = check(&*deform, &inputs)[0].cast(DType::F32).unwrap();
            assert_close(&y, &expected, bound);
        }
    }

    /// Weights may be inputs; a mask or bias that does not count is there nevertheless.
    #[test]
    fn the_function_is_the_module() {
        let weights = weights(6, 2);
        let module = "torchvision.ops.DeformConv2d c 3 1 0 1 2 3 bias=True groups=2 in_channels=4 out_channels=6";
        let module = op_with(&format!("{module} {LINE}"), &weights);
        let (x, offset, mask) =
            (random([2, 4, 9, 7], 1), random([2, 24, 4, 8], 2), random([2, 12, 4, 8], 3));
        let given = [x.clone(), offset.clone(), mask.clone()];
        let expected = check(&*module, &given);
        let line = |masked: &str| {
            format!(
                "pnnx.custom_op.torchvision.deform_conv2d d 5 1 0 1 2 3 4 5 $arg_0=0 $arg_1=1 $arg_2=2 $arg_3=3 $arg_4=4 \
                 arg_5=2 arg_6=1 arg_7=1 arg_8=1 arg_9=2 arg_10=1 arg_11=2 arg_12=2 arg_13={masked}"
            )
        };
        let [(_, weight), (_, bias)] = weights;
        let all = [x.clone(), weight.clone(), offset.clone(), mask, bias.clone()];
        assert_eq!(check(&*op(&line("True")), &all), expected);
        let ones = tensor([2, 12, 4, 8], &vec![1.0f32; 2 * 12 * 32]);
        let unmasked = check(&*module, &[x.clone(), offset.clone(), ones]);
        let all = [x, weight, offset, iota([2, 1]), bias];
        assert_eq!(check(&*op(&line("False")), &all), unmasked);
        let mut wrong = all;
        wrong[2] = random([2, 12, 4, 8], 2);
        error(&*op(&line("False")), &wrong);
    }

    #[test]
    fn offsets_move_taps() {
        let line = "torchvision.ops.DeformConv2d c 2 1 0 1 2 bias=False dilation=(1,1) groups=1 in_channels=1 \
                    kernel_size=(1,1) out_channels=1 padding=(0,0) stride=(1,1)";
        let deform = op_with(line, &[("weight", tensor([1, 1, 1, 1], &[2.0f32]))]);
        let offset = tensor([1, 2, 2, 2], &[1.0f32, 0.0, 0.0, -1.5, 0.0, 0.5, 0.0, 0.0]);
        let y = check(&*deform, &[iota([1, 1, 2, 2]), offset]);
        assert_eq!(values::<f32>(&y[0]), [4.0, 1.0, 4.0, 1.0]);
        error(&*deform, &[iota([1, 1, 2, 2]), iota([1, 3, 2, 2])]);
        error(&*deform, &[iota([1, 1, 2, 2]), iota([1, 2, 1, 2])]);
        error(&*deform, &[iota([1, 2, 2, 2]), iota([1, 2, 2, 2])]);
        error(&*deform, &[iota([1, 2, 2]), iota([1, 2, 2])]);
    }
}

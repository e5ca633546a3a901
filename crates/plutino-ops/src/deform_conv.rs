//! Deformable convolution: `torchvision.ops.DeformConv2d`.
//!
//! <https://pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html>: a convolution whose taps are moved
//! by an offset of their own at each place, and weighted by a mask where there is one. The samples of an image are
//! gathered as columns; the rest is a matrix product for each group.

use crate::assemble::leaf;
use crate::rearrange::invalid;
use crate::{
    BuildError, Cost, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, Weight, register_op,
};
use plutino_kernels::for_floats;
use plutino_kernels::gemm::{AnyMatrix, Batch, Epilogue, Gemm, Size, Summand, Target, gemm_any};
use plutino_kernels::number::Float;
use plutino_kernels::sample::deform::{DeformGeometry, deform_columns};
use plutino_tensor::{DType, Shape, Tensor};
use std::marker::PhantomData;
use std::sync::Arc;

#[derive(Debug)]
struct DeformConv {
    input: usize,
    offset: usize,
    mask: Option<usize>,
    /// (out channels, channels of a group, kernel height, kernel width)
    weight: Weight,
    bias: Option<Weight>,
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    kernel: [usize; 2],
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
        weight: r.weight("weight", &[out, inp / groups, kernel[0], kernel[1]])?,
        bias: r.weight_if(bias, "bias", &[out])?,
        stride,
        padding,
        dilation,
        groups,
        in_channels: inp,
        out_channels: out,
        kernel,
    }))
}
register_op!(build => "torchvision.ops.DeformConv2d");

impl DeformConv {
    /// The dtype, the number of images, and everything about one of them.
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, usize, DeformGeometry), ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let (dtype, offset) = (x.dtype(), TensorValue::at(inputs, self.offset)?);
        let mask = self.mask.map(|m| TensorValue::at(inputs, m)).transpose()?;
        let weights =
            [Some(&self.weight), self.bias.as_ref()].into_iter().flatten().map(|w| w.spec.dtype);
        let others =
            [offset.dtype()].into_iter().chain(mask.map(TensorValue::dtype)).chain(weights);
        if !dtype.is_float() || others.into_iter().any(|d| d != dtype) {
            return Err(invalid("images, offsets, mask and weights must be floats of one dtype"));
        }
        let &[batch, channels, height, width] = x.shape().dims() else {
            let (expected, found) = ("4".into(), x.shape().clone());
            return Err(ShapeError::Rank { input: self.input, expected, found });
        };
        if channels != self.in_channels {
            let (expected, found) = (self.in_channels.to_string(), x.shape().clone());
            return Err(ShapeError::Size { input: self.input, dim: 1, expected, found });
        }
        let input = [height, width];
        let mut output = [0; 2];
        for (d, places) in output.iter_mut().enumerate() {
            let padded = self.padding[d].checked_mul(2).and_then(|p| p.checked_add(input[d]));
            let window = (self.kernel[d] - 1).checked_mul(self.dilation[d]);
            let steps = padded.zip(window).and_then(|(p, w)| p.checked_sub(w.checked_add(1)?));
            let steps = steps.ok_or_else(|| {
                invalid(format!("images of shape {} are too small for the window", x.shape()))
            })?;
            *places = steps / self.stride[d] + 1;
        }
        let [h, w] = output;
        let taps = self.kernel[0] * self.kernel[1]; // of a weight that exists
        let offset_groups = offset.shape().get(1).map_or(0, |n| n / (2 * taps).max(1));
        let fits = |t: &TensorValue, fields: usize| t.shape().dims() == [batch, fields, h, w];
        let shared = offset_groups > 0 && channels.is_multiple_of(offset_groups);
        if !shared || !fits(offset, 2 * offset_groups * taps) {
            return Err(invalid(format!(
                "offsets of shape {} do not suit {channels} channels, {taps} taps and {h} x {w} places",
                offset.shape()
            )));
        }
        if let Some(mask) = mask.filter(|m| !fits(m, offset_groups * taps)) {
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
            kernel: self.kernel,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        };
        Ok((dtype, batch, geometry))
    }

    /// The product of each group.
    fn size(&self, g: &DeformGeometry) -> Size {
        Size {
            batch: self.groups,
            m: self.out_channels / self.groups,
            n: g.places(),
            k: g.channels / self.groups * g.taps(),
        }
    }

    fn planned<T: Float + bytemuck::Pod>(
        &self,
        cx: &PlanCx<'_>,
        geometry: DeformGeometry,
    ) -> Result<Planned, PlanError> {
        let tensor = |w: &Weight| cx.packs.get(&w.name, "tensor", || w.tensor());
        let size = self.size(&geometry);
        let gemm = (T::DTYPE == DType::F32)
            .then(|| Gemm::new(Target::this(cx.isa), cx.threads, size, (false, false)));
        let own = gemm.as_ref().map_or(0, |g| g.scratch(cx.threads));
        let columns = geometry.columns_len().next_multiple_of(16);
        let kernel = DeformKernel::<T> {
            input: leaf(cx.inputs, self.input),
            offset: leaf(cx.inputs, self.offset),
            mask: self.mask.map(|m| leaf(cx.inputs, m)),
            weight: tensor(&self.weight)?,
            bias: self.bias.as_ref().map(tensor).transpose()?,
            offsets: (0..size.batch).map(|g| (g * size.m * size.k, g * size.k * size.n)).collect(),
            size,
            gemm,
            geometry,
            columns,
            element: PhantomData,
        };
        let scratch = columns.saturating_add(own).saturating_mul(size_of::<T>());
        Ok(Planned::new(kernel).with_scratch(scratch))
    }
}

impl Operator for DeformConv {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, batch, DeformGeometry { output: [h, w], .. }) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, [batch, self.out_channels, h, w])])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, _, geometry) = self.bind(cx.inputs)?;
        for_floats!(dtype,
            T => self.planned::<T>(cx, geometry),
            _ => Err(PlanError::Unsupported(format!("a deformable convolution of {dtype}"))),
        )
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let flops = self.bind(inputs).map_or(0, |(_, batch, g)| {
            let Size { batch: groups, m, n, k } = self.size(&g);
            let product =
                [2, batch, groups, m, n, k].iter().fold(1u64, |f, &x| f.saturating_mul(x as u64));
            product.saturating_add(8 * (batch as u64).saturating_mul(g.columns_len() as u64))
        });
        Cost { flops, ..Cost::moved(inputs, outputs) }
    }
}

struct DeformKernel<T> {
    input: usize,
    offset: usize,
    mask: Option<usize>,
    weight: Arc<Tensor>,
    bias: Option<Arc<Tensor>>,
    size: Size,
    /// First elements of the weights and the columns of each group.
    offsets: Vec<(usize, usize)>,
    /// For f32.
    gemm: Option<Gemm>,
    geometry: DeformGeometry,
    /// Elements of scratch memory for the columns of an image.
    columns: usize,
    element: PhantomData<T>,
}

impl<T: Float + bytemuck::Pod> Kernel for DeformKernel<T> {
    fn name(&self) -> &str {
        "deform_conv"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (g, size) = (&self.geometry, self.size);
        let (x, offset) = (cx.inputs.get::<T>(self.input)?, cx.inputs.get::<T>(self.offset)?);
        let mask = self.mask.map(|m| cx.inputs.get::<T>(m)).transpose()?;
        let weight = self.weight.as_slice::<T>()?;
        let bias = self.bias.as_ref().map(|b| b.as_slice::<T>()).transpose()?;
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
            for (channel, y) in y.chunks_exact_mut(size.n).enumerate() {
                y.fill(bias.map_or(T::default(), |b| b[channel]));
            }
            match &self.gemm {
                Some(gemm) => {
                    let batch = Batch {
                        size,
                        a: (bytemuck::cast_slice(weight), (size.k, 1)),
                        b: (bytemuck::cast_slice(columns), (size.n, 1)),
                        offsets: &self.offsets,
                        scale: 1.0,
                        epilogue: Epilogue { summand: Summand::Output, ..Epilogue::default() },
                    };
                    let (y, own) = (bytemuck::cast_slice_mut(y), bytemuck::cast_slice_mut(own));
                    gemm.run(cx.par, &batch, y, size.n, own);
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
                        gemm_any(cx.par, (size.m, size.n, size.k), a, b, store, y);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op_with, random, tensor, values};
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

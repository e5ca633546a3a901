//! Tensors side by side: cat, stack, complex. Along the outermost dimension (those of size 1 do not
//! count) the producers may write into the result's memory themselves.

use crate::fused::channel_map::MOST_CHANNELS;
use crate::support::assemble::{Assemble, Assembly, Piece, assembled, same_dtype};
use crate::support::promotion::promote;
use crate::support::rearrange::{Geometry, invalid};
use crate::{
    BuildError, BuildProblem, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::{DType, Shape, alloc};

/// The leaves of some inputs, which may be tensors or lists of tensors.
pub(crate) fn tensors<'a>(inputs: &'a [ValueSpec]) -> Result<Vec<&'a TensorValue>, ShapeError> {
    let leaves =
        inputs.iter().enumerate().flat_map(|(i, v)| v.leaves().into_iter().map(move |l| (i, l)));
    let tensor = |(input, leaf): (usize, &'a ValueSpec)| {
        leaf.as_tensor().ok_or_else(|| ShapeError::Sort {
            input,
            expected: "tensors of known shape",
            found: leaf.to_string(),
        })
    };
    leaves.map(tensor).collect()
}

/// The dtype to which all leaves are promoted.
pub(crate) fn common_dtype(tensors: &[&TensorValue]) -> Result<DType, ShapeError> {
    let dtypes = tensors.iter().map(|t| t.dtype());
    dtypes.reduce(promote).ok_or_else(|| invalid("there are no tensors to join"))
}

/// <https://pytorch.org/docs/stable/generated/torch.cat.html>
#[derive(Debug)]
struct Cat {
    dim: i64,
    /// The number of inputs that are joined: the first ones.
    joined: usize,
}

/// Joins all inputs that nobody else read.
pub(crate) fn cat(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.or("dim", 0)?;
    assembled(Cat { dim, joined: leading(r)? })
}

/// The number of inputs that nobody read: the first ones, since other arguments follow the tensors.
fn leading(r: &mut NodeReader<'_>) -> Result<usize, BuildError> {
    let rest = r.rest();
    if rest.iter().enumerate().any(|(i, &at)| i != at) {
        let what = "the tensors must be the first inputs".to_owned();
        return Err(r.error(BuildProblem::Invalid(what)));
    }
    Ok(rest.len())
}
register_op!(cat => "torch.cat", "torch.concat", "torch.concatenate");

impl Cat {
    fn along(&self, dim: i64, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let tensors = tensors(inputs.get(..self.joined).unwrap_or(inputs))?;
        let dtype = common_dtype(&tensors)?;
        join(dtype, tensors.iter().map(|t| t.shape().clone()).collect(), dim)
    }

    /// The channels of each of the inputs, where these are f32 images, (N, C, spatial...), that are
    /// joined by channels.
    fn channels_of(&self, inputs: &[ValueSpec]) -> Option<Vec<usize>> {
        let channels = |v: &ValueSpec| {
            let t = v.as_tensor()?;
            let image = t.spec.may_lie_in_blocks() && !t.python;
            (image && t.shape().dim(self.dim).is_ok_and(|dim| dim == 1)).then(|| t.shape()[1])
        };
        inputs.get(..self.joined)?.iter().map(channels).collect()
    }
}

impl Assemble for Cat {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        self.along(self.dim, inputs)
    }

    /// Blocks of channels, which a dimension that is counted from the end would miss.
    fn of_blocks(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        self.along(1, inputs)
    }

    fn channels(&self, inputs: &[ValueSpec]) -> Option<Vec<(usize, usize)>> {
        let channels = self.channels_of(inputs)?;
        if channels.iter().fold(0usize, |sum, &c| sum.saturating_add(c)) > MOST_CHANNELS {
            return None;
        }
        let pairs = |(i, channels)| (0..channels).map(move |c| (i, c));
        alloc::grow(channels.into_iter().enumerate().flat_map(pairs)).ok()
    }

    fn moves_blocks(&self, inputs: &[ValueSpec], block: usize) -> bool {
        // Their blocks stand where the channels stood.
        let whole = |channels: Vec<usize>| channels.iter().all(|c| c.is_multiple_of(block));
        self.channels_of(inputs).is_some_and(whole)
    }

    fn appends(&self, rank: usize) -> Option<usize> {
        let dim = self.dim.checked_add(if self.dim < 0 { rank as i64 } else { 0 })?;
        usize::try_from(dim).ok().filter(|&dim| dim < rank && self.joined == 2)
    }
}

/// The leaves of the inputs, read in these shapes, one after the other along `dim`.
pub(crate) fn join(dtype: DType, shapes: Vec<Shape>, dim: i64) -> Result<Assembly, ShapeError> {
    // PyTorch has always let a tensor of shape (0) pass, whatever the others are.
    let counts = |shape: &&Shape| shape.dims() != [0];
    let model = shapes.iter().find(counts).or(shapes.first()).cloned().unwrap_or_default();
    if model.rank() == 0 {
        return Err(invalid("tensors without dimensions cannot be joined: use stack"));
    }
    let dim = model.dim(dim)?;
    let mut total = 0usize;
    for (i, each) in shapes.iter().enumerate().filter(|(_, each)| counts(each)) {
        let fits = each.rank() == model.rank()
            && each.iter().zip(model.iter()).enumerate().all(|(d, (a, b))| d == dim || a == b);
        if !fits {
            return Err(invalid(format!(
                "tensor {i} of shape {each} differs from {model} outside dimension {dim}"
            )));
        }
        let sum = total.checked_add(each[dim]);
        total = sum.ok_or_else(|| invalid("the joined dimension is too large"))?;
    }
    let mut shape = model.clone();
    shape[dim] = total;
    shape.checked_numel()?;
    Ok(side_by_side(dtype, shape, dim, shapes.into_iter()))
}

/// Tensors of these shapes, one after the other along `dim` of `shape`.
fn side_by_side(
    dtype: DType,
    shape: Shape,
    dim: usize,
    shapes: impl Iterator<Item = Shape>,
) -> Assembly {
    let whole = Geometry::dense(&shape);
    let step = shape.product(dim + 1..shape.rank());
    let mut at = 0;
    let mut places = Vec::new();
    let mut pieces = Vec::new();
    for (leaf, from) in shapes.enumerate() {
        places.push(at * step);
        if from.rank() == shape.rank() {
            let to = whole.clone().slice(dim, at, from[dim], 1);
            at += from[dim];
            pieces.push(Piece { leaf, from: Geometry::dense(&from), to });
        }
    }
    let outermost = shape[..dim].iter().all(|&d| d == 1);
    Assembly { placement: outermost.then_some(places), ..Assembly::new(dtype, shape, pieces) }
}

/// <https://pytorch.org/docs/stable/generated/torch.stack.html>
#[derive(Debug)]
struct Stack {
    dim: i64,
    /// The number of inputs that are stacked: the first ones.
    joined: usize,
}

fn stack(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.or("dim", 0)?;
    assembled(Stack { dim, joined: leading(r)? })
}
register_op!(stack => "torch.stack");

impl Assemble for Stack {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let tensors = tensors(inputs.get(..self.joined).unwrap_or(inputs))?;
        let dtype = common_dtype(&tensors)?;
        let each = tensors.first().map(|t| t.shape().clone()).unwrap_or_default();
        if let Some((i, t)) = tensors.iter().enumerate().find(|(_, t)| *t.shape() != each) {
            return Err(invalid(format!(
                "tensor {i} of shape {} cannot be stacked on tensors of shape {each}",
                t.shape()
            )));
        }
        let mut shape = each.clone();
        shape.push(1);
        let dim = shape.dim(self.dim)?;
        let mut each = each;
        each.insert(dim, 1);
        let mut shape = each.clone();
        shape[dim] = tensors.len();
        shape.checked_numel()?;
        Ok(side_by_side(dtype, shape, dim, tensors.iter().map(|_| each.clone())))
    }
}

/// Real and imaginary parts as complex numbers:
/// <https://pytorch.org/docs/stable/generated/torch.complex.html>
#[derive(Debug)]
struct Complex {
    real: usize,
    imag: usize,
}

fn complex(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let real = r.required_input("real")?;
    assembled(Complex { real, imag: r.required_input("imag")? })
}
register_op!(complex => "torch.complex");

impl Assemble for Complex {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let parts = [self.real, self.imag];
        let [re, im] = parts.map(|i| TensorValue::at(inputs, i));
        let (re, im) = (re?, im?);
        let real = same_dtype((self.real, re.dtype()), [(self.imag, im.dtype())])?;
        let dtype = match real {
            DType::F32 => DType::C64,
            DType::F64 => DType::C128,
            DType::F16 => DType::C32,
            found => {
                let expected = "f32, f64 or f16".into();
                return Err(ShapeError::DType { input: self.real, expected, found });
            }
        };
        let shape = re.shape().broadcast(im.shape())?;
        let mut pairs = shape.clone();
        pairs.push(2);
        pairs.checked_numel()?;
        let both = Geometry::dense(&pairs);
        let mut pieces = Vec::new();
        for (part, (input, t)) in parts.into_iter().zip([re, im]).enumerate() {
            let from = Geometry::dense(t.shape()).broadcast(&shape)?;
            let to = both.clone().select(shape.rank(), part);
            pieces.push(Piece { leaf: crate::support::assemble::leaf(inputs, input), from, to });
        }
        Ok(Assembly { unit: Some(real), ..Assembly::new(dtype, shape, pieces) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{
        check, check_bf16, check_values, error, iota, op, random, specs, tensor, values,
    };
    use crate::{LayoutCx, Setting};
    use plutino_kernels::Isa;
    use plutino_tensor::Tensor;
    use proptest::prelude::*;

    #[test]
    fn rows_of_bf16_are_joined_where_all_are_f32() {
        let cat = op("torch.cat c 2 1 0 1 2 dim=1");
        let (x, y) = (random([3, 4], 1), random([3, 6], 2));
        check_bf16(&*cat, &[x.clone(), y], &[0, 1], true);
        // What is converted is numbers of another size; along the outermost dimension parts are
        // written where they belong.
        let (long, byte) = (tensor([3, 2], &[1i64; 6]), tensor([3, 4], &[1u8; 12]));
        for (line, other) in [
            ("torch.cat c 2 1 0 1 2 dim=1", long),
            ("torch.stack s 2 1 0 1 2 dim=1", byte),
            ("torch.cat c 2 1 0 1 2 dim=0", x.clone()),
        ] {
            let setting = Setting::new(Isa::PORTABLE, 1);
            let inputs = specs(&[x.clone(), other]);
            let support = op(line).bf16(&LayoutCx { inputs: &inputs, setting });
            assert!(!support.output && !support.together, "{line}");
        }
    }

    #[test]
    fn cat_joins_along_a_dimension() {
        let (x, y) = (iota([2, 1, 2]), iota([2, 2, 2]));
        let z = check(&*op("torch.cat c 2 1 0 1 2 dim=-2"), &[x.clone(), y.clone()]);
        assert_eq!(z[0].shape().dims(), [2, 3, 2]);
        assert_eq!(values::<f32>(&z[0]), [0., 1., 0., 1., 2., 3., 2., 3., 4., 5., 6., 7.]);
        // An old exception, and lists.
        let z = check(&*op("torch.cat c 2 1 0 1 2 dim=1"), &[iota([0]), y.clone()]);
        assert_eq!(z[0], y);
        let list = [ValueSpec::List(specs(&[x.clone(), y.clone(), x.clone()]))];
        let z = check_values(
            &*op("torch.cat c 1 1 0 2 dim=1"),
            &list,
            &[x.clone(), y.clone(), x.clone()],
        );
        assert_eq!(z[0].shape().dims(), [2, 4, 2]);
        assert_eq!(
            check(&*op("torch.cat c 2 1 0 0 1 dim=0"), &[x.clone(), x.clone()])[0].numel(),
            8
        );

        let op = op("torch.cat c 2 1 0 1 2 dim=0");
        assert!(error(&*op, &[x.clone(), y.clone()]).to_string().contains("outside dimension 0"));
        error(&*op, &[iota([]), iota([])]);
        error(&*op, &[x, tensor([1], &[1i64])]);
    }

    #[test]
    fn dtypes_are_promoted() {
        let (ints, floats) = (tensor([2], &[1i32, -2]), tensor([2], &[0.5f64, 4.0]));
        let z = check(&*op("torch.cat c 2 1 0 1 2 dim=0"), &[ints.clone(), floats.clone()]);
        assert_eq!(z[0], tensor([4], &[1.0f64, -2.0, 0.5, 4.0]));
        let flags = tensor([2], &[true, false]);
        let z = check(&*op("torch.stack s 2 1 0 1 2 dim=1"), &[flags, ints]);
        assert_eq!(z[0], tensor([2, 2], &[1i32, 1, 0, -2]));
        assert_eq!(z[0].dtype(), DType::I32);
    }

    #[test]
    fn nothing_can_be_joined() {
        let z = check(&*op("torch.cat c 2 1 0 1 2 dim=1"), &[iota([0, 3]), iota([0, 4])]);
        assert_eq!(z[0].shape().dims(), [0, 7]);
    }

    #[test]
    fn an_outermost_cat_has_places() {
        for (dim, places) in [(0, Some(vec![0, 6])), (1, Some(vec![0, 6])), (2, None)] {
            let operator = op(&format!("torch.cat c 2 1 0 1 2 dim={dim}"));
            let inputs = specs(&[iota([1, 2, 3]), iota([1, 2, 3])]);
            let outputs = operator.infer(&inputs).unwrap();
            let (packs, isa) = (crate::PackCache::default(), plutino_kernels::Isa::best());
            let cx = crate::PlanCx {
                inputs: &inputs,
                outputs: &outputs,
                setting: crate::Setting::new(isa, 1),
                packs: &packs,
            };
            assert_eq!(operator.plan(&cx).unwrap().placement, places);
        }
    }

    #[test]
    fn two_tensors_are_an_appended_one() {
        let appends = |line: &str, rank: usize| op(line).appends(rank);
        assert_eq!(appends("torch.cat c 2 1 0 1 2 dim=-2", 4), Some(2));
        assert_eq!(appends("torch.cat c 2 1 0 1 2 dim=0", 1), Some(0));
        assert_eq!(appends("torch.cat c 2 1 0 1 2 dim=4", 4), None);
        assert_eq!(appends("torch.cat c 2 1 0 1 2 dim=-5", 4), None);
        assert_eq!(appends("torch.cat c 3 1 0 1 2 3 dim=1", 2), None);
        assert_eq!(appends("torch.cat c 1 1 0 3 dim=1", 2), None);
        assert_eq!(appends("torch.stack c 2 1 0 1 2 dim=0", 2), None);
    }

    #[test]
    fn stack_makes_a_dimension() {
        let x = [iota([2, 2]), tensor([2, 2], &[9.0f32; 4])];
        let y = check(&*op("torch.stack s 2 1 0 1 2 dim=-1"), &x);
        assert_eq!(y[0].shape().dims(), [2, 2, 2]);
        assert_eq!(values::<f32>(&y[0]), [0., 9., 1., 9., 2., 9., 3., 9.]);
        let y = check(&*op("torch.stack s 2 1 0 1 2 dim=0"), &x);
        assert_eq!(values::<f32>(&y[0]), [0., 1., 2., 3., 9., 9., 9., 9.]);
        assert_eq!(check(&*op("torch.stack s 1 1 0 1 dim=0"), &[iota([])])[0], iota([1]));
        error(&*op("torch.stack s 2 1 0 1 2 dim=0"), &[iota([2]), iota([3])]);
    }

    #[test]
    fn complex_pairs_parts() {
        let z =
            check(&*op("torch.complex c 2 1 0 1 2 $real=0 $imag=1"), &[iota([2, 2]), iota([2])]);
        let c = plutino_tensor::Complex::new;
        let expected = [c(0.0f32, 0.0), c(1., 1.), c(2., 0.), c(3., 1.)];
        assert_eq!(z[0], tensor([2, 2], &expected));
        error(&*op("torch.complex c 2 1 0 1 2"), &[tensor([1], &[1i64]), tensor([1], &[1i64])]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn split_undoes_cat(outer in 1usize..4, inner in 1usize..40, sizes in proptest::collection::vec(0usize..5, 1..5)) {
            let parts: Vec<Tensor> =
                sizes.iter().enumerate().map(|(i, &s)| random([outer, s, inner], i as u64)).collect();
            let names: Vec<String> = (0..sizes.len()).map(|i| i.to_string()).collect();
            let cat = op(&format!("torch.cat c {} 1 {} z dim=1", sizes.len(), names.join(" ")));
            let whole = check(&*cat, &parts);
            let list: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            let split = op(&format!(
                "torch.split s 1 {} z {} dim=1 split_size_or_sections=({})",
                sizes.len(), names.join(" "), list.join(",")
            ));
            prop_assert_eq!(check(&*split, &whole), parts);
        }
    }
}

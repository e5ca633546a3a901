//! Other shapes for the same elements: view, reshape, flatten, unflatten, squeeze, unsqueeze,
//! view_as_complex, view_as_real. Nothing is computed: every output is a view of its input.

use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, Views, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::{DType, Shape};

/// <https://pytorch.org/docs/stable/generated/torch.reshape.html>
#[derive(Debug)]
struct Reshape {
    input: usize,
    shape: Arg<Vec<i64>>,
    /// Where the file records that nothing but dimensions of size 1 come or go.
    units: Option<Units>,
}

fn reshape(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let shape = ints(r, &["shape", "size"])?;
    let input = subject(r)?;
    let shape = match shape {
        Arg::Value(wanted) => Arg::Value(possible(r, input, wanted)),
        shape => shape,
    };
    let units = Units::recorded(r, input, &shape);
    rearranged(Reshape { input, shape, units })
}
register_op!(reshape => "Tensor.view", "Tensor.reshape", "torch.reshape");

/// Dimensions of size 1 that come and go. pnnx writes several `unsqueeze` as one reshape to the
/// sizes that it saw: where these depend on data, others must do as well.
#[derive(Debug)]
struct Units {
    /// Sizes of the input, as recorded; what is 1 goes.
    from: Vec<usize>,
    /// Of each dimension of the result the one of the input that it is; none for 1.
    to: Vec<Option<usize>>,
}

impl Units {
    /// By the shapes that the file records, where the wanted shape is that of the result.
    fn recorded(r: &NodeReader<'_>, input: usize, wanted: &Arg<Vec<i64>>) -> Option<Self> {
        let (from, to) = (r.known_input(input)?, r.known_output(0)?);
        let Arg::Value(wanted) = wanted else { return None };
        let same =
            wanted.iter().map(|&size| usize::try_from(size).ok()).eq(to.iter().map(|&n| Some(n)));
        let mut rest = from.iter().enumerate().filter(|(_, size)| **size != 1);
        let kept = to.iter().map(|&size| match size {
            1 => Some(None),
            size => rest.next().filter(|(_, own)| **own == size).map(|(i, _)| Some(i)),
        });
        let to = kept.collect::<Option<Vec<_>>>().filter(|_| same)?;
        rest.next().is_none().then_some(Self { from, to })
    }

    /// The shape for another input of this sort.
    fn apply(&self, x: &Shape) -> Option<Shape> {
        let suits = x.rank() == self.from.len()
            && x.iter().zip(&self.from).all(|(&size, &from)| from != 1 || size == 1);
        let size = |from: &Option<usize>| from.map_or(Some(1), |i| x.get(i).copied());
        self.to.iter().map(size).collect::<Option<Shape>>().filter(|_| suits)
    }
}

/// The shape that a file asks for; or the one that it records of the result, where that one suits
/// the recorded input and the other has another rank or does not suit. pnnx now and then writes a
/// size twice, or one too many.
fn possible(r: &NodeReader<'_>, input: usize, wanted: Vec<i64>) -> Vec<i64> {
    let sizes = |known: Option<Vec<usize>>| {
        known?.into_iter().map(|size| i64::try_from(size).ok()).collect::<Option<Vec<_>>>()
    };
    let numel = |sizes: &[i64]| sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size));
    match (sizes(r.known_input(input)), sizes(r.known_output(0))) {
        (Some(from), Some(to))
            if numel(&to) == numel(&from)
                && (wanted.len() != to.len()
                    || wanted.iter().all(|&size| size > 0) && numel(&wanted) != numel(&from)) =>
        {
            to
        }
        _ => wanted,
    }
}

impl Rearrange for Reshape {
    fn views(&self) -> Views {
        Views::WherePossible
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let wanted = self.shape.ints(inputs)?;
        let shape = resolve(x.shape(), &wanted).or_else(|refused| {
            // What would be refused cannot be meant as it is written.
            self.units.as_ref().and_then(|units| units.apply(x.shape())).ok_or(refused)
        })?;
        Ok(Part::reshaped(x, shape).into())
    }
}

/// The shape that `wanted` means for the elements of `from`: one -1 takes what is left, 0 keeps the
/// dimension at its place (as ONNX has it; PyTorch knows 0 only where there are no elements).
pub(crate) fn resolve(from: &Shape, wanted: &[i64]) -> Result<Shape, ShapeError> {
    let numel = from.checked_numel()?;
    let refuse =
        |why: &str| invalid(format!("shape {wanted:?} {why} (input {from}, {numel} elements)"));
    let mut shape = Shape::default();
    let mut open = None;
    for (i, &d) in wanted.iter().enumerate() {
        shape.push(match d {
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            -1 => return Err(refuse("has more than one -1")),
            0 if numel > 0 => *from
                .get(i)
                .ok_or_else(|| refuse("keeps a dimension that the input does not have"))?,
            d => usize::try_from(d).map_err(|_| refuse("has a negative size"))?,
        });
    }
    let known = shape.checked_numel()?;
    if let Some(i) = open {
        if known == 0 {
            return Err(refuse("leaves -1 open to any size"));
        }
        shape[i] = numel / known;
    }
    if shape.checked_numel()? != numel {
        return Err(refuse("holds another number of elements"));
    }
    Ok(shape)
}

/// <https://pytorch.org/docs/stable/generated/torch.Tensor.view_as.html>
#[derive(Debug)]
struct ReshapeAs {
    input: usize,
    other: usize,
}

fn reshape_as(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    rearranged(ReshapeAs { input, other: r.required_input("other")? })
}
register_op!(reshape_as => "Tensor.reshape_as", "Tensor.view_as");

impl Rearrange for ReshapeAs {
    fn views(&self) -> Views {
        Views::WherePossible
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let shape = TensorValue::at(inputs, self.other)?.shape();
        if shape.checked_numel()? != x.shape().checked_numel()? {
            return Err(invalid(format!(
                "shape {shape} cannot hold the elements of {}",
                x.shape()
            )));
        }
        Ok(Part::reshaped(x, shape.clone()).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.flatten.html>
#[derive(Debug)]
struct Flatten {
    input: usize,
    start: i64,
    end: i64,
}

fn flatten(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let first = if r.kind() == "nn.Flatten" { 1 } else { 0 };
    let (start, end) = (r.or("start_dim", first)?, r.or("end_dim", -1)?);
    rearranged(Flatten { input: subject(r)?, start, end })
}
register_op!(flatten => "torch.flatten", "nn.Flatten", "torch.ravel");

impl Rearrange for Flatten {
    fn views(&self) -> Views {
        Views::WherePossible
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let from = x.shape();
        let (start, end) = (from.dim(self.start)?, from.dim(self.end)?);
        if start > end {
            return Err(invalid(format!(
                "start_dim {} comes after end_dim {} in {from}",
                self.start, self.end
            )));
        }
        if from.rank() == 0 {
            return Ok(Part::reshaped(x, Shape::from([1])).into());
        }
        let joined = from.product(start..end + 1);
        let shape =
            from[..start].iter().copied().chain([joined]).chain(from[end + 1..].iter().copied());
        Ok(Part::reshaped(x, shape.collect()).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.unflatten.html>
#[derive(Debug)]
struct Unflatten {
    input: usize,
    dim: i64,
    sizes: Arg<Vec<i64>>,
}

fn unflatten(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.required("dim")?;
    let sizes = ints(r, &["sizes", "unflattened_size"])?;
    rearranged(Unflatten { input: subject(r)?, dim, sizes })
}
register_op!(unflatten => "Tensor.unflatten", "torch.unflatten", "nn.Unflatten");

impl Rearrange for Unflatten {
    fn views(&self) -> Views {
        Views::WherePossible
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let from = x.shape();
        let dim = from.dim(self.dim)?;
        let sizes = self.sizes.ints(inputs)?;
        let Some(&size) = from.get(dim).filter(|_| !sizes.is_empty()) else {
            return Err(invalid(format!("a dimension of {from} cannot become {sizes:?}")));
        };
        // A 0 here is a size, not "keep".
        if size > 0 && sizes.contains(&0) {
            return Err(invalid(format!("{sizes:?} do not multiply up to {size}")));
        }
        let split = resolve(&Shape::from([size]), &sizes)?;
        let dims = from[..dim].iter().chain(split.iter()).chain(&from[dim + 1..]);
        Ok(Part::reshaped(x, dims.copied().collect()).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.squeeze.html>
#[derive(Debug)]
struct Squeeze {
    input: usize,
    /// None: all dimensions of size 1; an empty list: none of them.
    dims: Option<Vec<i64>>,
}

fn squeeze(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    // A file writes an empty list as it writes None, which PyTorch does not take here.
    let given = r.has("dim");
    let dims = r.optional("dim")?.or_else(|| given.then(Vec::new));
    rearranged(Squeeze { input: subject(r)?, dims })
}
register_op!(squeeze => "torch.squeeze");

impl Rearrange for Squeeze {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let from = x.shape();
        let named = match &self.dims {
            None => (0..from.rank()).collect(),
            Some(dims) => crate::support::rearrange::distinct_dims(from, dims)?,
        };
        let keep = |&(d, &size): &(usize, &usize)| size != 1 || !named.contains(&d);
        let shape = from.iter().enumerate().filter(keep).map(|(_, &size)| size);
        Ok(Part::reshaped(x, shape.collect()).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.unsqueeze.html>; several dimensions as ONNX
/// counts them, by their places in the result.
#[derive(Debug)]
struct Unsqueeze {
    input: usize,
    dims: Vec<i64>,
}

fn unsqueeze(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let mut dims: Vec<i64> = r.required("dim")?;
    // -1, -2, ... 0, 1, ...: one after the other, each finds its place in the result.
    dims.sort_by_key(|&d| (d >= 0, if d >= 0 { d } else { d.saturating_neg() }));
    rearranged(Unsqueeze { input: subject(r)?, dims })
}
register_op!(unsqueeze => "torch.unsqueeze");

impl Rearrange for Unsqueeze {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let mut shape = x.shape().clone();
        for &dim in &self.dims {
            // Counted in a shape that has the new dimension already.
            let mut grown = shape.clone();
            grown.push(1);
            shape.insert(grown.dim(dim)?, 1);
        }
        Ok(Part::reshaped(x, shape).into())
    }
}

/// Real numbers with a last dimension of 2 as complex numbers.
///
/// <https://pytorch.org/docs/stable/generated/torch.view_as_complex.html>
#[derive(Debug)]
struct ViewAsComplex {
    input: usize,
}

fn view_as_complex(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    rearranged(ViewAsComplex { input: subject(r)? })
}
register_op!(view_as_complex => "torch.view_as_complex");

impl Rearrange for ViewAsComplex {
    fn views(&self) -> Views {
        Views::Unknown
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dtype = match x.dtype() {
            DType::F32 => DType::C64,
            DType::F64 => DType::C128,
            DType::F16 => DType::C32,
            found => {
                return Err(ShapeError::DType {
                    input: self.input,
                    expected: "f32, f64 or f16".into(),
                    found,
                });
            }
        };
        match x.shape().split_last() {
            Some((2, rest)) => {
                let shape = Shape::from(rest);
                Ok(Part { from: Geometry::dense(&shape), shape, dtype }.into())
            }
            _ => Err(ShapeError::Size {
                input: self.input,
                dim: x.shape().rank().saturating_sub(1),
                expected: "2, the real and the imaginary part".into(),
                found: x.shape().clone(),
            }),
        }
    }
}

/// Complex numbers as real numbers: `view_as_real` appends a dimension of 2, `real` and `imag` pick
/// a part of it.
///
/// <https://pytorch.org/docs/stable/generated/torch.view_as_real.html>
#[derive(Debug)]
struct ViewAsReal {
    input: usize,
    /// None: both parts.
    part: Option<usize>,
}

fn view_as_real(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let part = match r.kind() {
        "torch.real" => Some(0),
        "torch.imag" => Some(1),
        _ => None,
    };
    rearranged(ViewAsReal { input: subject(r)?, part })
}
register_op!(view_as_real => "torch.view_as_real", "torch.real", "torch.imag");

impl Rearrange for ViewAsReal {
    fn views(&self) -> Views {
        Views::Unknown
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dtype = match x.dtype() {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            DType::C32 => DType::F16,
            // The real part of a real tensor is the tensor.
            found if self.part == Some(0) => {
                return Ok(Part::new(found, Geometry::dense(x.shape())).into());
            }
            found => {
                return Err(ShapeError::DType {
                    input: self.input,
                    expected: "complex".into(),
                    found,
                });
            }
        };
        let mut shape = x.shape().clone();
        shape.push(2);
        let both = Geometry::dense(&shape);
        Ok(Part::new(
            dtype,
            match self.part {
                None => both,
                Some(part) => both.select(x.shape().rank(), part),
            },
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, check_values, error, iota, op, specs, tensor, values};
    use plutino_tensor::Complex;
    use proptest::prelude::*;

    /// The recorded sizes depend on data: what was unsqueezed is, whatever its size.
    #[test]
    fn units_come_and_go_where_sizes_depend_on_data() {
        let reshape = "Tensor.reshape r 1 1 0 1 shape=";
        let grown = format!("{reshape}(1,1,36,2) #0=(36,2)f32 #1=(1,1,36,2)f32");
        assert_eq!(shape_of(&grown, &[36, 2]), [1, 1, 36, 2]);
        assert_eq!(shape_of(&grown, &[5, 2]), [1, 1, 5, 2]);
        assert_eq!(shape_of(&grown, &[0, 2]), [1, 1, 0, 2]);
        let shrunk = format!("{reshape}(1,16,36) #0=(1,16,1,36)f32 #1=(1,16,36)f32");
        assert_eq!(shape_of(&shrunk, &[1, 16, 1, 7]), [1, 16, 7]);
        error(&*op(&shrunk), &[iota([1, 16, 2, 7])]);
        // What is more than that is meant as it is written, and so is what nothing is recorded of.
        error(&*op(&format!("{reshape}(1,6,12) #0=(36,2)f32 #1=(1,6,12)f32")), &[iota([5, 2])]);
        error(&*op(&format!("{reshape}(1,1,36,2)")), &[iota([5, 2])]);
    }

    #[track_caller]
    fn shape_of(line: &str, from: &[usize]) -> Vec<usize> {
        let x = iota(from);
        let y = check(&*op(line), std::slice::from_ref(&x));
        assert_eq!(y[0].as_bytes(), x.as_bytes());
        y[0].shape().to_vec()
    }

    #[test]
    fn reshape_keeps_the_order() {
        assert_eq!(shape_of("Tensor.reshape r 1 1 0 1 shape=(4,-1) $input=0", &[2, 3, 4]), [4, 6]);
        assert_eq!(shape_of("Tensor.reshape r 1 1 0 1 shape=(0,-1)", &[2, 3, 4]), [2, 12]);
        assert_eq!(shape_of("Tensor.view r 1 1 0 1 shape=()", &[1, 1]), []);
        assert_eq!(shape_of("Tensor.reshape r 1 1 0 1 shape=12 $mask=0", &[3, 4]), [12]);
        assert_eq!(shape_of("Tensor.reshape r 1 1 0 1 shape=(0,5)", &[3, 0]), [0, 5]);
        for (bad, why) in [
            ("(5,-1)", "another number"),
            ("(-1,-1)", "more than one"),
            ("(2,-3)", "negative"),
            ("(2,3,4,0)", "keeps a dimension"),
            ("(9223372036854775807,9223372036854775807)", "memory"),
        ] {
            let operator = op(&format!("Tensor.reshape r 1 1 0 1 shape={bad}"));
            let e = error(&*operator, &[iota([2, 3, 4])]).to_string();
            assert!(e.contains(why), "{bad}: {e}");
        }
        let e = error(&*op("Tensor.reshape r 1 1 0 1 shape=(0,-1)"), &[iota([0, 3])]).to_string();
        assert!(e.contains("open to any size"), "{e}");
    }

    #[test]
    fn what_is_recorded_decides_where_a_shape_is_impossible() {
        let twice = "Tensor.reshape r 1 1 0 1 shape=(1,3,4,4) #0=(2,6)f32 #1=(1,3,4)f32";
        assert_eq!(shape_of(twice, &[2, 6]), [1, 3, 4]);
        let longer = "Tensor.reshape r 1 1 0 1 shape=(3,4,-1) #0=(2,6)f32 #1=(3,4)f32";
        assert_eq!(shape_of(longer, &[2, 6]), [3, 4]);
        // The record is one of other sizes: the parameter decides.
        let open = "Tensor.reshape r 1 1 0 1 shape=(1,3,4) #0=(2,?)f32 #1=(2,6)f32";
        assert_eq!(shape_of(open, &[2, 6]), [1, 3, 4]);
        let other = "Tensor.reshape r 1 1 0 1 shape=(3,4) #0=(2,6)f32 #1=(6,2)f32";
        assert_eq!(shape_of(other, &[2, 6]), [3, 4]);
    }

    #[test]
    fn a_shape_may_be_an_input() {
        let operator = op("Tensor.reshape r 2 1 0 1 2 $input=0 $shape=1");
        let x = iota([2, 6]);
        let inputs = [x.spec().into(), ValueSpec::python_ints(&[3, -1]).unwrap()];
        let data = [x, tensor([], &[3i64]), tensor([], &[-1i64])];
        assert_eq!(check_values(&*operator, &inputs, &data)[0].shape().dims(), [3, 4]);
        let unknown = [inputs[0].clone(), ValueSpec::tensor(DType::I64, [2])];
        let e = operator.infer(&unknown).unwrap_err();
        assert_eq!(e, ShapeError::NotKnown { input: 1, what: "integers".into() });
    }

    #[test]
    fn flatten_and_unflatten() {
        assert_eq!(shape_of("torch.flatten f 1 1 0 1 start_dim=1 end_dim=-1", &[2, 3, 4]), [2, 12]);
        assert_eq!(shape_of("torch.flatten f 1 1 0 1 start_dim=-3 end_dim=-2", &[2, 3, 4]), [6, 4]);
        assert_eq!(shape_of("torch.flatten f 1 1 0 1", &[]), [1]);
        assert_eq!(shape_of("nn.Flatten f 1 1 0 1", &[2, 3, 4]), [2, 12]);
        assert_eq!(shape_of("Tensor.unflatten f 1 1 0 1 dim=0 sizes=(2,1,-1)", &[16]), [2, 1, 8]);
        assert_eq!(shape_of("Tensor.unflatten f 1 1 0 1 dim=-2 sizes=(3,2)", &[6, 5]), [3, 2, 5]);
        error(&*op("torch.flatten f 1 1 0 1 start_dim=2 end_dim=1"), &[iota([2, 3, 4])]);
        error(&*op("torch.flatten f 1 1 0 1 start_dim=3"), &[iota([2, 3, 4])]);
        error(&*op("Tensor.unflatten f 1 1 0 1 dim=0 sizes=(0,4)"), &[iota([4])]);
    }

    #[test]
    fn squeeze_and_unsqueeze() {
        assert_eq!(shape_of("torch.squeeze s 1 1 0 1", &[1, 2, 1, 3]), [2, 3]);
        assert_eq!(shape_of("torch.squeeze s 1 1 0 1 dim=0", &[1, 2, 1]), [2, 1]);
        assert_eq!(shape_of("torch.squeeze s 1 1 0 1 dim=1", &[1, 2, 1]), [1, 2, 1]);
        assert_eq!(shape_of("torch.squeeze s 1 1 0 1 dim=(-1,0)", &[1, 2, 1]), [2]);
        assert_eq!(shape_of("torch.squeeze s 1 1 0 1 dim=()", &[1, 2, 1]), [1, 2, 1]);
        assert_eq!(shape_of("torch.unsqueeze s 1 1 0 1 dim=-1", &[2, 3]), [2, 3, 1]);
        assert_eq!(shape_of("torch.unsqueeze s 1 1 0 1 dim=()", &[2, 3]), [2, 3]);
        assert_eq!(shape_of("torch.unsqueeze s 1 1 0 1 dim=(-2,-1)", &[2, 3]), [2, 3, 1, 1]);
        assert_eq!(shape_of("torch.unsqueeze s 1 1 0 1 dim=(-1,1)", &[2, 3]), [2, 1, 3, 1]);
        assert_eq!(shape_of("torch.unsqueeze s 1 1 0 1 dim=(0,1)", &[]), [1, 1]);
        error(&*op("torch.unsqueeze s 1 1 0 1 dim=3"), &[iota([2, 3])]);
        error(&*op("torch.squeeze s 1 1 0 1 dim=(0,-2)"), &[iota([1, 1])]);
    }

    #[test]
    fn complex_numbers_are_pairs() {
        let x = iota([3, 2]);
        let z = check(&*op("torch.view_as_complex c 1 1 0 1"), std::slice::from_ref(&x));
        assert_eq!(values::<Complex<f32>>(&z[0])[1], Complex::new(2.0, 3.0));
        assert_eq!(check(&*op("torch.view_as_real c 1 1 0 1"), &z)[0], x);
        let imag = check(&*op("torch.imag c 1 1 0 1"), &z);
        assert_eq!(values::<f32>(&imag[0]), [1.0, 3.0, 5.0]);
        assert_eq!(values::<f32>(&check(&*op("torch.real c 1 1 0 1"), &z)[0]), [0.0, 2.0, 4.0]);
        assert_eq!(check(&*op("torch.real c 1 1 0 1"), std::slice::from_ref(&x))[0], x);
        error(&*op("torch.imag c 1 1 0 1"), &[x]);
        error(&*op("torch.view_as_complex c 1 1 0 1"), &[iota([2, 3])]);
    }

    #[test]
    fn views_cost_nothing() {
        let packs = crate::PackCache::default();
        let inputs = specs(&[iota([2, 3])]);
        let operator = op("torch.flatten f 1 1 0 1");
        let outputs = operator.infer(&inputs).unwrap();
        let isa = plutino_kernels::Isa::best();
        let cx = crate::PlanCx {
            inputs: &inputs,
            outputs: &outputs,
            setting: crate::Setting::new(isa, 1),
            packs: &packs,
        };
        let planned = operator.plan(&cx).unwrap();
        assert!(planned.kernel.is_none());
        assert_eq!(planned.alias, [crate::Alias::View { input: 0, offset: 0 }]);
    }

    proptest! {
        /// Whatever the sizes: a shape with the right number of elements, or an error.
        #[test]
        fn resolve_never_lies(from in proptest::collection::vec(0usize..5, 0..4),
                              wanted in proptest::collection::vec(-2i64..7, 0..5)) {
            let from = Shape::from(from);
            if let Ok(shape) = resolve(&from, &wanted) {
                prop_assert_eq!(shape.numel(), from.numel());
                for (&w, &d) in wanted.iter().zip(shape.iter()) {
                    prop_assert!(w == d as i64 || w == -1 || w == 0);
                }
            }
        }
    }
}

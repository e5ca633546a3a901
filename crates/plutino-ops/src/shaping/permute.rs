//! The same elements in another order: permute, transpose, t, movedim, flip, roll, and the shuffles
//! of channels and pixels. Where only dimensions of size 1 move, the output is a view.

use crate::fused::channel_map::shuffled_channels;
use crate::support::assemble::{Assemble, Assembly, Piece, assembled, leaf};
use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, Views, distinct_dims, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_tensor::Shape;

/// <https://pytorch.org/docs/stable/generated/torch.permute.html>
#[derive(Debug)]
struct Permute {
    input: usize,
    dims: Arg<Vec<i64>>,
}

fn permute(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = ints(r, &["dims"])?;
    rearranged(Permute { input: subject(r)?, dims })
}
register_op!(permute => "Tensor.permute", "torch.permute");

impl Rearrange for Permute {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dims = self.dims.ints(inputs)?;
        let order = distinct_dims(x.shape(), &dims)?;
        if order.len() != x.shape().rank() {
            return Err(invalid(format!(
                "{dims:?} does not order the dimensions of {}",
                x.shape()
            )));
        }
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).permute(&order)).into())
    }

    fn order(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Option<Vec<usize>> {
        let order = distinct_dims(x.shape(), &self.dims.ints(inputs).ok()?).ok()?;
        (order.len() == x.shape().rank()).then_some(order)
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.transpose.html>,
/// <https://pytorch.org/docs/stable/generated/torch.t.html>
#[derive(Debug)]
struct Transpose {
    input: usize,
    /// None: `t`, which takes at most two dimensions.
    dims: Option<(i64, i64)>,
}

fn transpose(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = match r.kind() {
        "torch.t" => None,
        "torch.swapaxes" => Some((r.required("axis0")?, r.required("axis1")?)),
        _ => Some((r.required("dim0")?, r.required("dim1")?)),
    };
    rearranged(Transpose { input: subject(r)?, dims })
}
register_op!(transpose => "torch.transpose", "torch.swapdims", "torch.swapaxes", "torch.t");

impl Rearrange for Transpose {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).permute(&self.swapped(x.shape())?))
            .into())
    }

    fn order(&self, x: &TensorValue, _: &[ValueSpec]) -> Option<Vec<usize>> {
        self.swapped(x.shape()).ok()
    }
}

impl Transpose {
    /// The dimensions of a shape, two of them swapped.
    fn swapped(&self, shape: &Shape) -> Result<Vec<usize>, ShapeError> {
        let (a, b) = match (self.dims, shape.rank()) {
            (Some((a, b)), _) => (shape.dim(a)?, shape.dim(b)?),
            (None, 0 | 1) => (0, 0),
            (None, 2) => (0, 1),
            (None, _) => {
                return Err(ShapeError::Rank {
                    input: self.input,
                    expected: "at most 2".into(),
                    found: shape.clone(),
                });
            }
        };
        let mut order: Vec<usize> = (0..shape.rank()).collect();
        if a != b {
            order.swap(a, b);
        }
        Ok(order)
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.movedim.html>
#[derive(Debug)]
struct Movedim {
    input: usize,
    source: Vec<i64>,
    destination: Vec<i64>,
}

fn movedim(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (source, destination) = (r.required("source")?, r.required("destination")?);
    rearranged(Movedim { input: subject(r)?, source, destination })
}
register_op!(movedim => "torch.movedim", "torch.moveaxis");

impl Rearrange for Movedim {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let from = distinct_dims(x.shape(), &self.source)?;
        let to = distinct_dims(x.shape(), &self.destination)?;
        if from.len() != to.len() {
            return Err(invalid(format!(
                "{:?} cannot move to {:?}: both name as many dimensions",
                self.source, self.destination
            )));
        }
        let mut stay = (0..x.shape().rank()).filter(|d| !from.contains(d));
        let place = |d| match to.iter().position(|&t| t == d) {
            Some(i) => Some(from[i]),
            None => stay.next(),
        };
        let order: Vec<usize> = (0..x.shape().rank()).filter_map(place).collect();
        Ok(Part::new(x.dtype(), Geometry::dense(x.shape()).permute(&order)).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.flip.html>
#[derive(Debug)]
struct Flip {
    input: usize,
    dims: Vec<i64>,
}

fn flip(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dims = match r.kind() {
        "torch.fliplr" => vec![1],
        "torch.flipud" => vec![0],
        _ => r.required("dims")?,
    };
    rearranged(Flip { input: subject(r)?, dims })
}
register_op!(flip => "torch.flip", "torch.fliplr", "torch.flipud");

impl Rearrange for Flip {
    fn views(&self) -> Views {
        Views::Never
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let mut from = Geometry::dense(x.shape());
        for dim in distinct_dims(x.shape(), &self.dims)? {
            if dim < x.shape().rank() {
                from = from.flip(dim);
            }
        }
        Ok(Part::new(x.dtype(), from).into())
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.roll.html>
#[derive(Debug)]
struct Roll {
    input: usize,
    shifts: Vec<i64>,
    /// None: the tensor as one row.
    dims: Option<Vec<i64>>,
}

fn roll(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (shifts, dims): (Vec<i64>, Option<Vec<i64>>) = (r.required("shifts")?, r.optional("dims")?);
    let fits = match &dims {
        None => shifts.len() == 1,
        Some(dims) => dims.len() == shifts.len(),
    };
    if !fits {
        return Err(r.bad("shifts", "one integer for each of 'dims' (one in all without 'dims')"));
    }
    assembled(Roll { input: subject(r)?, shifts, dims })
}
register_op!(roll => "torch.roll");

impl Assemble for Roll {
    fn assembly(&self, inputs: &[ValueSpec]) -> Result<Assembly, ShapeError> {
        let x = TensorValue::at(inputs, self.input)?;
        let row = Shape::from([x.shape().checked_numel()?]);
        let (shape, dims) = match &self.dims {
            None => (&row, vec![0]),
            Some(dims) => {
                (x.shape(), dims.iter().map(|&d| x.shape().dim(d)).collect::<Result<_, _>>()?)
            }
        };
        // Each rolled dimension cuts the tensor in two; a dimension may be rolled more than once.
        let mut pieces = vec![(Geometry::dense(shape), Geometry::dense(shape))];
        let mut shift = vec![0; shape.rank()];
        for (&by, &dim) in self.shifts.iter().zip(&dims) {
            if let Some(&size) = shape.get(dim).filter(|&&size| size > 0) {
                let size = i64::try_from(size).unwrap_or(i64::MAX);
                shift[dim] = (shift[dim] + by.rem_euclid(size)) % size;
            }
        }
        for (dim, &by) in shift.iter().enumerate().filter(|(_, by)| **by != 0) {
            let (by, size) = (by as usize, shape[dim]);
            let cut = |(from, to): (Geometry, Geometry)| {
                let head = (
                    from.clone().slice(dim, 0, size - by, 1),
                    to.clone().slice(dim, by, size - by, 1),
                );
                [head, (from.slice(dim, size - by, by, 1), to.slice(dim, 0, by, 1))]
            };
            pieces = pieces.into_iter().flat_map(cut).collect();
        }
        let leaf = leaf(inputs, self.input);
        let pieces = pieces.into_iter().map(|(from, to)| Piece { leaf, from, to }).collect();
        Ok(Assembly::new(x.dtype(), x.shape().clone(), pieces))
    }
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.ChannelShuffle.html>
#[derive(Debug)]
struct ChannelShuffle {
    input: usize,
    groups: usize,
}

fn channel_shuffle(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let groups = r.required("groups")?;
    if groups == 0 {
        return Err(r.bad("groups", "an integer of at least 1"));
    }
    rearranged(ChannelShuffle { input: subject(r)?, groups })
}
register_op!(channel_shuffle => "nn.ChannelShuffle", "F.channel_shuffle");

impl Rearrange for ChannelShuffle {
    fn views(&self) -> Views {
        Views::Never
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let channels = at_least_rank(x, self.input, 3, 1)?;
        let each = divide(x, self.input, 1, channels, self.groups)?;
        let split = Geometry::dense(x.shape()).unmerge(1, self.groups, each);
        let mut order: Vec<usize> = (0..split.shape.rank()).collect();
        order.swap(1, 2);
        let from = split.permute(&order);
        Ok(Part { from, shape: x.shape().clone(), dtype: x.dtype() }.into())
    }

    fn channels(&self, x: &TensorValue, _: &[ValueSpec]) -> Option<Vec<Vec<usize>>> {
        Some(vec![shuffled_channels(*x.shape().get(1)?, self.groups)?])
    }
}

/// (..., C r², H, W) to (..., C, H r, W r), or back:
/// <https://pytorch.org/docs/stable/generated/torch.nn.PixelShuffle.html>
#[derive(Debug)]
struct PixelShuffle {
    input: usize,
    factor: usize,
    back: bool,
    /// What the input is read as after its first dimension.
    image: Option<[usize; 3]>,
}

fn pixel_shuffle(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let back = r.kind().to_ascii_lowercase().contains("unshuffle");
    let key = if back { "downscale_factor" } else { "upscale_factor" };
    let factor = r.required(key)?;
    if factor == 0 {
        return Err(r.bad(key, "an integer of at least 1"));
    }
    let input = subject(r)?;
    let image = if back { None } else { flat_image(r, input, factor) };
    rearranged(PixelShuffle { input, factor, back, image })
}
register_op!(pixel_shuffle => "nn.PixelShuffle", "F.pixel_shuffle", "nn.PixelUnshuffle", "F.pixel_unshuffle");

/// (C r², H, W), where (N, C, r², H W) is recorded of the input and (N, C, H r, W r) of the result:
/// pnnx takes a fold of patches for this operator, too.
fn flat_image(r: &NodeReader<'_>, input: usize, factor: usize) -> Option<[usize; 3]> {
    let from: [usize; 4] = r.known_input(input)?.try_into().ok()?;
    let to: [usize; 4] = r.known_output(0)?.try_into().ok()?;
    let area = factor.checked_mul(factor)?;
    let image = [to[1].checked_mul(area)?, to[2] / factor, to[3] / factor];
    let same = to[2..].iter().all(|size| size.is_multiple_of(factor)) && from[..2] == to[..2];
    (same && from[2..] == [area, image[1].checked_mul(image[2])?]).then_some(image)
}

impl Rearrange for PixelShuffle {
    fn views(&self) -> Views {
        Views::Never
    }

    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, _: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let r = self.factor;
        let c = x.shape().rank().saturating_sub(3);
        at_least_rank(x, self.input, 3, c)?;
        let read =
            self.image.map(|[c, h, w]| ValueSpec::tensor(x.dtype(), [x.shape()[0], c, h, w]));
        let read = read.as_ref().and_then(ValueSpec::as_tensor);
        let numel = x.shape().checked_numel()?;
        let x = read.filter(|read| read.shape().checked_numel() == Ok(numel)).unwrap_or(x);
        let [channels, h, w] = [c, c + 1, c + 2].map(|d| x.shape()[d]);
        let dense = Geometry::dense(x.shape());
        let batch = || 0..c;
        let (from, dims) = if self.back {
            let (high, wide) =
                (divide(x, self.input, c + 1, h, r)?, divide(x, self.input, c + 2, w, r)?);
            let deep = channels.checked_mul(r).and_then(|n| n.checked_mul(r));
            let deep =
                deep.ok_or_else(|| invalid(format!("{} has too many channels", x.shape())))?;
            // (C, H, r, W, r) to (C, r, r, H, W)
            let split = dense.unmerge(c + 2, wide, r).unmerge(c + 1, high, r);
            (
                split.permute(&batch().chain([c, c + 2, c + 4, c + 1, c + 3]).collect::<Vec<_>>()),
                [deep, high, wide],
            )
        } else {
            let area =
                r.checked_mul(r).ok_or_else(|| invalid(format!("a factor of {r} is too large")))?;
            let flat = divide(x, self.input, c, channels, area)?;
            let grown = h.checked_mul(r).zip(w.checked_mul(r));
            let (high, wide) =
                grown.ok_or_else(|| invalid(format!("{} grows too large", x.shape())))?;
            // (C, r, r, H, W) to (C, H, r, W, r)
            let split = dense.unmerge(c, flat, area).unmerge(c + 1, r, r);
            (
                split.permute(&batch().chain([c, c + 3, c + 1, c + 4, c + 2]).collect::<Vec<_>>()),
                [flat, high, wide],
            )
        };
        let shape = x.shape()[..c].iter().copied().chain(dims).collect();
        Ok(Part { from, shape, dtype: x.dtype() }.into())
    }
}

/// The size of dimension `dim`, where there are at least `rank` dimensions.
fn at_least_rank(
    x: &TensorValue,
    input: usize,
    rank: usize,
    dim: usize,
) -> Result<usize, ShapeError> {
    match x.shape().get(dim) {
        Some(&size) if x.shape().rank() >= rank => Ok(size),
        _ => Err(ShapeError::Rank {
            input,
            expected: format!("at least {rank}"),
            found: x.shape().clone(),
        }),
    }
}

/// A size divided by a number that must divide it.
fn divide(
    x: &TensorValue,
    input: usize,
    dim: usize,
    size: usize,
    by: usize,
) -> Result<usize, ShapeError> {
    if size.is_multiple_of(by) {
        return Ok(size / by.max(1));
    }
    Err(ShapeError::Size {
        input,
        dim,
        expected: format!("a multiple of {by}"),
        found: x.shape().clone(),
    })
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, check_bf16, error, iota, op, random, specs, tensor, values};
    use plutino_tensor::Tensor;
    use proptest::prelude::*;

    fn run(line: &str, x: &Tensor) -> Tensor {
        check(&*op(line), std::slice::from_ref(x)).remove(0)
    }

    /// Element `index` of a tensor.
    fn get(x: &Tensor, index: &[usize]) -> f32 {
        let at = index
            .iter()
            .zip(x.shape().dense_strides())
            .map(|(&i, s)| i * s as usize)
            .sum::<usize>();
        values::<f32>(x)[at]
    }

    /// Checks every element of `y` against the one of `x` that `source` names.
    #[track_caller]
    fn moved(x: &Tensor, y: &Tensor, source: impl Fn(&[usize]) -> Vec<usize>) {
        for index in plutino_reference::copy::indices(y.shape()) {
            assert_eq!(get(y, &index), get(x, &source(&index)), "at {index:?}");
        }
    }

    #[test]
    fn permute_orders_dimensions() {
        let x = iota([2, 3, 4]);
        let y = run("Tensor.permute p 1 1 0 1 dims=(2,0,-2)", &x);
        assert_eq!(y.shape().dims(), [4, 2, 3]);
        moved(&x, &y, |i| vec![i[1], i[2], i[0]]);
        error(&*op("Tensor.permute p 1 1 0 1 dims=(0,1)"), std::slice::from_ref(&x));
        error(&*op("Tensor.permute p 1 1 0 1 dims=(0,1,1)"), std::slice::from_ref(&x));
        error(&*op("Tensor.permute p 1 1 0 1 dims=(0,1,3)"), &[x]);
        assert_eq!(run("Tensor.permute p 1 1 0 1 dims=()", &iota([])), iota([]));
    }

    #[test]
    fn rows_of_bf16_move_as_those_of_f32() {
        let x = random([3, 5, 6, 8], 1);
        for line in [
            "Tensor.permute p 1 1 0 1 dims=(0,2,1,3)",
            "Tensor.permute p 1 1 0 1 dims=(1,0,3,2)",
            "torch.flip f 1 1 0 1 dims=(-1,0)",
            "torch.roll r 1 1 0 1 dims=(1,-1) shifts=(-2,3)",
            "torch.roll r 1 1 0 1 dims=None shifts=(7)",
            "Tensor.slice s 1 1 0 1 dim=-1 start=1 end=7 step=1",
            "Tensor.slice s 1 1 0 1 dim=0 start=1 end=3 step=1",
            "Tensor.select s 1 1 0 1 dim=1 index=3",
            "Tensor.view v 1 1 0 1 shape=(15,48)",
            "Tensor.reshape v 1 1 0 1 shape=(72,10)",
        ] {
            check_bf16(&*op(line), std::slice::from_ref(&x), &[0], true);
        }
        // Numbers that are parts of others are not those of the input.
        let real = op("torch.real r 1 1 0 1");
        let z = tensor([2], &[num_complex::Complex::new(1.0f32, 2.0); 2]);
        let setting = crate::Setting::new(plutino_kernels::Isa::PORTABLE, 1);
        let cx = crate::LayoutCx { inputs: &specs(&[z]), setting };
        assert!(!real.bf16(&cx).output);
        let row = random([6], 1); // a view that begins inside of a word is a copy
        let line = "Tensor.slice s 1 1 0 1 dim=0 start=1 end=5 step=1";
        check_bf16(&*op(line), std::slice::from_ref(&row), &[0], true);
    }

    #[test]
    fn moving_ones_is_a_view() {
        for (line, shape) in [
            ("Tensor.permute p 1 1 0 1 dims=(0,2,1,3)", &[5usize, 1, 3, 4][..]),
            ("torch.transpose p 1 1 0 1 dim0=0 dim1=1", &[1, 7]),
            ("nn.ChannelShuffle p 1 1 0 1 groups=1", &[1, 4, 2]),
        ] {
            let (operator, inputs) = (op(line), specs(&[iota(shape)]));
            let outputs = operator.infer(&inputs).unwrap();
            let (packs, isa) = (crate::PackCache::default(), plutino_kernels::Isa::best());
            let cx = crate::PlanCx {
                inputs: &inputs,
                outputs: &outputs,
                setting: crate::Setting::new(isa, 1),
                packs: &packs,
            };
            assert!(operator.plan(&cx).unwrap().kernel.is_none(), "{line}");
        }
    }

    #[test]
    fn transpose_and_t() {
        let x = iota([3, 70, 50]);
        let y = run("torch.transpose t 1 1 0 1 dim0=-1 dim1=1", &x);
        moved(&x, &y, |i| vec![i[0], i[2], i[1]]);
        let x = iota([2, 3]);
        moved(&x, &run("torch.t t 1 1 0 1", &x), |i| vec![i[1], i[0]]);
        assert_eq!(run("torch.t t 1 1 0 1", &iota([3])), iota([3]));
        error(&*op("torch.t t 1 1 0 1"), &[iota([1, 2, 3])]);
        let x = iota([2, 3, 4, 5]);
        let y = run("torch.movedim m 1 1 0 1 source=(0,3) destination=(-1,1)", &x);
        assert_eq!(y.shape().dims(), [3, 5, 4, 2]);
        moved(&x, &y, |i| vec![i[3], i[0], i[2], i[1]]);
    }

    #[test]
    fn flip_reverses() {
        let x = iota([3, 4, 5]);
        let y = run("torch.flip f 1 1 0 1 dims=(-1,0)", &x);
        moved(&x, &y, |i| vec![2 - i[0], i[1], 4 - i[2]]);
        assert_eq!(run("torch.flip f 1 1 0 1 dims=(0)", &iota([0, 2])), iota([0, 2]));
        error(&*op("torch.flip f 1 1 0 1 dims=(0,-3)"), &[x]);
    }

    #[test]
    fn roll_wraps_around() {
        let x = iota([5, 9, 11]);
        let y = run("torch.roll r 1 1 0 1 dims=(0,-1) shifts=(-2,13)", &x);
        moved(&x, &y, |i| vec![(i[0] + 2) % 5, i[1], (i[2] + 9) % 11]);
        let y = run("torch.roll r 1 1 0 1 dims=None shifts=(3)", &x);
        let (x, y) = (values::<f32>(&x), values::<f32>(&y));
        assert!((0..495).all(|i| y[(i + 3) % 495] == x[i]));
        let x = iota([7]);
        let twice = run("torch.roll r 1 1 0 1 dims=(0,0) shifts=(3,5)", &x);
        assert_eq!(twice, run("torch.roll r 1 1 0 1 dims=(0) shifts=(1)", &x));
        assert_eq!(run("torch.roll r 1 1 0 1 dims=(0) shifts=(1)", &iota([0, 3])), iota([0, 3]));
        assert!(crate::testkit::try_op("torch.roll r 1 1 0 1 dims=(0) shifts=(1,2)", &[]).is_err());
    }

    #[test]
    fn channels_and_pixels() {
        let x = iota([2, 6, 3, 2]);
        let y = run("nn.ChannelShuffle c 1 1 0 1 groups=2", &x);
        moved(&x, &y, |i| vec![i[0], i[1] % 2 * 3 + i[1] / 2, i[2], i[3]]);
        error(&*op("nn.ChannelShuffle c 1 1 0 1 groups=4"), &[x]);

        let x = iota([2, 12, 3, 5]);
        let y = run("nn.PixelShuffle p 1 1 0 1 upscale_factor=2", &x);
        assert_eq!(y.shape().dims(), [2, 3, 6, 10]);
        moved(&x, &y, |i| vec![i[0], i[1] * 4 + i[2] % 2 * 2 + i[3] % 2, i[2] / 2, i[3] / 2]);
        assert_eq!(run("F.pixel_unshuffle p 1 1 0 1 downscale_factor=2", &y), x);
        assert_eq!(
            run("F.pixel_shuffle p 1 1 0 1 upscale_factor=1", &iota([2, 2, 2])),
            iota([2, 2, 2])
        );
        error(&*op("nn.PixelShuffle p 1 1 0 1 upscale_factor=5"), &[x]);

        // What pnnx makes of a fold: (2, 3, 4, 15) is (2, 12, 3, 5).
        let recorded = "#0=(2,3,4,15)f32 #1=(2,3,6,10)f32";
        let flat = iota([2, 3, 4, 15]);
        let line = format!("nn.PixelShuffle p 1 1 0 1 upscale_factor=2 {recorded}");
        assert_eq!(run(&line, &flat), y);
        error(&*op("nn.PixelUnshuffle p 1 1 0 1 downscale_factor=2"), &[iota([1, 3, 2])]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_permutation(dims in proptest::collection::vec(1usize..5, 1..5).prop_flat_map(|dims| {
            let order: Vec<usize> = (0..dims.len()).collect();
            (Just(dims), Just(order).prop_shuffle())
        })) {
            let (dims, order) = dims;
            let x = iota(dims);
            let list: Vec<String> = order.iter().map(ToString::to_string).collect();
            let y = run(&format!("Tensor.permute p 1 1 0 1 dims=({})", list.join(",")), &x);
            moved(&x, &y, |i| {
                let mut from = vec![0; i.len()];
                order.iter().zip(i).for_each(|(&o, &i)| from[o] = i);
                from
            });
        }
    }
}

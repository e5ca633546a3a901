//! A tensor cut along a dimension: chunk, split, tensor_split, unbind.
//!
//! The file gives such an operator one output for each part, or a single output that is the list of
//! all parts. Parts along the outermost dimension (and along any whose outer dimensions are 1) are
//! views.

use crate::fused::channel_map::MOST_CHANNELS;
use crate::shaping::slice::{bounds, existing};
use crate::support::rearrange::{
    Geometry, Part, Parts, Rearrange, ints, invalid, rearranged, subject,
};
use crate::{
    Arg, BuildError, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, check_members,
    register_op,
};
use plutino_tensor::{Layout, alloc};

/// Where a dimension is cut.
#[derive(Debug)]
enum Cut {
    /// `chunk`: this many parts or fewer, each of the same size but the last.
    Chunks(usize),
    /// `split`: parts of this size, the last of what is left.
    Size(usize),
    /// `split`: parts of these sizes.
    Sizes(Arg<Vec<i64>>),
    /// `tensor_split`: this many parts, the first ones larger by one where it does not come out
    /// even.
    Sections(usize),
    /// `hsplit` and its kin: this many parts of one size.
    Equal(usize),
    /// `tensor_split`: before these indices.
    Indices(Arg<Vec<i64>>),
    /// `unbind`: every index alone, without the dimension.
    Unbind,
}

#[derive(Debug)]
struct Split {
    input: usize,
    dim: i64,
    cut: Cut,
    /// `hsplit`: a tensor of one dimension is cut along that.
    rows_of_vectors: bool,
    /// Outputs that the file gives the operator.
    outputs: usize,
}

/// <https://pytorch.org/docs/stable/generated/torch.chunk.html>,
/// <https://pytorch.org/docs/stable/generated/torch.split.html>,
/// <https://pytorch.org/docs/stable/generated/torch.tensor_split.html>,
/// <https://pytorch.org/docs/stable/generated/torch.unbind.html>
fn split(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = r.or("dim", 0)?;
    let cut = match r.kind() {
        "torch.unbind" => Cut::Unbind,
        "torch.chunk" => Cut::Chunks(at_least_one(r, "chunks")?),
        "torch.tensor_split" if r.has("sections") => Cut::Sections(at_least_one(r, "sections")?),
        "torch.tensor_split" => {
            let (either, integer) = ("indices_or_sections", plutino_ir::Parameter::as_int);
            match r.raw(either).and_then(integer) {
                Some(_) => Cut::Sections(at_least_one(r, either)?),
                None => Cut::Indices(ints(r, &["indices", either])?),
            }
        }
        _ => {
            let keys = ["split_size_or_sections", "split_size", "split_sizes"];
            let key = keys.into_iter().find(|key| r.has(key)).unwrap_or(keys[0]);
            match r.raw(key).and_then(plutino_ir::Parameter::as_int) {
                Some(_) if !r.kind().ends_with("with_sizes") => Cut::Size(r.required(key)?),
                _ => Cut::Sizes(ints(r, &keys)?),
            }
        }
    };
    let input = match r.named_input("tensor") {
        Some(at) => at,
        None => subject(r)?,
    };
    rearranged(Split { input, dim, cut, rows_of_vectors: false, outputs: r.output_count() })
}
fn at_least_one(r: &mut NodeReader<'_>, key: &str) -> Result<usize, BuildError> {
    match r.required(key)? {
        0 => Err(r.bad(key, "an integer of at least 1")),
        n => Ok(n),
    }
}
register_op!(split =>
    "torch.chunk", "torch.split", "torch.split_with_sizes", "torch.tensor_split", "torch.unbind");

/// <https://pytorch.org/docs/stable/generated/torch.hsplit.html>,
/// <https://pytorch.org/docs/stable/generated/torch.vsplit.html>,
/// <https://pytorch.org/docs/stable/generated/torch.dsplit.html>: `tensor_split` of columns, rows
/// and layers, which must come out even.
fn split_along(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dim = match r.kind() {
        "torch.vsplit" => 0,
        "torch.hsplit" => 1,
        _ => 2,
    };
    let keys = ["indices_or_sections", "sections", "indices"];
    let key = keys.into_iter().find(|key| r.has(key)).unwrap_or(keys[0]);
    let cut = match r.raw(key).and_then(plutino_ir::Parameter::as_int) {
        Some(_) => Cut::Equal(at_least_one(r, key)?),
        None => Cut::Indices(ints(r, &keys)?),
    };
    let (rows_of_vectors, outputs) = (dim == 1, r.output_count());
    rearranged(Split { input: subject(r)?, dim, cut, rows_of_vectors, outputs })
}
register_op!(split_along => "torch.hsplit", "torch.vsplit", "torch.dsplit");

impl Cut {
    /// First index and length of each part of a dimension of this size.
    fn parts(&self, size: usize, inputs: &[ValueSpec]) -> Result<Vec<(usize, usize)>, ShapeError> {
        check_members(self.count(size, inputs)?)?;
        let sizes: Vec<usize> = match self {
            // An empty dimension gives one empty part for each index that was asked for.
            Self::Chunks(n) if size == 0 => vec![0; *n], // bounded: MAX_MEMBERS
            Self::Chunks(n) => even(size, size.div_ceil(*n)),
            Self::Size(0) if size > 0 => {
                return Err(invalid("parts of size 0 never cover a dimension"));
            }
            Self::Size(n) => even(size, *n),
            Self::Unbind => vec![1; size], // bounded: MAX_MEMBERS
            Self::Sections(n) => {
                let part = |i| size / n + usize::from(i < size % n);
                (0..*n).map(part).collect() // bounded: MAX_MEMBERS
            }
            Self::Equal(n) if !size.is_multiple_of(*n) => {
                return Err(invalid(format!("a dimension of {size} has no {n} equal parts")));
            }
            Self::Equal(n) => vec![size / n; *n], // bounded: MAX_MEMBERS
            // A single number that is an input is the size of every part.
            &Self::Sizes(Arg::Input(at))
                if matches!(inputs.get(at), Some(ValueSpec::Tensor(_))) =>
            {
                let n = Arg::<i64>::Input(at).int(inputs)?;
                let n = usize::try_from(n).map_err(|_| invalid(format!("parts of size {n}")))?;
                return Self::Size(n).parts(size, inputs);
            }
            Self::Sizes(sizes) => {
                let wanted = sizes.ints(inputs)?;
                let sizes: Option<Vec<usize>> =
                    wanted.iter().map(|&s| usize::try_from(s).ok()).collect();
                let sum = |s: &[usize]| s.iter().try_fold(0usize, |a, &b| a.checked_add(b));
                sizes.filter(|s| sum(s) == Some(size)).ok_or_else(|| {
                    invalid(format!("sizes {wanted:?} must add up to the dimension's size, {size}"))
                })?
            }
            Self::Indices(indices) => {
                let cuts = indices.ints(inputs)?;
                let ends = cuts.iter().copied().chain([i64::MAX]);
                let part = |(start, end)| bounds(size, start, end, 1).map(|(at, len, _)| (at, len));
                return [0].into_iter().chain(cuts.iter().copied()).zip(ends).map(part).collect();
            }
        };
        let starts = sizes.iter().scan(0, |at, &len| {
            let start = *at;
            *at += len;
            Some(start)
        });
        Ok(starts.zip(sizes.iter().copied()).collect())
    }
}

impl Cut {
    /// How many parts there will be.
    fn count(&self, size: usize, inputs: &[ValueSpec]) -> Result<usize, ShapeError> {
        Ok(match self {
            Self::Chunks(n) if size == 0 => *n,
            Self::Chunks(n) => size.div_ceil(size.div_ceil(*n)),
            Self::Size(n) => size.div_ceil((*n).max(1)).max(1),
            Self::Unbind => size,
            Self::Sections(n) | Self::Equal(n) => *n,
            Self::Sizes(sizes) => sizes.ints(inputs)?.len(),
            Self::Indices(indices) => indices.ints(inputs)?.len().saturating_add(1),
        })
    }
}

/// Parts of equal size but the last; an empty dimension is one empty part.
fn even(size: usize, part: usize) -> Vec<usize> {
    if size == 0 {
        return vec![0];
    }
    (0..size).step_by(part.max(1)).map(|at| part.min(size - at)).collect() // bounded: count
}

impl Split {
    /// First channel and number of channels of each part of images, (N, C, spatial...), where their
    /// channels are cut.
    fn cuts_channels(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Option<Vec<(usize, usize)>> {
        let by_channels =
            x.shape().dim(self.dim).is_ok_and(|dim| dim == 1) && !matches!(self.cut, Cut::Unbind);
        self.cut.parts(*x.shape().get(1)?, inputs).ok().filter(|_| by_channels)
    }
}

impl Rearrange for Split {
    fn input(&self) -> usize {
        self.input
    }

    fn parts(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Result<Parts, ShapeError> {
        let dim = match self.rows_of_vectors && x.shape().rank() == 1 {
            true => 0,
            false => existing(x.shape(), self.dim)?,
        };
        let ranges = self.cut.parts(x.shape()[dim], inputs)?;
        let whole = Geometry::dense(x.shape());
        let part = |(start, len)| match self.cut {
            Cut::Unbind => Part::new(x.dtype(), whole.clone().select(dim, start)),
            _ => Part::new(x.dtype(), whole.clone().slice(dim, start, len, 1)),
        };
        let mut parts: Vec<Part> = ranges.into_iter().map(part).collect();
        match (self.outputs, parts.len()) {
            // A list of one and its element look the same from outside.
            (1, 1) => Ok(parts.remove(0).into()),
            (1, _) => Ok(Parts::List(parts)),
            (n, found) if n == found => Ok(Parts::Many(parts)),
            (n, found) => Err(invalid(format!(
                "dimension {dim} of {} is cut into {found} parts, the file has outputs for {n}",
                x.shape()
            ))),
        }
    }

    fn channels(&self, x: &TensorValue, inputs: &[ValueSpec]) -> Option<Vec<Vec<usize>>> {
        let ranges = self.cuts_channels(x, inputs)?;
        // Not a list of them; parts may overlap.
        let all = ranges.iter().fold(0usize, |sum, &(_, len)| sum.saturating_add(len));
        if ranges.len() != self.outputs || all > MOST_CHANNELS {
            return None;
        }
        let channels = |(start, len)| alloc::collect(start..start + len).ok();
        ranges.into_iter().map(channels).collect()
    }

    fn block_parts(&self, x: &TensorValue, inputs: &[ValueSpec], block: usize) -> Option<Parts> {
        let ranges = self.cuts_channels(x, inputs)?;
        let spec = x.spec.clone().with_layout(Layout::Blocked { block });
        let whole = Geometry::dense(&spec.physical_shape());
        let part = |(start, len): (usize, usize)| {
            let fits = start.is_multiple_of(block) && len.is_multiple_of(block);
            let blocks = || whole.clone().slice(1, start / block, len / block, 1);
            fits.then(|| Part::new(x.dtype(), blocks()))
        };
        ranges.into_iter().map(part).collect::<Option<_>>().map(Parts::Many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, error, iota, op, specs, values};

    /// Sizes along `dim` of the parts, and all their values side by side along it.
    #[track_caller]
    fn sizes(line: &str, shape: &[usize], dim: usize) -> Vec<usize> {
        let x = iota(shape);
        let parts = check(&*op(line), std::slice::from_ref(&x));
        let names: Vec<String> = (0..parts.len()).map(|i| i.to_string()).collect();
        let cat = format!("torch.cat c {} 1 {} y dim={dim}", parts.len(), names.join(" "));
        assert_eq!(check(&*op(&cat), &parts), [x], "{line}");
        parts.iter().map(|p| p.shape()[dim]).collect()
    }

    #[test]
    fn cuts() {
        assert_eq!(
            sizes("torch.chunk c 1 3 0 1 2 3 chunks=3 dim=1 $input=0", &[2, 7], 1),
            [3, 3, 1]
        );
        assert_eq!(sizes("torch.chunk c 1 1 0 1 chunks=4 dim=0", &[6], 0), [2, 2, 2]);
        assert_eq!(
            sizes(
                "torch.split s 1 3 0 1 2 3 dim=-1 split_size_or_sections=3 $tensor=0",
                &[2, 8],
                1
            ),
            [3, 3, 2]
        );
        assert_eq!(
            sizes("torch.split s 1 3 0 1 2 3 dim=0 split_size_or_sections=(1,0,4)", &[5, 2], 0),
            [1, 0, 4]
        );
        assert_eq!(
            sizes("torch.tensor_split s 1 3 0 1 2 3 dim=1 sections=3 $input=0", &[2, 8], 1),
            [3, 3, 2]
        );
        assert_eq!(
            sizes("torch.tensor_split s 1 3 0 1 2 3 dim=0 indices=(2,-1)", &[8], 0),
            [2, 5, 1]
        );
        let line = "torch.tensor_split s 1 3 0 1 2 3 dim=0 indices_or_sections=3";
        assert_eq!(sizes(line, &[8], 0), [3, 3, 2]);
    }

    #[test]
    fn cuts_of_rows_columns_and_layers() {
        let line = "torch.hsplit h 1 2 0 1 2 indices_or_sections=2";
        assert_eq!(sizes(line, &[2, 4], 1), [2, 2]);
        assert_eq!(sizes(line, &[4], 0), [2, 2]);
        assert_eq!(sizes("torch.vsplit v 1 2 0 1 2 indices_or_sections=(1)", &[3, 2], 0), [1, 2]);
        assert_eq!(sizes("torch.dsplit d 1 2 0 1 2 sections=2", &[1, 2, 2], 2), [1, 1]);
        assert_eq!(
            sizes("torch.split_with_sizes s 1 2 0 1 2 split_sizes=(1,3) dim=1", &[2, 4], 1),
            [1, 3]
        );
        error(&*op(line), &[iota([3])]);
        error(&*op("torch.dsplit d 1 2 0 1 2 sections=2"), &[iota([2, 2])]);
    }

    #[test]
    fn a_size_may_be_an_input() {
        let split = op("torch.split s 2 2 0 1 2 3 dim=0 $split_size_or_sections=1");
        let x = iota([4]);
        let inputs = [specs(std::slice::from_ref(&x)).remove(0), ValueSpec::python(3i64).unwrap()];
        let parts = split.infer(&inputs).unwrap();
        assert_eq!(parts[0].as_tensor().unwrap().shape().dims(), [3]);
    }

    #[test]
    fn indices_may_lie_outside() {
        let parts =
            check(&*op("torch.tensor_split s 1 3 0 1 2 3 dim=0 indices=(5,3)"), &[iota([4])]);
        let lens: Vec<usize> = parts.iter().map(|p| p.numel()).collect();
        assert_eq!(lens, [4, 0, 1]);
    }

    #[test]
    fn unbind_drops_the_dimension() {
        let parts = check(&*op("torch.unbind u 1 3 0 1 2 3 dim=1"), &[iota([2, 3])]);
        assert_eq!(parts.len(), 3);
        assert_eq!(values::<f32>(&parts[1]), [1., 4.]);
    }

    #[test]
    fn one_output_is_a_list() {
        let inputs = specs(&[iota([4, 3])]);
        let list = op("torch.unbind u 1 1 0 1 dim=0").infer(&inputs).unwrap();
        assert!(matches!(&list[0], ValueSpec::List(items) if items.len() == 4));
        let one =
            op("torch.split s 1 1 0 1 dim=0 split_size_or_sections=9").infer(&inputs).unwrap();
        assert!(matches!(&one[0], ValueSpec::Tensor(_)));
    }

    #[test]
    fn outer_parts_are_views() {
        let (operator, inputs) =
            (op("torch.chunk c 1 2 0 1 2 chunks=2 dim=1"), specs(&[iota([1, 4, 3])]));
        let outputs = operator.infer(&inputs).unwrap();
        let (packs, isa) = (crate::PackCache::default(), plutino_kernels::Isa::best());
        let cx = crate::PlanCx {
            inputs: &inputs,
            outputs: &outputs,
            setting: crate::Setting::new(isa, 1),
            packs: &packs,
        };
        let planned = operator.plan(&cx).unwrap();
        assert!(planned.kernel.is_none());
        assert_eq!(planned.alias[1], crate::Alias::View { input: 0, offset: 6 });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (line, why) in [
            ("torch.split s 1 2 0 1 2 dim=0 split_size_or_sections=(1,4)", "add up to"),
            ("torch.split s 1 2 0 1 2 dim=0 split_size_or_sections=0", "size 0"),
            ("torch.chunk c 1 3 0 1 2 3 chunks=2 dim=0", "cut into 2 parts"),
            ("torch.chunk c 1 2 0 1 2 chunks=2 dim=1", "does not exist"),
        ] {
            let e = error(&*op(line), &[iota([4])]).to_string();
            assert!(e.contains(why), "{line}: {e}");
        }
        assert!(crate::testkit::try_op("torch.chunk c 1 1 0 1 chunks=0 dim=0", &[]).is_err());
    }
}

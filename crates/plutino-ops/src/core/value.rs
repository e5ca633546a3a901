//! What is known of a value before the run.

use super::ShapeError;
use plutino_ir::quote;
use plutino_tensor::{DType, Element, Shape, Tensor, TensorSpec, alloc};
use std::sync::Arc;

/// Members that a list may have, those of inner lists included: parts of a tensor, members of a
/// tuple.
pub const MAX_MEMBERS: usize = 1 << 16;

/// A list of `n` is possible: asked before it is made.
///
/// # Errors
/// Where it exceeds [`MAX_MEMBERS`].
pub fn check_members(n: usize) -> Result<(), ShapeError> {
    match n {
        0..=MAX_MEMBERS => Ok(()),
        n => Err(ShapeError::Invalid(format!(
            "a list may have {MAX_MEMBERS} members at most, this one has {n}"
        ))),
    }
}

/// How deep lists may stand inside lists.
pub const MAX_NESTING: usize = 64;

/// Counts the members of a list, or of all lists that an operator reads, before they are made:
/// lists of the same lists grow exponentially. A list inside is a member as well, with or without
/// tensors in it.
#[derive(Debug, Default)]
pub struct Members(usize);

impl Members {
    /// Counts a member that stands `depth` lists deep, without what is in it.
    ///
    /// # Errors
    /// Where they exceed [`MAX_MEMBERS`], or it is deeper than [`MAX_NESTING`].
    pub fn one(&mut self, depth: usize) -> Result<(), ShapeError> {
        self.0 = self.0.saturating_add(1);
        if self.0 > MAX_MEMBERS {
            return Err(ShapeError::Invalid(format!(
                "a list may have {MAX_MEMBERS} members at most, those of its lists included, and \
                 so may all lists that an operator reads"
            )));
        }
        if depth > MAX_NESTING {
            let what = format!("{MAX_NESTING} lists may stand inside each other at most");
            return Err(ShapeError::Invalid(what));
        }
        Ok(())
    }

    /// Counts a member that stands `depth` lists deep, and everything in it. It is as long as
    /// [`MAX_MEMBERS`] at most that this takes, whatever is in it.
    ///
    /// # Errors
    /// As [`Members::one`].
    pub fn add(&mut self, member: &ValueSpec, depth: usize) -> Result<(), ShapeError> {
        self.one(depth)?;
        self.inside(member, depth + 1)
    }

    /// Counts the members of a value, where it is a list: they stand `depth` lists deep.
    ///
    /// # Errors
    /// As [`Members::one`].
    pub fn inside(&mut self, value: &ValueSpec, depth: usize) -> Result<(), ShapeError> {
        match value {
            ValueSpec::List(members) => members.iter().try_for_each(|m| self.add(m, depth)),
            _ => Ok(()),
        }
    }

    /// So many were counted.
    pub fn count(&self) -> usize {
        self.0
    }

    /// Asks the budget of this thread whether there is room for them; nothing stays charged.
    ///
    /// # Errors
    /// Where there is none.
    pub fn room(&self) -> Result<(), ShapeError> {
        let bytes = self.0.saturating_mul(size_of::<ValueSpec>());
        Ok(alloc::temporary(|| alloc::charge(bytes))?)
    }
}

/// Members of a list that a message names.
const MOST_NAMED: usize = 8;

/// A tensor, or a Python number, as planning sees it.
#[derive(Debug, Clone)]
pub struct TensorValue {
    /// Dtype, shape, layout. Python numbers are rank 0: `int` i64, `float` f64, `bool` bool,
    /// `complex` c128.
    pub spec: TensorSpec,
    /// The value itself, where it does not depend on the model's inputs.
    pub known: Option<Tensor>,
    /// Whether it is a Python number and not a tensor: such a value never decides a dtype within
    /// its category.
    pub python: bool,
}

/// What is known of a value before the run.
#[derive(Debug, Clone)]
pub enum ValueSpec {
    /// A tensor or a Python number.
    Tensor(TensorValue),
    /// A list or tuple. Kernels see its leaves, in order.
    List(Vec<ValueSpec>),
    /// A word, such as the mode of a function. It has no leaves: builders of raw operators read it
    /// like a parameter, kernels never do.
    Word(Arc<str>),
    /// A tensor whose shape depends on data: known only after its producer has run.
    Dynamic {
        /// Element type.
        dtype: DType,
    },
}

impl From<TensorSpec> for ValueSpec {
    fn from(spec: TensorSpec) -> Self {
        Self::Tensor(TensorValue { spec, known: None, python: false })
    }
}

impl From<TensorValue> for ValueSpec {
    fn from(value: TensorValue) -> Self {
        Self::Tensor(value)
    }
}

impl From<Tensor> for ValueSpec {
    /// A tensor that is known before the run.
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(TensorValue { spec: tensor.spec(), known: Some(tensor), python: false })
    }
}

impl ValueSpec {
    /// A tensor that is computed at run time.
    pub fn tensor(dtype: DType, shape: impl Into<Shape>) -> Self {
        TensorSpec::new(dtype, shape).into()
    }

    /// A known Python number.
    ///
    /// # Errors
    /// Where no memory is left.
    pub fn python<T: Element>(value: T) -> Result<Self, ShapeError> {
        let tensor = Tensor::scalar(value)?;
        Ok(Self::Tensor(TensorValue { spec: tensor.spec(), known: Some(tensor), python: true }))
    }

    /// A known list of Python ints.
    ///
    /// # Errors
    /// Where no memory is left, or they exceed [`MAX_MEMBERS`].
    pub fn python_ints(values: &[i64]) -> Result<Self, ShapeError> {
        check_members(values.len())?;
        Ok(Self::List(values.iter().map(|&v| Self::python(v)).collect::<Result<_, _>>()?))
    }

    /// The tensor, where it is one of known shape.
    pub fn as_tensor(&self) -> Option<&TensorValue> {
        match self {
            Self::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// Number of leaves (tensors) in this value: 1, or those of a list. A word has none.
    pub fn leaf_count(&self) -> usize {
        match self {
            Self::Word(_) => 0,
            Self::List(items) => items.iter().map(Self::leaf_count).sum(),
            _ => 1,
        }
    }

    /// Members of a list, those of lists inside included, which are members as well; anything else
    /// has none.
    pub fn members(&self) -> usize {
        match self {
            Self::List(items) => items.iter().map(|item| 1 + item.members()).sum(),
            _ => 0,
        }
    }

    /// The leaves in order.
    pub fn leaves(&self) -> Vec<&ValueSpec> {
        fn walk<'a>(v: &'a ValueSpec, out: &mut Vec<&'a ValueSpec>) {
            match v {
                ValueSpec::List(items) => items.iter().for_each(|i| walk(i, out)),
                ValueSpec::Word(_) => {}
                leaf => out.push(leaf),
            }
        }
        let mut out = Vec::new();
        walk(self, &mut out);
        out
    }

    /// Whether some leaf's shape depends on data.
    pub fn is_dynamic(&self) -> bool {
        self.leaves().iter().any(|v| matches!(v, Self::Dynamic { .. }))
    }

    /// The value as ints, where it is known: a number, a list of numbers, or an integer tensor.
    pub fn known_ints(&self) -> Option<Vec<i64>> {
        let mut out = Vec::new();
        if matches!(self, Self::Word(_)) {
            return None;
        }
        for leaf in self.leaves() {
            let tensor = leaf.as_tensor()?.known.as_ref()?;
            match tensor.dtype() {
                DType::I64 => out.extend_from_slice(tensor.as_slice::<i64>().ok()?),
                DType::I32 => {
                    out.extend(tensor.as_slice::<i32>().ok()?.iter().map(|&v| i64::from(v)))
                }
                _ => return None,
            }
        }
        Some(out)
    }

    /// The value as floats, where it is known: as [`ValueSpec::known_ints`], with f32 and f64 too.
    pub fn known_floats(&self) -> Option<Vec<f64>> {
        let mut out = Vec::new();
        if matches!(self, Self::Word(_)) {
            return None;
        }
        for leaf in self.leaves() {
            let tensor = leaf.as_tensor()?.known.as_ref()?;
            match tensor.dtype() {
                DType::F64 => out.extend_from_slice(tensor.as_slice::<f64>().ok()?),
                DType::F32 => {
                    out.extend(tensor.as_slice::<f32>().ok()?.iter().map(|&v| f64::from(v)))
                }
                _ => out.extend(leaf.known_ints()?.into_iter().map(|v| v as f64)),
            }
        }
        Some(out)
    }
}

impl std::fmt::Display for ValueSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// Lists inside of those inside are only counted: a message of all that there is in lists
        /// of lists would be as long as they.
        fn show(
            value: &ValueSpec,
            inside: usize,
            f: &mut std::fmt::Formatter<'_>,
        ) -> std::fmt::Result {
            match value {
                ValueSpec::Tensor(t) => write!(f, "{}", t.spec),
                ValueSpec::Dynamic { dtype } => write!(f, "(?){dtype}"),
                ValueSpec::Word(word) => write!(f, "'{}'", quote(word)),
                ValueSpec::List(items) if inside > 1 && !items.is_empty() => {
                    write!(f, "[{} members]", items.len())
                }
                ValueSpec::List(items) => {
                    f.write_str("[")?;
                    for (i, item) in items.iter().take(MOST_NAMED).enumerate() {
                        if i > 0 {
                            f.write_str(", ")?;
                        }
                        show(item, inside + 1, f)?;
                    }
                    match items.len().checked_sub(MOST_NAMED) {
                        Some(more @ 1..) => write!(f, ", {more} more]"),
                        _ => f.write_str("]"),
                    }
                }
            }
        }
        show(self, 0, f)
    }
}

impl TensorValue {
    /// The tensor at position `i` of an operator's inputs, or an error that names it.
    ///
    /// # Errors
    /// Where there is none, or a list, or its shape is not known yet.
    pub fn at(inputs: &[ValueSpec], i: usize) -> Result<&Self, ShapeError> {
        match inputs.get(i) {
            Some(ValueSpec::Tensor(t)) => Ok(t),
            Some(other) => Err(ShapeError::Sort {
                input: i,
                expected: "a tensor of known shape",
                found: other.to_string(),
            }),
            None => {
                Err(ShapeError::Sort { input: i, expected: "a tensor", found: "nothing".into() })
            }
        }
    }

    /// As [`TensorValue::at`], of numbers that have an order.
    ///
    /// # Errors
    /// Also where they are complex.
    pub fn real_at(inputs: &[ValueSpec], i: usize) -> Result<&Self, ShapeError> {
        let t = Self::at(inputs, i)?;
        match t.dtype().is_complex() {
            true => {
                let expected = "a real number".into();
                Err(ShapeError::DType { input: i, expected, found: t.dtype() })
            }
            false => Ok(t),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    /// Its dtype.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }
}

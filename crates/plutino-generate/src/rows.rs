//! Tokens, positions and masks of one run.

use crate::ports::Control;
use crate::recipe::InputRole;
use plutino_tensor::{DType, Shape, Tensor, TensorError, alloc};

/// What stands where a row has no token.
const FILLING: u32 = 0;

/// The tokens of one run: a matrix, filled up in front or behind.
pub(crate) struct Rows<'a> {
    /// Tokens of each row.
    pub(crate) tokens: &'a [&'a [u32]],
    /// Tokens of the longest row, or more.
    pub(crate) width: usize,
    /// Whether shorter rows are filled up in front, so that all end together.
    pub(crate) in_front: bool,
    /// Tokens in the caches, of each row and with filling.
    pub(crate) past: usize,
    /// Filling in front of each row, in the caches or here.
    pub(crate) filled: &'a [usize],
}

/// An input cannot be made.
pub(crate) enum RowsError {
    Input(String),
    Tensor(TensorError),
}

impl From<TensorError> for RowsError {
    fn from(error: TensorError) -> Self {
        Self::Tensor(error)
    }
}

impl Rows<'_> {
    /// The tensor for an input.
    pub(crate) fn of(&self, control: &Control) -> Result<Tensor, RowsError> {
        match control.role {
            InputRole::Tokens => {
                let token = |row: usize, at: usize| i64::from(self.token(row, at));
                self.integers(control, token, true)
            }
            InputRole::Positions => {
                let place = |row: usize, at: usize| {
                    let filled = self.filled.get(row).copied().unwrap_or(0);
                    i64::try_from((self.past + at).saturating_sub(filled)).unwrap_or(i64::MAX)
                };
                self.integers(control, place, control.rank == 2)
            }
            InputRole::Mask => self.mask(control),
        }
    }

    fn token(&self, row: usize, at: usize) -> u32 {
        self.at(self.tokens.get(row).copied().unwrap_or_default(), at)
    }

    /// What stands at this place of a row with these tokens.
    pub(crate) fn at(&self, tokens: &[u32], at: usize) -> u32 {
        let before = if self.in_front { self.width.saturating_sub(tokens.len()) } else { 0 };
        let token = at.checked_sub(before).and_then(|at| tokens.get(at));
        token.copied().unwrap_or(FILLING)
    }

    fn integers(
        &self,
        control: &Control,
        value: impl Fn(usize, usize) -> i64,
        of_rows: bool,
    ) -> Result<Tensor, RowsError> {
        let rows = if of_rows { self.tokens.len() } else { 1 };
        let mut values = alloc::list(rows.saturating_mul(self.width))?;
        for row in 0..rows {
            values.extend((0..self.width).map(|at| value(row, at)));
        }
        let shape = match of_rows {
            true => Shape::from([rows, self.width]),
            false => Shape::from([self.width]),
        };
        match control.dtype {
            DType::I64 => Ok(Tensor::from_slice(&values, shape)?),
            dtype => Ok(Tensor::from_slice(&values, shape)?.cast(dtype)?),
        }
    }

    /// Whether a token may be seen by another one. A filling sees itself, so that its scores have a
    /// largest one; nobody reads what becomes of it.
    fn sees(&self, row: usize, query: usize, key: usize) -> bool {
        let filled = self.filled.get(row).copied().unwrap_or(0);
        let query = self.past + query;
        key == query || key < query && key >= filled
    }

    /// Whether there is a token.
    fn is_there(&self, row: usize, key: usize) -> bool {
        let filled = self.filled.get(row).copied().unwrap_or(0);
        let tokens = self.tokens.get(row).map_or(0, |tokens| tokens.len());
        let end = if self.in_front { self.past + self.width } else { self.past + tokens };
        (filled..end).contains(&key)
    }

    fn mask(&self, control: &Control) -> Result<Tensor, RowsError> {
        let (rows, width, keys) = (self.tokens.len(), self.width, self.past + self.width);
        let of_queries = control.rank > 2;
        let queries = if of_queries { width } else { 1 };
        let shape = match control.rank {
            2 => Shape::from([rows, keys]),
            3 => Shape::from([rows, width, keys]),
            _ => Shape::from([rows, 1, width, keys]),
        };
        let mut seen = alloc::list(rows.saturating_mul(queries).saturating_mul(keys))?;
        for row in 0..rows {
            for query in 0..queries {
                seen.extend((0..keys).map(|key| match of_queries {
                    true => self.sees(row, query, key),
                    false => self.is_there(row, key),
                }));
            }
        }
        let added = |seen: bool| if seen { 0.0 } else { f32::NEG_INFINITY };
        Ok(match control.dtype {
            DType::Bool => Tensor::from_slice(&seen, shape)?,
            dtype if dtype.is_float() => {
                let added = alloc::collect(seen.iter().map(|seen| added(*seen)))?;
                Tensor::from_slice(&added, shape)?.cast(dtype)?
            }
            dtype if dtype.is_complex() => {
                return Err(RowsError::Input(format!("a mask cannot be {dtype}")));
            }
            dtype => Tensor::from_slice(&seen, shape)?.cast(dtype)?,
        })
    }
}

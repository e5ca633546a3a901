//! The notation: `bij,bjk->bik`, with `...` for dimensions without a name.

use plutino_tensor::{MAX_RANK, Shape};
use std::collections::HashMap;
use std::fmt;

/// The name of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    /// A letter.
    Letter(char),
    /// One of those that `...` stands for, counted from the last.
    Ellipsis(usize),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Letter(c) => write!(f, "{c}"),
            Self::Ellipsis(_) => f.write_str("..."),
        }
    }
}

/// The labels of one tensor; none for `...`.
type Labels = Vec<Option<char>>;

/// What is multiplied, and which labels stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Equation {
    operands: Vec<Labels>,
    /// Given, or made up: `...`, then all letters that occur once, in the order of the alphabet.
    output: Labels,
}

impl Equation {
    /// Reads an equation. The error says what would have been right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&text[..], None),
        };
        let operands = left.split(',').map(labels).collect::<Result<Vec<_>, _>>()?;
        let mut counts: HashMap<Option<char>, usize> = HashMap::new();
        operands.iter().flatten().for_each(|label| *counts.entry(*label).or_default() += 1);
        let count = |label: Option<char>| counts.get(&label).copied().unwrap_or(0);
        let output = match right {
            Some(right) => labels(right)?,
            None => {
                let ellipsis = (count(None) > 0).then_some(None);
                let mut once: Vec<_> =
                    operands.iter().flatten().flatten().filter(|c| count(Some(**c)) == 1).collect();
                once.sort_unstable();
                ellipsis.into_iter().chain(once.into_iter().map(|&c| Some(c))).collect()
            }
        };
        for (i, label) in output.iter().enumerate() {
            if output[..i].contains(label) {
                return Err("an equation whose result has every label once".into());
            }
            if label.is_some() && count(*label) == 0 {
                return Err("an equation whose result has labels of its operands only".into());
            }
        }
        Ok(Self { operands, output })
    }

    /// The labels of each dimension of tensors of these shapes. The error says why they do not fit.
    pub(super) fn bind(&self, shapes: &[&Shape]) -> Result<Vec<Vec<Label>>, String> {
        if shapes.len() != self.operands.len() {
            let (given, named) = (shapes.len(), self.operands.len());
            return Err(format!("einsum of {given} tensors, but the equation names {named}"));
        }
        let bind = |(labels, shape): (&Labels, &&Shape)| {
            let letters = labels.iter().flatten().count();
            let open = labels.len() - letters;
            let unnamed = shape.rank().checked_sub(letters).filter(|&n| n == 0 || open > 0);
            let unnamed = unnamed
                .ok_or_else(|| format!("{letters} labels do not suit a tensor of shape {shape}"))?;
            Ok(resolved(labels, unnamed))
        };
        self.operands.iter().zip(shapes).map(bind).collect()
    }

    /// The labels of the result, where `...` stands for this many dimensions.
    pub(super) fn output(&self, ellipsis: usize) -> Vec<Label> {
        resolved(&self.output, ellipsis)
    }
}

/// Labels with `...` resolved.
fn resolved(labels: &Labels, ellipsis: usize) -> Vec<Label> {
    let mut out = Vec::with_capacity(labels.len() + ellipsis);
    for label in labels {
        match label {
            Some(c) => out.push(Label::Letter(*c)),
            None => out.extend((0..ellipsis).rev().map(Label::Ellipsis)),
        }
    }
    out
}

/// The labels of one tensor.
fn labels(text: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            'a'..='z' | 'A'..='Z' if labels.len() < MAX_RANK => labels.push(Some(c)),
            _ if labels.len() >= MAX_RANK => {
                return Err(format!("an equation of at most {MAX_RANK} labels for each tensor"));
            }
            '.' if (chars.next(), chars.next()) == (Some('.'), Some('.'))
                && !labels.contains(&None) =>
            {
                labels.push(None);
            }
            _ => {
                return Err(
                    "an equation of letters, ',', '->', and '...' once for each tensor".into()
                );
            }
        }
    }
    Ok(labels)
}

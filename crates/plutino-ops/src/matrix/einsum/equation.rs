//! The notation: `bij,bjk->bik`, with `...` for dimensions without a name.

use plutino_ir::Dim;
use plutino_tensor::{MAX_RANK, Shape};
use std::collections::HashMap;
use std::fmt;

/// The name of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// The equation with the `...` that pnnx leaves out, in front of every term: where the shapes
    /// that the file records have more dimensions than there are labels, as many in the result as
    /// in the operands, and sizes agree. None where nothing is missing, or it stood elsewhere.
    pub(super) fn restored(&self, operands: &[&[Dim]], output: &[Dim]) -> Option<Self> {
        let spelled = |labels: &Labels| labels.iter().all(Option::is_some);
        let mut terms = self.operands.iter().chain([&self.output]);
        if operands.len() != self.operands.len() || !terms.all(spelled) {
            return None;
        }
        let left = |labels: &Labels, dims: &[Dim]| dims.len().checked_sub(labels.len());
        let terms: Vec<(&Labels, &[Dim])> =
            self.operands.iter().zip(operands.iter().copied()).collect();
        let unnamed: Option<Vec<usize>> = terms.iter().map(|(l, dims)| left(l, dims)).collect();
        let most = unnamed?.into_iter().max().filter(|&most| most > 0)?;
        if left(&self.output, output) != Some(most) {
            return None;
        }
        let mut sizes: HashMap<Label, usize> = HashMap::new();
        for (labels, dims) in terms.into_iter().chain([(&self.output, output)]) {
            let unnamed = (0..dims.len() - labels.len()).rev().map(Label::Ellipsis);
            let letters = labels.iter().flatten().map(|&c| Label::Letter(c));
            for (label, dim) in unnamed.chain(letters).zip(dims) {
                if let Dim::Known(size) = dim
                    && *size != 1
                    && *sizes.entry(label).or_insert(*size) != *size
                {
                    return None;
                }
            }
        }
        let with = |labels: &Labels| std::iter::once(None).chain(labels.iter().copied()).collect();
        Some(Self {
            operands: self.operands.iter().map(with).collect(),
            output: with(&self.output),
        })
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

#[cfg(test)]
mod tests {
    use super::Equation;
    use plutino_ir::Dim;

    fn restored(equation: &str, shapes: &[&[usize]]) -> Option<Equation> {
        let dims = |shape: &&[usize]| shape.iter().map(|&n| Dim::Known(n)).collect();
        let dims: Vec<Vec<Dim>> = shapes.iter().map(dims).collect();
        let (output, operands) = dims.split_last()?;
        let operands: Vec<&[Dim]> = operands.iter().map(Vec::as_slice).collect();
        Equation::parse(equation).unwrap().restored(&operands, output)
    }

    #[test]
    fn dimensions_without_labels_stand_first_where_sizes_say_so() {
        let found = restored("qd,kd->qk", &[&[2, 5, 3, 4], &[2, 5, 6, 4], &[2, 5, 3, 6]]);
        assert_eq!(found, Equation::parse("...qd,...kd->...qk").ok());
        let found = restored("ij,jk->ik", &[&[7, 3, 4], &[4, 5], &[7, 3, 5]]);
        assert_eq!(found, Equation::parse("...ij,...jk->...ik").ok());
        // Nothing is missing; the result is smaller; they stood last; the equation says where.
        for (equation, shapes) in [
            ("ij,jk->ik", [&[3usize, 4][..], &[4, 5], &[3, 5]]),
            ("ij,jk->ik", [&[7, 3, 4], &[7, 4, 5], &[3, 5]]),
            ("ij,jk->ik", [&[3, 4, 7], &[4, 5, 7], &[3, 5, 7]]),
            ("...ij,jk->...ik", [&[7, 3, 4], &[4, 5], &[7, 3, 5]]),
        ] {
            assert_eq!(restored(equation, &shapes), None, "{equation} {shapes:?}");
        }
    }
}

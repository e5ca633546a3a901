//! The likeliest classes of a classifier's output.

use plutino::{DType, Tensor};

use crate::{VisionError, Wants};

/// A class with its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Its number.
    pub index: usize,
    /// From 0 to 1.
    pub probability: f64,
}

/// The `k` likeliest classes of each row (last dimension). Scores become probabilities by softmax,
/// unless they are probabilities already: none negative, sum 1.
///
/// # Errors
/// The tensor holds no floats, or its last dimension is empty.
pub fn likeliest(scores: &Tensor, k: usize) -> Result<Vec<Vec<Class>>, VisionError> {
    let classes = match scores.shape().last() {
        Some(&n) if n > 0 && scores.dtype().is_float() => n,
        _ => {
            let outputs = vec![scores.spec()];
            return Err(VisionError::Output { wanted: Wants::Scores, outputs });
        }
    };
    let scores = scores.cast(DType::F64)?;
    let rows = scores.as_slice::<f64>()?.chunks_exact(classes);
    Ok(rows.map(|row| top(&probabilities(row), k)).collect())
}

/// The scores of one picture's classes, in one dimension: the first output of a model that was run
/// for one picture.
///
/// # Errors
/// There is none, or it has several dimensions.
pub fn scores(outputs: &[Tensor]) -> Result<Tensor, VisionError> {
    match outputs.first() {
        Some(first) if first.shape().dims().iter().filter(|n| **n != 1).count() <= 1 => {
            Ok(first.clone().reshape([first.numel()])?)
        }
        first => Err(VisionError::Output {
            wanted: Wants::Scores,
            outputs: first.iter().map(|output| output.spec()).collect(),
        }),
    }
}

fn probabilities(row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().sum();
    if row.iter().all(|p| *p >= 0.0) && (sum - 1.0).abs() < 1e-3 {
        return row.to_vec();
    }
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = row.iter().map(|x| (x - largest).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.into_iter().map(|x| x / sum).collect()
}

fn top(probabilities: &[f64], k: usize) -> Vec<Class> {
    let all = probabilities.iter().enumerate();
    let mut all: Vec<Class> =
        all.map(|(index, &probability)| Class { index, probability }).collect();
    all.sort_by(|a, b| b.probability.total_cmp(&a.probability).then(a.index.cmp(&b.index)));
    all.truncate(k);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(scores: &[f32], shape: &[usize], k: usize) -> Vec<Vec<usize>> {
        let scores = Tensor::from_slice(scores, shape).unwrap();
        let rows = likeliest(&scores, k).unwrap();
        rows.iter().map(|row| row.iter().map(|c| c.index).collect()).collect()
    }

    #[test]
    fn sorted_by_probability_row_by_row() {
        assert_eq!(indices(&[0.1, 3.0, 2.0, 9.0, 9.0, 1.0], &[2, 3], 2), [[1, 2], [0, 1]]);
        assert_eq!(indices(&[1.0, f32::NAN], &[2], 9)[0].len(), 2);
    }

    #[test]
    fn probabilities_stay_and_scores_are_normalised() {
        assert_eq!(probabilities(&[0.25, 0.75]), [0.25, 0.75]);
        let p = probabilities(&[1000.0, 1000.0]);
        assert_eq!(p, [0.5, 0.5]);
        assert!((probabilities(&[0.0, 3f64.ln()])[1] - 0.75).abs() < 1e-12);
    }

    #[test]
    fn one_score_for_each_class() {
        let of = |shape: &[usize]| {
            scores(&[Tensor::zeros(DType::F32, shape).unwrap()]).map(|t| t.numel())
        };
        assert_eq!(of(&[1, 10, 1, 1]).unwrap(), 10);
        assert!(of(&[1, 10, 2]).is_err());
        assert!(scores(&[]).is_err());
    }

    #[test]
    fn what_holds_no_classes_is_an_error() {
        assert!(likeliest(&Tensor::scalar(1.0f32).unwrap(), 1).is_err());
        assert!(likeliest(&Tensor::zeros(DType::I64, [3]).unwrap(), 1).is_err());
        assert!(likeliest(&Tensor::zeros(DType::F32, [2, 0]).unwrap(), 1).is_err());
    }
}

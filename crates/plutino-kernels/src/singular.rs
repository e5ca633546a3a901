//! Singular values of small matrices, by Hestenes' one-sided Jacobi rotations.
//!
//! Pairs of rows are rotated until all are at right angles to each other: then their lengths are
//! the singular values (Golub and Van Loan, *Matrix Computations*, 8.6.3). In f64, with small
//! relative errors.

use crate::extent::elements;
use crate::par::stop::Watch;

/// Rounds over all pairs after which the rows are taken as they are; they converge quadratically,
/// within ten or so.
const MOST_ROUNDS: usize = 60;

/// Overwrites the rows of a matrix of `rows` x `columns`, `rows` <= `columns`, and writes the
/// singular values, the greatest first. Those of a matrix with what is no finite number are NaN.
///
/// # Panics
/// Where a slice is not as long as the sizes say, or there are more rows than columns.
pub fn singular_values(rows: usize, columns: usize, matrix: &mut [f64], values: &mut [f64]) {
    assert!(rows <= columns && Some(matrix.len()) == elements([rows, columns]), "a matrix");
    assert_eq!(values.len(), rows, "singular values");
    if !matrix.iter().all(|x| x.is_finite()) {
        return values.fill(f64::NAN);
    }
    // Squares must neither overflow nor vanish.
    let scale = matrix.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    if scale == 0.0 {
        return values.fill(0.0);
    }
    matrix.iter_mut().for_each(|x| *x /= scale);
    let mut watch = Watch::new();
    for _ in 0..MOST_ROUNDS {
        let mut done = true;
        for i in 0..rows {
            for j in i + 1..rows {
                if watch.stops(4 * columns) {
                    return;
                }
                let (before, from_j) = matrix.split_at_mut(j * columns);
                let row = i * columns..(i + 1) * columns;
                done &= !rotate(&mut before[row], &mut from_j[..columns]);
            }
        }
        if done {
            break;
        }
    }
    for (value, row) in values.iter_mut().zip(matrix.chunks_exact(columns)) {
        *value = dot(row, row).sqrt() * scale;
    }
    values.sort_unstable_by(|a, b| b.total_cmp(a));
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Turns two rows so that they are at right angles; false where they are already.
fn rotate(a: &mut [f64], b: &mut [f64]) -> bool {
    let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
    if ab == 0.0 || ab.abs() <= f64::EPSILON * (aa * bb).sqrt() {
        return false;
    }
    let zeta = (bb - aa) / (2.0 * ab);
    let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = cosine * tangent;
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: usize, matrix: &[f64]) -> Vec<f64> {
        let (mut matrix, mut values) = (matrix.to_vec(), vec![0.0; rows]);
        singular_values(rows, matrix.len() / rows, &mut matrix, &mut values);
        values
    }

    #[test]
    fn of_matrices_that_are_known() {
        let near =
            |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-14 * b.abs());
        assert!(near(&of(2, &[3.0, 0.0, 4.0, 5.0]), &[45f64.sqrt(), 5f64.sqrt()]));
        assert!(near(&of(1, &[3e200, 4e200]), &[5e200]));
        assert!(near(&of(2, &[1.0, 1.0, 1.0, 1.0])[..1], &[2.0]));
        assert!(of(2, &[1.0, 1.0, 1.0, 1.0])[1] < 1e-15);
        assert_eq!(of(2, &[0.0; 4]), [0.0; 2]);
        assert!(of(2, &[1.0, f64::INFINITY, 0.0, 1.0]).iter().all(|x| x.is_nan()));
        // The sum of squares is that of all elements.
        let matrix: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7) - 2.5).collect();
        let squares: f64 = of(3, &matrix).iter().map(|x| x * x).sum();
        assert!((squares - dot(&matrix, &matrix)).abs() < 1e-12);
    }
}

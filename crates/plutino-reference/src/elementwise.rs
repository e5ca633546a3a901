//! Functions of single elements in f64, as PyTorch's documentation writes them.

pub use plutino_cpu::activation::exact as activation;

/// The element of a tensor of shape `from` that broadcasting pairs with element `at` of shape `to`;
/// both are dense and row-major.
pub fn paired(to: &[usize], at: usize, from: &[usize]) -> usize {
    let (mut rest, mut step, mut found) = (at, 1, 0);
    for (d, &size) in to.iter().enumerate().rev() {
        let index = rest % size;
        rest /= size;
        if let Some(k) = (d + from.len()).checked_sub(to.len()) {
            found += if from[k] == 1 { 0 } else { index * step };
            step *= from[k];
        }
    }
    found
}

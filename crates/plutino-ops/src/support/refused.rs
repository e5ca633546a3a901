//! Functions that are known and refused, with the reason and what to write instead.

use crate::{BuildError, BuildProblem, NodeReader, Operator, register_op};

fn refuse(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let why = match r.kind() {
        "torch.as_strided_scatter" => {
            "the memory of a tensor is not addressed here: use slice_scatter or index_put"
        }
        _ => "elements that were not computed would be read: use reshape, slices, pad or new_zeros",
    };
    Err(r.error(BuildProblem::Invalid(why.into())))
}
register_op!(refuse =>
    "torch.as_strided_scatter", "Tensor.resize", "Tensor.resize_as", "Tensor.set");

#[cfg(test)]
mod tests {
    use crate::testkit::try_op;

    #[test]
    fn the_reason_is_given() {
        let e = try_op("Tensor.resize r 1 1 0 1 size=(2)", &[]).unwrap_err().to_string();
        assert!(e.contains("use reshape"), "{e}");
    }
}

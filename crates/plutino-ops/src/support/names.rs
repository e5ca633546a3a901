//! Names of functions, and of arguments that may be missing.

use crate::{BuildError, NodeReader};
use plutino_ir::Parameter;

/// PyTorch's name of the function that a type stands for, without its module: `i0e` of
/// `torch.special.i0e`, `aten::special_i0e` and `aten::special_i0e_` alike.
pub(crate) fn function(kind: &str) -> &str {
    let name = kind.rsplit(['.', ':']).next().unwrap_or(kind);
    let name =
        name.strip_prefix("special_").or_else(|| name.strip_prefix("linalg_")).unwrap_or(name);
    name.strip_suffix('_').unwrap_or(name)
}

/// The input that stands for an argument that is a tensor, or `None`.
///
/// # Errors
/// Where it is something else.
pub(crate) fn optional_tensor(
    r: &mut NodeReader<'_>,
    key: &str,
) -> Result<Option<usize>, BuildError> {
    match r.raw(key) {
        None | Some(Parameter::Null) => Ok(r.named_input(key)),
        Some(_) => Err(r.bad(key, "a tensor or None")),
    }
}

#[cfg(test)]
mod tests {
    use super::function;

    #[test]
    fn every_spelling_of_a_function() {
        for kind in ["torch.special.i0e", "aten::special_i0e", "aten::special_i0e_"] {
            assert_eq!(function(kind), "i0e");
        }
        assert_eq!(function("torch.linalg.norm"), "norm");
        assert_eq!(function("torch._conj"), "_conj");
    }
}

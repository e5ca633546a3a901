//! Native functions that PNNX has under another name, or with other arguments.
//!
//! A function that is not listed is `torch.NAME`, `Tensor.NAME`, `F.NAME`, or what its prefix says
//! (`linalg_`, `fft_`, `special_`), with PyTorch's names for its arguments.

/// How a native function is read by the builder of another type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alias {
    /// `function` or `function.overload`.
    pub(super) native: &'static str,
    /// The type whose builder decodes it.
    pub(super) kind: &'static str,
    /// Changes of arguments, separated by blanks: `theirs>ours` renames, `name=value` adds,
    /// `name!value` must be this and is left out.
    changes: &'static str,
}

/// A change of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The native argument has another name here.
    Rename(&'static str, &'static str),
    /// The builder is given a parameter that the function implies.
    Add(&'static str, &'static str),
    /// The builder knows nothing else than this value.
    Only(&'static str, &'static str),
}

impl Alias {
    /// The alias of `function.overload`, else that of the function.
    pub(super) fn find(function: &str, overload: &str) -> Option<&'static Self> {
        let find = |name: &str| ALIASES.iter().find(|alias| alias.native == name);
        find(overload).or_else(|| find(function))
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.changes.split_whitespace().filter_map(|word| {
            let cut = |at| word.split_once(at);
            cut('>')
                .map(|(a, b)| Change::Rename(a, b))
                .or_else(|| cut('!').map(|(a, b)| Change::Only(a, b)))
                .or_else(|| cut('=').map(|(a, b)| Change::Add(a, b)))
        })
    }
}

/// The native function that one of Python's operators is.
pub(super) fn python_operator(name: &str) -> Option<&'static str> {
    Some(match name {
        "__and__" | "__iand__" => "bitwise_and",
        "__or__" | "__ior__" => "bitwise_or",
        "__xor__" | "__ixor__" => "bitwise_xor",
        "__lshift__" | "__ilshift__" => "bitwise_left_shift",
        "__rshift__" | "__irshift__" => "bitwise_right_shift",
        _ => return None,
    })
}

const fn alias(native: &'static str, kind: &'static str, changes: &'static str) -> Alias {
    Alias { native, kind, changes }
}

/// By family.
pub(super) const ALIASES: &[Alias] = &[
    // Arguments that PNNX names otherwise.
    alias("embedding", "F.embedding", "indices>input"),
    alias("expand", "Tensor.expand", "size>sizes"),
    alias("repeat", "Tensor.repeat", "repeats>sizes"),
    alias("split", "torch.split", "split_sizes>split_size_or_sections"),
    alias("split.Tensor", "torch.split", "split_size>split_size_or_sections"),
    alias("split.sizes", "torch.split", "split_size>split_size_or_sections"),
    alias("split_with_sizes", "torch.split", "split_sizes>split_size_or_sections"),
    alias("view", "Tensor.view", "size>shape"),
    alias("view.dtype", "Tensor.view.dtype", ""),
    // Results that a module or function of PyTorch chooses with an argument.
    alias("adaptive_max_pool1d", "F.adaptive_max_pool1d", "return_indices=True"),
    alias("adaptive_max_pool2d", "F.adaptive_max_pool2d", "return_indices=True"),
    alias("adaptive_max_pool3d", "F.adaptive_max_pool3d", "return_indices=True"),
    alias("max_pool1d_with_indices", "F.max_pool1d", "return_indices=True"),
    alias("max_pool2d_with_indices", "F.max_pool2d", "return_indices=True"),
    alias("max_pool3d_with_indices", "F.max_pool3d", "return_indices=True"),
    // Modes of one function, and parts of others.
    alias("_pad_circular", "F.pad", "mode=circular"),
    alias("constant_pad_nd", "F.pad", "mode=constant"),
    alias("reflection_pad1d", "F.pad", "padding>pad mode=reflect"),
    alias("reflection_pad2d", "F.pad", "padding>pad mode=reflect"),
    alias("reflection_pad3d", "F.pad", "padding>pad mode=reflect"),
    alias("replication_pad1d", "F.pad", "padding>pad mode=replicate"),
    alias("replication_pad2d", "F.pad", "padding>pad mode=replicate"),
    alias("replication_pad3d", "F.pad", "padding>pad mode=replicate"),
    // The older overload knows no centre, and takes the signal as it is.
    alias("stft", "torch.stft", "center=False"),
    alias("stft.center", "torch.stft", ""),
    // Functions of one meaning.
    alias("_adaptive_avg_pool2d", "F.adaptive_avg_pool2d", ""),
    alias("_adaptive_avg_pool3d", "F.adaptive_avg_pool3d", ""),
    alias("affine_grid_generator", "F.affine_grid", ""),
    alias("col2im", "F.fold", ""),
    alias("im2col", "F.unfold", ""),
    alias("native_channel_shuffle", "F.channel_shuffle", ""),
    alias("_log_softmax", "F.log_softmax", "half_to_float!False"),
    alias("_softmax", "F.softmax", "half_to_float!False"),
    alias("log_sigmoid", "F.logsigmoid", ""),
    alias("max.other", "torch.maximum", ""),
    alias("min.other", "torch.minimum", ""),
    alias("_unsafe_view", "Tensor.view", "size>shape"),
    alias("linalg_diagonal", "torch.diagonal", "A>input"),
    alias("linalg_matmul", "torch.matmul", ""),
    alias("pad_sequence", "torch.nn.utils.rnn.pad_sequence", ""),
    alias("_aminmax", "torch.aminmax", ""),
    alias("_stack", "torch.stack", ""),
    alias("sym_size", "Tensor.size", ""),
    // Copies, and what was a constant of a script; in another dtype.
    alias("alias", "torch.clone", ""),
    alias("lift", "torch.clone", ""),
    alias("lift_fresh", "torch.clone", ""),
    alias("_to_copy", "Tensor.to", ""),
    alias("_cast_Byte", "Tensor.to", "dtype=torch.uint8"),
    alias("_cast_Char", "Tensor.to", "dtype=torch.int8"),
    alias("_cast_Short", "Tensor.to", "dtype=torch.short"),
    alias("_cast_Int", "Tensor.to", "dtype=torch.int"),
    alias("_cast_Long", "Tensor.to", "dtype=torch.long"),
    alias("_cast_Half", "Tensor.to", "dtype=torch.half"),
    alias("_cast_Float", "Tensor.to", "dtype=torch.float"),
    alias("_cast_Double", "Tensor.to", "dtype=torch.double"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::signature::{Signature, function_of, overloads};
    use crate::registry;
    use plutino_ir::Parameter;

    #[test]
    fn aliases_name_functions_arguments_and_types_that_exist() {
        for alias in ALIASES {
            let found = overloads(function_of(alias.native));
            let found =
                found.iter().filter(|s| !alias.native.contains('.') || s.name == alias.native);
            let arguments: Vec<_> = found.flat_map(|s| &s.arguments).map(|a| a.name).collect();
            assert!(!arguments.is_empty(), "{}: no such function", alias.native);
            for change in alias.changes() {
                match change {
                    Change::Rename(name, _) | Change::Only(name, _) => {
                        assert!(arguments.contains(&name), "{}: {name}", alias.native);
                    }
                    Change::Add(name, value) => {
                        // It is no argument of this overload; of others it may be.
                        let exact = |s: &&Signature| s.name == alias.native;
                        let own = overloads(function_of(alias.native)).iter().find(exact);
                        let own = own.iter().flat_map(|s| &s.arguments).any(|a| a.name == name);
                        assert!(!own, "{}: {name}", alias.native);
                        assert!(Parameter::parse(value).is_ok(), "{}: {value}", alias.native);
                    }
                }
            }
            let registered = registry().unwrap().get(alias.kind).is_some();
            assert!(registered, "{}: {}", alias.native, alias.kind);
        }
    }
}

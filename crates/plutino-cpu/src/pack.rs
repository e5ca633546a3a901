//! What tells packed weights apart.

use crate::Isa;
use plutino_tensor::DType;
use std::fmt;

/// All that decides the form of packed weights: those of one layer packed under equal keys are the
/// same bytes. Made by the kernel that reads them, so that no second place can describe it
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackKey {
    /// The form's name: algorithms that read the same form share it.
    pub form: &'static str,
    /// Numbers of the form's own: the width of a panel, strides of phases; 0 where there are none.
    pub sizes: [usize; 3],
    /// Parts of the weights that are packed apart: the groups of a convolution. One weight may be
    /// cut into different ones.
    pub groups: usize,
    /// The instruction set, whose vectors decide the order of elements.
    pub isa: Isa,
    /// The element type of the packed numbers.
    pub precision: DType,
}

impl PackKey {
    /// A form of f32.
    pub fn f32(form: &'static str, sizes: [usize; 3], isa: Isa) -> Self {
        Self { form, sizes, groups: 1, isa, precision: DType::F32 }
    }

    /// The elements in the order of the file, as they are.
    pub fn as_stored(precision: DType) -> Self {
        Self { form: "as stored", sizes: [0; 3], groups: 1, isa: Isa::PORTABLE, precision }
    }
}

impl fmt::Display for PackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, sizes: [a, b, c], groups, isa, precision } = self;
        write!(f, "{form}.{a}x{b}x{c}.{isa}.{precision}")?;
        if *groups == 1 { Ok(()) } else { write!(f, ".g{groups}") }
    }
}

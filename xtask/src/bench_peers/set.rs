//! The sets of models.

use clap::ValueEnum;

/// A set of models. Names are those of `xtask/python/peers/sets.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Set {
    /// Those that plutino is made faster with.
    Sixteen,
    /// Fifty-three others, of many families.
    Wider,
}

impl Set {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sixteen => "sixteen",
            Self::Wider => "wider",
        }
    }

    /// Packages of the exporters, of the engines, and of the models where they have their own.
    pub(super) fn requirements(self) -> &'static [&'static str] {
        match self {
            Self::Sixteen => &["requirements.txt", "peers/requirements.txt"],
            Self::Wider => {
                &["requirements.txt", "peers/requirements.txt", "peers/requirements-wider.txt"]
            }
        }
    }
}

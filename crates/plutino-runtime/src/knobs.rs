//! Environment variables: each is listed here with type, default and meaning, and read nowhere
//! else.

use crate::SessionError;
use plutino_kernels::Isa;
use plutino_kernels::tiles::TileUnit;
use plutino_ops::Units;
use std::path::{Path, PathBuf};

/// An environment variable that plutino reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Name of the variable.
    pub name: &'static str,
    /// What it must be.
    pub expected: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// The instruction set of sessions that do not choose one.
pub const ISA: Knob = Knob {
    name: "PLUTINO_ISA",
    expected: "scalar, avx2, avx512 or amx, and available on this CPU; amx-emulated or bf16-emulated",
    default: "the best of the CPU",
    about: "instruction set of the kernels, for sessions that do not choose one",
};

/// What a value of [`ISA`] means: vectors, and what multiplies bf16. Names of vectors mean them
/// alone, with no matrix unit.
pub(crate) fn isa_and_units(name: &str) -> Option<(Isa, Units)> {
    let best = Isa::best();
    match name {
        "amx" => TileUnit::of_cpu().map(|_| (best, Units::Amx)),
        "amx-emulated" => Some((best, Units::EmulatedAmx)),
        "bf16-emulated" => Some((Isa::PORTABLE, Units::EmulatedBf16)),
        name => Isa::named(name).map(|isa| (isa, Units::Vectors)),
    }
}

/// The number of threads of sessions that do not choose one.
pub const THREADS: Knob = Knob {
    name: "PLUTINO_THREADS",
    expected: "a number in 1..=1024",
    default: "the cores available to the process",
    about: "threads that compute, for sessions that do not choose",
};

/// Where what was measured of the machine is kept.
pub const CACHE: Knob = Knob {
    name: "PLUTINO_CACHE",
    expected: "a folder",
    default: "plutino in the user's folder of caches",
    about: "where figures of this machine are kept that were asked for (--machine measured)",
};

/// How operators are handed to threads, in sessions that do not choose.
pub const DISPATCH: Knob = Knob {
    name: "PLUTINO_DISPATCH",
    expected: "in-turn, by-cost or together",
    default: "by-cost",
    about: "whether independent operators run at the same time, for sessions that do not choose",
};

/// Passes that are left out, whatever the session's options.
pub const PASSES_OFF: Knob = Knob {
    name: "PLUTINO_PASSES_OFF",
    expected: "names of passes, or pass@operator, separated by commas",
    default: "none",
    about: "passes over the graph to leave out, to find the one that is to blame",
};

/// Every knob, sorted by name.
pub const ALL: &[Knob] = &[CACHE, DISPATCH, ISA, PASSES_OFF, THREADS];

/// The folder of [`CACHE`]; `None` where neither it nor the user's folder of caches is known.
///
/// # Errors
/// Where [`CACHE`] names, or lies in, what is no folder.
pub fn cache_folder() -> Result<Option<PathBuf>, SessionError> {
    let folder = |name: &str| {
        let folder = std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        folder.filter(|folder| folder.is_absolute())
    };
    let possible = |path: &str| {
        let there = Path::new(path).ancestors().find(|path| path.exists());
        there.is_none_or(Path::is_dir).then(|| path.into())
    };
    if let Some(own) = CACHE.read(possible)? {
        return Ok(Some(own));
    }
    let caches = folder("XDG_CACHE_HOME").or_else(|| folder("LOCALAPPDATA"));
    let caches = caches.or_else(|| folder("HOME").map(|home| home.join(".cache")));
    Ok(caches.map(|caches| caches.join("plutino")))
}

/// What [`PASSES_OFF`] lists.
pub fn passes_off() -> Vec<String> {
    let names = PASSES_OFF.get().unwrap_or_default();
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

impl Knob {
    /// The variable's value, where it is set to something.
    pub fn get(&self) -> Option<String> {
        // What is no text is shown as well as it can be, and refused like other wrong values.
        let value = std::env::var_os(self.name)?.to_string_lossy().into_owned();
        (!value.is_empty()).then_some(value)
    }

    /// The value as `parse` reads it.
    pub(crate) fn read<T>(
        &self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SessionError> {
        let Some(value) = self.get() else { return Ok(None) };
        match parse(&value) {
            Some(v) => Ok(Some(v)),
            None => Err(SessionError::Option {
                option: self.name.into(),
                expected: self.expected.into(),
                found: value,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_sorted_and_prefixed() {
        assert!(ALL.windows(2).all(|w| w[0].name < w[1].name));
        assert!(ALL.iter().all(|k| k.name.starts_with("PLUTINO_")));
    }

    #[test]
    fn a_bad_value_names_the_variable() {
        // PATH is set wherever tests run; reading it as something else must fail by name.
        let knob = Knob { name: "PATH", expected: "a tune", default: "", about: "" };
        let error = knob.read(|_| None::<()>).unwrap_err();
        assert!(matches!(error, SessionError::Option { option, .. } if option == "PATH"));
    }
}

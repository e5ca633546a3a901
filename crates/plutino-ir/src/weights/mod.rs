//! The `.bin` archive: a zip file whose entries are stored plainly, one for each weight.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{Source, attach};

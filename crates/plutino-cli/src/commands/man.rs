//! `plutino man`

use crate::Cli;
use crate::failure::Failure;
use crate::output::{Output, count, write_file};
use clap::CommandFactory;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write manual pages of plutino and of each of its commands
///
/// They are called plutino.1, plutino-run.1 and so on: `man -l DIR/plutino-run.1` shows one, and
/// `man plutino-run` finds it in a folder man1 of $MANPATH.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write to this folder; it is made where it is missing
    dir: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let failed = |path: &Path, e: std::io::Error| {
        Failure::usage(format!("cannot write '{}': {e}", path.display()))
    };
    std::fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir, e))?;
    let mut command = Cli::command();
    command.build(); // gives the parts their names
    let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
    let pages: Vec<_> = std::iter::once(&command).chain(parts).collect();
    for command in &pages {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let path = args.dir.join(format!("{name}.1"));
        let command = (*command).clone().version(env!("CARGO_PKG_VERSION"));
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .title(name)
            .render(&mut page)
            .map_err(|e| failed(&path, e))?;
        write_file(&path, &page)?;
    }
    Ok(writeln!(out, "{}: {}", args.dir.display(), count(pages.len(), "page"))?)
}

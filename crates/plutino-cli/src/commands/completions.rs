//! `plutino completions`

use crate::Cli;
use crate::failure::Failure;
use crate::output::Output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a script that completes commands and options of plutino in a shell
///
/// bash: `source <(plutino completions bash)`, or save it as
/// ~/.local/share/bash-completion/completions/plutino. zsh: save it as _plutino in a folder of
/// $fpath. fish: save it as ~/.config/fish/completions/plutino.fish.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let mut script = Vec::new(); // whoever reads may go away, which the generator takes badly
    clap_complete::generate(args.shell, &mut Cli::command(), "plutino", &mut script);
    Ok(out.raw(&script)?)
}

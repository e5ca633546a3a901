//! The `plutino` command: runs, inspects, shows, checks, verifies, compares, times and profiles
//! PNNX models, and writes text with them.
//!
//! One file for each subcommand; [`output`] is the only place that prints.
#![forbid(unsafe_code)]

mod arena_svg;
mod carry;
mod commands;
mod costs;
mod deviation;
mod digits;
mod elements;
mod failure;
mod files;
mod findings;
mod finite;
mod inputs;
mod memory_map;
mod names;
mod numpy;
mod output;
mod pictures;
mod profile;
mod request;
mod session;
mod shapes;
mod story;
mod system;
mod timing;

use clap::{CommandFactory, FromArgMatches, Parser};
use output::Output;
use std::process::ExitCode;

/// Run PyTorch models that pnnx exported.
///
/// MODEL is the path of a `.pnnx.param` file, or that path without `.param` or `.pnnx.param`; the
/// `.pnnx.bin` file with the weights is found beside it.
#[derive(Parser)]
#[command(name = "plutino", version, after_help = after_help(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// Exit codes, and the environment variables that the runtime knows.
fn after_help() -> String {
    let mut text = "\
Exit codes:
  0  success
  1  values do not match (verify, compare), or are not finite (run --check-finite)
  2  wrong arguments or input files, inputs of other shapes than the file records among them
  3  wrong or unsupported model
  4  a limit was reached (--timeout, --max-memory, --limit), or the system has no memory left

Environment:"
        .to_owned();
    for knob in plutino::runtime::knobs::ALL {
        let (name, about, expected) = (knob.name, knob.about, knob.expected);
        text.push_str(&format!("\n  {name}\n          {about}; must be {expected}"));
    }
    text
}

fn main() -> ExitCode {
    // A negative number is a wrong value then, and not an unknown option.
    let command = Cli::command().mut_subcommands(|part| part.allow_negative_numbers(true));
    let cli = Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    let mut out = Output::new();
    match cli.command.run(&mut out).and(out.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(&failure);
            failure.exit_code()
        }
    }
}

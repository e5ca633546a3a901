//! The subcommands, one file each.

mod bench;
mod check;
mod classify;
mod compare;
mod completions;
mod detect;
mod extract;
mod generate;
mod info;
mod man;
mod ops;
mod optimize;
mod partition;
mod profile;
mod run;
mod segment;
mod verify;
mod view;

use crate::failure::Failure;
use crate::output::Output;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Classify(classify::Args),
    Detect(detect::Args),
    Segment(segment::Args),
    Generate(generate::Args),
    Info(info::Args),
    Check(check::Args),
    Verify(verify::Args),
    Compare(compare::Args),
    Bench(bench::Args),
    Profile(profile::Args),
    View(view::Args),
    Extract(extract::Args),
    Optimize(optimize::Args),
    Partition(partition::Args),
    Ops(ops::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    pub(crate) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Run(args) => run::run(&args, out),
            Self::Classify(args) => classify::run(&args, out),
            Self::Detect(args) => detect::run(&args, out),
            Self::Segment(args) => segment::run(&args, out),
            Self::Generate(args) => generate::run(&args, out),
            Self::Info(args) => info::run(&args, out),
            Self::Check(args) => check::run(&args, out),
            Self::Verify(args) => verify::run(&args, out),
            Self::Compare(args) => compare::run(&args, out),
            Self::Bench(args) => bench::run(&args, out),
            Self::Profile(args) => profile::run(&args, out),
            Self::View(args) => view::run(&args, out),
            Self::Extract(args) => extract::run(&args, out),
            Self::Optimize(args) => optimize::run(&args, out),
            Self::Partition(args) => partition::run(&args, out),
            Self::Ops(args) => ops::run(&args, out),
            Self::Completions(args) => completions::run(&args, out),
            Self::Man(args) => man::run(&args, out),
        }
    }
}

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
use crate::session::LoadArgs;

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
    /// Does what was asked for, within the time that was given.
    pub(crate) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let files = self.files().cloned();
        let work = || self.work(out);
        match files {
            Some(files) => files.within(work),
            None => work(),
        }
    }

    /// The options of commands that load a model.
    fn files(&self) -> Option<&LoadArgs> {
        Some(match self {
            Self::Run(args) => args.session.files(),
            Self::Classify(args) => args.images.files(),
            Self::Detect(args) => args.images.files(),
            Self::Segment(args) => args.images.files(),
            Self::Generate(args) => args.session.files(),
            Self::Info(args) => args.limits.files(),
            Self::Check(args) => &args.files,
            Self::Verify(args) => args.session.files(),
            Self::Compare(args) => args.session.files(),
            Self::Bench(args) => args.session.files(),
            Self::Profile(args) => args.session.files(),
            Self::View(args) => args.session.files(),
            Self::Extract(args) => &args.files,
            Self::Optimize(args) => &args.files,
            Self::Partition(args) => args.session.files(),
            Self::Ops(_) | Self::Completions(_) | Self::Man(_) => return None,
        })
    }

    fn work(self, out: &mut Output) -> Result<(), Failure> {
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

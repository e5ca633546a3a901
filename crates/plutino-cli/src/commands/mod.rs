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
use crate::output::{Output, Place, check_output};
use crate::session::LoadArgs;
use std::path::PathBuf;

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
        for (option, place, path) in self.outputs() {
            check_output(option, place, path)?;
        }
        let files = self.files().cloned();
        let work = || self.work(out);
        match files {
            Some(files) => files.within(work),
            None => work(),
        }
    }

    /// What options say where results are written, so that a place where nothing can be written is
    /// told before anything is computed.
    fn outputs(&self) -> Vec<(&'static str, Place, &PathBuf)> {
        let each: Vec<(_, _, Option<&PathBuf>)> = match self {
            Self::Run(args) => vec![
                ("-o", Place::File, args.output.as_ref()),
                ("--save-state", Place::File, args.carry.save_state.as_ref()),
            ],
            Self::Detect(args) => vec![("-o", Place::PictureOrFolder, args.output.as_ref())],
            Self::Segment(args) => vec![
                ("-o", Place::PictureOrFolder, args.output.as_ref()),
                ("--mask", Place::PictureOrFolder, args.mask.as_ref()),
            ],
            Self::Info(args) => vec![("--svg", Place::File, args.svg.as_ref())],
            Self::Profile(args) => vec![
                ("--trace", Place::File, args.trace.as_ref()),
                ("--record", Place::File, args.record.as_ref()),
            ],
            Self::View(args) => vec![("-o", Place::FileOrOutput, args.output.as_ref())],
            Self::Extract(args) => vec![("-o", Place::Stem, Some(&args.output))],
            Self::Optimize(args) => vec![("-o", Place::Stem, Some(&args.output))],
            Self::Partition(args) => vec![("-o", Place::Folder, Some(&args.output))],
            _ => Vec::new(),
        };
        let given = |(option, place, path): (_, _, Option<_>)| Some((option, place, path?));
        each.into_iter().filter_map(given).collect()
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

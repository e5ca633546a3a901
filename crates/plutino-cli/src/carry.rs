//! Runs in a row on the command line: outputs that are inputs of the next run.

use crate::failure::Failure;
use crate::inputs::{self, Slot};
use crate::request::Prepared;
use crate::session::parse_whole;
use plutino::tensor::alloc;
use plutino::{Session, SessionError, State, Tensor, TensorError};
use std::path::PathBuf;

/// Values that are carried from run to run.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "State")]
pub(crate) struct CarryArgs {
    /// Run several times, and take for the input IN what the run before made for OUT, which may be
    /// any operand: each by its name in the file, by that of the operator that makes it and no
    /// other, or as in0, in1, ..., out0, out1, ... by position; may be given several times. The
    /// first run takes the file given for IN, else zeros, or nothing of what grows (a cache)
    #[arg(long = "carry", value_name = "OUT=IN")]
    carries: Vec<String>,
    /// Number of runs [default: as many as the input of --stream has, else 1]
    #[arg(long, value_name = "N", requires = "carries", value_parser = parse_whole)]
    steps: Option<usize>,
    /// An input whose file holds what each run takes, one after the other along dimension 0; may be
    /// given several times. All other inputs are the same in each run
    #[arg(long, value_name = "NAME", requires = "carries")]
    stream: Vec<String>,
    /// Begin with the values that --save-state wrote
    #[arg(long, value_name = "FILE.npz", requires = "carries")]
    load_state: Option<PathBuf>,
    /// Write what the next run would take, by the names of the operands
    #[arg(long, value_name = "FILE.npz", requires = "carries")]
    pub(crate) save_state: Option<PathBuf>,
}

impl CarryArgs {
    /// Whether anything is carried.
    pub(crate) fn is_given(&self) -> bool {
        !self.carries.is_empty()
    }

    /// The state before the first run, and what each run is fed with beside it: `runs` is the only
    /// one that was prepared.
    pub(crate) fn begin(
        &self,
        session: &Session,
        runs: Vec<Prepared>,
    ) -> Result<(State, Vec<Prepared>), Failure> {
        let Ok([mut run]) = <[Prepared; 1]>::try_from(runs) else {
            return Err(Failure::usage("--carry is for one run after the other: give one picture"));
        };
        let mut state = session.state();
        for argument in &self.carries {
            let (output, input) = argument
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--carry {argument}: give it as OUT=IN")))?;
            let wrong = |e: SessionError| Failure::usage(format!("--carry {argument}: {e}"));
            state.carry(output, input).map_err(wrong)?;
        }
        let carried: Vec<String> = state.carried().map(|(to, _)| to.to_owned()).collect();
        let (start, mut feeds): (Vec<_>, Vec<_>) =
            run.feeds.into_iter().partition(|(name, _)| carried.contains(name));
        for (name, tensor) in start {
            state.start(&name, tensor)?;
        }
        if let Some(path) = &self.load_state {
            state.load(path).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let slots = inputs::slots(session.model());
        let streams = self.streams(&slots, &mut feeds)?;
        let shortest = streams.iter().map(|(_, rows)| rows.len()).min();
        let steps = match (self.steps, shortest) {
            (Some(steps), Some(rows)) if steps > rows => {
                let what = format!("--steps {steps}: an input of --stream holds {rows}");
                return Err(Failure::usage(what));
            }
            (steps, rows) => steps.or(rows).unwrap_or(1),
        };
        run.feeds = feeds;
        let step = |at: usize| {
            let mut step = run.clone();
            let streamed = streams
                .iter()
                .filter_map(|(name, rows)| Some((name.clone(), rows.get(at)?.clone())));
            step.feeds.extend(streamed);
            step.picture = Some(format!("step{at}"));
            Ok::<_, TensorError>(step)
        };
        let too_many = |e: TensorError| match Failure::from(e) {
            Failure::Limit(why) => Failure::Limit(format!("--steps {steps}: {why}")),
            other => other,
        };
        Ok((state, alloc::try_collect((0..steps).map(step)).map_err(too_many)?))
    }

    /// Takes the inputs that are streamed out of `feeds`: one tensor for each run.
    fn streams(
        &self,
        slots: &[Slot],
        feeds: &mut Vec<(String, Tensor)>,
    ) -> Result<Vec<(String, Vec<Tensor>)>, Failure> {
        let mut streams = Vec::new();
        for name in &self.stream {
            let operand = inputs::position(slots, name).and_then(|at| slots.get(at));
            let operand = operand.map_or(name, |slot| &slot.operand);
            let at = feeds.iter().position(|(fed, _)| fed == operand);
            let at = at.ok_or_else(|| {
                Failure::usage(format!("--stream {name}: no file is given for such an input"))
            })?;
            let (operand, whole) = feeds.swap_remove(at);
            let rows = whole.shape().first().copied().ok_or_else(|| {
                Failure::usage(format!("--stream {name}: the array has no dimensions"))
            })?;
            let row = |at: usize| {
                let mut shape = whole.shape().clone();
                if let Some(first) = shape.first_mut() {
                    *first = 1;
                }
                let bytes = whole.as_bytes();
                let len = bytes.len() / rows.max(1);
                let part = bytes.get(at * len..(at + 1) * len).unwrap_or_default();
                Tensor::from_bytes(whole.dtype(), shape, part)
            };
            let rows = alloc::try_collect((0..rows).map(row));
            streams.push((operand, rows.map_err(|e| Failure::usage(e.to_string()))?));
        }
        Ok(streams)
    }

    /// Writes the state after the last run.
    pub(crate) fn end(&self, state: &State) -> Result<(), Failure> {
        match &self.save_state {
            Some(path) => state.save(path).map_err(|e| Failure::usage(e.to_string())),
            None => Ok(()),
        }
    }
}

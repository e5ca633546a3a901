//! Tokens, one by one.

use crate::decoder::{Batch, Scores};
use crate::{Decoder, GenerateError, Sampler, Sampling};
use plutino_ir::{CancelToken, Limits};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How texts are continued, and how far.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// The most tokens to add to each row.
    pub max: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tokens that end a row.
    pub stop: Vec<u32>,
    /// What ends the work early: within milliseconds, also in a long operator.
    pub limits: Limits,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        let (sampling, limits) = (Sampling::default(), Limits::default());
        Self { max: 256, sampling, stop: Vec::new(), limits }
    }
}

impl GenerateOptions {
    /// Adds at most so many tokens to each row.
    #[must_use]
    pub fn with_max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Chooses tokens so.
    #[must_use]
    pub fn with_sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Ends rows at these tokens.
    #[must_use]
    pub fn with_stop(mut self, stop: Vec<u32>) -> Self {
        self.stop = stop;
        self
    }

    /// Ends the work when the token is cancelled.
    #[must_use]
    pub fn with_cancel(mut self, token: &CancelToken) -> Self {
        self.limits.cancel = Some(token.clone());
        self
    }

    /// Ends the work at this time.
    #[must_use]
    pub fn with_deadline(mut self, at: Instant) -> Self {
        self.limits.deadline = Some(at);
        self
    }
}

/// A token that was added to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Token {
    /// The row: the number of its prompt, from 0.
    pub row: usize,
    /// The token.
    pub id: u32,
    /// Whether it is the row's last one, and why.
    pub end: Option<End>,
}

/// Why a row ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The token is one of those that end a row, and no part of the text.
    Stop,
    /// The row has as many tokens as were asked for.
    Max,
    /// The model sees no more tokens.
    Context,
}

/// What was done, and how long it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// Tokens of prompts.
    pub prompt_tokens: usize,
    /// Time that prompts took to go through the model, with plans that had to be made.
    pub prompt_time: Duration,
    /// Tokens that were fed one by one, of all rows.
    pub step_tokens: usize,
    /// Runs that they took.
    pub steps: usize,
    /// Time that these runs took, with plans that had to be made.
    pub step_time: Duration,
    /// Time that choosing tokens took.
    pub sampling_time: Duration,
}

/// Tokens as they come: of the rows that go through the model together, one of each row after the
/// other. An error is the last item.
pub struct Generation<'d> {
    decoder: &'d Decoder,
    options: GenerateOptions,
    prompts: Vec<Vec<u32>>,
    /// Rows that have not been begun, by batches.
    waiting: VecDeque<Vec<usize>>,
    running: Option<Running>,
    ready: VecDeque<Token>,
    timing: Timing,
}

/// Rows that go through the model together.
struct Running {
    batch: Batch,
    rows: Vec<Row>,
}

struct Row {
    /// Its number.
    row: usize,
    sampler: Sampler,
    /// Tokens of its prompt, and tokens added.
    prompt: usize,
    added: usize,
    /// What it is fed with next.
    last: u32,
    ended: bool,
}

impl<'d> Generation<'d> {
    pub(crate) fn new(
        decoder: &'d Decoder,
        prompts: &[Vec<u32>],
        options: GenerateOptions,
    ) -> Result<Self, GenerateError> {
        options.sampling.check()?;
        let waiting = if options.max == 0 { Vec::new() } else { decoder.batches(prompts) };
        Ok(Self {
            decoder,
            options,
            prompts: prompts.to_vec(),
            waiting: waiting.into(),
            running: None,
            ready: VecDeque::new(),
            timing: Timing::default(),
        })
    }

    /// What was done so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Takes the next step: afterwards tokens are ready, or nothing is left to do.
    fn advance(&mut self) -> Result<(), GenerateError> {
        let limits = &self.options.limits;
        let start = Instant::now();
        let (mut running, scores) = match self.running.take() {
            Some(mut running) => {
                let tokens: Vec<u32> = running.rows.iter().map(|row| row.last).collect();
                let scores = self.decoder.step(&mut running.batch, &tokens, limits)?;
                self.timing.step_time += start.elapsed();
                self.timing.steps += 1;
                self.timing.step_tokens += running.rows.iter().filter(|row| !row.ended).count();
                (running, scores)
            }
            None => {
                let Some(rows) = self.waiting.pop_front() else { return Ok(()) };
                let of = |row: &usize| self.prompts.get(*row).map_or(&[][..], Vec::as_slice);
                let prompts: Vec<&[u32]> = rows.iter().map(of).collect();
                let (batch, scores) = self.decoder.begin(&prompts, limits)?;
                self.timing.prompt_time += start.elapsed();
                self.timing.prompt_tokens += prompts.iter().map(|p| p.len()).sum::<usize>();
                let row = |(row, prompt): (usize, &&[u32])| {
                    let sampler = Sampler::new(self.options.sampling.clone(), row)?;
                    Ok(Row { row, sampler, prompt: prompt.len(), added: 0, last: 0, ended: false })
                };
                let rows = rows.into_iter().zip(&prompts).map(row);
                let rows = rows.collect::<Result<_, GenerateError>>()?;
                (Running { batch, rows }, scores)
            }
        };
        let start = Instant::now();
        self.choose(&mut running, &scores)?;
        self.timing.sampling_time += start.elapsed();
        if running.rows.iter().any(|row| !row.ended) {
            self.running = Some(running);
        }
        Ok(())
    }

    /// Adds a token to every row that has not ended.
    fn choose(&mut self, running: &mut Running, scores: &Scores) -> Result<(), GenerateError> {
        let context = self.decoder.recipe().context;
        for (i, row) in running.rows.iter_mut().enumerate().filter(|(_, row)| !row.ended) {
            let id = row.sampler.choose(scores.row(i)?)?;
            row.added += 1;
            row.last = id;
            let seen = row.prompt + row.added;
            let end = match () {
                () if self.options.stop.contains(&id) => Some(End::Stop),
                () if row.added >= self.options.max => Some(End::Max),
                // To be fed with this token, the model must see it.
                () if context.is_some_and(|context| seen > context) => Some(End::Context),
                () => None,
            };
            row.ended = end.is_some();
            self.ready.push_back(Token { row: row.row, id, end });
        }
        Ok(())
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(token) = self.ready.pop_front() {
                return Some(Ok(token));
            }
            if self.running.is_none() && self.waiting.is_empty() {
                return None;
            }
            if let Err(error) = self.advance() {
                self.waiting.clear();
                self.running = None;
                return Some(Err(error));
            }
        }
    }
}

impl std::fmt::Debug for Generation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({} prompts, {:?})", self.prompts.len(), self.timing)
    }
}

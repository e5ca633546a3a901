//! `plutino generate`

use crate::failure::Failure;
use crate::files;
use crate::names;
use crate::output::{Output, aside, count, during, time};
use crate::session::{SessionArgs, parse_whole};
use crate::story;
use crate::timing::as_millis;
use plutino::generate::{
    Decoder, End, GenerateOptions, Sampling, TextStream, Timing, Token, Tokenizer,
};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Continue texts with a decoder, token by token
///
/// Without MODEL, a small decoder that is built in writes a story. MODEL is a decoder's only file
/// or its prefill; MODEL.step.pnnx.param, the step, and MODEL.generate.json, which says what the
/// inputs are, are found beside it (docs/generate.md). The likeliest token follows each time,
/// unless --temperature, --top-k, --top-p or --seed ask for drawn ones. What is written when
/// --timeout is over is shown.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model [default: a built-in one that writes stories]
    model: Option<PathBuf>,
    /// What makes tokens of text [default: tokenizer.json beside the model]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// The text to continue; may be given several times: the texts go through the model together
    #[arg(short, long = "prompt", value_name = "TEXT")]
    prompts: Vec<String>,
    /// Continue every line of this file, or of standard input, that is not empty
    #[arg(long = "prompts", value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Add at most N tokens to each text
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = parse_whole)]
    max: usize,
    /// End a text at this token as well: its name, or its number
    #[arg(long, value_name = "TOKEN")]
    stop: Vec<String>,
    /// Print one JSON object, when all is done
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    pub(super) session: SessionArgs,
}

/// How tokens are drawn.
#[derive(clap::Args)]
#[command(next_help_heading = "Drawing")]
struct SamplingArgs {
    /// Divide scores by T before drawing; 0 takes the likeliest token [default: 0, or 1 where
    /// another option of these is given]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Draw from the K likeliest tokens
    #[arg(long, value_name = "K", value_parser = parse_whole)]
    top_k: Option<usize>,
    /// Draw from the likeliest tokens that have this probability together
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Where random numbers start [default: 0]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

impl SamplingArgs {
    fn sampling(&self) -> Sampling {
        let drawn = self.top_k.is_some() || self.top_p.is_some() || self.seed.is_some();
        let mut sampling = Sampling::default();
        sampling.temperature = self.temperature.unwrap_or(if drawn { 1.0 } else { 0.0 });
        sampling.top_k = self.top_k.unwrap_or(0);
        sampling.top_p = self.top_p.unwrap_or(1.0);
        sampling.seed = self.seed.unwrap_or(0);
        sampling
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    model: String,
    threads: usize,
    texts: Vec<TextReport>,
    timing: TimingReport,
}

#[derive(Serialize)]
struct TextReport {
    prompt: String,
    /// What was added, without the prompt.
    text: String,
    tokens: Vec<u32>,
    /// `stop`, `max` or `context`.
    end: &'static str,
}

/// Times with plans that had to be made.
#[derive(Serialize)]
struct TimingReport {
    prompt_tokens: usize,
    #[serde(serialize_with = "as_millis", rename = "prompt_ms")]
    prompt_time: Duration,
    step_tokens: usize,
    steps: usize,
    #[serde(serialize_with = "as_millis", rename = "step_ms")]
    step_time: Duration,
    #[serde(serialize_with = "as_millis", rename = "sampling_ms")]
    sampling_time: Duration,
    tokens_per_second: Option<f64>,
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let texts = args.texts()?;
    let (decoder, tokenizer) = match &args.model {
        Some(path) => args.load(path)?,
        None => story::decoder(args.session.options()?)?,
    };
    let mut options = GenerateOptions::default().with_max(args.max);
    options.sampling = args.sampling.sampling();
    options.stop = decoder.stop(&tokenizer)?;
    for stop in &args.stop {
        let token = tokenizer.token(stop).or_else(|| stop.parse().ok());
        let missing = || Failure::usage(format!("--stop: the tokenizer has no token '{stop}'"));
        options.stop.push(token.ok_or_else(missing)?);
    }
    let prompts = texts.iter().map(|text| tokenizer.encode(text));
    let prompts = prompts.collect::<Result<Vec<_>, _>>()?;

    let mut rows: Vec<Row<'_>> = texts.iter().map(|text| Row::new(text, &tokenizer)).collect();
    let mut generation = decoder.generate(&prompts, options)?;
    let mut shown = Shown::default();
    if !args.json {
        shown.show(&mut rows, out)?;
    }
    let mut failed = None;
    for token in generation.by_ref() {
        let token = match token {
            Ok(token) => token,
            Err(error) => {
                failed = Some(Failure::from(error));
                break;
            }
        };
        if let Some(row) = rows.get_mut(token.row) {
            row.push(token)?;
        }
        if !args.json {
            shown.show(&mut rows, out)?;
        }
    }
    let timing = generation.timing();
    if !args.json {
        shown.finish(&mut rows, out)?;
        if timing.prompt_tokens > 0 {
            aside(&summary(&timing));
        }
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    if args.json {
        let file = |path: &PathBuf| path.display().to_string();
        out.json(&Report {
            model: args.model.as_ref().map_or_else(|| "built-in".into(), file),
            threads: decoder.threads(),
            texts: rows.into_iter().map(Row::report).collect(),
            timing: report(&timing),
        })?;
    }
    Ok(())
}

/// Of a file of prompts, at most.
const MOST_BYTES: u64 = 64 << 20;

impl Args {
    /// The texts to continue.
    fn texts(&self) -> Result<Vec<String>, Failure> {
        let mut texts = self.prompts.clone();
        if let Some(path) = &self.file {
            let cannot = |e: String| Failure::usage(format!("--prompts {}: {e}", path.display()));
            let lines = match path.as_os_str() == "-" {
                true => files::bytes(path)?,
                false => {
                    plutino::ir::read_small(path, MOST_BYTES).map_err(|e| cannot(e.to_string()))?
                }
            };
            let lines = String::from_utf8(lines).map_err(|e| cannot(e.to_string()))?;
            texts.extend(lines.lines().filter(|line| !line.is_empty()).map(str::to_owned));
        }
        match texts.is_empty() {
            false => Ok(texts),
            true if self.model.is_none() => Ok(vec![story::PROMPT.to_owned()]),
            true => Err(Failure::usage("no text to continue: give one with --prompt")),
        }
    }

    fn load(&self, path: &Path) -> Result<(Decoder, Tokenizer), Failure> {
        let file = match &self.tokenizer {
            Some(file) => file.clone(),
            None => path.with_file_name("tokenizer.json"),
        };
        let tokenizer = Tokenizer::load(&file)?;
        let files = self.session.files();
        let loading = files.options(files.load_options())?;
        let options = self.session.options()?;
        let load = || Decoder::load_with(path, loading, options);
        let decoder = during(&format!("loading {}", path.display()), load)?;
        names::check_environment(&decoder.models().collect::<Vec<_>>())?;
        Ok((decoder, tokenizer))
    }
}

/// A text that is continued.
struct Row<'t> {
    prompt: &'t str,
    stream: TextStream<'t>,
    /// What was added, and how much of it was shown.
    text: String,
    shown: usize,
    tokens: Vec<u32>,
    end: Option<End>,
}

impl<'t> Row<'t> {
    fn new(prompt: &'t str, tokenizer: &'t Tokenizer) -> Self {
        let stream = TextStream::new(tokenizer);
        Self { prompt, stream, text: String::new(), shown: 0, tokens: Vec::new(), end: None }
    }

    fn push(&mut self, token: Token) -> Result<(), Failure> {
        self.end = token.end;
        if token.end != Some(End::Stop) {
            self.tokens.push(token.id);
            self.text += &self.stream.push(token.id)?;
        }
        if token.end.is_some() {
            self.text += &self.stream.finish()?;
        }
        Ok(())
    }

    fn report(self) -> TextReport {
        let end = match self.end {
            Some(End::Stop) => "stop",
            Some(End::Context) => "context",
            _ => "max",
        };
        let Self { prompt, text, tokens, .. } = self;
        TextReport { prompt: prompt.to_owned(), text, tokens, end }
    }
}

/// Texts on the terminal, one after the other; the one that is being shown grows as it is written.
#[derive(Default)]
struct Shown {
    /// The text that is being shown, and whether its prompt was.
    row: usize,
    begun: bool,
}

impl Shown {
    /// Shows what there is to show.
    fn show(&mut self, rows: &mut [Row<'_>], out: &mut Output) -> Result<(), Failure> {
        while let Some(row) = rows.get_mut(self.row) {
            if !self.begun {
                write!(out, "{}{}", if self.row > 0 { "\n" } else { "" }, row.prompt)?;
                self.begun = true;
            }
            write!(out, "{}", row.text.get(row.shown..).unwrap_or_default())?;
            row.shown = row.text.len();
            if row.end.is_none() {
                break;
            }
            writeln!(out)?;
            (self.row, self.begun) = (self.row + 1, false);
        }
        Ok(out.flush()?)
    }

    /// Shows what is left where the work ended early.
    fn finish(&mut self, rows: &mut [Row<'_>], out: &mut Output) -> Result<(), Failure> {
        for row in rows.iter_mut().filter(|row| row.end.is_none()) {
            row.text += &row.stream.finish()?;
            row.end = Some(End::Max);
        }
        self.show(rows, out)
    }
}

fn per_second(n: usize, time: Duration) -> Option<f64> {
    Some(n as f64 / time.as_secs_f64()).filter(|rate| rate.is_finite())
}

fn summary(timing: &Timing) -> String {
    let rate =
        |n, time| per_second(n, time).map_or(String::new(), |r| format!(", {r:.0} a second"));
    let (tokens, spent) = (timing.prompt_tokens, timing.prompt_time);
    let prompts = format!("prompt: {} in {}", count(tokens, "token"), time(spent));
    let (step_tokens, step_time) = (timing.step_tokens, timing.step_time);
    let steps = format!("steps: {} in {}", count(step_tokens, "token"), time(step_time));
    format!("{prompts}{}; {steps}{}", rate(tokens, spent), rate(step_tokens, step_time))
}

fn report(timing: &Timing) -> TimingReport {
    TimingReport {
        prompt_tokens: timing.prompt_tokens,
        prompt_time: timing.prompt_time,
        step_tokens: timing.step_tokens,
        steps: timing.steps,
        step_time: timing.step_time,
        sampling_time: timing.sampling_time,
        tokens_per_second: per_second(timing.step_tokens, timing.step_time),
    }
}

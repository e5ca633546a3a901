//! `cargo xtask mutants`: damaged fixtures loaded, planned and run in processes of their own.
//!
//! A mutant is a number (`plutino_attack::mutant`). A worker tries a batch of them, one after the
//! other, and says which one it begins, so that the one that ends the process by force, or does not
//! end at all, is known; it is tried again alone, and the batch goes on behind it. Panics are
//! caught where they are, and are faults as well. Every mutant with a fault is written to a folder.

use anyhow::{Context, Result, bail, ensure};
use plutino_attack::mutant::{Mutant, Nursery};
use plutino_attack::trial::{Bounds, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::resources;

/// Damage fixtures; load, plan and run them: only results and typed errors, in time and memory
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many mutants.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Other seeds are other mutants.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Mutants for each process.
    #[arg(long, default_value_t = 2000)]
    batch: u64,
    /// Where mutants with faults are written to.
    #[arg(long, default_value = "target/mutants")]
    faults: PathBuf,
}

/// Tries mutants (the other end of `mutants`)
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    from: u64,
    #[arg(long)]
    to: u64,
}

/// Seconds of CPU that a mutant may take.
const SECONDS: f64 = 2.0;

/// Memory beyond the budget that a mutant may take, in MiB.
const EXTRA: f64 = 64.0;

/// A worker that begins no mutant for so long hangs, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a worker says, one line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Said {
    /// This mutant begins.
    Begin(u64),
    /// It is what must not be.
    Fault(Fault),
    /// All of the batch were tried.
    Done(Tally),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fault {
    number: u64,
    fixture: String,
    what: String,
}

/// What came of mutants.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Tally {
    outcomes: BTreeMap<String, u64>,
    slowest: f64,
    largest_mib: f64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (name, count) in &other.outcomes {
            *self.outcomes.entry(name.clone()).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
        self.largest_mib = self.largest_mib.max(other.largest_mib);
    }
}

/// Tries all mutants, batch by batch, and prints how often each thing came of them.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.batch > 0, "a batch has at least one mutant");
    let (start, nursery) = (Instant::now(), Nursery::new()?);
    let (mut tally, mut faults) = (Tally::default(), Vec::new());
    let (mut next, end) = (args.from, args.from.saturating_add(args.count));
    let mut said = Instant::now();
    while next < end {
        let to = next.saturating_add(args.batch).min(end);
        let batch = batch(args.seed, next, to)?;
        tally.add(&batch.tally);
        faults.extend(batch.faults.into_iter().inspect(|fault| println!("{}", line(fault))));
        if let Some((number, how)) = batch.ended_at {
            // Alone it may fare better: then what others left behind is to blame.
            let again = self::batch(args.seed, number, number + 1)?;
            let alone = match again.ended_at {
                Some((_, how)) => format!("alone: {how}"),
                None => "alone it ends well".to_owned(),
            };
            let fixture = nursery.mutant(args.seed, number).name;
            let fault = Fault { number, fixture, what: format!("{how}; {alone}") };
            println!("{}", line(&fault));
            faults.push(fault);
            next = number + 1;
        } else {
            next = to;
        }
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            let seconds = start.elapsed().as_secs();
            println!("{} tried, {} faults, {seconds} s", next - args.from, faults.len());
        }
    }
    for (name, count) in &tally.outcomes {
        println!("| {name} | {count} |");
    }
    let (slowest, largest) = (tally.slowest, tally.largest_mib);
    println!("slowest {slowest:.2} s of CPU, largest {largest:.0} MiB above what was there");
    let (count, seconds) = (args.count, start.elapsed().as_secs());
    if faults.is_empty() {
        println!("{count} mutants in {seconds} s: results and typed errors, in time and memory");
        return Ok(());
    }
    std::fs::create_dir_all(&args.faults).with_context(|| args.faults.display().to_string())?;
    for fault in &faults {
        nursery.mutant(args.seed, fault.number).write(&args.faults)?;
    }
    let folder = args.faults.display();
    bail!("{} of {count} mutants (in {seconds} s) have faults: see {folder}", faults.len())
}

fn line(fault: &Fault) -> String {
    format!("mutant {} of {}: {}", fault.number, fault.fixture, fault.what)
}

/// What a worker said of its batch, and how it ended where it did not end well.
struct Batch {
    tally: Tally,
    faults: Vec<Fault>,
    ended_at: Option<(u64, String)>,
}

fn batch(seed: u64, from: u64, to: u64) -> Result<Batch> {
    // Address space is limited, so that memory which is taken by force ends the process.
    let limited = "ulimit -v 4194304; ulimit -c 0; exec \"$0\" \"$@\"";
    let numbers = [seed, from, to].map(|n| n.to_string());
    let mut worker = Command::new("sh")
        .arg("-c")
        .arg(limited)
        .arg(std::env::current_exe()?)
        .args(["mutants-worker", "--seed", &numbers[0], "--from", &numbers[1], "--to", &numbers[2]])
        .env("PLUTINO_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("sh could not be started")?;
    let output = worker.stdout.take().context("no output")?;
    let (send, receive) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let Ok(said) = serde_json::from_str::<Said>(&line) else { continue };
            if send.send(said).is_err() {
                break;
            }
        }
    });
    let (mut tally, mut faults, mut at, mut done) = (Tally::default(), Vec::new(), from, false);
    let status = loop {
        match receive.recv_timeout(PATIENCE) {
            Ok(Said::Begin(number)) => {
                at = number;
                // What ends by force takes its tally with it: this one is counted here.
            }
            Ok(Said::Fault(fault)) => faults.push(fault),
            Ok(Said::Done(all)) => (tally, done) = (all, true),
            Err(RecvTimeoutError::Timeout) => break ended(&mut worker, true)?,
            Err(RecvTimeoutError::Disconnected) => break ended(&mut worker, false)?,
        }
    };
    drop(receive);
    let _ = reader.join();
    let ended_at = (!done).then(|| {
        *tally.outcomes.entry("ended by force".into()).or_default() += 1;
        (at, status)
    });
    Ok(Batch { tally, faults, ended_at })
}

fn ended(worker: &mut Child, hangs: bool) -> Result<String> {
    if hangs {
        worker.kill()?;
        worker.wait()?;
        return Ok(format!("hangs for {} s", PATIENCE.as_secs()));
    }
    let status: ExitStatus = worker.wait()?;
    Ok(format!("ends the process: {status}"))
}

/// The other end: tries mutants, and tells.
pub(crate) fn work(args: &WorkerArgs) -> Result<()> {
    let nursery = Nursery::new()?;
    let place = watch_panics();
    let (mut tally, mut out) = (Tally::default(), std::io::stdout().lock());
    let mut say = |said: &Said| -> Result<()> {
        let line = serde_json::to_string(said)? + "\n";
        Ok(out.write_all(line.as_bytes()).and_then(|()| out.flush())?)
    };
    for number in args.from..args.to {
        say(&Said::Begin(number))?;
        let mutant = nursery.mutant(args.seed, number);
        let tried = tried(&mutant, &place)?;
        tally.slowest = tally.slowest.max(tried.seconds);
        tally.largest_mib = tally.largest_mib.max(tried.mib);
        let (name, fault) = match tried.made {
            Ok(outcome) => (outcome.name().to_owned(), None),
            Err(what) => (format!("fault ({})", what.split(':').next().unwrap_or("?")), Some(what)),
        };
        *tally.outcomes.entry(name).or_default() += 1;
        let budget = (Bounds::default().budget >> 20) as f64;
        let late = (tried.seconds > SECONDS).then(|| format!("time: {:.2} s", tried.seconds));
        let large = (tried.mib > budget + EXTRA).then(|| format!("memory: {:.0} MiB", tried.mib));
        for what in [fault, late, large].into_iter().flatten() {
            let what = format!("{what} ({:?})", mutant.damage);
            say(&Said::Fault(Fault { number, fixture: mutant.name.clone(), what }))?;
        }
    }
    say(&Said::Done(tally))
}

struct Tried {
    made: Result<Outcome, String>,
    seconds: f64,
    mib: f64,
}

fn tried(mutant: &Mutant, place: &Arc<Mutex<String>>) -> Result<Tried> {
    resources::forget_peak()?;
    let before = resources::peak_mib()?;
    let (cpu, start) = (resources::cpu_seconds()?, Instant::now());
    let made = catch_unwind(AssertUnwindSafe(|| mutant.attempt(Bounds::default())));
    let made = made.unwrap_or_else(|_| {
        let place = place.lock().unwrap_or_else(PoisonError::into_inner);
        Err(format!("panic: {place}"))
    });
    // Time of the clock contains what others do.
    let seconds = (resources::cpu_seconds()? - cpu).min(start.elapsed().as_secs_f64());
    Ok(Tried { made, seconds, mib: resources::peak_mib()? - before })
}

/// Where the last panic was.
fn watch_panics() -> Arc<Mutex<String>> {
    let place = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&place);
    std::panic::set_hook(Box::new(move |info| {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    place
}

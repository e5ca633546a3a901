//! A run as a trace of events, for Perfetto (ui.perfetto.dev) and chrome://tracing.
//!
//! Rows: the steps; then each thread, with what it computed and when it waited. A counter tells how
//! many bytes of the arena are in use. The format is the JSON of the Trace Event Format: complete
//! events (`X`) that lie inside or beside each other on a row, counters (`C`), names (`M`); times
//! are microseconds.

use plutino::{Frame, Profile, StepInfo, ThreadWork};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The row of the steps; those of the threads follow.
const STEPS: usize = 0;

#[derive(Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    pid: u32,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Value,
}

/// What is written to the file.
#[derive(Serialize)]
pub(crate) struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "otherData")]
    about: Value,
}

/// Waits that are told, in microseconds: what threads need to tell each other is none.
const SHORTEST: f64 = 0.1;

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// 1e9 in a second is 1000 in a microsecond; none where nothing is known.
fn per_s(amount: f64, micros: f64) -> Option<f64> {
    (amount > 0.0 && micros > 0.0).then(|| amount / micros / 1e3)
}

impl Trace {
    /// Of one run; `about` says which model, and how it ran.
    pub(crate) fn of(profile: &Profile, about: Value) -> Self {
        let steps: Vec<StepInfo> = profile.plan.steps().collect();
        let mut trace = Self { events: Vec::new(), unit: "ns", about };
        trace.name("process_name", STEPS, "plutino");
        trace.row(STEPS, "steps");
        trace.row(1, "thread 0 (the caller)");
        for thread in 1..profile.threads.len() {
            trace.row(1 + thread, &format!("thread {thread}"));
        }
        let together: BTreeSet<usize> =
            profile.plan.phases().flat_map(|phase| phase.chains.into_iter().flatten()).collect();
        for (at, (info, time)) in steps.iter().zip(&profile.steps).enumerate() {
            let (start, dur) = (micros(time.start), micros(time.duration));
            if !together.contains(&at) {
                trace.span(
                    STEPS,
                    "step",
                    &info.location.name,
                    (start, dur),
                    describe(at, info, dur),
                );
            }
            // The caller works on a step from its start to its end, unless it is another thread's.
            if time.thread == 0 {
                trace.span(1, "kernel", &info.kernel, (start, dur), describe(at, info, dur));
            }
        }
        trace.phases(profile);
        trace.frames(&profile.frames);
        trace.counter(profile);
        let jobs = Jobs::of(profile);
        for (thread, parts) in profile.threads.iter().enumerate() {
            let mut free = 0.0;
            for part in parts {
                let start = micros(part.start);
                if thread > 0 {
                    trace.wait(1 + thread, free, start);
                }
                match (together.contains(&part.step), thread) {
                    (true, 0) => {} // told above
                    (true, _) => trace.chained(1 + thread, part, &steps),
                    (false, _) => trace.part(1 + thread, part, &steps, &jobs),
                }
                free = start + micros(part.duration);
            }
            if thread > 0 {
                trace.wait(1 + thread, free, micros(profile.total));
            }
        }
        trace
    }

    /// Phases of several chains, in the row of the steps: those are in the rows of the threads.
    fn phases(&mut self, profile: &Profile) {
        for phase in profile.plan.phases().filter(|phase| !phase.chains.is_empty()) {
            let times = || profile.steps.get(phase.steps.clone()).unwrap_or_default().iter();
            let start = times().map(|time| micros(time.start)).fold(f64::INFINITY, f64::min);
            let end = times().map(|time| micros(time.start + time.duration)).fold(0.0, f64::max);
            if start <= end {
                let name = format!("{} chains", phase.chains.len());
                let args = json!({ "chains": phase.chains });
                self.span(STEPS, "phase", &name, (start, end - start), args);
            }
        }
    }

    /// A step that a thread ran beside others.
    fn chained(&mut self, tid: usize, part: &ThreadWork, steps: &[StepInfo]) {
        let Some(info) = steps.get(part.step) else { return };
        let (start, dur) = (micros(part.start), micros(part.duration));
        self.span(tid, "kernel", &info.kernel, (start, dur), describe(part.step, info, dur));
    }

    /// What control operators ran, inside of their steps; and the steps of that.
    fn frames(&mut self, frames: &[Frame]) {
        for frame in frames {
            let start = micros(frame.start);
            let name = format!("{}={} {}", frame.part, frame.kind, frame.trip);
            let args = json!({ "trip": frame.trip });
            self.span(STEPS, "frame", &name, (start, micros(frame.duration)), args);
            for (at, (info, time)) in frame.plan.steps().zip(&frame.steps).enumerate() {
                let (start, dur) = (start + micros(time.start), micros(time.duration));
                let args = describe(at, &info, dur);
                self.span(STEPS, "step", &info.location.name, (start, dur), args);
            }
            self.frames(&frame.frames);
        }
    }

    fn name(&mut self, what: &str, tid: usize, name: &str) {
        let args = json!({ "name": name });
        let name = what.to_owned();
        self.events.push(Event { name, ph: "M", cat: "", pid: 1, tid, ts: 0.0, dur: None, args });
    }

    fn row(&mut self, tid: usize, name: &str) {
        self.name("thread_name", tid, name);
        let args = json!({ "sort_index": tid });
        let name = "thread_sort_index".to_owned();
        self.events.push(Event { name, ph: "M", cat: "", pid: 1, tid, ts: 0.0, dur: None, args });
    }

    fn span(
        &mut self,
        tid: usize,
        cat: &'static str,
        name: &str,
        (ts, dur): (f64, f64),
        args: Value,
    ) {
        let (name, dur) = (name.to_owned(), Some(dur));
        self.events.push(Event { name, ph: "X", cat, pid: 1, tid, ts, dur, args });
    }

    fn wait(&mut self, tid: usize, from: f64, to: f64) {
        if to - from > SHORTEST {
            self.span(tid, "wait", "wait", (from, to - from), json!({}));
        }
    }

    /// What a thread did of a job. The caller then waits for the others, inside the step.
    fn part(&mut self, tid: usize, part: &ThreadWork, steps: &[StepInfo], jobs: &Jobs) {
        let (start, dur) = (micros(part.start), micros(part.duration));
        let Some(info) = steps.get(part.step) else { return };
        let flops = info.cost.flops as f64 * jobs.share(part);
        let args = json!({
            "operator": info.location.name,
            "step": part.step,
            "kernel": info.kernel,
            "outputs": specs(&info.outputs),
            "tasks": part.tasks,
            "gflop_per_s": per_s(flops, dur),
        });
        // The caller's row shows the kernel around all that it does for the step.
        let name = if tid == 1 { "tasks" } else { &info.kernel };
        self.span(tid, "work", name, (start, dur), args);
        if tid == 1 {
            self.wait(tid, start + dur, jobs.end(part));
        }
    }

    /// Bytes of the arena in use.
    fn counter(&mut self, profile: &Profile) {
        let live = profile.plan.live_bytes().into_iter().map(|bytes| bytes as u64);
        let starts = profile.steps.iter().map(|step| micros(step.start));
        let end = (micros(profile.total), 0);
        for (ts, bytes) in starts.zip(live).chain([end]) {
            let args = json!({ "bytes": bytes });
            let name = "arena bytes in use".to_owned();
            self.events.push(Event { name, ph: "C", cat: "", pid: 1, tid: 0, ts, dur: None, args });
        }
    }
}

fn specs(values: &[plutino::ValueReport]) -> Vec<&str> {
    values.iter().map(|value| value.spec.as_str()).collect()
}

fn describe(at: usize, info: &StepInfo, micros: f64) -> Value {
    let (flops, bytes) = (info.cost.flops as f64, info.cost.bytes as f64);
    json!({
        "operator": info.location.name,
        "type": info.location.kind,
        "step": at,
        "kernel": info.kernel,
        "absorbed": info.absorbed,
        "inputs": specs(&info.inputs),
        "outputs": specs(&info.outputs),
        "flops": info.cost.flops,
        "gflop_per_s": per_s(flops, micros),
        "gbyte_per_s": per_s(bytes, micros),
    })
}

/// What is known of the jobs of a run: their tasks, when they began and when all were done.
struct Jobs {
    by_number: BTreeMap<u64, Job>,
    /// Time of all jobs of a step.
    by_step: BTreeMap<usize, f64>,
}

#[derive(Default)]
struct Job {
    tasks: usize,
    start: f64,
    end: f64,
}

impl Jobs {
    fn of(profile: &Profile) -> Self {
        let mut jobs = Self { by_number: BTreeMap::new(), by_step: BTreeMap::new() };
        let mut steps = BTreeMap::new();
        for part in profile.threads.iter().flatten() {
            let (start, end) = (micros(part.start), micros(part.start + part.duration));
            let job = jobs.by_number.entry(part.job).or_insert(Job { start, ..Job::default() });
            job.tasks += part.tasks;
            (job.start, job.end) = (job.start.min(start), job.end.max(end));
            steps.insert(part.job, part.step);
        }
        for (number, step) in steps {
            let time = jobs.by_number.get(&number).map_or(0.0, |job| job.end - job.start);
            *jobs.by_step.entry(step).or_insert(0.0) += time;
        }
        jobs
    }

    fn end(&self, part: &ThreadWork) -> f64 {
        self.by_number.get(&part.job).map_or(0.0, |job| job.end)
    }

    /// The share of its step's arithmetic in this part, about: tasks of a job are alike, and jobs
    /// have as much of it as they take of the time.
    fn share(&self, part: &ThreadWork) -> f64 {
        let Some(job) = self.by_number.get(&part.job) else { return 0.0 };
        let all = self.by_step.get(&part.step).copied().unwrap_or(0.0);
        let of_step = if all > 0.0 { (job.end - job.start) / all } else { 0.0 };
        of_step * part.tasks as f64 / job.tasks.max(1) as f64
    }
}

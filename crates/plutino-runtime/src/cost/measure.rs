//! Measuring a machine: small nets, each of which one figure sets.
//!
//! What is measured is what runs: sessions with their steps, kernels and threads. Of many runs the
//! fastest counts, in which nobody else had the processor; each net is run in several rounds, for
//! what slows a processor down lasts longer than one of them. All together takes about a second.

use super::{CostsError, Machine, families};
use crate::plan::Step;
use crate::{Dispatch, Model, Session, SessionOptions};
use plutino_ir::Graph;
use plutino_kernels::{Isa, Pool};
use plutino_tensor::Tensor;
use std::time::{Duration, Instant};

/// Rounds of all nets.
const ROUNDS: usize = 5;

/// How long each net is run in a round.
const TIME: Duration = Duration::from_millis(8);

/// Steps of the net whose time is that of steps alone.
const STEPS: usize = 64;

/// Sizes of what is copied, in bytes read and written, and up to how many bytes the rate counts:
/// those that fit in a cache of each level, and those that fit in none.
const COPIES: [(usize, u64); 4] =
    [(32 << 10, 64 << 10), (512 << 10, 1 << 20), (12 << 20, 24 << 20), (96 << 20, u64::MAX)];

/// Nets of three operators that are alike. Of their kernel the rate of arithmetic is noted.
const PROBES: &[(&str, &[usize])] = &[
    ("nn.Linear # bias=False in_features=256 out_features=256 @weight=(256,256)f32", &[512, 256]),
    (
        "nn.Conv2d # in_channels=128 out_channels=128 kernel_size=(1,1) stride=(1,1) padding=(0,0) \
         padding_mode=zeros dilation=(1,1) groups=1 bias=False @weight=(128,128,1,1)f32",
        &[1, 128, 28, 28],
    ),
    (
        "nn.Conv2d # in_channels=64 out_channels=64 kernel_size=(3,3) stride=(1,1) padding=(1,1) \
         padding_mode=zeros dilation=(1,1) groups=1 bias=False @weight=(64,64,3,3)f32",
        &[1, 64, 56, 56],
    ),
    (
        "nn.Conv2d # in_channels=32 out_channels=32 kernel_size=(5,5) stride=(1,1) padding=(2,2) \
         padding_mode=zeros dilation=(1,1) groups=1 bias=False @weight=(32,32,5,5)f32",
        &[1, 32, 28, 28],
    ),
    (
        "nn.Conv2d # in_channels=128 out_channels=128 kernel_size=(3,3) stride=(1,1) padding=(1,1) \
         padding_mode=zeros dilation=(1,1) groups=128 bias=False @weight=(128,1,3,3)f32",
        &[1, 128, 28, 28],
    ),
    ("F.softmax # dim=-1", &[256, 256]),
    ("F.gelu #", &[256, 256]),
    (
        "nn.LayerNorm # elementwise_affine=True eps=0.00001 normalized_shape=(256) @bias=(256)f32 \
         @weight=(256)f32",
        &[256, 256],
    ),
];

impl Machine {
    /// Measures this machine, with an instruction set and so many threads.
    ///
    /// # Errors
    /// Where the operators that are measured are not linked into the program, or fail.
    pub fn measure(isa: Isa, threads: usize) -> Result<Self, CostsError> {
        let mut machine = Self { cpu: cpu(), threads, ..Self::built_in(isa) };
        let mut probes = Vec::new();
        for (line, shape) in PROBES {
            probes.push(Probe::new(line, shape, isa)?);
        }
        let mut runs = vec![step(isa)?];
        for (bytes, _) in COPIES {
            runs.push(copy(isa, bytes)?);
        }
        for probe in &probes {
            runs.push(probe.run(1)?);
        }
        if let Some(probe) = probes.first().filter(|_| threads > 1) {
            runs.push(probe.run(threads)?);
        }
        let mut times = fastest(&mut runs)?.into_iter();
        let mut next = || times.next().unwrap_or(f64::INFINITY);

        machine.step_ns = next();
        let bandwidth =
            COPIES.map(|(bytes, most)| (most, bytes as f64 / (next() - machine.step_ns).max(1.0)));
        machine.bandwidth = bandwidth.to_vec();
        let alone: Vec<f64> = probes.iter().map(|_| (next() - machine.step_ns).max(1.0)).collect();
        for (i, (probe, ns)) in probes.iter().zip(&alone).enumerate() {
            let (family, flops) = probe.what()?;
            // The first is a product: nothing computes faster than it is counted for.
            if i == 0 {
                machine.peak_gflops = (flops / ns).max(1e-3);
            }
            let share = (flops / ns / machine.peak_gflops).max(1e-6);
            machine.efficiency.insert(family.to_owned(), share);
        }
        if threads > 1 {
            (machine.job_ns, machine.enter_ns) = pool(threads);
            let shared = (next() - machine.step_ns - machine.job_ns).max(1.0);
            let more = alone.first().map_or(0.0, |alone| alone / shared - 1.0);
            machine.scaling = (more / (threads as f64 - 1.0)).clamp(0.0, 1.0);
        }
        Ok(machine)
    }
}

/// What the processor calls itself; the architecture where the system does not tell.
pub fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// A model of these lines, with numbers for all weights.
fn model(lines: &[String], operands: usize) -> Result<Model, CostsError> {
    let text = format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"));
    let mut graph = Graph::parse(&text)?;
    let ids: Vec<_> = graph.operators().map(|(id, _)| id).collect();
    for id in ids {
        let Ok(attrs) = graph.attrs_mut(id) else { continue };
        for attr in attrs.values_mut() {
            let number = |i: usize| (i * 7919 % 31) as f32 / 256.0 - 0.06;
            let bytes = (0..attr.element_count()).flat_map(|i| number(i).to_le_bytes());
            // As many bytes as the attribute has, all of which are f32.
            let _ = attr.set_data(bytes.collect::<Vec<u8>>());
        }
    }
    Ok(Model::from_graph(graph)?)
}

fn options(isa: Isa, threads: usize) -> SessionOptions {
    let options = SessionOptions::default().with_isa(isa).with_threads(threads);
    options.with_dispatch(Dispatch::InTurn)
}

fn input(shape: &[usize]) -> Result<Tensor, CostsError> {
    let count: usize = shape.iter().product();
    let number = |i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0;
    let numbers: Vec<f32> = (0..count).map(number).collect(); // bounded: shapes of this file
    Ok(Tensor::from_slice(&numbers, shape.iter().copied().collect::<plutino_tensor::Shape>())
        .map_err(crate::SessionError::from)?)
}

/// Runs something, and says how many nanoseconds it took.
type Run = Box<dyn FnMut() -> Result<f64, CostsError>>;

/// The shortest time of each, in nanoseconds.
fn fastest(runs: &mut [Run]) -> Result<Vec<f64>, CostsError> {
    let mut best = vec![f64::INFINITY; runs.len()];
    for _ in 0..ROUNDS {
        for (run, best) in runs.iter_mut().zip(&mut best) {
            let start = Instant::now();
            while {
                *best = best.min(run()?);
                start.elapsed() < TIME
            } {}
        }
    }
    Ok(best)
}

/// A step that does next to nothing.
fn step(isa: Isa) -> Result<Run, CostsError> {
    let mut lines = vec!["pnnx.Input in 0 1 0 #0=(1)f32".to_owned()];
    for at in 0..STEPS {
        lines.push(format!("pnnx.Expression n{at} 1 1 {at} {} expr=neg(@0)", at + 1));
    }
    lines.push(format!("pnnx.Output out 1 0 {STEPS}"));
    let session = model(&lines, STEPS + 1)?.session(options(isa, 1).without_passes())?;
    let (input, mut outputs) = ([input(&[1])?], Vec::new());
    Ok(Box::new(move || {
        let start = Instant::now();
        session.run_into(&input, &mut outputs)?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / STEPS as f64)
    }))
}

/// Reads half of so many bytes and writes the other half, between values that are in memory
/// already.
fn copy(isa: Isa, bytes: usize) -> Result<Run, CostsError> {
    let elements = bytes / 8;
    let lines = [
        format!("pnnx.Input in 0 1 0 #0=({elements})f32"),
        "pnnx.Expression a 1 1 0 1 expr=neg(@0)".into(),
        "pnnx.Expression b 1 1 1 2 expr=neg(@0)".into(),
        "pnnx.Expression c 2 1 1 2 3 expr=add(@0,@1)".into(),
        "pnnx.Output out 1 0 3".into(),
    ];
    let session = model(&lines, 4)?.session(options(isa, 1).without_passes())?;
    let input = [input(&[elements])?];
    Ok(Box::new(move || {
        let (_, profile) = session.profile(&input)?;
        let time = profile.steps.get(1).map(|step| step.duration).unwrap_or_default();
        Ok(time.as_secs_f64() * 1e9)
    }))
}

/// What it costs to hand out a job, and to call the threads, in nanoseconds.
fn pool(threads: usize) -> (f64, f64) {
    let pool = Pool::new(threads);
    let jobs = 400;
    let time = |jobs: usize| {
        let start = Instant::now();
        pool.enter(|par| (0..jobs).for_each(|_| par.run(threads, |_| ())));
        start.elapsed().as_secs_f64() * 1e9
    };
    let mut best = [f64::INFINITY; 2];
    for _ in 0..100 {
        best = [best[0].min(time(1)), best[1].min(time(1 + jobs))];
    }
    let job = ((best[1] - best[0]) / jobs as f64).max(0.0);
    (job, (best[0] - job).max(0.0))
}

/// Three operators in a row, of which the middle one is measured: its input and its output are
/// values like most.
struct Probe {
    model: Model,
    isa: Isa,
    input: Tensor,
}

impl Probe {
    fn new(line: &str, shape: &[usize], isa: Isa) -> Result<Self, CostsError> {
        let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let mut lines = vec![format!("pnnx.Input in 0 1 0 #0=({})f32", sizes.join(","))];
        for at in 0..3 {
            let named = line.replacen('#', &format!("op{at} 1 1 {at} {}", at + 1), 1);
            // Functions name their input.
            let named =
                if named.starts_with("F.") { format!("{named} $input={at}") } else { named };
            lines.push(named);
        }
        lines.push("pnnx.Output out 1 0 3".into());
        Ok(Self { model: model(&lines, 4)?, isa, input: input(shape)? })
    }

    fn session(&self, threads: usize) -> Result<Session, CostsError> {
        Ok(self.model.session(options(self.isa, threads))?)
    }

    /// Where the plan has the operator in the middle, or all of them in one.
    fn middle(steps: &[std::sync::Arc<Step>]) -> usize {
        let at = |name: &str| steps.iter().position(|step| step.location.name == name);
        at("op1").or(at("op2")).or(at("op0")).unwrap_or(0)
    }

    /// The family of its kernel, and its arithmetic.
    fn what(&self) -> Result<(&'static str, f64), CostsError> {
        let plan = self.session(1)?.plan(&[self.input.spec()])?;
        let step = plan.steps.get(Self::middle(&plan.steps));
        let family = step.map_or("", |step| families::of(step.kernel_name()).prefix);
        Ok((family, step.map_or(0.0, |step| step.cost.flops as f64)))
    }

    /// Its step.
    fn run(&self, threads: usize) -> Result<Run, CostsError> {
        let session = self.session(threads)?;
        let input = [self.input.clone()];
        Ok(Box::new(move || {
            let (_, profile) = session.profile(&input)?;
            let at = Self::middle(&profile.plan.steps);
            let time = profile.steps.get(at).map(|step| step.duration).unwrap_or_default();
            Ok(time.as_secs_f64() * 1e9)
        }))
    }
}

//! Criterion, with throughput as a share of the [yardstick](crate::yardstick).

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput};
use plutino_kernels::{Isa, Par};

use crate::yardstick::{Work, Yardstick};

/// The benchmarks on one number of threads.
pub(crate) struct Suite<'a> {
    pub(crate) isa: Isa,
    pub(crate) par: &'a Par,
    criterion: Criterion<Share>,
    ceiling: Ceiling,
}

/// Floating-point operations or bytes a second that the running benchmark could reach.
type Ceiling = Rc<Cell<f64>>;

impl<'a> Suite<'a> {
    /// As the command line says.
    pub(crate) fn new(par: &'a Par) -> Self {
        let ceiling = Ceiling::default();
        let criterion = Criterion::default()
            .with_measurement(Share { time: WallTime, format: Format(ceiling.clone()) })
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1))
            .sample_size(20)
            .configure_from_args();
        Self { isa: Isa::best(), par, criterion, ceiling }
    }

    /// Times one way to do `work`; `setting` names what is computed, `way` how.
    pub(crate) fn bench(&mut self, setting: &str, way: &str, work: Work, mut run: impl FnMut()) {
        let Self { isa, par, criterion, ceiling } = self;
        let plural = if par.threads() == 1 { "" } else { "s" };
        let mut group =
            criterion.benchmark_group(format!("{setting}, {} thread{plural}", par.threads()));
        group.throughput(match work {
            Work::Flops(flops) => Throughput::Elements(flops),
            Work::Bytes(bytes) => Throughput::BytesDecimal(bytes),
        });
        let mut yardstick = None;
        ceiling.set(0.0);
        group.bench_function(way, |bencher| {
            // Anew before each sample: the speed of shared machines moves.
            let found = yardstick.get_or_insert_with(|| Yardstick::of(work)).measure(*isa, par);
            ceiling.set(ceiling.get().max(found));
            bencher.iter(&mut run);
        });
        group.finish();
    }
}

/// Wall time, shown beside what was possible in it.
struct Share {
    time: WallTime,
    format: Format,
}

impl Measurement for Share {
    type Intermediate = Instant;
    type Value = Duration;

    fn start(&self) -> Instant {
        self.time.start()
    }

    fn end(&self, start: Instant) -> Duration {
        self.time.end(start)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        self.time.add(a, b)
    }

    fn zero(&self) -> Duration {
        self.time.zero()
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        self.time.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &self.format
    }
}

/// How results are written.
struct Format(Ceiling);

impl ValueFormatter for Format {
    fn format_throughput(&self, throughput: &Throughput, nanoseconds: f64) -> String {
        let mut values = [nanoseconds];
        let unit = self.scale_throughputs(nanoseconds, throughput, &mut values);
        let [billions] = values;
        match self.0.get() {
            ceiling if ceiling > 0.0 => {
                format!("{billions:.1} {unit} = {:.0}%", billions * 1e11 / ceiling)
            }
            _ => format!("{billions:.1} {unit}"),
        }
    }

    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }

    fn scale_throughputs(
        &self,
        _: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        let (amount, unit) = match throughput {
            Throughput::Elements(flops) => (*flops, "GFLOP/s"),
            Throughput::BytesDecimal(bytes) => (*bytes, "GB/s"),
            other => return WallTime.formatter().scale_throughputs(1.0, other, values),
        };
        for value in values {
            *value = amount as f64 / *value; // a billionth of a second, billions of operations
        }
        unit
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}

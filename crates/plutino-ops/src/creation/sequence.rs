//! Tensors made by a rule for every element: linspace, logspace, eye, fftfreq, rfftfreq,
//! tril_indices, triu_indices and windows of signals.

use crate::creation::create::{ignore_placement, known_number};
use crate::support::promotion::DEFAULT_FLOAT;
use crate::support::rearrange::invalid;
use crate::{
    Arg, BuildError, FromParameter, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned,
    RunCx, RunError, ShapeError, ValueSpec, register_op,
};
use plutino_kernels::elementwise::Scalar;
use plutino_tensor::{Convert, DType, Shape, for_dtype};
use std::f64::consts::TAU;

/// An argument that must be there.
fn needed<T: FromParameter>(r: &mut NodeReader<'_>, key: &str) -> Result<Arg<T>, BuildError> {
    match r.arg(key)? {
        Some(arg) => Ok(arg),
        None => match r.has(key) {
            true => r.required(key).map(Arg::Value),
            false => r.required_input(key).map(Arg::Input),
        },
    }
}

/// A number of elements.
fn size(arg: &Arg<i64>, what: &str, inputs: &[ValueSpec]) -> Result<usize, ShapeError> {
    let n = arg.int(inputs)?;
    usize::try_from(n).map_err(|_| invalid(format!("{what} must not be negative, found {n}")))
}

fn float(arg: &Arg<Scalar>, inputs: &[ValueSpec]) -> Result<f64, ShapeError> {
    match known_number(arg, inputs)? {
        Scalar::Float(x) => Ok(x),
        Scalar::Int(i) => Ok(i as f64),
        other => Err(invalid(format!("a real number is needed, found {other:?}"))),
    }
}

/// A rule for all elements, and what it needs to know.
#[derive(Debug)]
enum Rule {
    /// <https://pytorch.org/docs/stable/generated/torch.linspace.html>; with a base, powers of it:
    /// <https://pytorch.org/docs/stable/generated/torch.logspace.html>
    Steps { start: Arg<Scalar>, end: Arg<Scalar>, steps: Arg<i64>, base: Option<f64> },
    /// <https://pytorch.org/docs/stable/generated/torch.eye.html>
    Eye { n: Arg<i64>, m: Option<Arg<i64>> },
    /// <https://pytorch.org/docs/stable/generated/torch.fft.fftfreq.html>, and without negative
    /// frequencies <https://pytorch.org/docs/stable/generated/torch.fft.rfftfreq.html>
    Frequencies { n: Arg<i64>, d: f64, half: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.tril_indices.html>,
    /// <https://pytorch.org/docs/stable/generated/torch.triu_indices.html>
    Triangle { rows: Arg<i64>, columns: Arg<i64>, offset: i64, upper: bool },
    /// <https://pytorch.org/docs/stable/generated/torch.hann_window.html> and its kin.
    Window { len: Arg<i64>, periodic: bool, window: Window },
}

/// The shape of a window.
#[derive(Debug, Clone, Copy)]
enum Window {
    /// `a[0] - a[1] cos(x) + a[2] cos(2 x)`
    Cosines([f64; 3]),
    /// A triangle.
    Bartlett,
    /// With this beta.
    Kaiser(f64),
}

/// Numbers in rows, one after the other.
#[derive(Debug, Clone, Copy)]
enum Filled {
    Steps {
        start: f64,
        end: f64,
        steps: usize,
        base: Option<f64>,
    },
    Eye {
        columns: usize,
    },
    Frequencies {
        n: usize,
        unit: f64,
        half: bool,
    },
    /// Rows, columns, diagonal.
    Triangle {
        rows: usize,
        columns: usize,
        offset: i64,
        upper: bool,
    },
    /// Number of steps from a window's beginning to its end, or to its beginning again.
    Window {
        len: usize,
        period: usize,
        window: Window,
    },
}

#[derive(Debug)]
struct Sequence {
    rule: Rule,
    dtype: Option<DType>,
}

fn sequence(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let dtype = r.optional("dtype")?;
    ignore_placement(r);
    let rule = match r.kind() {
        "torch.linspace" | "torch.logspace" => {
            let powers = r.kind() == "torch.logspace";
            let base = if powers { Some(r.or("base", 10.0)?) } else { None };
            let (start, end) = (needed(r, "start")?, needed(r, "end")?);
            Rule::Steps { start, end, steps: needed(r, "steps")?, base }
        }
        "torch.eye" => {
            let m = r.arg("m")?;
            Rule::Eye { n: needed(r, "n")?, m }
        }
        "torch.fft.fftfreq" | "torch.fft.rfftfreq" => {
            let (d, half) = (r.or("d", 1.0)?, r.kind().ends_with("rfftfreq"));
            Rule::Frequencies { n: needed(r, "n")?, d, half }
        }
        "torch.tril_indices" | "torch.triu_indices" => {
            let (offset, upper) = (r.or("offset", 0)?, r.kind().ends_with("triu_indices"));
            let rows = needed(r, "row")?;
            Rule::Triangle { rows, columns: needed(r, "col")?, offset, upper }
        }
        _ => window(r)?,
    };
    Ok(Box::new(Sequence { rule, dtype }))
}
register_op!(sequence =>
    "torch.linspace", "torch.logspace", "torch.eye", "torch.fft.fftfreq", "torch.fft.rfftfreq",
    "torch.tril_indices", "torch.triu_indices", "torch.hann_window", "torch.hamming_window",
    "torch.blackman_window", "torch.bartlett_window", "torch.kaiser_window");

fn window(r: &mut NodeReader<'_>) -> Result<Rule, BuildError> {
    let window = match r.kind() {
        "torch.hann_window" => Window::Cosines([0.5, 0.5, 0.0]),
        "torch.hamming_window" => Window::Cosines([r.or("alpha", 0.54)?, r.or("beta", 0.46)?, 0.0]),
        "torch.blackman_window" => Window::Cosines([0.42, 0.5, 0.08]),
        "torch.bartlett_window" => Window::Bartlett,
        _ => Window::Kaiser(r.or("beta", 12.0)?),
    };
    let periodic = r.or("periodic", true)?;
    Ok(Rule::Window { len: needed(r, "window_length")?, periodic, window })
}

/// Elements on and below a diagonal of a matrix.
fn below(rows: usize, columns: usize, offset: i64) -> u128 {
    let (rows, columns) = (rows as i128, columns as i128);
    let first = (-i128::from(offset)).max(0); // the first row that has any
    let count = (rows - first).max(0);
    let least = (first + 1 + i128::from(offset)).min(columns);
    // One more in each row, until the rows are full.
    let ramp = count.min(columns - least);
    let full = count - ramp;
    let sum = ramp * least + ramp * (ramp - 1) / 2 + full * columns;
    if columns == 0 { 0 } else { sum.max(0).unsigned_abs() }
}

impl Sequence {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<(DType, Shape, Filled), ShapeError> {
        let (natural, shape, filled) = match &self.rule {
            Rule::Steps { start, end, steps, base } => {
                // Both ends of integers are integers first, as PyTorch has them.
                let whole = self.dtype.is_some_and(DType::is_integer);
                let whole = |x: f64| if whole { x.trunc() } else { x };
                let (start, end) = (whole(float(start, inputs)?), whole(float(end, inputs)?));
                let (steps, base) = (size(steps, "steps", inputs)?, *base);
                let filled = Filled::Steps { start, end, steps, base };
                (DEFAULT_FLOAT, Shape::from([steps]), filled)
            }
            Rule::Eye { n, m } => {
                let n = size(n, "n", inputs)?;
                let columns = m.as_ref().map_or(Ok(n), |m| size(m, "m", inputs))?;
                (DEFAULT_FLOAT, [n, columns].into(), Filled::Eye { columns })
            }
            Rule::Frequencies { n, d, half } => {
                let n = size(n, "n", inputs)?;
                let len = if *half { n / 2 + 1 } else { n };
                let unit = (n as f64 * d).recip();
                (DEFAULT_FLOAT, [len].into(), Filled::Frequencies { n, unit, half: *half })
            }
            &Rule::Triangle { ref rows, ref columns, offset, upper } => {
                let (rows, columns) = (size(rows, "row", inputs)?, size(columns, "col", inputs)?);
                let count = match upper {
                    false => below(rows, columns, offset),
                    true => (rows as u128 * columns as u128).saturating_sub(below(
                        rows,
                        columns,
                        offset.saturating_sub(1),
                    )),
                };
                let count = usize::try_from(count).map_err(|_| invalid("too many indices"))?;
                let filled = Filled::Triangle { rows, columns, offset, upper };
                (DType::I64, [2, count].into(), filled)
            }
            Rule::Window { len, periodic, window } => {
                let len = size(len, "window_length", inputs)?;
                let period = if *periodic { len } else { len.saturating_sub(1) };
                (DEFAULT_FLOAT, [len].into(), Filled::Window { len, period, window: *window })
            }
        };
        shape.checked_numel()?;
        let dtype = self.dtype.unwrap_or(natural);
        if matches!(filled, Filled::Window { .. }) && !dtype.is_float() {
            return Err(invalid(format!("a window of {dtype}: it must be a float")));
        }
        Ok((dtype, shape, filled))
    }
}

impl Operator for Sequence {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let (dtype, shape, _) = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        Ok(Planned::new(self.bind(cx.inputs)?.2))
    }
}

impl Filled {
    fn at(&self, i: usize) -> f64 {
        match *self {
            // From both ends, so that the last one is exact.
            Self::Steps { start, end, steps, base } => {
                let step = (end - start) / steps.saturating_sub(1).max(1) as f64;
                let x = match i < steps / 2 || steps == 1 {
                    true => step.mul_add(i as f64, start),
                    false => step.mul_add(-((steps - 1 - i) as f64), end),
                };
                base.map_or(x, |base| base.powf(x))
            }
            Self::Eye { columns } => f64::from(i / columns == i % columns),
            Self::Frequencies { n, unit, half } => {
                let negative = !half && i >= n.div_ceil(2);
                let k = if negative { i as f64 - n as f64 } else { i as f64 };
                k * unit
            }
            Self::Window { len: 1, .. } => 1.0,
            Self::Window { period, window, .. } => {
                let x = i as f64 / period as f64;
                match window {
                    Window::Cosines([a, b, c]) => {
                        c.mul_add((2.0 * TAU * x).cos(), b.mul_add(-(TAU * x).cos(), a))
                    }
                    Window::Bartlett => 1.0 - (2.0 * x - 1.0).abs(),
                    Window::Kaiser(beta) => {
                        let y = 2.0 * x - 1.0;
                        let inner = beta * (1.0 - y * y).max(0.0).sqrt();
                        let scale = (inner.abs() - beta.abs()).exp();
                        scaled_bessel(inner) / scaled_bessel(beta) * scale
                    }
                }
            }
            Self::Triangle { .. } => 0.0, // rows and columns: see `Kernel::run`
        }
    }
}

/// e^-|x| I0(x), where I0 is the modified Bessel function of the first kind of order 0.
fn scaled_bessel(x: f64) -> f64 {
    let x = x.abs();
    let (mut sum, mut term) = (1.0, 1.0);
    if x < 40.0 {
        // Abramowitz and Stegun 9.6.12: sum of (x^2 / 4)^k / (k!)^2
        for k in 1..200 {
            term *= (x / (2 * k) as f64).powi(2);
            sum += term;
            if term < 1e-17 * sum {
                break;
            }
        }
        return sum * (-x).exp();
    }
    // Abramowitz and Stegun 9.7.1: sum of ((2 k - 1)!!)^2 / (k! (8 x)^k), over sqrt(2 pi x)
    for k in 1..30 {
        let odd = f64::from(2 * k - 1);
        term *= odd * odd / (8.0 * f64::from(k) * x);
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    sum / (TAU * x).sqrt()
}

impl Kernel for Filled {
    fn name(&self) -> &str {
        match self {
            Self::Steps { .. } => "linspace",
            Self::Eye { .. } => "eye",
            Self::Frequencies { .. } => "fftfreq",
            Self::Triangle { .. } => "triangle_indices",
            Self::Window { .. } => "window",
        }
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let (spec, bytes) = cx.outputs.take_bytes(0)?;
        let unit = spec.dtype.size_of();
        for_dtype!(spec.dtype, T => {
            if let &Self::Triangle { rows, columns, offset, upper } = self {
                let (of_rows, of_columns) = bytes.split_at_mut(bytes.len() / 2);
                let both = of_rows.chunks_exact_mut(unit).zip(of_columns.chunks_exact_mut(unit));
                for ((i, j), (row, column)) in triangle(rows, columns, offset, upper).zip(both) {
                    row.copy_from_slice(bytemuck::bytes_of(&T::convert_from(i)));
                    column.copy_from_slice(bytemuck::bytes_of(&T::convert_from(j)));
                }
                return Ok(());
            }
            for (i, out) in bytes.chunks_exact_mut(unit).enumerate() {
                out.copy_from_slice(bytemuck::bytes_of(&T::convert_from(self.at(i))));
            }
        });
        Ok(())
    }
}

/// Rows and columns of the elements on one side of a diagonal, row by row.
fn triangle(
    rows: usize,
    columns: usize,
    offset: i64,
    upper: bool,
) -> impl Iterator<Item = (i64, i64)> {
    let [rows, columns] = [rows, columns].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    // Rows without elements lie at the beginning or at the end: they are not walked through.
    let first = if upper { 0 } else { offset.saturating_neg().max(0) };
    let last = match upper {
        true => rows.min(columns.saturating_sub(offset).max(0)),
        false if columns == 0 => 0,
        false => rows,
    };
    (first..last).flat_map(move |row| {
        let range = match upper {
            true => row.saturating_add(offset).max(0)..columns,
            false => 0..row.saturating_add(offset).saturating_add(1).clamp(0, columns),
        };
        range.map(move |column| (row, column))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{assert_close, check, check_values, error, op, tensor, try_op, values};
    use plutino_tensor::Tensor;

    fn run(line: &str) -> Tensor {
        check(&*op(line), &[]).remove(0)
    }

    #[test]
    fn even_steps() {
        let y = run("torch.linspace l 0 1 0 start=0 end=1 steps=5 dtype=None device=cpu");
        assert_eq!(y, tensor([5], &[0.0f32, 0.25, 0.5, 0.75, 1.0]));
        assert_eq!(run("torch.linspace l 0 1 0 start=3 end=9 steps=1"), tensor([1], &[3.0f32]));
        assert_eq!(run("torch.linspace l 0 1 0 start=3 end=9 steps=0"), tensor([0], &[0.0f32; 0]));
        let y = run("torch.linspace l 0 1 0 start=1 end=0 steps=3 dtype=torch.double");
        assert_eq!(y, tensor([3], &[1.0f64, 0.5, 0.0]));
        let y = run("torch.linspace l 0 1 0 start=0 end=5 steps=4 dtype=torch.long");
        assert_eq!(y, tensor([4], &[0i64, 1, 3, 5]));
        let y = run("torch.logspace l 0 1 0 start=-1 end=2 steps=4");
        assert_close(&y, &tensor([4], &[0.1f32, 1., 10., 100.]), 1e-5);
        let y = run("torch.logspace l 0 1 0 start=0 end=3 steps=4 base=2.0");
        assert_eq!(y, tensor([4], &[1.0f32, 2., 4., 8.]));
        let y = run("torch.linspace l 0 1 0 start=0.7 end=-9.9 steps=7 dtype=torch.int64");
        assert_eq!(y, tensor([7], &[0i64, -1, -3, -4, -6, -7, -9]));
        let y = run("torch.logspace l 0 1 0 start=0 end=1.2 steps=4 base=5.5 dtype=torch.int32");
        assert_eq!(y, tensor([4], &[1i32, 1, 3, 5]));
        error(&*op("torch.linspace l 0 1 0 start=0 end=1 steps=-1"), &[]);
        error(&*op("torch.linspace l 0 1 0 start=0 end=1 steps=9223372036854775807"), &[]);
        assert!(try_op("torch.linspace l 0 1 0 start=0 end=1", &[]).is_err());
        let by_inputs = op("torch.linspace l 2 1 0 1 2 start=0 $end=0 $steps=1");
        let numbers = [2i64, 3].map(|n| ValueSpec::python(n).unwrap());
        let y = check_values(&*by_inputs, &numbers, &[tensor([], &[2i64]), tensor([], &[3i64])]);
        assert_eq!(y[0], tensor([3], &[0.0f32, 1., 2.]));
    }

    #[test]
    fn ones_on_the_diagonal() {
        let y = run("torch.eye e 0 1 0 n=2 m=3 dtype=None");
        assert_eq!(y, tensor([2, 3], &[1.0f32, 0., 0., 0., 1., 0.]));
        assert_eq!(run("torch.eye e 0 1 0 n=1 dtype=torch.bool"), tensor([1, 1], &[true]));
        assert_eq!(run("torch.eye e 0 1 0 n=2 m=0"), tensor([2, 0], &[0.0f32; 0]));
        error(&*op("torch.eye e 0 1 0 n=4294967296 m=4294967296"), &[]);
    }

    #[test]
    fn frequencies() {
        let y = run("torch.fft.fftfreq f 0 1 0 n=5 d=0.1");
        assert_close(&y, &tensor([5], &[0.0f32, 2., 4., -4., -2.]), 1e-5);
        let y = run("torch.fft.fftfreq f 0 1 0 n=4");
        assert_eq!(y, tensor([4], &[0.0f32, 0.25, -0.5, -0.25]));
        let y = run("torch.fft.rfftfreq f 0 1 0 n=4");
        assert_eq!(y, tensor([3], &[0.0f32, 0.25, 0.5]));
    }

    #[test]
    fn triangles_of_indices() {
        let y = run("torch.tril_indices t 0 1 0 row=3 col=2 offset=0");
        assert_eq!(values::<i64>(&y), [0, 1, 1, 2, 2, 0, 0, 1, 0, 1]);
        let y = run("torch.triu_indices t 0 1 0 row=3 col=3 offset=1 dtype=torch.int");
        assert_eq!(values::<i32>(&y), [0, 0, 1, 1, 2, 2]);
        // By the definition, for all small matrices.
        for (rows, columns, offset) in
            (0..4).flat_map(|n| (0..4).flat_map(move |m| (-4..5).map(move |o| (n, m, o))))
        {
            for (kind, upper) in [("tril", false), ("triu", true)] {
                let line = format!(
                    "torch.{kind}_indices t 0 1 0 row={rows} col={columns} offset={offset}"
                );
                let all = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
                let inside =
                    |&(i, j): &(i64, i64)| if upper { j - i >= offset } else { j - i <= offset };
                let (i, j): (Vec<i64>, Vec<i64>) = all.filter(inside).unzip();
                assert_eq!(values::<i64>(&run(&line)), [i, j].concat(), "{line}");
            }
        }
        let huge = "row=1000000000000 col=0 offset=0";
        assert_eq!(run(&format!("torch.tril_indices t 0 1 0 {huge}")).shape().dims(), [2, 0]);
        // As many as a tall matrix has: four columns of one to four.
        let tall = "row=9223372036854775807 col=4";
        assert_eq!(run(&format!("torch.triu_indices t 0 1 0 {tall}")).shape().dims(), [2, 10]);
        error(&*op("torch.tril_indices t 0 1 0 row=9223372036854775807 col=4"), &[]);
    }

    #[test]
    fn windows_of_signals() {
        let y = run("torch.hann_window w 0 1 0 window_length=4 periodic=True");
        assert_close(&y, &tensor([4], &[0.0f32, 0.5, 1.0, 0.5]), 1e-7);
        let y = run("torch.hann_window w 0 1 0 window_length=5 periodic=False");
        assert_close(&y, &tensor([5], &[0.0f32, 0.5, 1.0, 0.5, 0.0]), 1e-7);
        let y = run("torch.hamming_window w 0 1 0 window_length=2");
        assert_close(&y, &tensor([2], &[0.08f32, 1.0]), 1e-7);
        let y = run("torch.blackman_window w 0 1 0 window_length=4");
        assert_close(&y, &tensor([4], &[0.0f32, 0.34, 1.0, 0.34]), 1e-7);
        let y = run("torch.bartlett_window w 0 1 0 window_length=4");
        assert_eq!(y, tensor([4], &[0.0f32, 0.5, 1.0, 0.5]));
        let y = run("torch.kaiser_window w 0 1 0 window_length=4 periodic=True beta=12.0");
        // torch.kaiser_window(4)
        assert_close(&y, &tensor([4], &[5.2772e-5f32, 0.215_672_8, 1.0, 0.215_672_8]), 1e-6);
        for n in [0, 1] {
            let y = run(&format!("torch.kaiser_window w 0 1 0 window_length={n}"));
            assert_eq!(values::<f32>(&y), vec![1.0; n]);
        }
        error(&*op("torch.hann_window w 0 1 0 window_length=4 dtype=torch.long"), &[]);
    }

    #[test]
    fn both_series_meet() {
        // I0(40) e^-40 by either; SciPy's i0e(40) is 0.0632...
        let (below, above) = (scaled_bessel(40.0 - 1e-9), scaled_bessel(40.0));
        assert!((below / above - 1.0).abs() < 1e-10, "{below} {above}");
    }
}

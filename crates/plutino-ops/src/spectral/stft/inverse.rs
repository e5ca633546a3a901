//! From spectra to signals.

use super::Framing;
use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::real_of;
use plutino_kernels::fft::{Direction, FftReal, Lines, load, store};
use plutino_kernels::for_numbers;
use plutino_kernels::stft::{Frames, SynthesisError, synthesise, transpose};
use plutino_tensor::{Complex, DType, Shape};
use std::ops::Range;

#[derive(Debug)]
struct Istft {
    input: usize,
    framing: Framing,
    length: Option<usize>,
    /// Elements that are cut off at both ends of a signal of given length.
    pad: usize,
    complex: bool,
    /// The number of dimensions before frequency; none for any.
    most_lead: Option<usize>,
}

fn istft(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let audio = r.kind().starts_with("torchaudio");
    let mut framing = Framing::read(r)?;
    let (length, pad) = (r.optional("length")?, if audio { r.or("pad", 0)? } else { 0 });
    let complex = !audio && r.or("return_complex", false)?;
    if audio {
        framing.onesided = Some(framing.onesided.unwrap_or(true));
    }
    if complex && framing.onesided == Some(true) {
        return Err(r.bad("onesided", "False or None where return_complex is True"));
    }
    let input = r.required_input(if audio { "spectrogram" } else { "input" })?;
    if r.raw("window").is_none() {
        framing.window = r.input("window");
    }
    let most_lead = (!audio).then_some(1);
    Ok(Box::new(Istft { input, framing, length, pad, complex, most_lead }))
}
register_op!(istft => "torch.istft", "torchaudio.functional.inverse_spectrogram");

/// A synthesis for given shapes.
#[derive(Debug, Clone)]
struct Bound {
    output: Shape,
    dtype: DType,
    frames: Frames,
    /// Rows of the spectra as they come, and those that are used.
    bins: [usize; 2],
    /// The part of the overlapping frames that is the signal.
    range: Range<usize>,
}

impl Istft {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_complex() {
            let expected = "a complex number".into();
            return Err(ShapeError::DType { input, expected, found: x.dtype() });
        }
        let f = &self.framing;
        f.check_window(inputs)?;
        let (lead, given, count) = match x.shape().dims() {
            [lead @ .., bins, count] if self.most_lead.is_none_or(|most| lead.len() <= most) => {
                (lead, *bins, *count)
            }
            _ => {
                let (expected, found) = ("2 or 3".into(), x.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        };
        let onesided = f.onesided.unwrap_or(given != f.n_fft);
        if given != f.bins(onesided) || (onesided && self.complex) {
            let (expected, found) =
                (f.bins(onesided && !self.complex).to_string(), x.shape().clone());
            return Err(ShapeError::Size { input, dim: lead.len(), expected, found });
        }
        let whole = count.checked_sub(1).and_then(|n| n.checked_mul(f.hop)?.checked_add(f.n_fft));
        let whole = whole.filter(|&n| n <= isize::MAX as usize / 64);
        let whole = whole.ok_or_else(|| invalid(format!("{count} frames make no signal")))?;
        let half = if f.center { f.n_fft / 2 } else { 0 };
        let (start, end) = match self.length {
            Some(length) => {
                let start = half.saturating_add(self.pad);
                (start, start.saturating_add(length))
            }
            None => (half, whole - half),
        };
        if start > end || (self.length.is_none() && start == end) {
            return Err(invalid(format!(
                "nothing is left of {whole} elements without half a frame at both ends"
            )));
        }
        let batch = Shape::from(lead).checked_numel()?;
        let output: Shape = lead.iter().copied().chain([end - start]).collect();
        for elements in [[batch, count, f.n_fft], [batch, 1, end - start]] {
            let bytes: Shape =
                elements.into_iter().chain([6 * size_of::<Complex<f64>>()]).collect();
            bytes.checked_numel()?;
        }
        let frames = Frames { batch, signal: whole, frame: f.n_fft, hop: f.hop, count };
        // A real signal needs half of its spectrum only, whatever else there is.
        let used = f.bins(!self.complex);
        let dtype = if self.complex { x.dtype() } else { real_of(x.dtype()) };
        Ok(Bound { output, dtype, frames, bins: [given, used], range: start..end })
    }

    fn planned<R: FftReal>(&self, cx: &PlanCx<'_>, bound: Bound) -> Result<Planned, PlanError>
    where
        Complex<R>: bytemuck::Pod,
    {
        let Bound { frames: f, bins: [_, used], range, .. } = &bound;
        let spectra = f.batch * f.count * used;
        let scratch = 2 * spectra + f.len() + f.batch * range.len();
        let kernel = Synthesis::<R> {
            input: leaf(cx.inputs, self.input),
            window: self.framing.window.map(|w| leaf(cx.inputs, w)),
            framing: self.framing.clone(),
            lines: Lines::new(Direction::Inverse, self.framing.n_fft)?,
            bound,
        };
        Ok(Planned::new(kernel).with_scratch(scratch.saturating_mul(size_of::<Complex<R>>())))
    }
}

impl Operator for Istft {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let bound = self.bind(inputs)?;
        Ok(vec![ValueSpec::tensor(bound.dtype, bound.output)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let bound = self.bind(cx.inputs)?;
        match bound.dtype {
            DType::F64 | DType::C128 => self.planned::<f64>(cx, bound),
            _ => self.planned::<f32>(cx, bound),
        }
    }
}

struct Synthesis<R: FftReal> {
    input: usize,
    window: Option<usize>,
    framing: Framing,
    lines: Lines<R>,
    bound: Bound,
}

impl<R: FftReal> Kernel for Synthesis<R>
where
    Complex<R>: bytemuck::Pod,
{
    fn name(&self) -> &str {
        "istft"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Bound { frames: f, bins: [given, used], range, .. } = &self.bound;
        let window = self.framing.window::<R>(self.window, &cx.inputs)?;
        let scale = 1.0 / self.framing.scale(&window) / self.framing.n_fft as f64;
        let short = || RunError::Internal("scratch memory of an inverse spectrogram".into());
        let memory = cx.take_scratch::<Complex<R>>()?;
        let spectra = f.batch * f.count * used;
        let (rows, rest) = memory.split_at_mut_checked(spectra).ok_or_else(short)?;
        let (columns, rest) = rest.split_at_mut_checked(spectra).ok_or_else(short)?;
        let (frames, rest) = rest.split_at_mut_checked(f.len()).ok_or_else(short)?;
        let signals = rest.get_mut(..f.batch * range.len()).ok_or_else(short)?;
        for_numbers!(cx.inputs.spec(self.input)?.dtype, T => {
            let (from, to) = ([f.batch, *given, f.count], [f.batch, *used, f.count]);
            load(cx.par, (&from, cx.inputs.get::<T>(self.input)?), (&to, rows));
        });
        transpose(cx.par, [*used, f.count, f.count], rows, columns, |z| z);
        synthesise(cx.par, f, &self.lines, scale, &window, columns, frames, range.clone(), signals)
            .map_err(|e| match e {
                SynthesisError::Memory(e) => e.into(),
                e => RunError::Value { input: self.input, what: e.to_string() },
            })?;
        for_numbers!(self.bound.dtype, T => {
            let shape = [f.batch, range.len()];
            store(cx.par, 1.0, (&shape, signals), (&shape, cx.outputs.take::<T>(0)?));
        });
        Ok(())
    }
}

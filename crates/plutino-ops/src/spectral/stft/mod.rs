//! Short-time Fourier transforms and the way back: `torch.stft`, `torch.istft`, torchaudio's
//! spectrograms.
//!
//! <https://pytorch.org/docs/stable/generated/torch.stft.html>,
//! <https://docs.pytorch.org/audio/stable/generated/torchaudio.functional.spectrogram.html>, and
//! their inverses. Signals of f64 are computed in f64, all others in f32.

mod inverse;
#[cfg(test)]
mod tests;

use crate::support::assemble::leaf;
use crate::support::rearrange::invalid;
use crate::{
    BuildError, Inputs, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, TensorValue, ValueSpec, register_op,
};
use plutino_kernels::elementwise::{complex_of, real_of};
use plutino_kernels::fft::{Direction, FftReal, Lines, load};
use plutino_kernels::number::{Number, Wide};
use plutino_kernels::pad::{Pad, PadMode};
use plutino_kernels::stft::{Frames, analyse, transpose};
use plutino_kernels::{Par, for_numbers};
use plutino_tensor::alloc;
use plutino_tensor::{Complex, DType, Shape};

/// The window over each frame, and what follows from it; the same for both directions.
#[derive(Debug, Clone)]
struct Framing {
    n_fft: usize,
    hop: usize,
    win_length: usize,
    /// The input with the window; none for ones.
    window: Option<usize>,
    /// Whether frames are centred at their positions, so that the first begins half a frame before
    /// the signal.
    center: bool,
    /// Whether transforms are scaled by 1 / sqrt(n_fft).
    ortho: bool,
    /// Whether transforms are scaled by the root of the window's energy.
    by_window: bool,
    onesided: Option<bool>,
}

impl Framing {
    fn read(r: &mut NodeReader<'_>) -> Result<Self, BuildError> {
        let n_fft: usize = r.required("n_fft")?;
        let win_length = r.optional("win_length")?.unwrap_or(n_fft);
        let audio = r.kind().starts_with("torchaudio");
        let hop =
            r.optional("hop_length")?.unwrap_or(if audio { win_length / 2 } else { n_fft / 4 });
        if n_fft == 0 {
            return Err(r.bad("n_fft", "an integer of at least 1"));
        }
        if hop == 0 {
            return Err(r.bad("hop_length", "an integer of at least 1"));
        }
        if win_length == 0 || win_length > n_fft {
            return Err(r.bad("win_length", "an integer of at least 1, and at most n_fft"));
        }
        // torchaudio: True stands for the window, and words say what else.
        let norms = [("frame_length", (true, false)), ("window", (false, true))];
        let (ortho, by_window) = match r.raw("normalized").and_then(|p| p.as_bool()) {
            Some(normalized) if audio => (false, normalized),
            Some(normalized) => (normalized, false),
            None if audio => r.one_of("normalized", &norms, Some((false, false)))?,
            None => (r.or("normalized", false)?, false),
        };
        let (center, onesided) = (r.or("center", true)?, r.optional("onesided")?);
        if r.or("align_to_window", false)? {
            return Err(r.bad("align_to_window", "None or False"));
        }
        Ok(Self { n_fft, hop, win_length, window: None, center, ortho, by_window, onesided })
    }

    /// The window's shape and dtype suit.
    fn check_window(&self, inputs: &[ValueSpec]) -> Result<Option<DType>, ShapeError> {
        let Some(input) = self.window else { return Ok(None) };
        let window = TensorValue::at(inputs, input)?;
        if window.shape().dims() != [self.win_length] {
            let (expected, found) = (self.win_length.to_string(), window.shape().clone());
            return Err(ShapeError::Size { input, dim: 0, expected, found });
        }
        Ok(Some(window.dtype()))
    }

    /// The window in the middle of a frame, zeros around it.
    fn window<R: FftReal>(
        &self,
        leaf: Option<usize>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Complex<R>>, RunError> {
        let [zero, one] = [0.0, 1.0].map(|x| Complex::new(R::nearest(x), R::nearest(0.0)));
        let mut window = alloc::filled(self.n_fft, zero)?;
        let middle = &mut window[(self.n_fft - self.win_length) / 2..][..self.win_length];
        let Some(leaf) = leaf else {
            middle.fill(one);
            return Ok(window);
        };
        for_numbers!(inputs.spec(leaf)?.dtype, T => {
            let given = inputs.get::<T>(leaf)?;
            load(&Par::serial(), (&[self.win_length], given), (&[self.win_length], middle));
        });
        Ok(window)
    }

    /// The factor of transforms for this window; its inverse for the way back.
    fn scale<R: FftReal>(&self, window: &[Complex<R>]) -> f64 {
        let mut scale = if self.ortho { 1.0 / (self.n_fft as f64).sqrt() } else { 1.0 };
        if self.by_window {
            let energy: f64 =
                window.iter().map(|w| w.re.wide().powi(2) + w.im.wide().powi(2)).sum();
            scale /= energy.sqrt();
        }
        scale
    }

    /// Rows of a spectrum.
    fn bins(&self, onesided: bool) -> usize {
        if onesided { self.n_fft / 2 + 1 } else { self.n_fft }
    }
}

/// The form of the result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Complex,
    /// Real and imaginary part in a last dimension.
    Pairs,
    /// This power of the absolute value.
    Power(f64),
}

#[derive(Debug)]
struct Stft {
    input: usize,
    framing: Framing,
    /// Zeros on both sides of the signal, before everything else.
    pad: usize,
    mode: PadMode,
    form: Form,
    /// The number of dimensions before time; none for any.
    most_lead: Option<usize>,
}

fn stft(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let audio = r.kind().starts_with("torchaudio");
    let modes = [
        ("reflect", PadMode::Reflect),
        ("constant", PadMode::Constant),
        ("replicate", PadMode::Replicate),
        ("circular", PadMode::Circular),
    ];
    let mut framing = Framing::read(r)?;
    let mode = r.one_of("pad_mode", &modes, Some(PadMode::Reflect))?;
    let (form, pad) = if audio {
        let _: Option<bool> = r.optional("return_complex")?; // of no effect, says torchaudio
        let form = r.optional("power")?.map_or(Form::Complex, Form::Power);
        framing.onesided = Some(framing.onesided.unwrap_or(true));
        (form, r.or("pad", 0)?)
    } else {
        let complex = r.or("return_complex", true)?;
        (if complex { Form::Complex } else { Form::Pairs }, 0)
    };
    let input = r.required_input(if audio { "waveform" } else { "input" })?;
    if r.raw("window").is_none() {
        framing.window = r.input("window");
    }
    let most_lead = (!audio).then_some(1);
    Ok(Box::new(Stft { input, framing, pad, mode, form, most_lead }))
}
register_op!(stft => "torch.stft", "torchaudio.functional.spectrogram");

/// An analysis for given shapes.
#[derive(Debug, Clone)]
struct Bound {
    output: Shape,
    dtype: DType,
    frames: Frames,
    /// Elements of a signal as it comes.
    length: usize,
    bins: usize,
}

impl Stft {
    fn bind(&self, inputs: &[ValueSpec]) -> Result<Bound, ShapeError> {
        let (input, x) = (self.input, TensorValue::at(inputs, self.input)?);
        if !x.dtype().is_float() && !x.dtype().is_complex() || x.dtype() == DType::Bf16 {
            let expected = "a float or a complex number".into();
            return Err(ShapeError::DType { input, expected, found: x.dtype() });
        }
        let f = &self.framing;
        let complex_window = f.check_window(inputs)?.is_some_and(DType::is_complex);
        let complex = x.dtype().is_complex() || complex_window;
        let onesided = f.onesided.unwrap_or(!complex);
        if onesided && complex {
            return Err(invalid("only a real signal's spectrum is determined by its half"));
        }
        let lead = match x.shape().dims().split_last() {
            Some((_, lead)) if self.most_lead.is_none_or(|most| lead.len() <= most) => lead,
            _ => {
                let (expected, found) = ("1 or 2".into(), x.shape().clone());
                return Err(ShapeError::Rank { input, expected, found });
            }
        };
        let length = x.shape()[lead.len()];
        let signal = self.paddings().into_iter().try_fold(length, |n, (pad, mode)| {
            let fits = Pad::new(&[n], &[(pad, pad)], mode).map_err(|e| invalid(e.to_string()))?;
            Ok::<_, ShapeError>(fits.output_len())
        })?;
        let Some(steps) = signal.checked_sub(f.n_fft) else {
            return Err(invalid(format!(
                "a signal of {signal} elements has no frame of {}",
                f.n_fft
            )));
        };
        let batch = Shape::from(lead).checked_numel()?;
        let frames = Frames { batch, signal, frame: f.n_fft, hop: f.hop, count: steps / f.hop + 1 };
        let bins = f.bins(onesided);
        let mut output: Shape = lead.iter().copied().chain([bins, frames.count]).collect();
        let dtype = match self.form {
            Form::Complex => complex_of(x.dtype()),
            Form::Pairs | Form::Power(_) => real_of(x.dtype()),
        };
        if self.form == Form::Pairs {
            output.push(2);
        }
        // Scratch memory: the frames, and the signals with their padding.
        for elements in [[batch, frames.count, f.n_fft], [batch, signal, 3]] {
            let bytes: Shape =
                elements.into_iter().chain([2 * size_of::<Complex<f64>>()]).collect();
            bytes.checked_numel()?;
        }
        Ok(Bound { output, dtype, frames, length, bins })
    }

    /// What is padded, one after the other.
    fn paddings(&self) -> Vec<(i64, PadMode)> {
        let center = if self.framing.center { self.framing.n_fft / 2 } else { 0 };
        let all = [(self.pad, PadMode::Constant), (center, self.mode)];
        let long = |(n, mode): (usize, PadMode)| (i64::try_from(n).unwrap_or(i64::MAX), mode);
        all.into_iter().filter(|(n, _)| *n > 0).map(long).collect()
    }
}

impl Operator for Stft {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let bound = self.bind(inputs)?;
        bound.output.checked_numel()?;
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

impl Stft {
    fn planned<R: FftReal>(&self, cx: &PlanCx<'_>, bound: Bound) -> Result<Planned, PlanError>
    where
        Complex<R>: bytemuck::Pod,
    {
        let mut pads = Vec::new();
        let (mut length, batch) = (bound.length, bound.frames.batch);
        let mut signals = batch.saturating_mul(length);
        for (pad, mode) in self.paddings() {
            let pad = Pad::new(&[batch, length], &[(0, 0), (pad, pad)], mode);
            let pad = pad.map_err(|e| PlanError::Unsupported(e.to_string()))?;
            length = pad.output_len() / batch.max(1);
            signals = signals.saturating_add(pad.output_len());
            pads.push(pad);
        }
        let scratch = signals.saturating_add(bound.frames.len());
        let kernel = Analysis::<R> {
            input: leaf(cx.inputs, self.input),
            window: self.framing.window.map(|w| leaf(cx.inputs, w)),
            framing: self.framing.clone(),
            lines: Lines::new(Direction::Forward, self.framing.n_fft)?,
            form: self.form,
            pads,
            bound,
        };
        Ok(Planned::new(kernel).with_scratch(scratch.saturating_mul(size_of::<Complex<R>>())))
    }
}

struct Analysis<R: FftReal> {
    input: usize,
    window: Option<usize>,
    framing: Framing,
    lines: Lines<R>,
    form: Form,
    pads: Vec<Pad>,
    bound: Bound,
}

impl<R: FftReal> Kernel for Analysis<R>
where
    Complex<R>: bytemuck::Pod,
{
    fn name(&self) -> &str {
        "stft"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let Bound { frames: f, length, bins, .. } = &self.bound;
        let window = self.framing.window::<R>(self.window, &cx.inputs)?;
        let scale = R::nearest(self.framing.scale(&window));
        let short = || RunError::Internal("scratch memory of a spectrogram".into());
        let memory = cx.take_scratch::<Complex<R>>()?;
        let (frames, rest) = memory.split_at_mut_checked(f.len()).ok_or_else(short)?;
        let (mut signals, mut rest) =
            rest.split_at_mut_checked(f.batch * length).ok_or_else(short)?;
        for_numbers!(cx.inputs.spec(self.input)?.dtype, T => {
            let shape = [f.batch, *length];
            load(cx.par, (&shape, cx.inputs.get::<T>(self.input)?), (&shape, signals));
        });
        for pad in &self.pads {
            let (padded, next) = rest.split_at_mut_checked(pad.output_len()).ok_or_else(short)?;
            pad.run(cx.par, Complex::new(R::nearest(0.0), R::nearest(0.0)), signals, padded);
            (signals, rest) = (padded, next);
        }
        analyse(cx.par, f, &self.lines, &window, signals, frames)?;
        let sizes = [f.count, f.frame, *bins];
        let scaled = |z: Complex<R>| Complex::new((z.re * scale).wide(), (z.im * scale).wide());
        for_numbers!(self.bound.dtype, T => {
            let convert = |z| T::narrow(<T as Number>::Wide::of_complex(z));
            match self.form {
                Form::Complex => {
                    let y = cx.outputs.take::<T>(0)?;
                    transpose(cx.par, sizes, frames, y, |z| convert(scaled(z)));
                }
                Form::Pairs => {
                    let y = cx.outputs.take::<T>(0)?.as_chunks_mut::<2>().0;
                    transpose(cx.par, sizes, frames, y, |z| {
                        let z = scaled(z);
                        [z.re, z.im].map(|x| convert(x.into()))
                    });
                }
                Form::Power(p) => {
                    let y = cx.outputs.take::<T>(0)?;
                    transpose(cx.par, sizes, frames, y, |z| {
                        let z = scaled(z);
                        convert(if p == 2.0 { z.norm_sqr() } else { z.norm().powf(p) }.into())
                    });
                }
            }
        });
        Ok(())
    }
}

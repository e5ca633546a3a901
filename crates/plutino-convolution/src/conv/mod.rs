//! Convolution of 1 to 3 spatial dimensions, with groups, strides, dilation and all of PyTorch's
//! padding modes.
//!
//! [`ConvGeometry`] checks the sizes once; [`Conv`] chooses the algorithm; [`Conv::pack`] prepares
//! the weights for it, once; [`Conv::run`] computes.
//!
//! | algorithm | for | file |
//! |---|---|---|
//! | pointwise | kernel 1, stride 1: a matrix product with the pixels of each image as they are | here |
//! | windows | everything else: a matrix product with windows that are packed from the image | windows.rs |
//!
//! [`ConvTranspose`] is the transposed convolution; [`conv_any`] and [`conv_transpose_any`] compute
//! dtypes that have no kernel of their own.

mod any;
mod geometry;
mod transposed;
mod windows;

pub use any::{conv_any, conv_transpose_any};
pub use geometry::{Axis, ConvError, ConvGeometry, MAX_DIMS, PadMode, Window};
pub use transposed::{ConvTranspose, ConvTransposeWeights};

use plutino_cpu::Par;
use plutino_products::gemm::{
    Bias, Epilogue, Gemm, Operand, PackedMatrix, Problem, Side, Size, Strided, Summand, Target,
};
use plutino_tensor::Floats;
use windows::{Phases, Windows};

/// A convolution with its algorithm chosen.
#[derive(Debug, Clone)]
pub struct Conv {
    geometry: ConvGeometry,
    target: Target,
    threads: usize,
    algorithm: Algorithm,
    /// Images that are computed together.
    images: usize,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Pointwise,
    Windows(Box<Phases>),
}

/// Weights prepared for one [`Conv`], or any other that differs in batch and image size only.
#[derive(Debug)]
pub struct ConvWeights {
    /// One left operand a group.
    groups: Vec<PackedMatrix>,
}

impl ConvWeights {
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.groups.iter().map(PackedMatrix::bytes).sum()
    }
}

/// Laid out images that are kept at a time, where the batch leaves a choice.
const IMAGE_BYTES: usize = 2 << 20;

impl Conv {
    /// Chooses the algorithm.
    pub fn new(target: Target, threads: usize, geometry: ConvGeometry) -> Self {
        let (algorithm, image) = if geometry.axes().iter().all(Axis::is_pointwise) {
            (Algorithm::Pointwise, 0)
        } else {
            let phases = Phases::new(&geometry);
            let image = phases.len(1);
            (Algorithm::Windows(Box::new(phases)), image)
        };
        let images = (IMAGE_BYTES / size_of::<f32>()).checked_div(image).unwrap_or(usize::MAX);
        let images = images.clamp(1, geometry.batch().max(1));
        Self { geometry, target, threads, algorithm, images }
    }

    /// The sizes.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// The algorithm's name.
    pub fn name(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Pointwise => "conv.gemm",
            Algorithm::Windows(_) => "conv.windows",
        }
    }

    /// What decides the form of packed weights: weights of one layer packed under one name are the
    /// same.
    pub fn packing(&self) -> String {
        format!("{}.{}", self.name(), self.target.isa)
    }

    /// Prepares the weights: output channels x channels of a group x taps, dense.
    ///
    /// # Errors
    /// [`ConvError::Length`] for another number of weights; [`ConvError::Memory`].
    pub fn pack<'w>(
        &self,
        weights: impl Into<Floats<'w>>,
        par: &Par,
    ) -> Result<ConvWeights, ConvError> {
        let (geometry, weights) = (&self.geometry, weights.into());
        check_len("weight", weights.len(), geometry.weight_len())?;
        let (m, k) = (geometry.group_out(), geometry.group_in() * geometry.taps());
        let groups = weights
            .chunks_exact((m * k).max(1))
            .map(|w| {
                let left = Strided::left(w, (m, k), (k, 1));
                PackedMatrix::of(self.target, Side::Left, &left, par)
            })
            .collect::<Result<_, _>>()?;
        Ok(ConvWeights { groups })
    }

    /// The matrix products of `images` images.
    fn gemm(&self, images: usize) -> Gemm {
        let geometry = &self.geometry;
        let size = Size {
            batch: images * geometry.groups(),
            m: geometry.group_out(),
            n: geometry.out_plane(),
            k: geometry.group_in() * geometry.taps(),
        };
        Gemm::new(self.target, self.threads, size, (true, false))
    }

    /// f32 elements of scratch memory that [`Conv::run`] needs.
    pub fn scratch(&self) -> usize {
        let rest = self.geometry.batch() % self.images;
        let gemm = |n: usize| if n == 0 { 0 } else { self.gemm(n).scratch(self.threads) };
        self.laid_out() + gemm(self.images).max(gemm(rest))
    }

    /// Elements of the laid out images, in whole cache lines.
    fn laid_out(&self) -> usize {
        match &self.algorithm {
            Algorithm::Pointwise => 0,
            Algorithm::Windows(phases) => phases.len(self.images).next_multiple_of(16),
        }
    }

    /// Computes `output = activation(input * weights + bias + summand)`. A bias is one number for
    /// each output channel ([`Bias::Rows`]); a summand is laid out as the output.
    ///
    /// # Errors
    /// [`ConvError::Length`] where memory has another size than the geometry says, scratch memory
    /// is too short, or the weights are another convolution's.
    pub fn run(
        &self,
        par: &Par,
        weights: &ConvWeights,
        input: &[f32],
        epilogue: &Epilogue<'_>,
        output: &mut [f32],
        scratch: &mut [f32],
    ) -> Result<(), ConvError> {
        let geometry = &self.geometry;
        check_len("input", input.len(), geometry.input_len())?;
        check_len("output", output.len(), geometry.output_len())?;
        check_len("packed weight", weights.groups.len(), geometry.groups())?;
        check_len("scratch", scratch.len().min(self.scratch()), self.scratch())?;
        if let Bias::Rows(bias) = epilogue.bias {
            check_len("bias", bias.len(), geometry.out_channels())?;
        }
        if let Summand::Other(other) = epilogue.summand {
            check_len("summand", other.len(), output.len())?;
        }
        if output.is_empty() {
            return Ok(());
        }
        let (laid_out, scratch) = scratch.split_at_mut(self.laid_out());
        let in_image = geometry.in_channels() * geometry.in_plane();
        let out_image = geometry.out_channels() * geometry.out_plane();
        for first in (0..geometry.batch()).step_by(self.images) {
            let images = self.images.min(geometry.batch() - first);
            let input = &input[first * in_image..(first + images) * in_image];
            let here = first * out_image..(first + images) * out_image;
            let epilogue = epilogue.part(here.clone());
            let output = &mut output[here];
            let gemm = self.gemm(images);
            let all = Products { geometry, weights, epilogue };
            let stride = geometry.out_plane();
            match &self.algorithm {
                Algorithm::Pointwise => {
                    gemm.run(par, &Pixels { all, input }, output, stride, scratch);
                }
                Algorithm::Windows(phases) => {
                    let images = phases.lay_out(par, input, laid_out);
                    gemm.run(par, &InWindows { all, phases, images }, output, stride, scratch);
                }
            }
        }
        Ok(())
    }
}

fn check_len(what: &'static str, found: usize, expected: usize) -> Result<(), ConvError> {
    if found == expected { Ok(()) } else { Err(ConvError::Length { what, found, expected }) }
}

/// What the products of all algorithms share: product `i` is group `i % groups` of an image.
struct Products<'a> {
    geometry: &'a ConvGeometry,
    weights: &'a ConvWeights,
    epilogue: Epilogue<'a>,
}

impl Products<'_> {
    fn weights<P>(&self, i: usize) -> Operand<'_, P> {
        Operand::Packed(&self.weights.groups[i % self.geometry.groups()])
    }

    fn output(&self, i: usize) -> usize {
        i * self.geometry.group_out() * self.geometry.out_plane()
    }

    fn epilogue(&self, i: usize) -> Epilogue<'_> {
        let m = self.geometry.group_out();
        let group = i % self.geometry.groups();
        let bias = match self.epilogue.bias {
            Bias::Rows(bias) => Bias::Rows(&bias[group * m..(group + 1) * m]),
            other => other,
        };
        Epilogue { bias, ..self.epilogue }
    }
}

/// Pointwise: the pixels of a group's channels are the right operand as they are.
struct Pixels<'a> {
    all: Products<'a>,
    input: &'a [f32],
}

impl<'a> Problem for Pixels<'a> {
    type A = Strided<'a>;
    type B = Strided<'a>;
    fn a(&self, i: usize) -> Operand<'_, Strided<'a>> {
        self.all.weights(i)
    }
    fn b(&self, i: usize) -> Operand<'_, Strided<'a>> {
        let (channels, plane) = (self.all.geometry.group_in(), self.all.geometry.in_plane());
        let image = &self.input[i * channels * plane..(i + 1) * channels * plane];
        Operand::Source(Strided::right(image, (channels, plane), (plane, 1)))
    }
    fn c(&self, i: usize) -> usize {
        self.all.output(i)
    }
    fn epilogue(&self, i: usize) -> Epilogue<'_> {
        self.all.epilogue(i)
    }
}

/// Windows: the right operand is read from laid out images.
struct InWindows<'a> {
    all: Products<'a>,
    phases: &'a Phases,
    images: &'a [f32],
}

impl<'a> Problem for InWindows<'a> {
    type A = Strided<'a>;
    type B = Windows<'a>;
    fn a(&self, i: usize) -> Operand<'_, Strided<'a>> {
        self.all.weights(i)
    }
    fn b(&self, i: usize) -> Operand<'_, Windows<'a>> {
        let groups = self.all.geometry.groups();
        Operand::Source(Windows::new(self.phases, self.images, i / groups, i % groups))
    }
    fn c(&self, i: usize) -> usize {
        self.all.output(i)
    }
    fn epilogue(&self, i: usize) -> Epilogue<'_> {
        self.all.epilogue(i)
    }
}

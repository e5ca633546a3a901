//! The one place that decides how a convolution is computed.

use crate::algorithm::{ALGORITHMS, Algorithm, BoundAlgorithm, ConvLayout};
use crate::convolution::Convolution;
use crate::post_ops::{Bf16Tensors, PostOps};
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::Isa;
use plutino_products::gemm::MatrixUnit;

/// What is to be computed, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The sizes.
    pub problem: ConvProblem,
    /// What is done beside the convolution.
    pub post_ops: PostOps,
    /// The instruction set.
    pub isa: Isa,
    /// Threads that will run it. They shape tasks; they change neither the choice nor a bit of the
    /// result.
    pub threads: usize,
    /// Whether memory is dearer than time: no weights that are larger than those of the file.
    pub save_memory: bool,
    /// Whether Winograd's algorithms may compute it: faster, with a few times the rounding errors
    /// (docs/decisions/012-rounding.md).
    pub winograd: bool,
    /// What may multiply bf16, and as how many terms numbers are given to it. Where nothing is
    /// given, all products are those of f32.
    pub unit: Option<MatrixUnit>,
    /// Which tensors are given and wanted as bf16. The algorithm is none that does not take them,
    /// and else the one that it is without them: who can choose asks with none first, and then
    /// which ones could be ([`Convolution::bf16_tensors`]).
    pub bf16: Bf16Tensors,
    /// Whether an image's bits must not depend on how many lie beside it: what is fastest for one
    /// image computes them all.
    pub batch_invariant: bool,
    /// The layouts that the caller can give and take.
    pub layouts: &'a [ConvLayout],
}

impl<'a> Request<'a> {
    /// With nothing beside the convolution, the best instruction set, one thread, and plain
    /// tensors.
    pub fn plain(problem: ConvProblem) -> Self {
        Self {
            problem,
            post_ops: PostOps::default(),
            isa: Isa::best(),
            threads: 1,
            save_memory: false,
            winograd: true,
            unit: None,
            bf16: Bf16Tensors::NONE,
            batch_invariant: false,
            layouts: &[ConvLayout::Plain],
        }
    }

    /// Every algorithm that computes this, in the order of [`ALGORITHMS`].
    pub fn candidates(&self) -> impl Iterator<Item = Convolution> {
        self.bound().map(|(algorithm, bound)| Convolution::new(self, algorithm, bound))
    }

    /// What costs are compared for.
    fn judged(&self) -> Self {
        let images = if self.batch_invariant { 1 } else { self.problem.batch() };
        Self { problem: self.problem.of_images(images), ..*self }
    }

    fn bound(&self) -> impl Iterator<Item = (&'static Algorithm, Box<dyn BoundAlgorithm>)> {
        let of_layout = |a: &&Algorithm| self.layouts.contains(&a.layout);
        let bound = ALGORITHMS.iter().filter(of_layout).filter_map(|a| Some((a, (a.bind)(self)?)));
        bound.filter(|(_, bound)| self.bf16.are_among(bound.bf16_tensors()))
    }
}

/// The algorithm for a request: of the first layout that any algorithm computes it in, the one that
/// costs least.
///
/// The order of layouts is [`ConvLayout::ALL`]'s, whatever the costs are: channel blocks are faster
/// for the layers around a convolution too, which its own cost does not show
/// (docs/decisions/008-layouts-and-fusion.md), and an image of few channels is read where it lies.
/// Asked with all layouts, the answer tells the layout pass what to provide; asked again with that
/// one alone, it is the same.
///
/// Algorithms round in different ways, and which costs least depends on the number of images (one
/// reads weights that many share). No algorithm looks at other images when it computes one, so
/// choosing for a single image is all that [`Request::batch_invariant`] takes.
///
/// # Errors
/// [`ConvError::NoAlgorithm`].
pub fn choose(request: &Request<'_>) -> Result<Convolution, ConvError> {
    for layout in ConvLayout::ALL {
        let one = Request { layouts: &[layout], ..*request };
        if request.layouts.contains(&layout)
            && let Some((algorithm, _)) =
                one.judged().bound().min_by(|(_, a), (_, b)| a.cycles().total_cmp(&b.cycles()))
            && let Some(best) = (algorithm.bind)(&one)
        {
            return Ok(Convolution::new(request, algorithm, best));
        }
    }
    let Request { problem, post_ops, isa, layouts, .. } = request;
    Err(ConvError::NoAlgorithm(format!("{problem:?} with {post_ops:?} in {layouts:?} for {isa}")))
}

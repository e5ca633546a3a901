//! What convolutions by matrix products share: the weights of each group are the left operand.

use crate::algorithm::{Operands, take};
use crate::choose::Request;
use crate::cost;
use crate::post_ops::{PostOps, ResidualOrder};
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::{Isa, PackKey, Par};
use plutino_products::gemm::{
    self, Bias, Gemm, Operand, Pack, PackedMatrix, Problem, Side, Size, Strided, Target,
};
use plutino_tensor::{FloatSource, SourcePart};

/// Share of the peak that these products reach, packing included.
const SHARE: f64 = 0.6;

/// Weights, packed.
#[derive(Debug)]
pub(crate) struct MatrixWeights {
    /// One left operand a group.
    pub(super) groups: Vec<PackedMatrix>,
}

impl MatrixWeights {
    /// Packs left operands of m x k, each row by row; or column by column, where they are
    /// transposed.
    pub(super) fn pack(
        target: Target,
        weight: &mut dyn FloatSource,
        (m, k): (usize, usize),
        transposed: bool,
        par: &Par,
    ) -> Result<Self, ConvError> {
        let len = (m * k).max(1);
        let mut groups = Vec::new();
        for first in (0..weight.len() / len).map(|group| group * len) {
            let Some(mut part) = SourcePart::new(weight, first..first + len) else { break };
            groups.push(match transposed {
                false => PackedMatrix::of_rows(target, &mut part, (m, k), par)?,
                true => {
                    let columns = Strided::left(part.all()?, (m, k), (1, m));
                    PackedMatrix::of(target, Side::Left, &columns, par)?
                }
            });
        }
        Ok(Self { groups })
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().map(PackedMatrix::bytes).sum()
    }
}

/// The form of [`MatrixWeights`].
pub(super) fn pack_key(form: &'static str, isa: Isa) -> PackKey {
    PackKey::f32(form, [0; 3], isa)
}

/// Estimated cycles.
pub(super) fn cycles(problem: &ConvProblem, isa: Isa) -> f64 {
    cost::by_sums(problem, isa, SHARE)
}

/// The products of a convolution that is not transposed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) problem: ConvProblem,
    post_ops: PostOps,
    target: Target,
    threads: usize,
    /// Images that are computed together.
    images: usize,
}

impl Plan {
    /// With `images` images computed together at most; none for a transposed convolution, and where
    /// channels are multiplied by factors.
    pub(super) fn new(request: &Request<'_>, images: usize) -> Option<Self> {
        let &Request { problem, post_ops, isa, threads, .. } = request;
        let images = images.clamp(1, problem.batch().max(1));
        let target = Target::this(isa);
        let threads = threads.max(1);
        (!problem.is_transposed() && !post_ops.factors).then_some(Self {
            problem,
            post_ops,
            target,
            threads,
            images,
        })
    }

    /// Images that are computed together.
    pub(super) fn images(&self) -> usize {
        self.images
    }

    pub(super) fn isa(&self) -> Isa {
        self.target.isa
    }

    pub(super) fn pack(
        &self,
        weight: &mut dyn FloatSource,
        par: &Par,
    ) -> Result<MatrixWeights, ConvError> {
        let sizes = (self.problem.group_out(), self.depth());
        MatrixWeights::pack(self.target, weight, sizes, false, par)
    }

    fn depth(&self) -> usize {
        self.problem.group_in() * self.problem.taps()
    }

    /// The matrix products of `images` images.
    fn gemm(&self, images: usize) -> Gemm {
        let size = Size {
            batch: images * self.problem.groups(),
            m: self.problem.group_out(),
            n: self.problem.out_plane(),
            k: self.depth(),
        };
        Gemm::new(self.target, self.threads, size, (true, false))
    }

    /// f32 of workspace that the products take.
    pub(super) fn scratch(&self) -> usize {
        let rest = self.problem.batch() % self.images;
        let gemm = |n: usize| if n == 0 { 0 } else { self.gemm(n).scratch(self.threads) };
        gemm(self.images).max(gemm(rest))
    }

    /// Computes some images at a time: `run` calls [`Images::run`] with what their products read.
    pub(super) fn run(
        &self,
        weights: &MatrixWeights,
        operands: Operands<'_>,
        workspace: &mut [u8],
        mut run: impl FnMut(Images<'_>, &mut [f32]),
    ) -> Result<(), ConvError> {
        let problem = &self.problem;
        let (scratch, _) = take::<f32>(workspace, self.scratch())?;
        let before = operands.residual(ResidualOrder::BeforeActivation);
        let after = operands.residual(ResidualOrder::AfterActivation);
        let bias = if operands.bias.is_empty() { Bias::None } else { Bias::Rows(operands.bias) };
        let post_ops = gemm::PostOps {
            bias,
            residual: before.map_or(gemm::Residual::None, gemm::Residual::Other),
            activation: self.post_ops.activation,
        };
        let in_image = problem.in_channels() * problem.in_plane();
        let out_image = problem.out_channels() * problem.out_plane();
        for first in (0..problem.batch()).step_by(self.images) {
            let images = self.images.min(problem.batch() - first);
            let here = first * out_image..(first + images) * out_image;
            let part = Images {
                x: &operands.x[first * in_image..(first + images) * in_image],
                y: &mut operands.y[here.clone()],
                gemm: self.gemm(images),
                all: Products { problem, weights, post_ops: post_ops.part(here) },
            };
            run(part, scratch);
        }
        for (y, residual) in operands.y.iter_mut().zip(after.unwrap_or_default()) {
            *y += residual;
        }
        Ok(())
    }
}

/// Some images whose products are computed together.
pub(super) struct Images<'a> {
    /// Their input.
    pub(super) x: &'a [f32],
    y: &'a mut [f32],
    gemm: Gemm,
    all: Products<'a>,
}

impl<'a> Images<'a> {
    /// Computes the products; `right` is the right operand of each.
    pub(super) fn run<B: Pack>(
        self,
        par: &Par,
        right: impl Fn(usize) -> B + Sync,
        scratch: &mut [f32],
    ) {
        let stride = self.all.problem.out_plane();
        self.gemm.run(par, &WithRight { all: self.all, right }, self.y, stride, scratch);
    }
}

/// Products with their right operands.
struct WithRight<'a, F> {
    all: Products<'a>,
    right: F,
}

impl<'a, B: Pack, F: Fn(usize) -> B + Sync> Problem for WithRight<'a, F> {
    type A = Strided<'a>;
    type B = B;
    fn a(&self, i: usize) -> Operand<'_, Strided<'a>> {
        self.all.weights(i)
    }
    fn b(&self, i: usize) -> Operand<'_, B> {
        Operand::Source((self.right)(i))
    }
    fn c(&self, i: usize) -> usize {
        self.all.output(i)
    }
    fn post_ops(&self, i: usize) -> gemm::PostOps<'_> {
        self.all.post_ops(i)
    }
}

/// What the products of some images share: product `i` is group `i % groups` of an image.
struct Products<'a> {
    problem: &'a ConvProblem,
    weights: &'a MatrixWeights,
    post_ops: gemm::PostOps<'a>,
}

impl Products<'_> {
    fn weights<P>(&self, i: usize) -> Operand<'_, P> {
        Operand::Packed(&self.weights.groups[i % self.problem.groups()])
    }

    fn output(&self, i: usize) -> usize {
        i * self.problem.group_out() * self.problem.out_plane()
    }

    fn post_ops(&self, i: usize) -> gemm::PostOps<'_> {
        let m = self.problem.group_out();
        let group = i % self.problem.groups();
        let bias = match self.post_ops.bias {
            Bias::Rows(bias) => Bias::Rows(&bias[group * m..(group + 1) * m]),
            other => other,
        };
        gemm::PostOps { bias, ..self.post_ops }
    }
}

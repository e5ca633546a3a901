//! How a product is cut into tasks, and the loops of one task.

use super::narrow::{Compact, Narrow, panels_of_bf16};
use super::nf4::Codes;
use super::pack::{Format, Pack, PackPanels, PackedMatrix, Side};
use super::post_ops::{Bias, Residual};
use super::problem::{Operand, Problem, Size};
use super::tile;
use super::tiles::{Element, Numbers, PanelElement, Panels, Place, Scales, Tiles};
use super::unit::{MatrixUnit, apart};
use super::words::Bf16Matrices;
use super::{Batch, Target};
use plutino_cpu::par::{Par, SharedMut, stop};
use plutino_tensor::f16;
use std::ops::Range;

/// Who packs an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// It is packed already.
    Ready,
    /// Its rows are words already, and are read where they lie.
    InPlace,
    /// All threads together, before the product.
    Shared,
    /// Each task the part that it needs.
    Private,
    /// It is packed already, of narrow floats: each task widens the part that it needs.
    Widened,
}

/// A batch of products with all decisions taken: block sizes, how the work is cut, who packs what.
#[derive(Debug, Clone, Copy)]
pub struct Gemm {
    pub(super) target: Target,
    pub(super) size: Size,
    pub(super) a: (Packing, Format),
    pub(super) b: (Packing, Format),
    /// Rows and columns of the part of C that is one task.
    pub(super) task: (usize, usize),
    /// Rows of A and columns of B that stay in L2.
    pub(super) mc: usize,
    nc: usize,
    /// Whether rows of A are read where they lie, if their elements are neighbours.
    pub(super) in_place: bool,
    /// Depth for which a shared operand is packed at a time: whole depth blocks.
    pub(super) slab: usize,
    /// What B is packed as, where it is not f32.
    narrow: Option<Compact>,
    /// What multiplies bf16, where both operands are such: the depth of `size` counts words then.
    pub(super) unit: Option<MatrixUnit>,
    /// Which matrices lie as bf16 in memory.
    pub(super) bf16: Bf16Matrices,
    /// Numbers in a row of A.
    pub(super) depth: usize,
}

impl Gemm {
    /// Plans products of this size for this number of threads; `packed` says which operands (left,
    /// right) will come as [`PackedMatrix`](super::PackedMatrix).
    ///
    /// The output is cut along its longer side, so that the operand that belongs to that side (the
    /// weights of a small image, the image under few weights) is read by one thread only.
    pub fn new(target: Target, threads: usize, size: Size, packed: (bool, bool)) -> Self {
        let a = Format::new(target, Side::Left, size.m, size.k);
        let b = Format::new(target, Side::Right, size.n, size.k);
        Self::with_formats(target, threads, size, packed, [a, b])
    }

    pub(super) fn with_formats(
        target: Target,
        threads: usize,
        size: Size,
        packed: (bool, bool),
        [a, b]: [Format; 2],
    ) -> Self {
        let Size { batch, m, n, k } = size;
        let l2_lanes = target.machine.l2 / 2 / (a.kc.max(1) * size_of::<f32>());
        let mc = (l2_lanes / a.width * a.width).max(a.width);
        let nc = (l2_lanes / b.width * b.width).max(b.width);

        let by_rows = match packed {
            (true, false) => m > batch.saturating_mul(n),
            (false, true) => batch.saturating_mul(m) > n,
            _ => m > n,
        };
        // Every task packs all that it needs, where that is never more than twice as much in all.
        let alone = threads == 1 || batch >= 2 * threads;
        let other = if alone { Packing::Private } else { Packing::Shared };
        let (pack_a, pack_b) = match packed {
            (true, true) => (Packing::Ready, Packing::Ready),
            (true, false) if by_rows => (Packing::Ready, other),
            (true, false) => (Packing::Ready, Packing::Private),
            (false, true) if by_rows => (Packing::Private, Packing::Ready),
            (false, true) => (other, Packing::Ready),
            (false, false) if by_rows => (Packing::Private, other),
            (false, false) => (other, Packing::Private),
        };
        let tasks = if alone { 1 } else { (TASKS_A_THREAD * threads).div_ceil(batch.max(1)) };
        let task = match by_rows {
            true => (cut(&a, tasks), b.padded),
            false => (a.padded, widened(&b, cut(&b, tasks), (m, threads))),
        };
        let shared_width = [(pack_a, a), (pack_b, b)]
            .iter()
            .filter(|(p, _)| *p == Packing::Shared)
            .map(|(_, f)| f.padded)
            .sum::<usize>()
            .saturating_mul(batch);
        let budget = SHARED_BYTES.max(target.machine.l3 / 4) / size_of::<f32>();
        let slab = (budget / shared_width.max(1) / a.kc.max(1)).max(1).saturating_mul(a.kc);
        // Panels keep together what one depth block needs, which whole rows do anyway; and they are
        // read once for each panel of B, which has to pay for writing them. Rows of nothing need
        // lie nowhere.
        let in_place = k > 0 && (k <= a.kc || b.padded / b.width <= FEW_PANELS);
        let (a, b, slab) = ((pack_a, a), (pack_b, b), slab.min(k));
        Self {
            target,
            size,
            a,
            b,
            task,
            mc,
            nc,
            in_place,
            slab,
            narrow: None,
            unit: None,
            bf16: Bf16Matrices::NONE,
            depth: k,
        }
    }

    /// As [`Gemm::new`] with a right operand that comes packed as narrow floats
    /// ([`LinearProduct::plan_narrow`](super::LinearProduct::plan_narrow)). A product of few rows
    /// widens them in registers, and reads its rows where they lie, which the left operand must
    /// allow ([`Pack::lanes`]); any other widens a block at a time.
    pub fn narrow(target: Target, threads: usize, size: Size, narrow: Compact) -> Self {
        let mut gemm = Self::new(target, threads, size, (false, true));
        gemm.narrow = Some(narrow);
        gemm.b.1 = gemm.b.1.of_narrow(narrow);
        if size.m <= tile::FEW {
            gemm.in_place = true;
        } else {
            gemm.b.0 = Packing::Widened;
        }
        gemm
    }

    /// What multiplies bf16, where operands are such.
    pub fn unit(&self) -> Option<MatrixUnit> {
        self.unit
    }

    /// Whether tiles read narrow panels.
    fn reads_narrow(&self) -> bool {
        self.narrow.is_some() && self.b.0 == Packing::Ready
    }

    /// The rows of A where they lie, if they are read there.
    ///
    /// # Panics
    /// Where they are not all there.
    fn rows_in_place<P: Pack>(&self, operand: &Operand<'_, P>) -> Option<tile::Rows> {
        let Operand::Source(source) = operand else { return None };
        let Size { m, k, .. } = self.size;
        let lanes = source.lanes().filter(|_| self.in_place);
        let (data, stride) = lanes.filter(|&(_, stride)| !self.target.crowds(m, stride))?;
        let end = (m - 1).checked_mul(stride).and_then(|start| start.checked_add(k));
        assert!(end.is_some_and(|end| end <= data.len()), "left operand too short");
        Some(tile::Rows { first: data.as_ptr(), stride })
    }

    /// The sizes.
    pub fn size(&self) -> Size {
        Size { k: self.depth, ..self.size }
    }

    /// Elements of a packed lane: numbers, or pairs of them.
    pub(super) fn terms(&self) -> usize {
        self.size.k
    }

    /// The target that operands are packed for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// f32 elements of scratch memory that [`Gemm::run`] needs on `threads` threads.
    pub fn scratch(&self, threads: usize) -> usize {
        let shared = self.shared(self.a).saturating_add(self.shared(self.b));
        self.private().saturating_mul(threads).saturating_add(shared)
    }

    /// Elements of one operand's shared memory.
    fn shared(&self, (packing, format): (Packing, Format)) -> usize {
        match (packing, self.unit) {
            (Packing::Shared, Some(_)) => {
                let rows = self.size.m.saturating_mul(apart(self.slab));
                rows.saturating_mul(self.size.batch)
            }
            (Packing::Shared, None) => {
                line(format.padded.saturating_mul(self.slab)).saturating_mul(self.size.batch)
            }
            _ => 0,
        }
    }

    /// Elements of one thread's own memory.
    fn private(&self) -> usize {
        let parts = [self.private_a(), self.private_b(), self.sums()];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Elements of one thread's block of A.
    fn private_a(&self) -> usize {
        let rows = self.mc.min(self.task.0);
        match (self.a.0, self.unit) {
            (Packing::Private, Some(_)) => rows.saturating_mul(apart(self.depth_of_rows())),
            (Packing::Private, None) => line(rows * self.a.1.kc),
            _ => 0,
        }
    }

    /// Elements of one thread's block of B.
    fn private_b(&self) -> usize {
        match (self.b.0, self.unit) {
            (Packing::Private | Packing::Widened, _) => {
                line(self.nc.min(self.task.1) * self.b.1.kc)
            }
            (_, Some(unit)) => unit.scratch(self.target.isa, self.b.1.kc),
            _ => 0,
        }
    }

    /// As [`Gemm::run`], for matrices that lie in memory. This one is compiled here, once.
    ///
    /// # Panics
    /// As [`Gemm::run`].
    pub fn run_batch(
        &self,
        par: &Par,
        batch: &Batch<'_>,
        c: &mut [f32],
        stride: usize,
        scratch: &mut [f32],
    ) {
        self.run(par, batch, c, stride, scratch);
    }

    /// Computes all products into `c`, rows `stride` elements apart.
    ///
    /// # Panics
    /// Where memory is too short: `c`, `scratch` (see [`Gemm::scratch`]), a bias or a residual; or
    /// where an operand was packed for another size, side or target.
    pub fn run<P: Problem>(
        &self,
        par: &Par,
        problem: &P,
        c: &mut [f32],
        stride: usize,
        scratch: &mut [f32],
    ) {
        let Size { batch, m, n, k } = self.size;
        if batch == 0 || m == 0 || n == 0 {
            return;
        }
        let threads = par.threads();
        assert!(scratch.len() >= self.scratch(threads), "too little scratch memory");
        for i in 0..batch {
            self.check(problem, i, c.len(), stride);
        }
        let c = SharedMut::new(c);
        let (shared_a, rest) = scratch.split_at_mut(self.shared(self.a));
        let (shared_b, rest) = rest.split_at_mut(self.shared(self.b));
        let private = self.private();
        let rest = SharedMut::new(rest);

        let grid = (m.div_ceil(self.task.0), n.div_ceil(self.task.1));
        let mut k0 = 0;
        loop {
            let slab = k0..(k0 + self.slab).min(k);
            if let Some(unit) = self.unit {
                self.share_rows(unit, problem, &slab, shared_a, par);
            } else if self.rows_in_place(&problem.a(0)).is_none() {
                self.share(self.a, &|i| problem.a(i), &slab, shared_a, par);
            }
            self.share(self.b, &|i| problem.b(i), &slab, shared_b, par);
            let (shared_a, shared_b) = (&*shared_a, &*shared_b);
            par.run_as(batch * grid.0 * grid.1, |worker, task| {
                let (i, task) = (task / (grid.0 * grid.1), task % (grid.0 * grid.1));
                let (row, col) = (task % grid.0 * self.task.0, task / grid.0 * self.task.1);
                // SAFETY: no two tasks run under one worker's number at a time.
                let mine = unsafe { rest.slice(worker * private..(worker + 1) * private) };
                let (a, rest) = mine.split_at_mut(self.private_a());
                let (b, sums) = rest.split_at_mut(self.private_b());
                let block = Block {
                    gemm: self,
                    problem,
                    i,
                    rows: row..(row + self.task.0).min(m),
                    cols: col..(col + self.task.1).min(n),
                    slab: slab.clone(),
                    shared: (shared_a, shared_b),
                    c: &c,
                    stride,
                };
                match self.unit {
                    Some(unit) => block.run_on_unit(unit, a, b, sums),
                    None => block.run(a, b),
                }
            });
            k0 = slab.end;
            if k0 >= k || stop::stopped() {
                return;
            }
        }
    }

    /// Asserts all that the unsafe code of a block relies on.
    fn check<P: Problem>(&self, problem: &P, i: usize, len: usize, stride: usize) {
        let Size { m, n, k, .. } = self.size;
        let width = if self.bf16.y { n / 2 } else { n };
        let end = (m - 1)
            .checked_mul(stride)
            .and_then(|x| x.checked_add(problem.c(i)))
            .and_then(|x| x.checked_add(width));
        assert!(stride >= width && end.is_some_and(|end| end <= len), "output too short");
        let end = end.unwrap_or(usize::MAX);
        let post_ops = problem.post_ops(i);
        let alone = matches!(post_ops.residual, Residual::None);
        assert!(alone || !self.bf16.y, "nothing is added to bf16");
        match post_ops.bias {
            Bias::None => {}
            Bias::Rows(bias) => assert!(bias.len() >= m, "bias too short"),
            Bias::Cols(bias) => assert!(bias.len() >= n, "bias too short"),
        }
        if let Residual::Other(other) = post_ops.residual {
            assert!(other.len() >= end, "residual too short");
        }
        let target = self.target;
        let in_place = !self.reads_narrow() || self.rows_in_place(&problem.a(i)).is_some();
        assert!(in_place, "few rows times a narrow matrix must lie as they are read");
        let rows = match problem.a(i) {
            Operand::Source(source) if self.unit.is_some() => {
                source.lanes().is_some_and(|(data, stride)| {
                    let end = (m - 1).checked_mul(stride);
                    end.and_then(|end| end.checked_add(self.row_len()))
                        .is_some_and(|end| end <= data.len())
                })
            }
            _ => self.unit.is_none(),
        };
        assert!(rows, "rows that become words must lie somewhere");
        if self.a.0 == Packing::InPlace {
            let there = self.in_words(&problem.a(i)).is_some();
            assert!(there && self.unit.is_some(), "rows of words must follow each other");
        }
        match (self.a.0, problem.a(i)) {
            (Packing::Ready, Operand::Packed(a)) => {
                assert!(
                    a.matches(target, Side::Left, m, k),
                    "left operand packed for another size"
                );
            }
            (Packing::Ready, Operand::Source(_)) | (_, Operand::Packed(_)) => {
                unreachable!("left operand packed or not, against the plan")
            }
            _ => {}
        }
        match (self.b.0, problem.b(i)) {
            (Packing::Ready | Packing::Widened, Operand::Packed(b)) => {
                assert!(
                    b.matches(target, Side::Right, n, k)
                        && b.is_narrow() == self.narrow
                        && b.unit() == self.unit,
                    "right operand packed for another size"
                );
            }
            (Packing::Ready | Packing::Widened, Operand::Source(_)) | (_, Operand::Packed(_)) => {
                unreachable!("right operand packed or not, against the plan")
            }
            _ => {}
        }
    }

    /// Packs one slab of a shared operand of all products.
    fn share<'p, P: Pack>(
        &self,
        (packing, format): (Packing, Format),
        operand: &dyn Fn(usize) -> Operand<'p, P>,
        slab: &Range<usize>,
        out: &mut [f32],
        par: &Par,
    ) {
        if packing != Packing::Shared {
            return;
        }
        let part = out.len() / self.size.batch;
        for (i, out) in out.chunks_exact_mut(part.max(1)).enumerate() {
            if let Operand::Source(source) = operand(i) {
                let len = slab.len() * format.padded;
                format.pack_all(self.target, &source, slab.clone(), &mut out[..len], par);
            }
        }
    }
}

/// Panels of B for which it does not pay to pack rows of A that are longer than a depth block.
/// (Rows of 3072 with 48 panels: 5 to 10 % slower in place; of 1536 with 24: 4 % faster.)
const FEW_PANELS: usize = 24;
/// Tasks for each thread: a thread that is held up leaves its share to the others.
const TASKS_A_THREAD: usize = 4;
/// Multiply-adds between two looks whether the work is to end: below a millisecond.
const LOOK: usize = 4 << 20;
/// Memory for shared operands where the third level cache is small or unknown.
const SHARED_BYTES: usize = 4 << 20;

/// Elements rounded up to a cache line.
fn line(elements: usize) -> usize {
    elements.div_ceil(16).saturating_mul(16)
}

/// Lanes of one of about `tasks` equal parts, in whole panels.
fn cut(format: &Format, tasks: usize) -> usize {
    let panels = format.padded / format.width;
    panels.div_ceil(tasks.min(panels).max(1)).max(1) * format.width
}

/// Lanes of one of several parts that are `lanes` wide, or wider: so that few rows take several
/// panels at once everywhere ([`tile::wide_panels`]), where no thread then has more than an eighth
/// more to do than its share.
///
/// *Measured* (2026-11-27, Zen 4, two threads, weights from memory): one row of 2048 times 768
/// columns, in parts of four panels instead of three, 0.91 times as long; of 768 times 256, 0.90.
/// Eight parts for each thread instead of four: no faster.
fn widened(format: &Format, lanes: usize, (rows, threads): (usize, usize)) -> usize {
    let panels = format.padded / format.width;
    let wide = (lanes / format.width).max(1).next_multiple_of(tile::wide_panels(rows));
    let most = panels.div_ceil(wide).div_ceil(threads.max(1)).saturating_mul(wide);
    let share = panels.saturating_add(panels / 8);
    if most.saturating_mul(threads) <= share { wide * format.width } else { lanes }
}

/// One task: a part of C of one product, for one slab of depths.
pub(super) struct Block<'a, P> {
    pub(super) gemm: &'a Gemm,
    pub(super) problem: &'a P,
    pub(super) i: usize,
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    pub(super) slab: Range<usize>,
    pub(super) shared: (&'a [f32], &'a [f32]),
    pub(super) c: &'a SharedMut<'a, f32>,
    pub(super) stride: usize,
}

impl<P: Problem> Block<'_, P> {
    /// The three outer loops. The private memory is that of the worker who runs the task.
    fn run(&self, private_a: &mut [f32], private_b: &mut [f32]) {
        let gemm = self.gemm;
        let isa = gemm.target.isa;
        let (pack_a, format_a) = gemm.a;
        let (pack_b, format_b) = gemm.b;
        let (mr, nr) = (format_a.width, format_b.width);
        // What is packed already need not stay in L2 as a whole: its panels pass once for each
        // block of the other operand.
        let nc = match pack_b {
            Packing::Private | Packing::Widened => gemm.nc,
            Packing::Ready | Packing::InPlace | Packing::Shared => self.cols.len().max(1),
        };
        let mc = gemm.mc;
        let (shared_a, shared_b) = self.shared;

        let mut k0 = self.slab.start;
        loop {
            let ks = k0..(k0 + format_a.kc).min(self.slab.end);
            for jc in self.cols.clone().step_by(nc) {
                if stop::stopped() {
                    return;
                }
                let cols = jc..(jc + nc).min(self.cols.end);
                let operand = self.problem.b(self.i);
                let b = match (pack_b, &operand) {
                    (Packing::Private, Operand::Source(source)) => {
                        isa.run(PackPanels {
                            source,
                            lanes: cols.clone(),
                            depth: ks.clone(),
                            width: nr,
                            out: private_b,
                        });
                        Panels::new(private_b, (jc, 0), ks.len())
                    }
                    (Packing::Widened, Operand::Packed(matrix)) => {
                        let scales = matrix.widen(&format_b, cols.clone(), &ks, private_b);
                        Panels { scales, ..Panels::new(private_b, (jc, 0), ks.len()) }
                    }
                    (Packing::Ready, Operand::Packed(matrix)) if gemm.reads_narrow() => {
                        self.few(matrix, cols, &ks);
                        continue;
                    }
                    (_, operand) => self.panels(format_b, operand, shared_b, &ks),
                };
                for ic in self.rows.clone().step_by(mc) {
                    let rows = ic..(ic + mc).min(self.rows.end);
                    let operand = self.problem.a(self.i);
                    if let Some(a) = gemm.rows_in_place(&operand) {
                        let a = tile::Rows { first: a.first.wrapping_add(ks.start), ..a };
                        self.tiles(a, b, rows, cols.clone(), &ks);
                        continue;
                    }
                    let a = match (pack_a, &operand) {
                        (Packing::Private, Operand::Source(source)) => {
                            isa.run(PackPanels {
                                source,
                                lanes: rows.clone(),
                                depth: ks.clone(),
                                width: mr,
                                out: private_a,
                            });
                            Panels::new(private_a, (ic, 0), ks.len())
                        }
                        (_, operand) => self.panels(format_a, operand, shared_a, &ks),
                    };
                    self.tiles(a, b, rows, cols.clone(), &ks);
                }
            }
            k0 = ks.end;
            if k0 >= self.slab.end {
                return;
            }
        }
    }

    /// A block of A times a block of B.
    fn tiles<A: Numbers>(
        &self,
        a: A,
        b: Panels<'_>,
        rows: Range<usize>,
        cols: Range<usize>,
        ks: &Range<usize>,
    ) {
        let isa = self.gemm.target.isa;
        self.parts((a, b), rows, cols, ks, self.place(), &mut |tiles| A::run(tiles, isa));
    }

    /// Few rows of A, where they lie, times narrow panels.
    fn few(&self, matrix: &PackedMatrix, cols: Range<usize>, ks: &Range<usize>) {
        let scales = matrix.scales(&self.gemm.b.1, ks.start);
        match self.gemm.narrow {
            Some(Compact::Float(Narrow::Bf16)) => {
                self.few_of(panels_of_bf16(matrix.as_slice_of()), scales, cols, ks);
            }
            Some(Compact::Float(Narrow::F16)) => {
                self.few_of(matrix.as_slice_of::<f16>(), scales, cols, ks);
            }
            Some(Compact::Int8) => self.few_of(matrix.as_slice_of::<i8>(), scales, cols, ks),
            Some(Compact::Nf4) => self.few_of(matrix.as_slice_of::<Codes>(), scales, cols, ks),
            None => {}
        }
    }

    fn few_of<E: Element>(
        &self,
        data: &[E],
        scales: Scales<'_>,
        cols: Range<usize>,
        ks: &Range<usize>,
    ) {
        // They lie so: asserted by `check`.
        let Some(rows) = self.gemm.rows_in_place(&self.problem.a(self.i)) else { return };
        let a = tile::Rows { first: rows.first.wrapping_add(ks.start), ..rows };
        let offset = self.gemm.b.1.offset(0, ks.start, 0);
        let b = Panels { scales, ..Panels::new(data, (0, offset), ks.len()) };
        let (isa, rows) = (self.gemm.target.isa, self.rows.clone());
        self.parts((a, b), rows, cols, ks, self.place(), &mut |tiles| E::run(tiles, isa));
    }

    /// Where C is.
    pub(super) fn place(&self) -> Place<'_> {
        let first = self.problem.c(self.i);
        Place { c: self.c, first, origin: [0; 2], stride: self.stride, bf16: None }
    }

    /// A block of A times a block of B, a part of it at a time: whether the work is to end is
    /// asked between.
    pub(super) fn parts<'b, A: Copy, E: PanelElement>(
        &'b self,
        (a, b): (A, Panels<'b, E>),
        rows: Range<usize>,
        cols: Range<usize>,
        ks: &Range<usize>,
        place: Place<'b>,
        run: &mut dyn FnMut(Tiles<'b, A, E>),
    ) {
        let gemm = self.gemm;
        let nr = gemm.b.1.width;
        // Whole panels, several of them where few rows take them at once.
        let part = (LOOK / (rows.len() * ks.len()).max(1)).max(1).next_multiple_of(4 * nr);
        for cols in stop::parts(cols, part) {
            let tiles = Tiles {
                a,
                b,
                mr: gemm.a.1.width,
                nr,
                rows: rows.clone(),
                cols,
                depth: ks.len(),
                first: ks.start == 0,
                last: ks.end == gemm.size.k,
                post_ops: self.problem.post_ops(self.i),
                place,
            };
            run(tiles);
        }
    }
}

impl<P> Block<'_, P> {
    /// The panels of an operand that is packed as a whole.
    fn panels<'p, Q>(
        &self,
        format: Format,
        operand: &Operand<'p, Q>,
        shared: &'p [f32],
        ks: &Range<usize>,
    ) -> Panels<'p> {
        let (data, k0) = match operand {
            Operand::Packed(matrix) => (matrix.as_slice(), 0),
            Operand::Source(_) => {
                let part = shared.len() / self.gemm.size.batch;
                (&shared[self.i * part..(self.i + 1) * part], self.slab.start)
            }
        };
        Panels::new(data, (0, (ks.start - k0) * format.padded), ks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_cpu::Isa;

    #[test]
    fn parts_of_few_rows() {
        let lanes = |panels: usize, each: usize, rows: usize, threads: usize| {
            let target = Target::this(Isa::best());
            let width = Format::new(target, Side::Right, 1, 1).width;
            let format = Format::new(target, Side::Right, panels * width, 1);
            widened(&format, each * width, (rows, threads)) / width
        };
        assert_eq!(lanes(24, 3, 1, 2), 4);
        assert_eq!(lanes(8, 1, 1, 2), 4);
        assert_eq!(lanes(24, 3, 2, 2), 4);
        // One of two threads would have 8 of 12.
        assert_eq!(lanes(12, 2, 1, 2), 2);
        // One of four would have all.
        assert_eq!(lanes(4, 1, 1, 4), 1);
        // More rows take one panel at a time.
        assert_eq!(lanes(24, 3, 4, 2), 3);
        assert_eq!(lanes(0, 1, 1, 2), 4);
    }
}

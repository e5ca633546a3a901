//! Packing: a matrix cut into panels that the register tile reads from front to back.
//!
//! Both operands are seen as `extent` lanes (rows of A, columns of B) of `depth` elements (the
//! summed dimension K). A panel holds `width` lanes; inside it the lanes of one k lie side by side:
//!
//! ```text
//!            width            panels of one depth block lie one after the other,
//!         +---------+         depth blocks follow each other:
//!    k    | 0 1 2 3 |           [block 0: panel 0, panel 1, ...][block 1: panel 0, ...]
//!    |    | 4 5 6 7 |         so that a product that visits block by block reads memory
//!    v    | 8 ...   |         in one direction. Lanes past the extent are zero.
//! ```

use super::tiles::Scales;
use super::{Compact, GemmError, MatrixUnit, Target};
use bytemuck::Pod;
use plutino_cpu::par::stop;
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_cpu::{PackKey, Par, par::SharedMut};
use plutino_tensor::{AlignedBuf, FloatSource, Floats, TensorError, alloc};
use std::ops::Range;

/// A source of panels.
pub trait Pack: Sync {
    /// Writes the panel of lanes `lane .. lane + width` for the given depths:
    /// `out[(k - depth.start) * width + i] = source(lane + i, k)`, 0 for lanes that do not exist.
    /// `out` is exactly that long.
    fn pack<S: Simd>(&self, s: S, lane: usize, depth: Range<usize>, width: usize, out: &mut [f32]);

    /// The lanes where they lie, if each is a run of memory that needs no change: from the first
    /// lane on, and the elements from one to the next. A product may then read rows of A without
    /// packing them.
    fn lanes(&self) -> Option<(Floats<'_>, usize)> {
        None
    }
}

/// A matrix in memory with any strides: a tensor's, or a weight where it lies in its file.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    data: Floats<'a>,
    extent: usize,
    depth: usize,
    lane_stride: usize,
    depth_stride: usize,
    scale: f32,
}

impl<'a> Strided<'a> {
    /// The left operand: `rows x depth`, element (i, k) at `i * row_stride + k * col_stride`.
    ///
    /// # Panics
    /// Where an element would lie outside `data`.
    pub fn left(
        data: impl Into<Floats<'a>>,
        (rows, depth): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> Self {
        let data = data.into();
        if rows > 0 && depth > 0 {
            let last = (rows - 1)
                .checked_mul(row_stride)
                .zip((depth - 1).checked_mul(col_stride))
                .and_then(|(i, k)| i.checked_add(k));
            assert!(last.is_some_and(|last| last < data.len()), "matrix outside its memory");
        }
        Self {
            data,
            extent: rows,
            depth,
            lane_stride: row_stride,
            depth_stride: col_stride,
            scale: 1.0,
        }
    }

    /// The right operand: `depth x cols`, element (k, j) at `k * row_stride + j * col_stride`.
    ///
    /// # Panics
    /// Where an element would lie outside `data`.
    pub fn right(
        data: impl Into<Floats<'a>>,
        (depth, cols): (usize, usize),
        (row_stride, col_stride): (usize, usize),
    ) -> Self {
        Self::left(data, (cols, depth), (col_stride, row_stride))
    }

    /// The same matrix times a number.
    #[must_use]
    pub fn scaled(self, factor: f32) -> Self {
        Self { scale: self.scale * factor, ..self }
    }
}

impl Strided<'_> {
    /// Where the lanes of each depth lie one after the other and need no change: the first, and the
    /// elements from one depth to the next.
    pub(super) fn dense_depths(&self) -> Option<(Floats<'_>, usize)> {
        let plain = self.lane_stride == 1 && self.scale == 1.0;
        plain.then_some((self.data, self.depth_stride))
    }

    /// Packs all lanes over the whole depth: panels of `width` lanes, one after the other.
    pub fn pack_panels(&self, isa: Isa, width: usize, out: &mut [f32]) {
        let (lanes, depth) = (0..self.extent, 0..self.depth);
        isa.run(PackPanels { source: self, lanes, depth, width, out });
    }
}

/// Packs some lanes of a source: panels of `width` lanes, one after the other.
pub(crate) struct PackPanels<'a, P> {
    pub(crate) source: &'a P,
    pub(crate) lanes: Range<usize>,
    pub(crate) depth: Range<usize>,
    pub(crate) width: usize,
    pub(crate) out: &'a mut [f32],
}

impl<P: Pack> Vectorized for PackPanels<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { source, lanes, depth, width, out } = self;
        let panel = (depth.len() * width).max(1);
        for (lane, out) in lanes.step_by(width).zip(out.chunks_exact_mut(panel)) {
            source.pack(s, lane, depth.clone(), width, out);
        }
    }
}

impl Pack for Strided<'_> {
    #[inline(always)]
    fn pack<S: Simd>(&self, s: S, lane: usize, depth: Range<usize>, width: usize, out: &mut [f32]) {
        assert!(depth.end <= self.depth && out.len() >= depth.len() * width);
        let lanes = self.extent.saturating_sub(lane).min(width);
        if lanes < width {
            out[..depth.len() * width].fill(0.0);
        }
        if lanes == 0 {
            return;
        }
        if self.lane_stride == 1 {
            // A row that is narrower than a vector is written as a vector: what lies behind it is
            // overwritten by the next row. The last ones have no room for that.
            let mut done = 0;
            if lanes == width && width < S::LANES {
                let factor = s.splat(self.scale);
                for k in depth.clone() {
                    let from = k * self.depth_stride + lane;
                    match out.get_mut(done * width..) {
                        Some(y) if y.len() >= S::LANES && from + S::LANES <= self.data.len() => {
                            s.store(s.mul(load(s, self.data, from), factor), y);
                        }
                        _ => break,
                    }
                    done += 1;
                }
            }
            for (k, row) in depth.zip(out.chunks_exact_mut(width)).skip(done) {
                let start = k * self.depth_stride + lane;
                copy_scaled(s, self.data.part(start..start + lanes), &mut row[..lanes], self.scale);
            }
        } else {
            self.transpose(s, lane..lane + lanes, depth, width, out);
        }
    }

    fn lanes(&self) -> Option<(Floats<'_>, usize)> {
        let plain = self.depth_stride == 1 && self.scale == 1.0;
        plain.then_some((self.data, self.lane_stride))
    }
}

impl Strided<'_> {
    /// Neighbouring depths are neighbours in memory, and are transposed eight by eight; or nothing
    /// is.
    #[inline(always)]
    fn transpose<S: Simd>(
        &self,
        s: S,
        lanes: Range<usize>,
        depth: Range<usize>,
        width: usize,
        out: &mut [f32],
    ) {
        let first = lanes.start * self.lane_stride + depth.start * self.depth_stride;
        let (lanes, depth) = (lanes.len(), depth.len());
        let whole = if self.depth_stride == 1 { depth - depth % 8 } else { 0 };
        for k in (0..whole).step_by(8) {
            let mut i = 0;
            while i < lanes {
                // The last block of many overlaps the one before.
                i = i.min(lanes.saturating_sub(8));
                let rows = (lanes - i).min(8);
                let start = first + i * self.lane_stride + k;
                let src = self.data.part(start..start + (rows - 1) * self.lane_stride + 8);
                let dst = &mut out[k * width + i..];
                if dst.len() >= 7 * width + 8 {
                    // What is written behind a row of fewer than eight is overwritten by the next
                    // one. SAFETY: both are long enough (just checked).
                    unsafe {
                        s.transpose_8(
                            rows,
                            src.as_ptr(),
                            self.lane_stride,
                            dst.as_mut_ptr(),
                            width,
                        );
                    }
                } else {
                    let mut block = [0.0; 64];
                    // SAFETY: as above; the block holds 7 * 8 + 8.
                    unsafe {
                        s.transpose_8(rows, src.as_ptr(), self.lane_stride, block.as_mut_ptr(), 8);
                    }
                    for (kk, row) in block.chunks_exact(8).enumerate() {
                        dst[kk * width..][..rows].copy_from_slice(&row[..rows]);
                    }
                }
                i += rows;
            }
        }
        for i in 0..lanes {
            for k in whole..depth {
                out[k * width + i] =
                    self.data.get(first + i * self.lane_stride + k * self.depth_stride);
            }
        }
        if self.scale != 1.0 {
            let factor = s.splat(self.scale);
            let mut vectors = out[..depth * width].chunks_exact_mut(S::LANES);
            for x in &mut vectors {
                s.store(s.mul(s.load(x), factor), x);
            }
            for x in vectors.into_remainder() {
                *x *= self.scale;
            }
        }
    }
}

#[inline(always)]
fn copy_scaled<S: Simd>(s: S, from: Floats<'_>, to: &mut [f32], scale: f32) {
    let factor = s.splat(scale);
    let mut at = 0;
    let mut vectors = to.chunks_exact_mut(S::LANES);
    for y in &mut vectors {
        s.store(s.mul(load(s, from, at), factor), y);
        at += S::LANES;
    }
    for (i, y) in vectors.into_remainder().iter_mut().enumerate() {
        *y = from.get(at + i) * scale;
    }
}

/// The vector that starts at value `at`.
#[inline(always)]
pub(super) fn load<S: Simd>(s: S, from: Floats<'_>, at: usize) -> S::F32 {
    let vector = from.part(at..at + S::LANES);
    // SAFETY: as many values as a vector has; loads need no alignment.
    unsafe { s.load_ptr(vector.as_ptr()) }
}

/// Which side of the product a matrix stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// A, M x K: lanes are rows.
    Left,
    /// B, K x N: lanes are columns.
    Right,
}

/// A matrix packed once, for one side of any number of products on one [`Target`].
#[derive(Debug)]
pub struct PackedMatrix {
    buf: AlignedBuf,
    /// As many for each lane of each depth block as elements have ([`Compact::groups`]).
    scales: Vec<f32>,
    side: Side,
    target: Target,
    extent: usize,
    depth: usize,
    /// `depth` counts words, where they are such.
    elements: Elements,
}

impl PackedMatrix {
    /// Packs `extent` lanes of `depth` elements.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] where the system refuses.
    pub fn new<P: Pack>(
        target: Target,
        side: Side,
        source: &P,
        extent: usize,
        depth: usize,
        par: &Par,
    ) -> Result<Self, TensorError> {
        let mut packing = Packing::new(target, side, (extent, depth), Elements::F32)?;
        packing.lanes(source, 0..extent, par);
        Ok(packing.matrix)
    }

    /// Packs a right operand for a unit, as words or what becomes words: a panel at a time, on this
    /// thread.
    ///
    /// # Errors
    /// As [`PackedMatrix::new`].
    pub fn of_unit<P: Pack>(
        target: Target,
        source: &P,
        sizes: (usize, usize),
        unit: MatrixUnit,
    ) -> Result<Self, TensorError> {
        let mut packing = Packing::new(target, Side::Right, sizes, Elements::Unit(unit))?;
        packing.lanes(source, 0..sizes.0, &Par::serial());
        Ok(packing.matrix)
    }

    /// Packs `extent` lanes of `depth` numbers, whose neighbours in a lane and between lanes lie
    /// `strides` apart: some at a time, where lanes lie one after the other. Narrow numbers, and
    /// those of a unit, are packed on this thread.
    ///
    /// # Errors
    /// [`GemmError::Length`], those of the source, [`GemmError::Memory`]; [`GemmError::Range`]
    /// where a finite number would become infinite.
    pub(super) fn from_source(
        (target, side): (Target, Side),
        source: &mut dyn FloatSource,
        (extent, depth): (usize, usize),
        strides: (usize, usize),
        elements: Elements,
        par: &Par,
    ) -> Result<Self, GemmError> {
        check_matrix(source.len(), (depth, extent), strides)?;
        let mut packing = Packing::new(target, side, (extent, depth), elements)?;
        let width = packing.format.width;
        let in_rows = strides == (1, depth) && depth > 0;
        let at_a_time = match in_rows {
            true => (source.at_a_time() / depth / width).max(1).saturating_mul(width),
            false => usize::MAX,
        };
        let mut first = 0;
        while first < extent && !stop::stopped() {
            let lanes = first..extent.min(first.saturating_add(at_a_time));
            let part = match in_rows {
                true => source.part(lanes.start * depth..lanes.end * depth)?,
                false => source.all()?,
            };
            let part = Strided::left(part, (lanes.len(), depth), (strides.1, strides.0));
            if let Some(value) = packing.lanes(&part, lanes.clone(), par) {
                return Err(GemmError::Range { value });
            }
            first = lanes.end;
        }
        Ok(packing.matrix)
    }

    /// What decides the form, whatever the matrix's size.
    pub fn key(side: Side, isa: Isa) -> PackKey {
        let form = match side {
            Side::Left => "matrix.left",
            Side::Right => "matrix.right",
        };
        PackKey::f32(form, [0; 3], isa)
    }

    /// Packs a matrix in memory.
    ///
    /// # Errors
    /// As [`PackedMatrix::new`].
    pub fn of(
        target: Target,
        side: Side,
        source: &Strided<'_>,
        par: &Par,
    ) -> Result<Self, TensorError> {
        Self::new(target, side, source, source.extent, source.depth, par)
    }

    /// Packs a left operand of which `extent` rows of `depth` numbers lie one after the other, some
    /// at a time.
    ///
    /// # Errors
    /// [`GemmError::Length`], those of the source, [`GemmError::Memory`].
    pub fn of_rows(
        target: Target,
        source: &mut dyn FloatSource,
        (extent, depth): (usize, usize),
        par: &Par,
    ) -> Result<Self, GemmError> {
        let (on, strides) = ((target, Side::Left), (1, depth));
        Self::from_source(on, source, (extent, depth), strides, Elements::F32, par)
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.buf.len().saturating_add(size_of_val(&self.scales[..]))
    }

    /// The scales of the depth block that starts at `k`, where elements have such.
    pub(super) fn scales(&self, format: &Format, k: usize) -> Scales<'_> {
        let all = format.scale(0, k)..format.scale(format.padded, k);
        Scales { all: self.scales.get(all).unwrap_or_default(), groups: format.groups }
    }

    pub(super) fn matches(&self, target: Target, side: Side, extent: usize, depth: usize) -> bool {
        (self.target, self.side, self.extent, self.depth) == (target, side, extent, depth)
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        self.as_slice_of()
    }

    pub(super) fn as_slice_of<E: Pod>(&self) -> &[E] {
        bytemuck::cast_slice(self.buf.as_bytes())
    }

    /// What multiplies its elements, if they are words of bf16.
    pub(super) fn unit(&self) -> Option<MatrixUnit> {
        match self.elements {
            Elements::Unit(unit) => Some(unit),
            _ => None,
        }
    }

    /// What its elements are, if not f32.
    pub fn is_narrow(&self) -> Option<Compact> {
        match self.elements {
            Elements::Narrow(narrow) => Some(narrow),
            _ => None,
        }
    }

    /// Widens the panels of some lanes of a depth block of a narrow matrix. What their sums are
    /// multiplied with then.
    pub(super) fn widen(
        &self,
        format: &Format,
        lanes: Range<usize>,
        ks: &Range<usize>,
        to: &mut [f32],
    ) -> Scales<'_> {
        let Some(narrow) = self.is_narrow() else { return Scales::default() };
        let first = format.offset(lanes.start, ks.start, 0);
        let padded = lanes.len().next_multiple_of(format.width);
        let elements = first..first + padded * ks.len();
        let scales = self.scales(format, ks.start);
        let own = scales.of(lanes.start..lanes.start + padded).unwrap_or_default();
        narrow.read(self.target.isa, self.buf.as_bytes(), elements, (ks.len(), own), to);
        if narrow.scales_sums() { scales } else { Scales::default() }
    }
}

/// What a matrix is packed as.
#[derive(Debug, Clone, Copy)]
pub(super) enum Elements {
    F32,
    Narrow(Compact),
    /// Words of bf16, or what becomes such, which this unit multiplies.
    Unit(MatrixUnit),
}

/// A matrix that is being packed, some lanes at a time.
struct Packing {
    matrix: PackedMatrix,
    format: Format,
    /// Numbers of a lane.
    numbers: usize,
    /// A panel of numbers, before they are narrow or words.
    panel: Vec<f32>,
}

impl Packing {
    /// Of `extent` lanes of so many numbers.
    fn new(
        target: Target,
        side: Side,
        (extent, numbers): (usize, usize),
        elements: Elements,
    ) -> Result<Self, TensorError> {
        let (depth, format) = match elements {
            Elements::Unit(unit) => {
                let words = unit.words(numbers);
                (words, unit.format(target, side, extent, words))
            }
            Elements::Narrow(narrow) => {
                (numbers, Format::new(target, side, extent, numbers).of_narrow(narrow))
            }
            Elements::F32 => (numbers, Format::new(target, side, extent, numbers)),
        };
        // The numbers of the longest depth block, and bytes of the packed ones.
        let (longest, bytes) = match elements {
            Elements::F32 => (0, format.len().saturating_mul(size_of::<f32>())),
            Elements::Narrow(narrow) => (format.kc, narrow.bytes(format.len())),
            Elements::Unit(unit) => {
                let kept = unit.kept(depth).saturating_mul(format.padded);
                (
                    unit.numbers(&(0..format.kc), numbers).len(),
                    kept.saturating_mul(size_of::<f32>()),
                )
            }
        };
        let blocks = format.depth.div_ceil(format.kc.max(1));
        let scales = blocks.saturating_mul(format.padded).saturating_mul(format.groups);
        let scales = alloc::filled(scales, 0.0f32)?;
        let buf = AlignedBuf::resident(bytes)?;
        let panel = alloc::filled(longest.saturating_mul(format.width), 0.0f32)?;
        let matrix = PackedMatrix { buf, scales, side, target, extent, depth, elements };
        Ok(Self { matrix, format, numbers, panel })
    }

    /// Packs these lanes, of which the first is lane 0 of `source`; a panel begins with it, and the
    /// last one ends a panel or the matrix. The first number that the narrow form does not reach,
    /// if there is one.
    fn lanes<P: Pack>(&mut self, source: &P, lanes: Range<usize>, par: &Par) -> Option<f32> {
        let Self { matrix, format, numbers, panel } = self;
        let elements = matrix.elements;
        let (target, width, bytes) = (matrix.target, format.width, matrix.buf.as_mut_bytes());
        let scales = &mut matrix.scales[..];
        if let Elements::F32 = elements {
            let out = bytemuck::cast_slice_mut(bytes);
            format.pack_part(target, source, lanes, 0..format.depth, out, par);
            return None;
        }
        let mut k = 0;
        while k < format.depth && !stop::stopped() {
            let ks = k..(k + format.kc).min(format.depth);
            let depth = match elements {
                Elements::Unit(unit) => unit.numbers(&ks, *numbers),
                _ => ks.clone(),
            };
            let panel = &mut panel[..depth.len() * width];
            for lane in lanes.clone().step_by(width) {
                let from = lane - lanes.start;
                let (of_source, depth) = (from..from + width, depth.clone());
                let out = &mut *panel;
                target.isa.run(PackPanels { source, lanes: of_source, depth, width, out });
                match elements {
                    Elements::F32 => {}
                    Elements::Narrow(narrow) => {
                        if let Some(&value) = panel.iter().find(|x| !narrow.reaches(**x)) {
                            return Some(value);
                        }
                        let at = narrow.bytes(format.offset(lane, k, 0));
                        let to = &mut bytes[at..at + narrow.bytes(panel.len())];
                        let own = format.scale(lane, k)..format.scale(lane + width, k);
                        let scales = scales.get_mut(own).unwrap_or_default();
                        narrow.write(target.isa, panel, to, scales);
                    }
                    Elements::Unit(unit) => {
                        let at = unit.kept(k) * format.padded + lane * unit.kept(ks.len());
                        let words: &mut [f32] = bytemuck::cast_slice_mut(bytes);
                        let to = &mut words[at..at + unit.kept(ks.len()) * width];
                        unit.write_panel(target.isa, panel, width, to);
                    }
                }
            }
            k = ks.end;
        }
        None
    }
}

/// Whether a matrix of `k` x `n` with these strides lies in so many elements.
pub(super) fn check_matrix(
    found: usize,
    (k, n): (usize, usize),
    (down, right): (usize, usize),
) -> Result<(), GemmError> {
    if k == 0 || n == 0 {
        return Ok(());
    }
    let end = (k - 1).checked_mul(down).zip((n - 1).checked_mul(right));
    let end = end.and_then(|(a, b)| a.checked_add(b)?.checked_add(1));
    at_least("w", found, end.ok_or(GemmError::Overflow)?)
}

/// Whether there is so much of something.
pub(super) fn at_least(what: &'static str, found: usize, expected: usize) -> Result<(), GemmError> {
    if found >= expected { Ok(()) } else { Err(GemmError::Length { what, found, expected }) }
}

/// Where each panel of a packed operand lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    /// Lanes of a panel.
    pub(super) width: usize,
    /// Lanes, rounded up to whole panels.
    pub(super) padded: usize,
    /// Length of the sum.
    pub(super) depth: usize,
    /// Length of a depth block (the last may be shorter).
    pub(super) kc: usize,
    /// Scales of each lane of a depth block.
    pub(super) groups: usize,
}

impl Format {
    pub(super) fn new(target: Target, side: Side, extent: usize, depth: usize) -> Self {
        let width = match side {
            Side::Left => target.mr(),
            Side::Right => target.nr(),
        };
        Self {
            width,
            padded: extent.div_ceil(width).saturating_mul(width),
            depth,
            kc: Target::kc(depth),
            groups: 0,
        }
    }

    /// The same of narrow elements.
    pub(super) fn of_narrow(self, narrow: Compact) -> Self {
        Self { groups: narrow.groups(self.kc), ..self }
    }

    /// Elements of the packed matrix.
    pub(super) fn len(&self) -> usize {
        self.padded.saturating_mul(self.depth)
    }

    /// Offset of the panel that starts at `lane` in the depth block that starts at `k` (a multiple
    /// of kc), in memory that begins with depth block `k0`.
    #[inline(always)]
    pub(super) fn offset(&self, lane: usize, k: usize, k0: usize) -> usize {
        (k - k0) * self.padded + lane * self.kc.min(self.depth - k)
    }

    /// Which of the scales are those of the panel that begins with a lane, in the depth block that
    /// starts at `k`: from this one on.
    fn scale(&self, lane: usize, k: usize) -> usize {
        (k / self.kc.max(1) * self.padded + lane) * self.groups
    }

    /// Packs all panels of a range of depths (whole blocks) into `out`, in parallel.
    pub(super) fn pack_all<P: Pack>(
        &self,
        target: Target,
        source: &P,
        depth: Range<usize>,
        out: &mut [f32],
        par: &Par,
    ) {
        self.pack_part(target, source, 0..self.padded, depth, out, par);
    }

    /// Packs the panels of some lanes, of which the first, with which a panel begins, is lane 0 of
    /// `source`.
    fn pack_part<P: Pack>(
        &self,
        target: Target,
        source: &P,
        lanes: Range<usize>,
        depth: Range<usize>,
        out: &mut [f32],
        par: &Par,
    ) {
        let panels = lanes.len().div_ceil(self.width);
        let blocks = depth.len().div_ceil(self.kc.max(1));
        let out = SharedMut::new(out);
        par.split(blocks * panels, PANELS_A_TASK, |range| {
            target.isa.run(PackTask {
                format: *self,
                source,
                first: lanes.start,
                panels,
                depth: depth.clone(),
                range,
                out: &out,
            });
        });
    }
}

/// Panels that one task of [`Format::pack_all`] packs at least.
const PANELS_A_TASK: usize = 4;

struct PackTask<'a, P> {
    format: Format,
    source: &'a P,
    /// The lane that is the source's lane 0, and panels from there on.
    first: usize,
    panels: usize,
    depth: Range<usize>,
    range: Range<usize>,
    out: &'a SharedMut<'a, f32>,
}

impl<P: Pack> Vectorized for PackTask<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Format { width, kc, .. } = self.format;
        for i in self.range {
            let (block, lane) = (i / self.panels, i % self.panels * width);
            let k = self.depth.start + block * kc;
            let ks = k..(k + kc).min(self.depth.end);
            let at = self.format.offset(self.first + lane, k, self.depth.start);
            // SAFETY: panels are disjoint, and each is packed once.
            let out = unsafe { self.out.slice(at..at + ks.len() * width) };
            self.source.pack(s, lane, ks, width, out);
        }
    }
}

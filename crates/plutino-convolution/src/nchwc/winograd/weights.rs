//! Winograd's filters: transformed, and packed in the order in which they are read.

use super::transform::{MOST_FILTERS, MOST_TAPS, Transform};
use super::{Five, Four, FourFour, FourStrided, Two, Variant};
use crate::nchwc::tile::NB;
use plutino_cpu::simd::{Isa, Simd, Vectorized};
use plutino_tensor::{AlignedBuf, FloatSource, Floats, TensorError};
use std::marker::PhantomData;

/// Transformed filters: `[filter][pair of output blocks][input channel][2 b output channels]`.
#[derive(Debug)]
pub(crate) struct WinogradWeights {
    data: AlignedBuf,
}

impl WinogradWeights {
    /// Transforms `weight`, `(out, in, taps, taps)` row-major, in f64, for vectors of `block` f32.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, or no memory is left.
    pub(super) fn pack(
        weight: &mut dyn FloatSource,
        algorithm: Variant,
        channels: [usize; 2],
        block: usize,
    ) -> Result<Self, TensorError> {
        let pack = match algorithm {
            Variant::Two => Self::pack_for::<Two>,
            Variant::Four => Self::pack_for::<Four>,
            Variant::Five => Self::pack_for::<Five>,
            Variant::FourFour => Self::pack_for::<FourFour>,
            Variant::FourStrided => Self::pack_for::<FourStrided>,
        };
        pack(weight, channels, block)
    }

    fn pack_for<T: Transform>(
        weight: &mut dyn FloatSource,
        [out, inp]: [usize; 2],
        block: usize,
    ) -> Result<Self, TensorError> {
        if block == 0
            || !(NB * block).is_multiple_of(SIDE)
            || weight.is_empty()
            || Some(weight.len())
                != out.checked_mul(inp).and_then(|n| n.checked_mul(T::TAPS * T::TAPS))
        {
            return Err(TensorError::invalid(
                "weights of a Winograd convolution do not fit its channels",
            ));
        }
        let width = NB * block;
        let panels = out.div_ceil(width) * inp * width;
        let bytes = panels
            .checked_mul(T::FILTERS * T::FILTERS * 4)
            .ok_or_else(|| TensorError::invalid("weights exceed memory"))?;
        let mut data = AlignedBuf::resident(bytes)?;
        let packed: &mut [f32] = bytemuck::cast_slice_mut(data.as_mut_bytes());
        let filters = inp * T::TAPS * T::TAPS;
        for first in (0..out).step_by(width) {
            let rows = width.min(out - first);
            Isa::best().run(FilterTransform::<T> {
                weight: weight.part(first * filters..(first + rows) * filters)?,
                channels: [rows, inp],
                width,
                first: first * inp,
                packed: &mut *packed,
                transform: PhantomData,
            });
        }
        Ok(Self { data })
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[f32] {
        bytemuck::cast_slice(self.data.as_bytes())
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// Filters that are transformed side by side. Divides every pair of blocks.
const SIDE: usize = 8;

/// Transforms the filters of a pair of output blocks into [`WinogradWeights`].
struct FilterTransform<'a, T> {
    weight: Floats<'a>,
    channels: [usize; 2],
    /// Output channels of a whole pair of blocks.
    width: usize,
    /// Where they begin in the panels of a point.
    first: usize,
    /// As much for each of the `FILTERS^2` points.
    packed: &'a mut [f32],
    transform: PhantomData<T>,
}

impl<T: Transform> Vectorized for FilterTransform<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let ([out, inp], width) = (self.channels, self.width);
        let panels = self.packed.len() / (T::FILTERS * T::FILTERS);
        let mut u = [[0.0; SIDE]; MOST_FILTERS * MOST_FILTERS];
        for c in 0..inp {
            // Some filters of neighbouring output channels at a time: they lie side by side, in one
            // line of cache or two for each point, which are written one right after the other.
            for o in (0..out).step_by(SIDE) {
                let filters = (out - o).min(SIDE);
                let taps = T::TAPS * T::TAPS;
                let mut g = [[0.0; SIDE]; MOST_TAPS * MOST_TAPS];
                for i in 0..filters {
                    let filter = ((o + i) * inp + c) * taps;
                    let filter = self.weight.part(filter..filter + taps);
                    for (t, g) in g.iter_mut().take(taps).enumerate() {
                        g[i] = filter.get(t).into();
                    }
                }
                transform_filters::<T>(&g, &mut u);
                let at = self.first + c * width + o;
                for (u, panels) in u.iter().zip(self.packed.chunks_exact_mut(panels)) {
                    if let Some(panel) = panels.get_mut(at..at + SIDE) {
                        for i in 0..SIDE {
                            panel[i] = u[i] as f32;
                        }
                    }
                }
            }
        }
    }
}

/// G g G^T of each filter, in f64: the first `FILTERS^2` of `u`, from the first `TAPS^2` of `g`.
#[inline(always)]
fn transform_filters<T: Transform>(
    g: &[[f64; SIDE]; MOST_TAPS * MOST_TAPS],
    u: &mut [[f64; SIDE]; MOST_FILTERS * MOST_FILTERS],
) {
    let mut columns = [[0.0; SIDE]; MOST_TAPS * MOST_FILTERS]; // G g
    for x in 0..T::TAPS {
        for i in 0..SIDE {
            let mut column = [0.0; MOST_TAPS];
            for y in 0..T::TAPS {
                column[y] = g[T::TAPS * y + x][i];
            }
            let column = T::filter(column);
            for y in 0..T::FILTERS {
                columns[MOST_TAPS * y + x][i] = column[y];
            }
        }
    }
    for y in 0..T::FILTERS {
        for i in 0..SIDE {
            let mut row = [0.0; MOST_TAPS];
            for x in 0..T::TAPS {
                row[x] = columns[MOST_TAPS * y + x][i];
            }
            let row = T::filter(row);
            for x in 0..T::FILTERS {
                u[T::FILTERS * y + x][i] = row[x];
            }
        }
    }
}

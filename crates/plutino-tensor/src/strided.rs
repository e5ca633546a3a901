//! Copies between strided tensors, generic over the size of an element.

use crate::geometry::Geometry;

/// Side of the square blocks in which a transposing copy works: a cache line of a 4-byte type.
const TILE: usize = 16;

/// One dimension of the loop nest: its length and how far source and destination move per step.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Dim {
    len: usize,
    src: isize,
    dst: isize,
}

/// Copies the elements of `src` to those of `dst`; both have the same shape and address only
/// elements inside their bytes (the invariant of views).
pub(crate) fn copy(
    src: &Geometry,
    src_data: &[u8],
    dst: &Geometry,
    dst_data: &mut [u8],
    size: usize,
) {
    debug_assert_eq!(src.shape, dst.shape);
    if src.shape.numel() == 0 {
        return;
    }
    let dims = loop_nest(src, dst);
    let (s, d) = (src.offset, dst.offset);
    match size {
        1 => nest::<1>(&dims, src_data.as_chunks().0, s, dst_data.as_chunks_mut().0, d),
        2 => nest::<2>(&dims, src_data.as_chunks().0, s, dst_data.as_chunks_mut().0, d),
        4 => nest::<4>(&dims, src_data.as_chunks().0, s, dst_data.as_chunks_mut().0, d),
        8 => nest::<8>(&dims, src_data.as_chunks().0, s, dst_data.as_chunks_mut().0, d),
        _ => nest::<16>(&dims, src_data.as_chunks().0, s, dst_data.as_chunks_mut().0, d),
    }
}

/// The shortest loop nest: no dimensions of size 1, the destination's largest steps outermost, and
/// neighbours joined where both sides continue evenly.
fn loop_nest(src: &Geometry, dst: &Geometry) -> Vec<Dim> {
    let strides = src.strides.iter().zip(&dst.strides);
    let mut dims: Vec<Dim> = src
        .shape
        .iter()
        .zip(strides)
        .filter(|&(&len, _)| len != 1)
        .map(|(&len, (&src, &dst))| Dim { len, src, dst })
        .collect();
    dims.sort_by_key(|d| std::cmp::Reverse((d.dst.unsigned_abs(), d.src.unsigned_abs())));
    let mut joined: Vec<Dim> = Vec::with_capacity(dims.len());
    for d in dims {
        let len = d.len as isize;
        match joined.last_mut() {
            Some(outer)
                if outer.src == d.src.wrapping_mul(len) && outer.dst == d.dst.wrapping_mul(len) =>
            {
                *outer = Dim { len: outer.len * d.len, ..d };
            }
            _ => joined.push(d),
        }
    }
    joined
}

/// Walks the outer dimensions and hands the innermost one, or a transposing pair, to the copies
/// below.
fn nest<const N: usize>(
    dims: &[Dim],
    src: &[[u8; N]],
    src_at: usize,
    dst: &mut [[u8; N]],
    dst_at: usize,
) {
    let Some((&inner, outer)) = dims.split_last() else {
        dst[dst_at] = src[src_at];
        return;
    };
    // Where the destination runs along `inner` but the source runs along another dimension, copying
    // row by row would read one element per cache line: copy in square tiles over both instead.
    let across = outer.iter().position(|d| d.src == 1 && inner.src != 1 && inner.dst == 1);
    let mut rest = outer.to_vec();
    let across = across.map(|k| rest.remove(k));

    let mut index = vec![0usize; rest.len()];
    let (mut s, mut d) = (src_at, dst_at);
    loop {
        match across {
            Some(across) => tiles(inner, across, src, s, dst, d),
            None => row(inner, src, s, dst, d),
        }
        let advanced = rest.iter().zip(&mut index).rev().any(|(dim, i)| {
            *i += 1;
            s = s.wrapping_add_signed(dim.src);
            d = d.wrapping_add_signed(dim.dst);
            if *i < dim.len {
                return true;
            }
            let len = dim.len as isize;
            s = s.wrapping_add_signed(dim.src.wrapping_mul(len).wrapping_neg());
            d = d.wrapping_add_signed(dim.dst.wrapping_mul(len).wrapping_neg());
            *i = 0;
            false
        });
        if !advanced {
            return;
        }
    }
}

fn row<const N: usize>(dim: Dim, src: &[[u8; N]], s: usize, dst: &mut [[u8; N]], d: usize) {
    match dim {
        Dim { len, src: 1, dst: 1 } => dst[d..d + len].copy_from_slice(&src[s..s + len]),
        Dim { len, src: 0, dst: 1 } => dst[d..d + len].fill(src[s]),
        Dim { len, src: step, dst: 1 } if step > 0 => {
            let from = src[s..].iter().step_by(step as usize);
            dst[d..d + len].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
        Dim { len, src: step, dst: dst_step } => {
            let (mut s, mut d) = (s, d);
            for _ in 0..len {
                dst[d] = src[s];
                s = s.wrapping_add_signed(step);
                d = d.wrapping_add_signed(dst_step);
            }
        }
    }
}

/// Transposes: `rows` has stride 1 in the destination, `across` has stride 1 in the source.
///
/// Each square passes through a small buffer, so that every cache line of either side is touched
/// once: rows a power of two apart fall into the same few sets of the cache and would push each
/// other out.
fn tiles<const N: usize>(
    rows: Dim,
    across: Dim,
    src: &[[u8; N]],
    s: usize,
    dst: &mut [[u8; N]],
    d: usize,
) {
    let mut square = [[[0u8; N]; TILE]; TILE];
    for j0 in (0..rows.len).step_by(TILE) {
        let height = TILE.min(rows.len - j0);
        for i0 in (0..across.len).step_by(TILE) {
            let width = TILE.min(across.len - i0);
            for (j, line) in square[..height].iter_mut().enumerate() {
                let from = s.wrapping_add_signed(rows.src.wrapping_mul((j0 + j) as isize)) + i0;
                match width {
                    // A constant length compiles to a few vector moves.
                    TILE => line.copy_from_slice(&src[from..from + TILE]),
                    _ => line[..width].copy_from_slice(&src[from..from + width]),
                }
            }
            for i in 0..width {
                let to = d.wrapping_add_signed(across.dst.wrapping_mul((i0 + i) as isize)) + j0;
                let run = &mut dst[to..to + height];
                run.iter_mut().zip(&square).for_each(|(to, line)| *to = line[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    #[test]
    fn neighbours_are_joined() {
        let dense = Geometry::dense(Shape::from([2, 3, 4, 5]));
        assert_eq!(loop_nest(&dense, &dense), [Dim { len: 120, src: 1, dst: 1 }]);
        // NCHW to NHWC: H and W stay neighbours.
        let nhwc = dense.permute(&[0, 2, 3, 1]).unwrap();
        let to = Geometry::dense(nhwc.shape.clone());
        let nest = loop_nest(&nhwc, &to);
        assert_eq!(nest.len(), 3);
        assert_eq!(nest[1], Dim { len: 20, src: 1, dst: 3 });
        assert_eq!(nest[2], Dim { len: 3, src: 20, dst: 1 });
    }
}

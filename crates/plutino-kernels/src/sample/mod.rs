//! Images read between their pixels: at the points of a grid, in regions of interest, under the
//! deformed windows of a convolution.
//!
//! - [`grid`]: `F.grid_sample`, and the grids of `F.affine_grid`;
//! - [`roi_align`]: averages over the cells of a box;
//! - [`deform`]: the columns of a deformable convolution.
//!
//! Positions are computed in the precision in which PyTorch computes them
//! ([`Float::Real`](crate::number::Float)), since a position next to a pixel's edge decides which
//! pixels are read at all.

pub mod deform;
pub mod grid;
pub mod roi_align;

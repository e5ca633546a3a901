//! Transposed convolution on tiles: a convolution for each phase of the output (`nchwc/phases.rs`).
//!
//! Phases that read the same windows (with a kernel as large as the stride, all of them) share the
//! words of the image: their output channels are those of one convolution, whose blocks go to
//! different pixels.

use super::super::phases::Phase;
use super::super::tiled::{Spread, pad_bias};
use super::super::window::Window;
use super::{OnTiles, TileWeights};
use crate::algorithm::{Bound, Operands};
use crate::choose::Request;
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::tiles::BLOCK;
use plutino_cpu::{PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::{DType, Floats};
use std::borrow::Cow;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct TilePhases {
    problem: ConvProblem,
    phases: Vec<Phase>,
    /// What computes phases that share windows, and which.
    parts: Vec<(OnTiles, Vec<usize>)>,
}

/// None where it is not one of phases, or one of them not for tiles.
pub(crate) fn bind(request: &Request<'_>) -> Option<TilePhases> {
    let phases = Phase::all(request)?;
    let mut alike: Vec<(&Window, Vec<usize>)> = Vec::new();
    for (i, phase) in phases.iter().enumerate() {
        match alike.iter_mut().find(|(window, _)| **window == phase.window) {
            Some((_, members)) => members.push(i),
            None => alike.push((&phase.window, vec![i])),
        }
    }
    let parts = alike.into_iter().map(|(window, members)| {
        let spreads: Vec<Spread> = members.iter().map(|&i| phases[i].spread).collect();
        Some((OnTiles::new(request, window.clone(), false, spreads)?, members))
    });
    let parts = parts.collect::<Option<_>>()?;
    Some(TilePhases { problem: request.problem, phases, parts })
}

impl TilePhases {
    /// What computes a phase.
    fn of(&self, phase: usize) -> Option<&OnTiles> {
        self.parts.iter().find(|(_, members)| members.contains(&phase)).map(|(conv, _)| conv)
    }
}

impl Bound for TilePhases {
    type Weights = Vec<TileWeights>;

    fn cycles(&self) -> f64 {
        self.parts.iter().map(|(conv, _)| conv.cycles()).sum()
    }

    fn unit(&self) -> Option<MatrixUnit> {
        self.parts.first().and_then(|(conv, _)| conv.unit())
    }

    /// Of phase by phase, whichever of them share windows.
    fn pack_key(&self) -> PackKey {
        let [_, h, w] = self.problem.axes().map(|a| a.window().stride);
        let (terms, isa) = self
            .of(0)
            .map_or((0, plutino_cpu::Isa::PORTABLE), |conv| (conv.terms.count(), conv.isa));
        let key = PackKey::f32("conv.phases.tiles", [terms, h, w], isa);
        PackKey { precision: DType::Bf16, ..key }
    }

    fn pack(&self, weight: Floats<'_>, par: &Par) -> Result<Vec<TileWeights>, ConvError> {
        let pack = |(i, phase): (usize, &Phase)| {
            let conv = self.of(i)?;
            Some(conv.pack(phase.weights(&self.problem, weight)[..].into(), par))
        };
        self.phases.iter().enumerate().filter_map(pack).collect()
    }

    fn bytes(weights: &Vec<TileWeights>) -> usize {
        weights.iter().map(OnTiles::bytes).sum()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let out = self.problem.out_channels();
        Cow::Owned(pad_bias(bias, 1, out, BLOCK / super::super::tile::NB))
    }

    fn workspace(&self) -> usize {
        self.parts.iter().map(|(conv, _)| conv.workspace()).max().unwrap_or(0)
    }

    fn run(
        &self,
        weights: &Vec<TileWeights>,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, y, .. } = operands;
        for (conv, members) in &self.parts {
            let weights: Vec<&[u32]> = members.iter().map(|&i| weights[i].words()).collect();
            let operands = Operands { x, bias, factors: None, residual: None, y: &mut *y };
            conv.run_phases(&weights, operands, workspace, par)?;
        }
        Ok(())
    }
}

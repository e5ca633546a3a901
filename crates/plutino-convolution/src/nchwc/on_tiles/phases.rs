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
use crate::post_ops::Bf16Tensors;
use crate::problem::{ConvError, ConvProblem};
use plutino_cpu::tiles::{BLOCK, Terms, TileUnit};
use plutino_cpu::{Isa, PackKey, Par};
use plutino_products::gemm::MatrixUnit;
use plutino_tensor::{DType, FloatSource, Floats};
use std::borrow::Cow;

/// Bound to a problem.
#[derive(Debug)]
pub(crate) struct TilePhases {
    problem: ConvProblem,
    isa: Isa,
    unit: TileUnit,
    terms: Terms,
    /// Each phase, and the number of the convolution that computes it.
    phases: Vec<(Phase, usize)>,
    convs: Vec<OnTiles>,
}

/// None where it is not one of phases, or one of them not for tiles.
pub(crate) fn bind(request: &Request<'_>) -> Option<TilePhases> {
    let &Request { problem, isa, unit, .. } = request;
    let Some(MatrixUnit::Tiles(unit, terms)) = unit else { return None };
    let mut windows: Vec<(Window, Vec<Spread>)> = Vec::new();
    let mut phases = Vec::new();
    for phase in Phase::all(request)? {
        let alike = windows.iter().position(|(window, _)| *window == phase.window);
        let conv = alike.unwrap_or(windows.len());
        match windows.get_mut(conv) {
            Some((_, spreads)) => spreads.push(phase.spread),
            None => windows.push((phase.window.clone(), vec![phase.spread])),
        }
        phases.push((phase, conv));
    }
    let bind = |(window, spreads)| OnTiles::new(request, window, false, spreads);
    let convs = windows.into_iter().map(bind).collect::<Option<_>>()?;
    Some(TilePhases { problem, isa, unit, terms, phases, convs })
}

impl Bound for TilePhases {
    type Weights = Vec<TileWeights>;

    fn cycles(&self) -> f64 {
        self.convs.iter().map(OnTiles::cycles).sum()
    }

    fn unit(&self) -> Option<MatrixUnit> {
        Some(MatrixUnit::Tiles(self.unit, self.terms))
    }

    fn bf16_tensors(&self) -> Bf16Tensors {
        let could = self.convs.iter().map(OnTiles::could_be_bf16);
        let all = could.reduce(|a, b| Bf16Tensors {
            input: a.input && b.input,
            residual: false,
            output: a.output && b.output,
        });
        all.unwrap_or_default()
    }

    /// Of phase by phase, whichever of them share windows.
    fn pack_key(&self) -> PackKey {
        let [_, h, w] = self.problem.axes().map(|a| a.window().stride);
        let key = PackKey::f32("conv.phases.tiles", [self.terms.count(), h, w], self.isa);
        PackKey { precision: DType::Bf16, ..key }
    }

    fn pack(&self, weight: &mut dyn FloatSource, par: &Par) -> Result<Vec<TileWeights>, ConvError> {
        let weight = weight.all()?;
        let pack = |(phase, conv): &(Phase, usize)| {
            let part = phase.weights(&self.problem, weight);
            self.convs[*conv].pack(&mut Floats::from(&part), par)
        };
        self.phases.iter().map(pack).collect()
    }

    fn bytes(weights: &Vec<TileWeights>) -> usize {
        weights.iter().map(OnTiles::bytes).sum()
    }

    fn bias<'b>(&self, bias: Option<&'b [f32]>) -> Cow<'b, [f32]> {
        let out = self.problem.out_channels();
        Cow::Owned(pad_bias(bias, 1, out, BLOCK / super::super::tile::NB))
    }

    fn workspace(&self) -> usize {
        self.convs.iter().map(OnTiles::workspace).max().unwrap_or(0)
    }

    fn run(
        &self,
        weights: &Vec<TileWeights>,
        operands: Operands<'_>,
        workspace: &mut [u8],
        par: &Par,
    ) -> Result<(), ConvError> {
        let Operands { x, bias, y, .. } = operands;
        for (i, conv) in self.convs.iter().enumerate() {
            let own = self.phases.iter().zip(weights).filter(|((_, conv), _)| *conv == i);
            let weights: Vec<&[u32]> = own.map(|(_, weights)| weights.words()).collect();
            let operands = Operands { x, bias, factors: None, residual: None, y: &mut *y };
            conv.run_phases(&weights, operands, workspace, par)?;
        }
        Ok(())
    }
}

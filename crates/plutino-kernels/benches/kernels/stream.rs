//! Kernels that memory bounds: softmax, layer norm, elementwise functions. Each tensor counts once,
//! whatever the kernel reads again.

use bytemuck::cast_slice_mut;
use plutino_kernels::InOut;
use plutino_kernels::activation::Activation;
use plutino_kernels::elementwise::{Binary, Builder, LoopNest, Program, Source, Unary};
use plutino_kernels::norm::{RowNorm, normalize_rows};
use plutino_kernels::softmax::{Softmax, softmax_f32};
use plutino_tensor::DType;

use crate::suite::Suite;
use crate::yardstick::Work;

/// Rows and their length: scores of a MiniLM on 128 tokens, of a ViT on 50, of Swin's windows; of a
/// language model.
const SCORES: [[usize; 2]; 4] = [[12 * 128, 128], [12 * 50, 50], [192 * 49, 49], [256, 32_000]];

/// Rows and their length: MiniLM, ViT, first stage of Swin and ConvNeXt.
const TOKENS: [[usize; 2]; 3] = [[128, 384], [50, 768], [3136, 96]];

/// Elements: hidden layers of a MiniLM, ResNet's first stage, four times the largest usual cache.
const LENGTHS: [usize; 3] = [128 * 1536, 64 * 56 * 56, 1 << 25];

/// Bytes of `tensors` tensors of `len` f32.
fn traffic(tensors: usize, len: usize) -> Work {
    Work::Bytes((tensors * len * size_of::<f32>()) as u64)
}

pub(crate) fn rows(suite: &mut Suite<'_>) {
    let (isa, par) = (suite.isa, suite.par);
    for [rows, len] in SCORES {
        let (x, mut y) = (ramp(rows * len), vec![0.0; rows * len]);
        suite.bench(&format!("softmax {rows}x{len}"), "rows", traffic(2, rows * len), || {
            let data = InOut::Apart { src: &x, dst: &mut y };
            softmax_f32(isa, par, Softmax::Softmax, [rows, len, 1], data);
        });
    }
    for [rows, len] in TOKENS {
        let (x, mut y) = (ramp(rows * len), vec![0.0; rows * len]);
        let (weight, bias) = (vec![1.5; len], vec![0.5; len]);
        let norm = RowNorm { len, span: 1, centered: true, eps: 1e-5 };
        suite.bench(&format!("layer norm {rows}x{len}"), "rows", traffic(2, rows * len), || {
            let data = InOut::Apart { src: &x, dst: &mut y };
            normalize_rows(isa, par, &norm, Some(&weight), Some(&bias), data);
        });
    }
}

pub(crate) fn elementwise(suite: &mut Suite<'_>) {
    let (isa, par) = (suite.isa, suite.par);
    let activation = |a| unary(Unary::Activation(a));
    let functions = [
        ("relu", activation(Activation::Relu)),
        ("hardswish", activation(Activation::HardSwish)),
        ("silu", activation(Activation::Silu)),
        ("gelu", activation(Activation::Gelu)),
        ("exp", unary(Unary::Exp)),
        ("add", sum()),
    ];
    for len in LENGTHS {
        let (x, mut y) = (ramp(len), vec![0.0f32; len]);
        for (name, function) in &functions {
            let inputs = function.inputs().len();
            let nest = LoopNest::new(&[len], &vec![&[len][..]; inputs]).expect("shapes that fit");
            let mut scratch = vec![0; function.scratch_bytes(par.threads())];
            let sources = vec![Source::of(&x); inputs];
            // Both inputs of a sum are the same tensor: memory hands it over once.
            suite.bench(&format!("elementwise {len}"), name, traffic(2, len), || {
                let y = cast_slice_mut(&mut y);
                function.run(isa, par, &nest, &sources, y, &mut scratch).expect("sizes that fit");
            });
        }
    }
}

/// A function of one tensor.
fn unary(function: Unary) -> Program {
    let mut f = Builder::new();
    let x = f.input(DType::F32);
    let y = f.unary(function, x).expect("a function of f32");
    f.finish(y)
}

/// The sum of two tensors.
fn sum() -> Program {
    let mut f = Builder::new();
    let (a, b) = (f.input(DType::F32), f.input(DType::F32));
    let y = f.binary(Binary::Add, a, b).expect("a function of f32");
    f.finish(y)
}

/// Numbers between -4 and 4.
fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 1024) as f32 / 128.0 - 4.0).collect()
}

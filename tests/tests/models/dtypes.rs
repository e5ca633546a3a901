//! Whole networks in other float dtypes than they were exported in, with all passes: what fuses in
//! f32 fuses, or is left alone, in f64, f16 and bf16, and nothing is refused.

use plutino::{DType, Model, SessionOptions, Tensor};
use plutino_tests::{cast, fixture, inputs, run};

/// The networks: convolutions, batch norms and activations of all sorts, attention, norms, LSTMs.
const NETWORKS: &[&str] = &[
    "bilstm",
    "convnext_tiny",
    "digits",
    "efficientnet_b0",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet18",
    "shufflenet_v2_x1_0",
    "squeezenet1_1",
    "swin_t",
    "swin_t",
    "unet",
];

/// Networks with `nn.MultiheadAttention`, which is refused in f64.
const NOT_IN_F64: &[&str] = &["swin_t"];

/// Dtypes, and how far rounding to them moves a number: half an epsilon. None where that is less
/// than what PyTorch's results of f32 may err.
const DTYPES: [(DType, Option<f64>); 3] =
    [(DType::F64, None), (DType::F16, Some(1.0 / 2048.0)), (DType::Bf16, Some(1.0 / 256.0))];

#[test]
fn networks_of_f32_run_in_f64_f16_and_bf16() {
    let mut wrong = Vec::new();
    for name in NETWORKS {
        let fixture = fixture(name);
        // Each operator rounds what it makes; errors of all of them add up at worst.
        let depth = fixture.graph().unwrap().operator_count() as f64;
        for (dtype, rounding) in DTYPES {
            if dtype == DType::F64 && NOT_IN_F64.contains(name) {
                continue;
            }
            let of = |x: &Tensor| match x.dtype() {
                DType::F32 => x.cast(dtype).unwrap(),
                _ => x.clone(),
            };
            let inputs: Vec<Tensor> = inputs(&fixture).iter().map(of).collect();
            let model = Model::from_graph(cast(fixture.graph().unwrap(), dtype)).unwrap();
            let found = run(&model, &inputs, SessionOptions::default());
            for (found, mut expected) in found.iter().zip(fixture.outputs().unwrap()) {
                assert_eq!(found.dtype(), dtype, "{name}");
                let own = expected.tolerance;
                expected.tolerance = rounding.map_or(own, |rounding| depth * rounding);
                let verdict = expected.verify(&found.cast(DType::F32).unwrap());
                if let Err(error) = verdict {
                    wrong.push(format!("{name} in {dtype}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

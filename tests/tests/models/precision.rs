//! Chains of layers against f64: errors are those of onnxruntime's f32, or not much larger.

use plutino::{DType, Isa, Model, SessionOptions, Tensor, Units};
use plutino_fixtures::{Chain, Errors};
use plutino_tests::{cast, fixture, inputs, run};

/// How many times onnxruntime's errors ours may be.
const MOST: f64 = 1.5;

/// The same for the value that is farthest off without fused multiply-adds: each product is
/// rounded, too.
const MOST_UNFUSED: f64 = 2.0;

/// Chains with convolutions that Winograd's algorithms take, on some instruction set at least: they
/// trade digits for speed, and onnxruntime does not use them. Without them the bound is that of all
/// others.
const WINOGRAD: &[(&str, f64)] = &[
    ("conv_3d", 4.0),
    ("conv_3x3", 5.0),
    ("conv_3x3_wide", 4.0),
    ("conv_first", 5.0),
    ("conv_first_7x7", 7.5),
    ("conv_strided", 4.0),
];

#[test]
fn errors_are_those_of_onnxruntime() {
    let mut wrong = Vec::new();
    for name in Chain::names().unwrap() {
        let chain = Chain::named(&name).unwrap();
        let model = Model::from_graph(chain.graph().unwrap()).unwrap();
        let inputs = chain.inputs().unwrap();
        let winograd = WINOGRAD.iter().find(|(chain, _)| *chain == name).map(|&(_, most)| most);
        let mut runs = vec![(SessionOptions::default(), winograd.unwrap_or(MOST))];
        if winograd.is_some() {
            runs.push((SessionOptions::default().without_winograd(), MOST));
        }
        let isas = Isa::available();
        let each = runs.iter().flat_map(|run| isas.iter().map(move |isa| (*isa, run)));
        for (isa, &(ref options, allowed)) in each {
            let unfused = isa == Isa::PORTABLE;
            let farthest = if unfused { allowed.max(MOST_UNFUSED) } else { allowed };
            // Of vectors; matrix units are compared with them below.
            let options = options.clone().with_isa(isa).with_units(Units::Vectors);
            let outputs = plutino_tests::run(&model, &inputs, options);
            let Errors { largest, rms } = chain.errors(&outputs[0]).unwrap();
            let (largest, rms) = (largest / chain.onnxruntime.largest, rms / chain.onnxruntime.rms);
            if !(largest <= farthest && rms <= allowed) {
                wrong.push(format!("{name} on {isa}: {largest:.2} times, rms {rms:.2} times"));
            }
        }
    }
    assert!(wrong.is_empty(), "errors, in onnxruntime's:\n{}", wrong.join("\n"));
}

/// The highest precision on matrix units, six products of bf16 for one of f32, against chains of
/// multiply-adds: the errors of a whole chain of layers are at most as large.
///
/// Each layer's are no larger in the mean (as tests of products and convolutions show), but errors
/// of two ways to round are two samples: the rms of `n` independent errors varies by
/// `1 / sqrt(2 n)` of itself, the quotient of two by `1 / sqrt(n)`. Rows of an output that share
/// what they are computed from are no independent samples; a row stands for one. Three times that
/// is the margin.
#[test]
fn matrix_units_err_no_more_than_multiply_adds() {
    let mut wrong = Vec::new();
    for name in Chain::names().unwrap() {
        let chain = Chain::named(&name).unwrap();
        let model = Model::from_graph(chain.graph().unwrap()).unwrap();
        let inputs = chain.inputs().unwrap();
        for winograd in [true, false] {
            let options = SessionOptions::default().with_isa(Isa::best());
            let options = if winograd { options } else { options.without_winograd() };
            let on = |units| {
                let outputs =
                    plutino_tests::run(&model, &inputs, options.clone().with_units(units));
                (chain.errors(&outputs[0]).unwrap().rms, outputs[0].shape().clone())
            };
            let ((vectors, shape), (units, _)) = (on(Units::Vectors), on(Units::EmulatedAmx));
            let rows = shape.numel() / shape.last().copied().unwrap_or(1).max(1);
            let margin = 1.0 + 3.0 / (rows.max(1) as f64).sqrt();
            println!(
                "{name} winograd {winograd} {shape:?}: {:.3}, at most {margin:.3}",
                units / vectors
            );
            if units.is_nan() || units > vectors * margin {
                wrong.push(format!("{name}: {:.2} times, at most {margin:.2}", units / vectors));
            }
        }
    }
    assert!(wrong.is_empty(), "errors, in those of multiply-adds:\n{}", wrong.join("\n"));
}

/// The same of whole networks, against the same networks in f64. Their outputs are few, and share
/// all layers but the last: what is compared is the rms over all networks.
#[test]
fn networks_on_matrix_units_err_no_more_than_by_multiply_adds() {
    let mut all = [0.0f64; 2];
    for name in ["digits", "bilstm", "mobilenet_v3_small", "squeezenet1_1", "resnet18"] {
        let fixture = fixture(name);
        let given = inputs(&fixture);
        let wide = |x: &Tensor| match x.dtype() {
            DType::F32 => x.cast(DType::F64).unwrap(),
            _ => x.clone(),
        };
        let exact = Model::from_graph(cast(fixture.graph().unwrap(), DType::F64)).unwrap();
        let wide: Vec<_> = given.iter().map(wide).collect();
        let exact = run(&exact, &wide, SessionOptions::default());
        let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
        let errors = [Units::Vectors, Units::EmulatedAmx].map(|units| {
            let options = SessionOptions::default().with_isa(Isa::best()).with_units(units);
            rms(&run(&model, &given, options), &exact)
        });
        println!("{name}: {:.2e}, on matrix units {:.2e}", errors[0], errors[1]);
        for (all, error) in all.iter_mut().zip(errors) {
            *all += error.ln();
        }
    }
    let quotient = ((all[1] - all[0]) / 5.0).exp();
    assert!(quotient <= 1.0, "{quotient:.3} times those of multiply-adds");
}

/// The rms of errors in the largest value, over the values of all outputs.
fn rms(found: &[Tensor], exact: &[Tensor]) -> f64 {
    let (mut squares, mut count) = (0.0, 0);
    for (found, exact) in found.iter().zip(exact) {
        let (found, exact) = (found.as_slice::<f32>().unwrap(), exact.as_slice::<f64>().unwrap());
        let largest = exact.iter().fold(0.0f64, |most, y| most.max(y.abs()));
        let error = |(x, y): (&f32, &f64)| ((f64::from(*x) - y) / largest).powi(2);
        squares += found.iter().zip(exact).map(error).sum::<f64>();
        count += found.len();
    }
    (squares / f64::from(count as u32)).sqrt()
}

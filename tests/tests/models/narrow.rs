//! Weights that are kept as narrow floats: the bits of a model whose weights were rounded.

use plutino::ir::{Attribute, Graph};
use plutino::tensor::{bf16, f16};
use plutino::{Isa, Model, SessionOptions, Tensor, Units, WeightDtype};
use plutino_tests::{fixture, inputs};

fn rounded(x: f32, to: WeightDtype) -> f32 {
    match to {
        WeightDtype::Bf16 => bf16::from_f32(x).to_f32(),
        _ => f16::from_f32(x).to_f32(),
    }
}

/// A row of weights as integers times a scale for each of as few blocks as have 256 at most.
fn integers(row: &[f32]) -> Vec<f32> {
    let block = row.len().div_ceil(row.len().div_ceil(256));
    let integers = |block: &[f32]| {
        let scale = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
        block.iter().map(|x| (x / scale).round_ties_even() * scale).collect::<Vec<_>>()
    };
    row.chunks(block).flat_map(integers).collect()
}

/// The graph with the weights of its linear layers rounded; how many there were.
fn with_rounded_weights(mut graph: Graph, to: WeightDtype) -> (Graph, usize) {
    let layers: Vec<_> = graph.operators_of("nn.Linear").map(|(id, _)| id).collect();
    for &id in &layers {
        let weight = &graph[id].attrs["weight"];
        let numbers: Vec<f32> = weight.elements::<f32>().unwrap().to_vec();
        let inputs = weight.shape()[1];
        let numbers: Vec<f32> = match to {
            WeightDtype::Int8 => numbers.chunks_exact(inputs).flat_map(integers).collect(),
            to => numbers.into_iter().map(|x| rounded(x, to)).collect(),
        };
        let weight = Attribute::from_elements(weight.shape(), &numbers).unwrap();
        graph.attrs_mut(id).unwrap().insert("weight".into(), weight);
    }
    (graph, layers.len())
}

#[test]
fn results_are_those_of_rounded_weights() {
    for (name, packed) in [("digits", false), ("minilm", true)] {
        let fixture = fixture(name);
        let model = |graph| Model::from_graph(graph).unwrap();
        let image = inputs(&fixture);
        for to in [WeightDtype::Bf16, WeightDtype::F16] {
            let (graph, layers) = with_rounded_weights(fixture.graph().unwrap(), to);
            assert!(layers > 0);
            let (before, after) = (model(fixture.graph().unwrap()), model(graph));
            for isa in Isa::available() {
                for threads in [1, 3] {
                    let options = SessionOptions::default().with_isa(isa).with_threads(threads);
                    let options = options.with_units(Units::Vectors);
                    let exact = after.session(options.clone()).unwrap();
                    let narrow = before.session(options.with_weights(to)).unwrap();
                    let run = |session: &plutino::Session| session.run(&image).unwrap();
                    let bits = |outputs: Vec<Tensor>| -> Vec<Vec<u8>> {
                        outputs.iter().map(|y| y.as_bytes().to_vec()).collect()
                    };
                    assert!(bits(run(&narrow)) == bits(run(&exact)), "{name}, {isa}, {to:?}");
                    let specs: Vec<_> = image.iter().map(Tensor::spec).collect();
                    let plan = narrow.plan(&specs).unwrap();
                    let named = if to == WeightDtype::Bf16 { "gemm.bf16." } else { "gemm.f16." };
                    let shown = plan.steps().filter(|step| step.kernel.starts_with(named)).count();
                    assert!(shown > 0, "{name}: no kernel is called {named}");
                    if packed {
                        let whole = exact.plan(&specs).unwrap().memory().packed;
                        let half = plan.memory().packed;
                        assert!(half < whole * 6 / 10, "{name}: {half} of {whole} bytes");
                    }
                }
            }
        }
    }
}

/// A quarter of the memory, and the results of integers times their scales but for roundings.
#[test]
fn integers_with_scales() {
    let fixture = fixture("minilm");
    let model = |graph| Model::from_graph(graph).unwrap();
    let (graph, _) = with_rounded_weights(fixture.graph().unwrap(), WeightDtype::Int8);
    let (before, after) = (model(fixture.graph().unwrap()), model(graph));
    let image = inputs(&fixture);
    let specs: Vec<_> = image.iter().map(Tensor::spec).collect();
    for isa in Isa::available() {
        let options = |threads| SessionOptions::default().with_isa(isa).with_threads(threads);
        let exact = after.session(options(1)).unwrap();
        let of =
            |threads| before.session(options(threads).with_weights(WeightDtype::Int8)).unwrap();
        let (one, three) = (of(1), of(3));
        let (found, expected) = (one.run(&image).unwrap(), exact.run(&image).unwrap());
        for (found, again) in found.iter().zip(three.run(&image).unwrap()) {
            assert_eq!(found.as_bytes(), again.as_bytes(), "{isa}: threads change no bit");
        }
        for (found, expected) in found.iter().zip(&expected) {
            let (found, expected) =
                (found.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
            let largest = expected.iter().fold(0.0f32, |most, y| most.max(y.abs()));
            let off =
                found.iter().zip(expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            // Roundings of sums of up to 1536 terms, one layer after the other.
            assert!(off <= 1536.0 * f32::EPSILON * largest, "{isa}: {off} of {largest}");
        }
        let plan = one.plan(&specs).unwrap();
        assert!(plan.steps().any(|step| step.kernel.starts_with("gemm.int8.")));
        let whole = exact.plan(&specs).unwrap().memory().packed;
        assert!(plan.memory().packed < whole * 35 / 100, "{} of {whole}", plan.memory().packed);
    }
}

/// Four bits: a sixth of the memory, the same bits for any number of threads, and errors of weights
/// that are off by 9 % of their size: so are the results of each layer, independently, and they add
/// up as random numbers do.
#[test]
fn levels_with_scales() {
    let fixture = fixture("minilm");
    let graph = fixture.graph().unwrap();
    let layers = graph.operators_of("nn.Linear").count() as f64;
    let model = Model::from_graph(graph).unwrap();
    let image = inputs(&fixture);
    let specs: Vec<_> = image.iter().map(Tensor::spec).collect();
    for isa in Isa::available() {
        let options = |threads| SessionOptions::default().with_isa(isa).with_threads(threads);
        let exact = model.session(options(1)).unwrap();
        let of = |threads| model.session(options(threads).with_weights(WeightDtype::Nf4)).unwrap();
        let one = of(1);
        let (found, expected) = (one.run(&image).unwrap(), exact.run(&image).unwrap());
        for (found, again) in found.iter().zip(of(3).run(&image).unwrap()) {
            assert_eq!(found.as_bytes(), again.as_bytes(), "{isa}: threads change no bit");
        }
        for (found, expected) in found.iter().zip(&expected) {
            let numbers = |y: &Tensor| y.as_slice::<f32>().unwrap().to_vec();
            let (found, expected) = (numbers(found), numbers(expected));
            let square = |x: f32| f64::from(x).powi(2);
            let off: f64 = found.iter().zip(&expected).map(|(x, y)| square(x - y)).sum();
            let relative = (off / expected.iter().map(|&y| square(y)).sum::<f64>()).sqrt();
            assert!((0.0..=0.09 * layers.sqrt()).contains(&relative), "{isa}: {relative}");
        }
        let plan = one.plan(&specs).unwrap();
        assert!(plan.steps().any(|step| step.kernel.starts_with("gemm.nf4.")));
        let whole = exact.plan(&specs).unwrap().memory().packed;
        assert!(plan.memory().packed < whole * 22 / 100, "{} of {whole}", plan.memory().packed);
    }
}

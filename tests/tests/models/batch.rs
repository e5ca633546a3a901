//! Rows of a batch have the bits of a run alone, where a session is asked for that: whole networks,
//! and every small graph whose rows do not look at each other.

use plutino::ir::{Attribute, Graph};
use plutino::{
    DType, Isa, Model, Precision, Session, SessionOptions, Tensor, Tolerance, WeightDtype,
};
use plutino_fixtures::{Fixture, OpCase, Run};
use plutino_tests::{fixture, inputs, model};
use std::error::Error;

/// `n` rows with the content that `of` gives them, from a tensor of one row.
fn batch(row: &Tensor, n: usize, of: impl Fn(usize) -> Tensor) -> Tensor {
    let mut shape = row.shape().to_vec();
    shape[0] *= n;
    let bytes: Vec<u8> = (0..n).flat_map(|i| of(i).as_bytes().to_vec()).collect();
    Tensor::from_bytes(row.dtype(), shape, &bytes).unwrap()
}

/// The bytes of row `i`.
fn row(tensor: &Tensor, i: usize, n: usize) -> &[u8] {
    let bytes = tensor.as_bytes();
    let len = bytes.len() / n;
    &bytes[i * len..(i + 1) * len]
}

/// Content of row `i` that no other row has, like that of a row of the fixture.
fn vary(first: &Tensor, i: usize) -> Tensor {
    match first.dtype() {
        DType::F32 => {
            let data = first.as_slice::<f32>().unwrap();
            let len = data.len();
            let at = |j| data[(j + 101 * i) % len] * (1.0 + i as f32 / 32.0);
            Tensor::from_vec((0..len).map(at).collect(), first.shape().to_vec()).unwrap()
        }
        _ => {
            let mut bytes = first.as_bytes().to_vec();
            let turned = i % first.numel() * first.dtype().size_of();
            bytes.rotate_left(turned);
            Tensor::from_bytes(first.dtype(), first.shape().to_vec(), &bytes).unwrap()
        }
    }
}

/// One row of an input of the fixture, images of another size where that is asked for.
fn one_row(input: &Tensor, size: Option<usize>) -> Tensor {
    let mut shape = input.shape().to_vec();
    shape[0] = 1;
    if let Some(size) = size {
        shape[2..].fill(size);
    }
    let len: usize = shape.iter().product();
    Tensor::from_bytes(input.dtype(), shape, &input.as_bytes()[..len * input.dtype().size_of()])
        .unwrap()
}

/// Options for an instruction set and a number of threads.
fn options(isa: Isa, threads: usize) -> SessionOptions {
    SessionOptions::default().with_isa(isa).with_threads(threads)
}

/// The batches, of 1 to 17 rows, of which some row differs from a run alone.
fn that_differ(
    fixture: &Fixture,
    size: Option<usize>,
    options: impl Fn(Isa, usize) -> SessionOptions,
) -> Vec<String> {
    let model = model(fixture);
    let first: Vec<_> = inputs(fixture).iter().map(|input| one_row(input, size)).collect();
    let mut found = Vec::new();
    for isa in Isa::available() {
        let session = |threads| model.session(options(isa, threads)).unwrap();
        let run = |session: &Session, n: usize, from: usize| {
            let inputs: Vec<_> = first.iter().map(|x| batch(x, n, |i| vary(x, from + i))).collect();
            session.run(&inputs).unwrap_or_else(|e| panic!("{}: {e}", fixture.name))
        };
        let alone: Vec<_> = (0..17).map(|i| run(&session(1), 1, i)).collect();
        for (n, threads) in [(2, 1), (3, 2), (5, 3), (8, 1), (16, 2), (17, 3)] {
            let all = run(&session(threads), n, 0);
            let same = |i: usize| {
                alone[i].iter().zip(&all).all(|(one, all)| one.as_bytes() == row(all, i, n))
            };
            if !(0..n).all(same) {
                found.push(format!("{}, {n} rows, {threads} threads, {isa}", fixture.name));
            }
        }
    }
    found
}

/// Every network whose graph takes any batch.
const NETWORKS: &[(&str, Option<usize>)] = &[
    ("digits", None),
    ("bilstm", None),
    ("convnext_tiny", Some(64)),
    ("efficientnet_b0", Some(64)),
    ("mobilenet_v2", Some(64)),
    ("mobilenet_v3_small", Some(64)),
    ("resnet18", Some(64)),
    ("resnet50", Some(32)),
    ("shufflenet_v2_x1_0", Some(64)),
    ("squeezenet1_1", Some(64)),
    ("unet", Some(64)),
];

#[test]
fn networks() {
    let invariant = |isa, threads| options(isa, threads).with_batch_invariance();
    let differ: Vec<_> = NETWORKS
        .iter()
        .flat_map(|&(name, size)| that_differ(&fixture(name), size, invariant))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// A matrix that is repeated for each row of a batch: of one row it is a constant, which could be
/// packed as a weight is, of several it is none.
#[test]
fn a_matrix_that_is_repeated() {
    let text = "7767517
        6 5
        pnnx.Input in0 0 1 x #x=(?,5,16)f32
        pnnx.Attribute p 0 1 w @data=(16,16)f32
        pnnx.Expression e 1 1 x s expr=[size(@0,0),16,16]
        Tensor.expand r 2 1 w s b $input=w $sizes=s
        torch.bmm m 2 1 x b y $input=x $mat2=b
        pnnx.Output out0 1 0 y";
    let mut graph = Graph::parse(text).unwrap();
    let numbers = |n: usize, step: usize| -> Vec<f32> {
        (0..n).map(|i| (i * step % 101) as f32 / 64.0 - 0.75).collect()
    };
    let (id, _) = graph.operators_of("pnnx.Attribute").next().unwrap();
    let weight = Attribute::from_elements([16, 16], &numbers(256, 37)).unwrap();
    graph.attrs_mut(id).unwrap().insert("data".into(), weight);
    let model = Model::from_graph(graph).unwrap();
    let rows = Tensor::from_vec(numbers(3 * 80, 29), [3, 5, 16]).unwrap();
    for isa in Isa::available() {
        let invariant = || options(isa, 1).with_batch_invariance();
        let narrow = [WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Nf4];
        let narrow = narrow.map(|dtype| invariant().with_weights(dtype));
        let medium = invariant().with_precision(Precision::Medium);
        for options in narrow.into_iter().chain([invariant(), medium]) {
            let session = model.session(options).unwrap();
            let all = session.run(std::slice::from_ref(&rows)).unwrap();
            for i in 0..3 {
                let one = Tensor::from_bytes(DType::F32, [1, 5, 16], row(&rows, i, 3)).unwrap();
                let alone = session.run(&[one]).unwrap();
                assert_eq!(alone[0].as_bytes(), row(&all[0], i, 3), "{isa}: {session:?}");
            }
        }
    }
}

/// One weight as that of two convolutions with other groups is packed for each of them.
#[test]
fn a_weight_in_two_groupings() {
    let conv = "bias=None stride=(1,1) padding=(1,1) dilation=(1,1)";
    let text = format!(
        "7767517
        5 5
        pnnx.Input in0 0 1 x #x=(1,6,5,5)f32
        pnnx.Attribute p 0 1 w @data=(12,1,3,3)f32
        F.conv2d a 2 1 x w y {conv} groups=6 $input=x $weight=w
        F.conv2d b 2 1 y w z {conv} groups=12 $input=y $weight=w
        pnnx.Output out0 1 0 z"
    );
    let mut graph = Graph::parse(&text).unwrap();
    let (id, _) = graph.operators_of("pnnx.Attribute").next().unwrap();
    let numbers: Vec<f32> = (0..108).map(|i| (i * 37 % 101) as f32 / 64.0 - 0.75).collect();
    let weight = Attribute::from_elements([12, 1, 3, 3], &numbers).unwrap();
    graph.attrs_mut(id).unwrap().insert("data".into(), weight);
    let model = Model::from_graph(graph).unwrap();
    let image = (0..150).map(|i| (i * 29 % 67) as f32 / 32.0 - 1.0).collect();
    let image = [Tensor::from_vec(image, [1, 6, 5, 5]).unwrap()];
    let run = |options: SessionOptions| model.session(options).unwrap().run(&image).unwrap();
    let plain = SessionOptions::default().with_isa(Isa::PORTABLE).without_pass("weights");
    let expected = run(plain);
    for isa in Isa::available() {
        for passes in [&[][..], &["multiplier"], &["multiplier", "layout"], &["layout"]] {
            let options = SessionOptions::default().with_isa(isa);
            let options = passes.iter().fold(options, |options, pass| options.without_pass(*pass));
            for (found, expected) in run(options).iter().zip(&expected) {
                let numbers = |y: &Tensor| y.as_slice::<f32>().unwrap().to_vec();
                for (x, y) in numbers(found).iter().zip(numbers(expected)) {
                    // Two sums of nine products, of results of at most 8.
                    let bound = 2.0 * 11.0 * f32::EPSILON * 9.0 * 8.0;
                    assert!((x - y).abs() <= bound, "{isa}, without {passes:?}: {x} for {y}");
                }
            }
        }
    }
}

/// Were they equal anyhow, the option would do nothing.
#[test]
fn without_it_the_fastest_algorithm_depends_on_the_batch() {
    assert!(!that_differ(&fixture("squeezenet1_1"), Some(64), options).is_empty());
}

/// What became of a graph that was given several inputs side by side.
enum Several {
    /// It does not take them, or its rows look at each other.
    Other,
    /// The bits of runs alone.
    Same,
    /// The numbers of runs alone, but not their bits.
    Different,
}

fn several(session: &Session, run: &Run, n: usize) -> Result<Several, Box<dyn Error>> {
    let first: Vec<_> = run.inputs.iter().map(|(_, tensor)| tensor.clone()).collect();
    if first.is_empty() || first.iter().any(|x| x.shape().is_empty() || x.numel() == 0) {
        return Ok(Several::Other);
    }
    let varied = |i| first.iter().map(|x| vary(x, i)).collect::<Vec<_>>();
    let all: Vec<_> = first.iter().map(|x| batch(x, n, |i| vary(x, i))).collect();
    let Ok(all) = session.run(&all) else { return Ok(Several::Other) };
    let mut bits = true;
    for i in 0..n {
        let Ok(alone) = session.run(&varied(i)) else { return Ok(Several::Other) };
        for (one, all) in alone.iter().zip(&all) {
            let mut shape = one.shape().to_vec();
            let Some(rows) = shape.first_mut() else { return Ok(Several::Other) };
            *rows *= n;
            if *all.shape().to_vec() != shape {
                return Ok(Several::Other);
            }
            let mine = Tensor::from_bytes(one.dtype(), one.shape().clone(), row(all, i, n))?;
            // Far above any rounding, far below what other data would give.
            if !mine.compare(one, Tolerance { rtol: 1e-2, atol: 1e-3 })?.is_match() {
                return Ok(Several::Other);
            }
            bits &= mine.as_bytes() == one.as_bytes();
        }
    }
    Ok(if bits { Several::Same } else { Several::Different })
}

#[test]
fn operators() {
    let (mut checked, mut different) = (0, Vec::new());
    for case in OpCase::all().unwrap() {
        let model = Model::from_graph(case.graph().unwrap()).unwrap();
        for isa in Isa::available() {
            let session = model.session(options(isa, 2).with_batch_invariance()).unwrap();
            let run = &case.runs().unwrap()[0];
            for n in [2, 3, 17] {
                match several(&session, run, n).unwrap() {
                    Several::Other => break,
                    Several::Same => checked += 1,
                    Several::Different => {
                        different.push(format!("{}/{}, {isa}, {n}", case.chapter, case.name));
                    }
                }
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(checked > 1000, "only {checked} could be compared");
}

//! Memory that is shared, given back, and refused by a budget.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use plutino::ir::{self, AttributeError, Graph, LoadError, LoadOptions, Weights};
use plutino::ops::PlanError;
use plutino::{
    ArenaPool, MemoryReport, Model, ModelError, ModelOptions, Session, SessionError,
    SessionOptions, Tensor, f16,
};
use plutino_tests::{fixture, inputs, model, specs};
use std::path::PathBuf;
use std::sync::Arc;

fn options() -> SessionOptions {
    SessionOptions::default().with_threads(2)
}

#[test]
fn packed_weights_stay_while_a_plan_uses_them() {
    let fixture = fixture("digits");
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let (one, other) = (model.session(options()).unwrap(), model.session(options()).unwrap());
    let expected = one.run(&inputs).unwrap();
    let packed = model.packed_bytes();
    assert!(packed > 0);
    assert_eq!(other.run(&inputs).unwrap(), expected);
    assert_eq!(model.packed_bytes(), packed, "shared");
    one.release_memory();
    assert_eq!(model.packed_bytes(), packed, "the other session has them");
    let plan = other.plan(&specs(&inputs)).unwrap();
    other.release_memory();
    assert_eq!(model.packed_bytes(), packed, "somebody holds a plan");
    drop(plan);
    model.release_memory();
    assert_eq!(model.packed_bytes(), 0);
}

#[test]
fn sessions_share_a_pool_of_arenas() {
    let names = ["digits", "squeezenet1_1"];
    let pool = Arc::new(ArenaPool::default());
    let session = |name: &str, pool: &Arc<ArenaPool>| {
        let fixture = fixture(name);
        let session = model(&fixture).session(options().with_arena_pool(Arc::clone(pool))).unwrap();
        let inputs = inputs(&fixture);
        let arena = session.plan(&specs(&inputs)).unwrap().memory().arena;
        (session, inputs, arena)
    };
    let all = names.map(|name| session(name, &pool));
    let largest = all.iter().map(|(.., arena)| *arena).max().unwrap();
    let outputs = || all.each_ref().map(|(session, inputs, _)| session.run(inputs).unwrap());
    let first = outputs();
    assert_eq!(outputs(), first);
    assert_eq!(pool.idle_bytes(), largest, "one for both");
    all[0].0.release_memory();
    assert_eq!(pool.idle_bytes(), 0);
    for ((own, inputs, arena), expected) in std::iter::zip(names.map(|n| session(n, &pool)), first)
    {
        let bounded = Arc::new(ArenaPool::keeping(arena - 1));
        let model = own.model();
        let own = model.session(options().with_arena_pool(Arc::clone(&bounded))).unwrap();
        assert_eq!(own.run(&inputs).unwrap(), expected);
        assert_eq!(bounded.idle_bytes(), 0, "larger than what may be kept");
    }
}

/// A fixture as files in a folder of its own.
fn saved(name: &str) -> (PathBuf, u64, u64) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    let (param, bin) = (folder.join("model.pnnx.param"), folder.join("model.pnnx.bin"));
    fixture(name).graph().unwrap().save(&param, &bin).unwrap();
    let len = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
    let (text, weights) = (len(&param), len(&bin));
    (param, text, weights)
}

#[test]
fn a_budget_covers_loading() {
    let (param, text, weights) = saved("digits");
    let load = |budget: u64, mmap: bool| {
        let memory_budget = Some(budget as usize);
        let options = LoadOptions { memory_budget, mmap, ..LoadOptions::default() };
        Model::load_with(&param, ModelOptions::from(options))
    };
    // Refused before the text is read, and before the weights are.
    let error = load(text, false).unwrap_err();
    assert!(matches!(&error, ModelError::Load(LoadError::Budget { path, .. }) if *path == param));
    assert!(error.is_limit(), "{error}");
    let error = load(weights + text, false).unwrap_err();
    let ModelError::Load(LoadError::Budget { path, needed, budget }) = &error else {
        panic!("{error}")
    };
    assert!(path.extension().is_some_and(|e| e == "bin"));
    assert!(*needed as u64 > weights && *budget as u64 == weights + text);
    assert!(load(weights + 40 * text, false).is_ok());
    assert!(load(40 * text, true).is_ok(), "mapped weights do not count");
}

fn refused(session: &Session, inputs: &[Tensor]) -> SessionError {
    let error = session.run(inputs).unwrap_err();
    assert!(error.is_limit(), "{error}");
    error
}

#[test]
fn a_budget_covers_packed_weights_plan_and_run() {
    let fixture = fixture("digits");
    let inputs = inputs(&fixture);
    let memory =
        model(&fixture).session(options()).unwrap().plan(&specs(&inputs)).unwrap().memory();
    let MemoryReport { weights, packed, arena, outputs, .. } = memory;
    assert!([weights, packed, arena, outputs].iter().all(|&part| part > 64), "{memory:?}");
    let within = |budget: usize| {
        let model = model(&fixture);
        let session = model.session(options().with_memory_budget(budget)).unwrap();
        (model, session)
    };
    // Weights alone, weights and what is packed of them, all but a byte.
    let (model, session) = within(weights - 1);
    refused(&session, &inputs);
    assert_eq!(model.packed_bytes(), 0);
    let (model, session) = within(weights + packed - 1);
    refused(&session, &inputs);
    assert!(model.packed_bytes() < packed, "refused before all of it was packed");
    let (_, session) = within(memory.total() - 1);
    let error = refused(&session, &inputs);
    let budget = memory.total() - 1;
    assert_eq!(error, SessionError::Budget { needed: memory.total(), budget });
    // Packing takes tables for a moment; of a warm model nothing but what stays is charged.
    let (model, _) = within(usize::MAX);
    model.session(options()).unwrap().plan(&specs(&inputs)).unwrap();
    let session = model.session(options().with_memory_budget(memory.total())).unwrap();
    assert_eq!(session.plan(&specs(&inputs)).unwrap().memory(), memory, "shared, and counted");
    assert!(session.run(&inputs).is_ok());
}

#[test]
fn a_budget_covers_values_that_depend_on_data() {
    let text = "7767517\n4 3\n\
        pnnx.Input in 0 1 0 #0=(16384)f32\n\
        torch.nonzero n 1 1 0 1 as_tuple=False $input=0\n\
        Tensor.to t 1 1 1 2 copy=False dtype=torch.float $input=1\n\
        pnnx.Output o 1 0 2\n";
    let model = Model::from_graph(Graph::parse(text).unwrap()).unwrap();
    let x = Tensor::ones(plutino::DType::F32, [16384]).unwrap();
    let x = [x];
    let zeros = [Tensor::zeros(plutino::DType::F32, [16384]).unwrap()];
    let needed = model.session(options()).unwrap().plan(&specs(&x)).unwrap().memory().total();
    // The indices take 128 KiB, and as floats 64 KiB.
    let session =
        |more: usize| model.session(options().with_memory_budget(needed + (more << 10))).unwrap();
    for more in [0, 127, 160] {
        let session = session(more);
        assert!(matches!(refused(&session, &x), SessionError::Run { .. }), "{more}");
        assert!(session.run(&zeros).is_ok(), "none of it is needed");
    }
    assert!(session(512).run(&x).is_ok());
}

#[test]
fn plans_that_are_kept_make_room() {
    let fixture = fixture("digits");
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let spec = |batch: usize| {
        let mut spec = inputs[0].spec();
        spec.shape =
            spec.shape.iter().enumerate().map(|(i, &n)| if i == 0 { batch } else { n }).collect();
        [spec]
    };
    let all = model.session(options()).unwrap();
    let needs: Vec<usize> =
        (1..9).map(|batch| all.plan(&spec(batch)).unwrap().memory().total()).collect();
    assert_eq!(all.plan_count(), 8);
    let budget = needs.iter().max().copied().unwrap();
    let session = model.session(options().with_memory_budget(budget)).unwrap();
    (1..9).for_each(|batch| drop(session.plan(&spec(batch)).unwrap()));
    assert!((1..8).contains(&session.plan_count()), "{}", session.plan_count());
}

/// Writes a model whose `.bin` file is too large to be read as a whole: a table of 40 MB that is
/// read in place, and a layer that is packed; of f16 half of that.
fn large(name: &str, dtype: &str) -> PathBuf {
    const TEXT: &str = "7767517
4 3
pnnx.Input in 0 1 0 #0=(1,6)i64
nn.Embedding table 1 1 0 1 embedding_dim=800 num_embeddings=12500 sparse=False @weight=(12500,800)f32 #0=(1,6)i64 #1=(1,6,800)f32
nn.Linear layer 1 1 1 2 bias=True in_features=800 out_features=700 @bias=(700)f32 @weight=(700,800)f32 #1=(1,6,800)f32 #2=(1,6,700)f32
pnnx.Output out 1 0 2 #2=(1,6,700)f32
";
    let mut graph = Graph::parse(&TEXT.replace("f32", dtype)).unwrap();
    for (operator, weight) in [("table", "weight"), ("layer", "weight"), ("layer", "bias")] {
        let id = graph.operator_by_name(operator).unwrap();
        let attr = graph.attrs_mut(id).unwrap().get_mut(weight).unwrap();
        let numbers = (0..attr.element_count()).map(|i| (i % 61) as f32 - 30.0);
        let bytes: Vec<u8> = match attr.dtype() {
            ir::DType::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
            _ => numbers.flat_map(f32::to_le_bytes).collect(),
        };
        attr.set_data(bytes).unwrap();
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("large").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let param = folder.join("model.pnnx.param");
    graph.save(&param, param.with_extension("bin")).unwrap();
    param
}

#[test]
fn weights_of_a_large_file_are_read_when_they_are_packed() {
    const TABLE: usize = 12500 * 800 * 4;
    let param = large("packed", "f32");
    let inputs = [Tensor::from_slice(&[0i64, 1, 12499, 7, 8, 9], [1, 6]).unwrap()];
    let load = |weights: Weights| {
        Model::load_with(&param, LoadOptions { weights, ..LoadOptions::default() }).unwrap()
    };
    let (streamed, read) = (load(Weights::default()), load(Weights::Read));
    let memory = |model: &Model| {
        let session = model.session(options()).unwrap();
        let outputs = session.run(&inputs).unwrap();
        (outputs, session.plan(&specs(&inputs)).unwrap().memory())
    };
    let ((outputs, of_streamed), (expected, of_read)) = (memory(&streamed), memory(&read));
    assert_eq!(outputs, expected);
    // What is read in place is in memory, what was packed is not beside its packed form.
    assert_eq!(of_read.weights - of_streamed.weights, 700 * 800 * 4);
    assert!((TABLE..TABLE + 4096).contains(&of_streamed.weights), "{of_streamed:?}");
    assert_eq!(of_streamed.packed, of_read.packed);

    // The table counts, and the buffer that the layer is read into while there is one.
    let within = |budget: usize| {
        let session = load(Weights::default()).session(options().with_memory_budget(budget));
        session.unwrap().run(&inputs)
    };
    assert!(within(TABLE).unwrap_err().is_limit());
    assert!(within(of_streamed.total() + (512 << 10)).is_ok());
    // Loading alone takes neither.
    let memory_budget = Some(1 << 20);
    assert!(Model::load_with(&param, LoadOptions { memory_budget, ..Default::default() }).is_ok());

    // A file that is damaged is told apart, and a plan that failed leaves nothing behind.
    let bin = param.with_extension("bin");
    let mut bytes = std::fs::read(&bin).unwrap();
    for (at, weight) in [(bytes.len() / 2, "table.weight"), (bytes.len() - 9999, "layer.weight")] {
        let model = load(Weights::default());
        bytes[at] ^= 1;
        std::fs::write(&bin, &bytes).unwrap();
        let session = model.session(options()).unwrap();
        match session.run(&inputs).unwrap_err() {
            SessionError::Plan { error: PlanError::WeightFile { name, error }, .. } => {
                assert_eq!(name, weight);
                assert!(matches!(error, AttributeError::Checksum { .. }), "{error}");
            }
            other => panic!("{other}"),
        }
        bytes[at] ^= 1;
        std::fs::write(&bin, &bytes).unwrap();
        assert_eq!(session.run(&inputs).unwrap(), expected);
    }

    // Weights of half precision are converted as they are read.
    let param = large("halves", "f16");
    let run = |weights: Weights| {
        let model = Model::load_with(&param, LoadOptions { weights, ..LoadOptions::default() });
        model.unwrap().session(options()).unwrap().run(&inputs).unwrap()
    };
    assert_eq!(run(Weights::Stream), run(Weights::Read));
}

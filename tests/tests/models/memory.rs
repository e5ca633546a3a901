//! The arena of whole networks: hardly larger than what must be alive at once.

use plutino::{DType, MemoryReport, MemoryUse, SessionOptions, TensorSpec, Tolerance};
use plutino_fixtures::Fixture;
use plutino_tests::{fixture, inputs, model, run, specs};

fn memory(name: &str, inputs: &[TensorSpec]) -> MemoryReport {
    let two = SessionOptions::default().with_threads(2); // each has scratch memory of its own
    let session = model(&fixture(name)).session(two).unwrap();
    session.plan(inputs).unwrap().memory()
}

fn image(batch: usize, size: usize) -> Vec<TensorSpec> {
    vec![TensorSpec::new(DType::F32, [batch, 3, size, size])]
}

/// At most 2% above the lower bound, and at most `mib` (to a tenth) of arena.
fn stays_below(name: &str, inputs: &[TensorSpec], mib: f64) {
    let memory = memory(name, inputs);
    let (arena, bound) = (memory.arena as f64, memory.lower_bound as f64);
    assert!(arena <= 1.02 * bound, "{name}: arena {arena}, bound {bound}");
    let found = arena / f64::from(1 << 20);
    assert!(found <= mib + 0.05, "{name}: {found:.1} MiB, should be {mib}");
}

#[test]
fn every_fixture_stays_near_its_bound() {
    for fixture in Fixture::all().unwrap() {
        let memory = memory(&fixture.name, &specs(&inputs(&fixture)));
        let (arena, bound) = (memory.arena as f64, memory.lower_bound as f64);
        assert!(arena <= 1.02 * bound, "{}: arena {arena}, bound {bound}", fixture.name);
    }
}

#[test]
fn low_memory_forgoes_what_enlarges_weights_and_agrees() {
    let fixture = fixture("resnet18");
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let fast = run(&model, &inputs, SessionOptions::default());
    let options = SessionOptions::default().with_memory(MemoryUse::Low);
    let session = model.session(options).unwrap();
    let low = session.run(&inputs).unwrap();
    // Sums of up to some thousand products in another order, as for the fixtures.
    let tolerance = Tolerance { rtol: 0.0, atol: f64::INFINITY };
    let error = low[0].compare(&fast[0], tolerance).unwrap().scaled_error();
    assert!(error <= 1e-5, "{error:.2e}");
    let plan = session.plan(&specs(&inputs)).unwrap();
    for step in plan.steps() {
        assert!(!step.kernel.contains("winograd"), "{}", step.kernel);
    }
}

/// The first convolution's output and that of the pooling after it.
#[test]
fn resnet18_of_eight_images() {
    stays_below("resnet18", &image(8, 224), 30.6);
}

/// The widest layer of the first inverted residual, and what its depthwise convolution makes of it.
#[test]
fn mobilenet_v2_of_one_image() {
    stays_below("mobilenet_v2", &image(1, 224), 5.7);
    stays_below("mobilenet_v2", &image(8, 224), 45.9);
}

/// As for MobileNetV2.
#[test]
fn mobilenet_v3_small_of_one_image() {
    stays_below("mobilenet_v3_small", &image(1, 224), 1.1);
    stays_below("mobilenet_v3_small", &image(8, 224), 8.6);
}

/// The outputs of the first two convolutions, 100 and 50 MiB, and tables of offsets.
#[test]
fn yolov5s_of_eight_images() {
    stays_below("yolov5s", &image(8, 640), 150.1);
}

/// Blocks keep their input for the sum, and widen what is normalized four times.
#[test]
fn convnext_tiny_of_eight_images() {
    stays_below("convnext_tiny", &image(8, 224), 55.6);
}

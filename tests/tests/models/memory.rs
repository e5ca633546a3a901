//! The arena of whole networks: hardly larger than what must be alive at once.

use plutino::kernels::gemm::Machine;
use plutino::{DType, Isa, MemoryReport, MemoryUse, SessionOptions, TensorSpec, Tolerance, Units};
use plutino_fixtures::Fixture;
use plutino_tests::{fixture, inputs, model, run, specs};

fn memory(name: &str, inputs: &[TensorSpec], isa: Isa) -> MemoryReport {
    // Each thread has scratch memory of its own. (On matrix units words of the images as well.)
    let two = SessionOptions::default().with_isa(isa).with_threads(2).with_units(Units::Vectors);
    let session = model(&fixture(name)).session(two).unwrap();
    session.plan(inputs).unwrap().memory()
}

fn image(batch: usize, size: usize) -> Vec<TensorSpec> {
    vec![TensorSpec::new(DType::F32, [batch, 3, size, size])]
}

/// At most 2% above the lower bound, and at most `mib` (to a tenth) of arena, with every
/// instruction set.
fn stays_below(name: &str, inputs: &[TensorSpec], mib: impl Fn(Isa) -> f64) {
    for isa in Isa::available() {
        let memory = memory(name, inputs, isa);
        let (arena, bound) = (memory.arena as f64, memory.lower_bound as f64);
        assert!(arena <= 1.02 * bound, "{name}, {isa}: arena {arena}, bound {bound}");
        let (found, mib) = (arena / f64::from(1 << 20), mib(isa));
        assert!(found <= mib + 0.05, "{name}, {isa}: {found:.2} MiB, should be {mib:.2}");
    }
}

#[test]
fn every_fixture_stays_near_its_bound() {
    for fixture in Fixture::all().unwrap() {
        let (name, inputs) = (&fixture.name, specs(&inputs(&fixture)));
        for isa in Isa::available() {
            let memory = memory(name, &inputs, isa);
            let (arena, bound) = (memory.arena as f64, memory.lower_bound as f64);
            assert!(arena <= 1.02 * bound, "{name}, {isa}: arena {arena}, bound {bound}");
        }
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
    stays_below("resnet18", &image(8, 224), |_| 30.6);
}

/// The widest layer of the first inverted residual, and what its depthwise convolution makes of it.
#[test]
fn mobilenet_v2_of_one_image() {
    stays_below("mobilenet_v2", &image(1, 224), |_| 5.7);
    stays_below("mobilenet_v2", &image(8, 224), |_| 45.9);
}

/// As for MobileNetV2: 72 channels of 56 x 56 and of 28 x 28. In blocks of 16 they are 80.
#[test]
fn mobilenet_v3_small_of_one_image() {
    let padding = |isa: Isa| 72usize.next_multiple_of(isa.lanes()) as f64 / 72.0;
    stays_below("mobilenet_v3_small", &image(1, 224), |isa| 1.077 * padding(isa));
    stays_below("mobilenet_v3_small", &image(8, 224), |isa| 8.613 * padding(isa));
}

/// The outputs of the first two convolutions, 100 and 50 MiB, and tables of offsets.
#[test]
fn yolov5s_of_eight_images() {
    stays_below("yolov5s", &image(8, 640), |_| 150.1);
}

/// Blocks keep their input for the sum, and widen what is normalized four times: 6 x 96 channels of
/// 56 x 56. Each thread packs rows for half a second-level cache.
#[test]
fn convnext_tiny_of_eight_images() {
    let values = f64::from(8 * 6 * 96 * 56 * 56 * 4);
    let packed = 2.0 * Machine::this().l2 as f64 / 2.0;
    stays_below("convnext_tiny", &image(8, 224), |_| (values + packed) / f64::from(1 << 20));
}

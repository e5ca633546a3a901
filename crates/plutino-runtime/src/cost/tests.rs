//! Estimates, by figures that are made up.

use super::*;
use crate::testkit::{model, vector};
use crate::{Dispatch, SessionOptions};
use plutino_tensor::{DType, TensorSpec};

fn machine() -> Machine {
    Machine {
        peak_gflops: 100.0,
        bandwidth: vec![(1000, 10.0), (u64::MAX, 1.0)],
        step_ns: 50.0,
        job_ns: 1000.0,
        enter_ns: 5000.0,
        scaling: 0.5,
        ..Machine::built_in(Isa::PORTABLE)
    }
}

fn estimator(threads: usize) -> Estimator {
    Costs::default().with_machine(machine()).estimator(Isa::PORTABLE, threads)
}

fn key(kind: &str) -> Key {
    let spec = TensorSpec::new(DType::F32, [2, 3]);
    Key::new(kind, "kernel", [&spec], [&spec])
}

#[test]
fn the_slower_of_arithmetic_and_memory_counts() {
    let of = |kernel: &str, flops, bytes, threads| {
        let cost = Cost { flops, bytes, ..Cost::default() };
        let estimate = estimator(threads).estimate(kernel, cost, || key("never asked"));
        (estimate.time.as_nanos(), estimate.bound)
    };
    let gemm = families::of("gemm.avx512").efficiency * 100.0;
    let expected = 50.0 + 1e6 / gemm;
    assert_eq!(of("gemm.avx512", 1_000_000, 8, 1), (expected.round() as u128, Bound::Compute));
    // 900 bytes come with 10 GB/s, 5000 with 1 GB/s.
    assert_eq!(of("gemm.avx512", 0, 900, 1), (140, Bound::Memory));
    assert_eq!(of("gemm.avx512", 0, 5000, 1), (5050, Bound::Memory));
    assert_eq!(of("gemm.avx512", 0, 100, 1), (60, Bound::Overhead));
    // Activations come on top, at the rate of elementwise functions.
    let cost = Cost { flops: 1_000_000, bytes: 8, activations: 1000 };
    let with = estimator(1).nanos("gemm.avx512", cost, || key("never asked")).alone;
    let function = 1.0 / (families::of("elementwise").efficiency * 100.0);
    assert!((with - expected - 1000.0 * function).abs() < 1e-6, "{with}");
    // A second thread adds half of one, and costs a job; what is small is not shared.
    assert_eq!(of("gemm.avx512", 0, 60_000, 2), (50 + 1000 + 40_000, Bound::Memory));
    assert_eq!(of("gemm.avx512", 0, 900, 2), (140, Bound::Memory));
    assert_eq!(of("append", 0, 60_000, 2), (60_050, Bound::Memory), "never shared");
}

#[test]
fn a_malformed_file_is_told_its_place_once() {
    let file = std::env::temp_dir().join(format!("plutino-cut-costs-{}.json", std::process::id()));
    std::fs::write(&file, "{\"plutino\":").unwrap();
    let message = Recorded::read(&file).unwrap_err().to_string();
    std::fs::remove_file(&file).unwrap();
    assert!(message.contains("line 1, column 11: EOF"), "{message}");
    assert_eq!(message.matches("line 1").count(), 1, "{message}");
}

#[test]
fn the_longest_prefix_names_the_family() {
    assert_eq!(families::of("conv.winograd4x4_3x3.c16.avx512").prefix, "conv.winograd4x4_3x3");
    assert_eq!(families::of("conv.winograd4x4_3x3s2.c8").prefix, "conv.winograd4x4_3x3s2");
    assert_eq!(families::of("something else").prefix, "");
    for (i, family) in families::TABLE.iter().enumerate() {
        assert!(family.efficiency > 0.0 && !family.prefix.is_empty());
        assert!(families::TABLE[i + 1..].iter().all(|other| other.prefix != family.prefix));
    }
    for algorithm in plutino_kernels::conv::ALGORITHMS {
        let of = |scaled: &str| families::of(&format!("conv.{scaled}{}.c16", algorithm.name));
        assert!(of("").prefix.starts_with("conv."), "{} has no row", algorithm.name);
        assert_eq!(of("scaled_"), of(""));
    }
    let mut measured = machine();
    measured.efficiency.insert("gemm".into(), 0.5);
    let estimator = Costs::default().with_machine(measured).estimator(Isa::PORTABLE, 1);
    let cost = Cost { flops: 1_000_000, ..Cost::default() };
    assert_eq!(estimator.nanos("gemm.x", cost, || key("")).alone, 50.0 + 20_000.0);
}

#[test]
fn what_was_measured_counts_more() {
    let mut recorded = Recorded::default();
    recorded.insert(key("a"), &Isa::PORTABLE.to_string(), 1, 70_050.0);
    recorded.insert(key("a"), &Isa::PORTABLE.to_string(), 4, 123.0);
    let costs = Costs::default().with_machine(machine()).with_recorded(recorded);
    let of = |kind, threads| {
        let estimator = costs.estimator(Isa::PORTABLE, threads);
        let estimate = estimator.estimate("kernel", Cost::default(), || key(kind));
        (estimate.alone.as_nanos(), estimate.time.as_nanos(), estimate.bound)
    };
    assert_eq!(of("a", 1), (70_050, 70_050, Bound::Recorded));
    assert_eq!(of("a", 4), (70_050, 123, Bound::Recorded));
    // Not measured on two threads: shared as the machine shares.
    assert_eq!(of("a", 2), (70_050, 50 + 1000 + 46_667, Bound::Recorded));
    assert_eq!(of("b", 1).2, Bound::Overhead);
}

const CHAIN: &str = "
    pnnx.Input in 0 1 0 #0=(64)f32
    test.Sleep a 1 1 0 1
    test.Reverse b 1 1 1 2
    test.Sleep c 1 1 2 3
    pnnx.Output out 1 0 3";

#[test]
fn runs_are_recorded_and_used() {
    let model = model(CHAIN);
    let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
    let profiles: Vec<_> =
        (0..3).map(|_| session.profile(&[vector(&[1.0; 64])]).unwrap().1).collect();
    let mut recorded = Recorded::default();
    recorded.record(&profiles, session.isa(), session.threads());
    // Two that are alike, and another one.
    assert_eq!(recorded.len(), 2);
    let plan = session.plan(&[TensorSpec::new(DType::F32, [64])]).unwrap();
    let estimated = session.estimator().plan(&plan);
    assert!(estimated.time.as_micros() < 100, "nobody knows how long it sleeps");
    let options = SessionOptions::default()
        .with_threads(1)
        .with_costs(Costs::default().with_recorded(recorded.clone()));
    let told = model.session(options).unwrap().estimator().plan(&plan);
    assert!(told.time.as_millis() >= 10, "{:?}", told.time);
    assert!(told.steps.iter().all(|s| s.estimate.unwrap().bound == Bound::Recorded));
    assert_eq!((told.steps[1].output, told.steps[1].scratch), (256, 256));
    let mut both = Recorded::default();
    let (first, ..) = recorded.iter().next().unwrap();
    both.insert(first.clone(), "other", 1, 5.0);
    both.insert(first.clone(), &session.isa().to_string(), 1, 5.0);
    both.merge(&recorded);
    assert_eq!(both.len(), 3);
    assert_eq!(both.get(first, session.isa(), 1), recorded.get(first, session.isa(), 1));
}

/// What is known of operators decides who runs beside whom.
#[test]
fn recorded_costs_decide_on_chains() {
    let lines = "
        pnnx.Input in 0 1 0 #0=(64)f32
        test.Sleep a 1 1 0 1
        test.Sleep b 1 1 0 2
        test.Add c 2 1 1 2 3
        pnnx.Output out 1 0 3";
    let model = model(lines);
    let spec = [TensorSpec::new(DType::F32, [64])];
    let plan = |costs: Costs| {
        let options = SessionOptions::default().with_threads(2).with_dispatch(Dispatch::ByCost);
        model.session(options.with_costs(costs)).unwrap().plan(&spec).unwrap()
    };
    let costs = Costs::default().with_machine(machine());
    assert!(plan(costs.clone()).runs_alone());
    let one = model.session(SessionOptions::default().with_threads(1)).unwrap();
    let two = model
        .session(SessionOptions::default().with_threads(2).with_dispatch(Dispatch::InTurn))
        .unwrap();
    let mut recorded = Recorded::default();
    for session in [&one, &two] {
        let (_, profile) = session.profile(&[vector(&[1.0; 64])]).unwrap();
        recorded.record(&[profile], session.isa(), session.threads());
    }
    let known = plan(costs.with_recorded(recorded));
    assert!(!known.runs_alone());
    let chains: Vec<_> = known.phases().flat_map(|phase| phase.chains).collect();
    assert_eq!(chains.len(), 2, "two that sleep, on two threads");
    let (before, after) = known.phases().find_map(|phase| phase.estimated).unwrap();
    assert!(before.as_millis() >= 10 && after.as_millis() < 10, "{before:?} {after:?}");
}

#[cfg(feature = "costs")]
mod files {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("plutino-costs-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read() {
        let mut recorded = Recorded::default();
        recorded.insert(key("a"), "avx2", 2, 1234.5);
        recorded.insert(key("b \"quoted\""), "scalar", 1, 1.0);
        let file = path("recorded");
        recorded.write(&file).unwrap();
        let read = Recorded::read(&file).unwrap();
        assert_eq!(read.len(), 2);
        for ((a, isa, threads, ns), (b, ..)) in recorded.iter().zip(read.iter()) {
            assert_eq!(a, b);
            let found = read.iter().find(|(key, ..)| *key == a).unwrap();
            assert_eq!((found.1, found.2), (isa, threads));
            assert!((found.3 - ns).abs() < 1e-6);
        }
        let mut machine = machine();
        machine.efficiency.insert("gemm".into(), 0.875);
        machine.write(&file).unwrap();
        assert_eq!(Machine::read(&file).unwrap(), machine);
        // Each is told from the other.
        let error = Recorded::read(&file).unwrap_err();
        assert!(matches!(error, CostsError::Malformed { .. }), "{error}");
        std::fs::remove_file(&file).unwrap();
        let error = Machine::read(&file).unwrap_err();
        assert!(matches!(error, CostsError::Io { what: "read", .. }), "{error}");
    }

    #[test]
    fn damaged_files_are_errors() {
        let file = path("damaged");
        machine().write(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
            Machine::read(&file).unwrap_err().to_string()
        };
        let error = with("\"peak_gflops\": 100.0", "\"peak_gflops\": -1.0");
        assert!(
            error.ends_with("peak_gflops must be a number between 0 and 1e9, found -1"),
            "{error}"
        );
        assert!(with("\"scaling\": 0.5", "\"scaling\": 7.5").contains("between 0 and 1"));
        assert!(with("\"version\": 1", "\"version\": 9").contains("version must be 1, found 9"));
        assert!(with("\"machine\"", "\"costs\"").contains("plutino must be machine"));
        assert!(with("1000,", "null,").contains("ascending"));
        // Cut off anywhere, and with any byte changed: an error or other figures, never a panic.
        for end in 0..text.len() {
            std::fs::write(&file, &text[..end]).unwrap();
            let _ = Machine::read(&file);
            let mut bytes = text.clone().into_bytes();
            bytes[end] ^= 0x15;
            std::fs::write(&file, bytes).unwrap();
            let _ = Machine::read(&file);
        }
        std::fs::write(&file, "[".repeat(100_000)).unwrap();
        assert!(Recorded::read(&file).is_err());
        std::fs::remove_file(&file).unwrap();
    }
}

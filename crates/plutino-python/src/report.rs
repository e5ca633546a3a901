//! Plans and profiles as plain values of Python.

use std::time::Duration;

use plutino::compare::{CompareReport, Verdict};
use plutino::{Frame, MemoryReport, Plan, Profile};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Bytes by what takes them, with their total: the fields of `MemoryReport`.
pub(crate) fn memory<'py>(py: Python<'py>, memory: &MemoryReport) -> PyResult<Bound<'py, PyDict>> {
    let bytes = PyDict::new(py);
    for (name, value) in [
        ("total", memory.total()),
        ("weights", memory.weights),
        ("mapped", memory.mapped),
        ("packed", memory.packed),
        ("tables", memory.tables),
        ("arena", memory.arena),
        ("outputs", memory.outputs),
        ("state", memory.state),
        ("scratch", memory.scratch),
        ("lower_bound", memory.lower_bound),
        ("constants", memory.constants),
        ("unshared", memory.unshared),
    ] {
        bytes.set_item(name, value)?;
    }
    Ok(bytes)
}

/// The steps of a plan, each a dictionary.
fn steps<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let steps = plan.steps().map(|info| {
        let step = PyDict::new(py);
        step.set_item("operator", &info.location.name)?;
        step.set_item("kind", &info.location.kind)?;
        step.set_item("line", info.location.line)?;
        step.set_item("kernel", &info.kernel)?;
        step.set_item("absorbed", &info.absorbed)?;
        let specs = |values: &[plutino::runtime::ValueReport]| {
            values.iter().map(|value| (value.name.clone(), value.spec.clone())).collect::<Vec<_>>()
        };
        step.set_item("inputs", specs(&info.inputs))?;
        step.set_item("outputs", specs(&info.outputs))?;
        step.set_item("scratch", info.scratch)?;
        step.set_item("flops", info.cost.flops)?;
        step.set_item("bytes", info.cost.bytes)?;
        Ok(step)
    });
    steps.collect()
}

/// A plan: steps, memory, warnings.
pub(crate) fn plan<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("steps", PyList::new(py, steps(py, plan)?)?)?;
    all.set_item("memory", memory(py, &plan.memory())?)?;
    let warnings = plan.warnings().iter().map(ToString::to_string);
    all.set_item("warnings", warnings.collect::<Vec<_>>())?;
    Ok(all)
}

/// A profile: the steps of its plan with their times, in seconds.
pub(crate) fn profile<'py>(py: Python<'py>, profile: &Profile) -> PyResult<Bound<'py, PyDict>> {
    let steps = steps(py, &profile.plan)?;
    for (step, time) in steps.iter().zip(&profile.steps) {
        step.set_item("start", time.start.as_secs_f64())?;
        step.set_item("seconds", time.duration.as_secs_f64())?;
    }
    let all = PyDict::new(py);
    all.set_item("steps", PyList::new(py, steps)?)?;
    all.set_item("total", profile.total.as_secs_f64())?;
    all.set_item("between", profile.between().as_secs_f64())?;
    let busy = |parts: &Vec<plutino::runtime::ThreadWork>| {
        parts.iter().map(|part| part.duration).sum::<Duration>().as_secs_f64()
    };
    all.set_item("threads", profile.threads.iter().map(busy).collect::<Vec<_>>())?;
    all.set_item("frames", frames(py, &profile.plan, &profile.frames)?)?;
    all.set_item("frames_left_out", profile.frames_left_out)?;
    Ok(all)
}

/// What control operators of a plan ran, each a dictionary, with the frames within.
fn frames<'py>(py: Python<'py>, plan: &Plan, all: &[Frame]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let names: Vec<String> = plan.steps().map(|step| step.location.name).collect();
    let frames = all.iter().map(|frame| {
        let item = PyDict::new(py);
        item.set_item("operator", names.get(frame.step))?;
        item.set_item("part", frame.part)?;
        item.set_item("kind", &frame.kind)?;
        item.set_item("trip", frame.trip)?;
        item.set_item("start", frame.start.as_secs_f64())?;
        item.set_item("seconds", frame.duration.as_secs_f64())?;
        item.set_item("frames", frames(py, &frame.plan, &frame.frames)?)?;
        Ok(item)
    });
    frames.collect()
}

/// Values that were compared with a reference, each a dictionary, in the order of the run.
pub(crate) fn comparison<'py>(
    py: Python<'py>,
    report: &CompareReport,
) -> PyResult<Bound<'py, PyDict>> {
    let values = report.values.iter().map(|value| {
        let item = PyDict::new(py);
        item.set_item("operand", &value.operand)?;
        item.set_item("operator", &value.location.name)?;
        item.set_item("kind", &value.location.kind)?;
        item.set_item("line", value.location.line)?;
        item.set_item("kernel", &value.kernel)?;
        item.set_item("inputs", &value.inputs)?;
        item.set_item("spec", &value.spec)?;
        item.set_item("wrong", value.verdict.is_wrong())?;
        let (verdict, why) = match &value.verdict {
            Verdict::Match => ("match", None),
            Verdict::Differs => ("differs", None),
            Verdict::Spec(why) => ("spec", Some(why)),
            Verdict::Failed(why) => ("failed", Some(why)),
            Verdict::Skipped(why) => ("skipped", Some(why)),
            _ => ("other", None),
        };
        item.set_item("verdict", verdict)?;
        item.set_item("why", why)?;
        item.set_item("error", value.error.as_ref().map(|error| error.scaled))?;
        item.set_item("tolerance", value.error.as_ref().map(|error| error.tolerance))?;
        Ok(item)
    });
    let all = PyDict::new(py);
    all.set_item("values", values.collect::<PyResult<Vec<_>>>()?)?;
    all.set_item("unseen", &report.unseen)?;
    Ok(all)
}

//! The memory of a model and a plan: sums, and value by value and piece by piece, as rows.

use crate::failure::Failure;
use crate::output::{Output, bytes};
use plutino::{Allocation, MemoryReport, Plan, PlannedValue, ValueStorage};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// What a model takes while it is run: [`MemoryReport`], the same for every command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    /// Weights as read and as packed, tables, arena and outputs.
    total_bytes: usize,
    weight_bytes: usize,
    packed_bytes: usize,
    table_bytes: usize,
    arena_bytes: usize,
    output_bytes: usize,
    scratch_bytes: usize,
    lower_bound_bytes: usize,
    constant_bytes: usize,
    mapped_bytes: usize,
    /// Every value in memory of its own.
    unshared_bytes: usize,
}

impl From<MemoryReport> for Totals {
    fn from(memory: MemoryReport) -> Self {
        Self {
            total_bytes: memory.total(),
            weight_bytes: memory.weights,
            packed_bytes: memory.packed,
            table_bytes: memory.tables,
            arena_bytes: memory.arena,
            output_bytes: memory.outputs,
            scratch_bytes: memory.scratch,
            lower_bound_bytes: memory.lower_bound,
            constant_bytes: memory.constants,
            mapped_bytes: memory.mapped,
            unshared_bytes: memory.unshared,
        }
    }
}

impl Totals {
    /// The sum, and what it is made of.
    pub(crate) fn sum(&self) -> String {
        let size = |n: usize| bytes(n as u64);
        let weights = match (self.weight_bytes, self.mapped_bytes) {
            (0, 0) => String::new(),
            (0, mapped) => format!(" (weights of {} are mapped)", size(mapped)),
            (read, _) => format!(" + weights {}", size(read)),
        };
        format!(
            "{} = packed {} + tables {} + arena {} + outputs {}{weights}",
            size(self.total_bytes),
            size(self.packed_bytes),
            size(self.table_bytes),
            size(self.arena_bytes),
            size(self.output_bytes)
        )
    }
}

/// All of them, with what they mean.
pub(crate) fn print_totals(memory: &Totals, out: &mut Output) -> Result<(), Failure> {
    for (name, size, meaning) in [
        ("total", memory.total_bytes, "what the model takes while it runs: the next five"),
        ("weights", memory.weight_bytes, "read from the file"),
        ("packed", memory.packed_bytes, "weights in the form that kernels want"),
        ("tables", memory.table_bytes, "tables of kernels, values computed while planning"),
        ("arena", memory.arena_bytes, "intermediate values and scratch of a run"),
        ("outputs", memory.output_bytes, "tensors that a run returns"),
        ("mapped", memory.mapped_bytes, "weights that the system reads from the file when needed"),
        ("lower bound", memory.lower_bound_bytes, "alive at one time: no arena can be smaller"),
        ("scratch", memory.scratch_bytes, "the largest of a step, part of the arena"),
        ("constants", memory.constant_bytes, "part of what is packed, and of tables"),
        ("unshared", memory.unshared_bytes, "every value in memory of its own"),
    ] {
        writeln!(out, "{name:<12} {:>10}  {meaning}", bytes(size as u64))?;
    }
    Ok(())
}

/// A tensor of a plan.
#[derive(Serialize)]
pub(crate) struct ValueRow {
    name: String,
    /// bound, constant, internal or dynamic.
    kind: &'static str,
    /// Dtype, shape and layout; none where the shape depends on data.
    spec: Option<String>,
    bytes: usize,
    /// How often operators read it, and results are taken of it.
    references: usize,
    /// Steps: what makes it, and the first and last that read it or a view of it.
    made: Option<usize>,
    first_use: Option<usize>,
    last_use: Option<usize>,
    /// Whether it is a result of the run.
    result: bool,
    storage: String,
    /// Bytes from the start of what it lies in.
    offset: Option<usize>,
    /// `view of`, `in place of`, `part of` or `same as` another value.
    #[serde(skip_serializing_if = "Option::is_none")]
    shares: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<String>,
}

impl From<&PlannedValue> for ValueRow {
    fn from(value: &PlannedValue) -> Self {
        let shares = value.shares.as_ref();
        Self {
            name: value.name.clone(),
            kind: value.kind.name(),
            spec: value.spec.as_ref().map(ToString::to_string),
            bytes: value.bytes,
            references: value.references,
            made: value.made,
            first_use: value.used.map(|(first, _)| first),
            last_use: value.used.map(|(_, last)| last),
            result: value.fetched,
            storage: value.storage.to_string(),
            offset: match value.storage {
                ValueStorage::Feed { offset, .. }
                | ValueStorage::Constant { offset, .. }
                | ValueStorage::Arena { offset }
                | ValueStorage::Output { offset, .. } => Some(offset),
                _ => None,
            },
            shares: shares.map(|(how, _)| how.words()),
            with: shares.map(|(_, with)| with.clone()),
        }
    }
}

/// What steps take of the arena: an entry of the log of allocations.
#[derive(Debug, Serialize)]
pub(crate) struct AllocationRow {
    step: usize,
    /// The operator of that step.
    operator: String,
    /// The values that lie there, at one time or another; none: scratch memory of the step.
    values: Vec<String>,
    bytes: usize,
    offset: usize,
    /// The last step that needs it, and its operator; none where a result is copied out of it when
    /// all steps are done.
    freed_by: Option<usize>,
    freed_by_operator: Option<String>,
}

/// What a plan takes of its arena, in the order in which it does.
pub(crate) fn allocations(plan: &Plan) -> Vec<AllocationRow> {
    let operators: Vec<String> = plan.steps().map(|step| step.location.name).collect();
    let operator = |step: usize| operators.get(step).cloned().unwrap_or_default();
    let row = |a: &Allocation| AllocationRow {
        step: a.step,
        operator: operator(a.step),
        values: a.values.clone(),
        bytes: a.bytes,
        offset: a.offset,
        freed_by: a.freed_by,
        freed_by_operator: a.freed_by.map(operator),
    };
    plan.allocations().iter().map(row).collect()
}

pub(crate) fn print_values(values: &[ValueRow], out: &mut Output) -> Result<(), Failure> {
    let number = |n: Option<usize>| n.map(|n| n.to_string()).unwrap_or_default();
    let rows = values.iter().map(|v| {
        let last = if v.result { "end".to_owned() } else { number(v.last_use) };
        let shares = v.shares.zip(v.with.as_deref()).map(|(how, with)| format!("{how} {with}"));
        vec![
            v.name.clone(),
            v.kind.to_owned(),
            v.spec.clone().unwrap_or_else(|| "(depends on data)".into()),
            v.bytes.to_string(),
            v.references.to_string(),
            number(v.made),
            number(v.first_use),
            last,
            v.storage.clone(),
            shares.unwrap_or_default(),
        ]
    });
    let header =
        ["value", "kind", "type", "bytes", "uses", "made", "first", "last", "storage", "shares"];
    out.table(&header, rows.collect())
}

pub(crate) fn print_allocations(rows: &[AllocationRow], out: &mut Output) -> Result<(), Failure> {
    let rows = rows.iter().map(|a| {
        let freed_by = match (&a.freed_by, &a.freed_by_operator) {
            (Some(step), Some(operator)) => format!("{operator} ({step})"),
            _ => "the end of the run".into(),
        };
        vec![
            a.step.to_string(),
            a.operator.clone(),
            if a.values.is_empty() { "(scratch)".into() } else { a.values.join(" ") },
            a.bytes.to_string(),
            a.offset.to_string(),
            freed_by,
        ]
    });
    out.table(&["step", "operator", "value", "bytes", "offset", "freed by"], rows.collect())
}

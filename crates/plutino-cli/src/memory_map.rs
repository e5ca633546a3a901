//! The memory of a plan, value by value and piece by piece, as rows.

use crate::failure::Failure;
use crate::output::Output;
use plutino::{Allocation, Plan, PlannedValue, ValueStorage};
use serde::Serialize;

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

//! Operators that options name: what is told of those that the model or the plan does not have.

use crate::failure::Failure;
use plutino::ir::{Operator, quote};
use plutino::ops::most_similar;
use plutino::runtime::knobs;
use plutino::{Model, PlacementNote, Plan};

/// What planning warns of, also of what was asked for and is not so.
pub(crate) fn warnings(model: &Model, plan: &Plan) -> Vec<String> {
    let warnings = plan.warnings().iter().map(ToString::to_string);
    warnings.chain(misplaced(model, plan)).collect()
}

/// What was asked of a placement and is not so.
pub(crate) fn misplaced(model: &Model, plan: &Plan) -> Vec<String> {
    let notes = plan.placement().notes.iter();
    notes.map(|note| told(model, note)).collect()
}

fn told(model: &Model, note: &PlacementNote) -> String {
    let PlacementNote::NothingMatches { what } = note else { return note.to_string() };
    let is_meant = |op: &Operator| {
        let rest = op.name.strip_prefix(what.as_str());
        op.kind == *what || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if operators(model).any(is_meant) {
        return format!(
            "'{}' means nothing of the plan: what the model has of that name, scope or type was \
             left out or became part of others (--disable leaves out passes)",
            quote(what)
        );
    }
    let nearest = most_similar(what, operators(model).flat_map(names));
    format!("{note}{}", suggestion(nearest))
}

/// An error where the environment names an operator that none of the models of a command has: a
/// session alone cannot tell, since the variable may mean another one. (What options name is
/// checked by sessions.)
pub(crate) fn check_environment(models: &[&Model]) -> Result<(), Failure> {
    Ok(Model::check_passes_off(models, knobs::PASSES_OFF.name, &knobs::passes_off())?)
}

fn operators(model: &Model) -> impl Iterator<Item = &Operator> {
    model.graph().operators().map(|(_, op)| op)
}

/// By what an operator can be called: its name, the scopes that it is in, its type.
fn names(op: &Operator) -> impl Iterator<Item = &str> {
    let scopes = op.name.match_indices('.').filter_map(|(at, _)| op.name.get(..at));
    scopes.chain([op.name.as_str(), op.kind.as_str()])
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || " (`plutino info MODEL --plan` shows them)".to_owned(),
        |name| format!("; the most similar one is '{}'", quote(name)),
    )
}

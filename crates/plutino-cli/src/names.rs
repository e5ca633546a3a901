//! Operators that options name: what is told of those that the model or the plan does not have.

use crate::failure::Failure;
use plutino::ir::{Operator, quote};
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
    let nearest = nearest(what, operators(model).flat_map(names));
    format!("{note}{}", suggestion(nearest))
}

/// An error where a pass is to leave an operator alone (`fuse@conv1`) that none of the models has.
pub(crate) fn check_disabled(models: &[&Model], disabled: &[String]) -> Result<(), Failure> {
    let operators = || models.iter().flat_map(|model| operators(model));
    // Bodies of branches and loops have operators of their own, which nobody shows.
    if operators().any(|op| op.kind.starts_with("plutino.")) {
        return Ok(());
    }
    let known = |name| models.iter().any(|model| model.graph().operator_by_name(name).is_some());
    for asked in disabled {
        let Some((_, name)) = asked.split_once('@') else { continue };
        // A step of a composite operator is called after it: `encoder/linear1`.
        let mut wholes = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
        if !known(name) && !wholes.any(known) {
            let nearest = nearest(name, operators().map(|op| op.name.as_str()));
            return Err(Failure::usage(format!(
                "--disable {}: the model has no operator of this name{}",
                quote(asked),
                suggestion(nearest)
            )));
        }
    }
    Ok(())
}

fn operators(model: &Model) -> impl Iterator<Item = &Operator> {
    model.graph().operators().map(|(_, op)| op)
}

/// By what an operator can be called: its name, the scopes that it is in, its type.
fn names(op: &Operator) -> impl Iterator<Item = &str> {
    let scopes = op.name.match_indices('.').filter_map(|(at, _)| op.name.get(..at));
    scopes.chain([op.name.as_str(), op.kind.as_str()])
}

/// Bytes of a name that is compared with others.
const MOST: usize = 200;

/// The most similar name, if any is similar.
fn nearest<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if what.len() > MOST {
        return None;
    }
    let alike = names.filter(|name| name.len() <= MOST);
    let alike = alike.map(|name| (strsim::jaro_winkler(name, what), name));
    let alike = alike.filter(|(similarity, _)| *similarity > 0.8);
    alike.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || " (`plutino info MODEL --plan` shows them)".to_owned(),
        |name| format!("; the most similar one is '{}'", quote(name)),
    )
}

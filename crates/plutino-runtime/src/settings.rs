//! What operators are planned with: the setting of the session, and what is asked for some of them.

use crate::load::model::Inner;
use crate::{Model, SessionError};
use plutino_ops::{Location, Precision, Setting, most_similar};
use std::collections::HashSet;

/// The setting of a session, and where it differs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// That of all operators that nothing else was asked for.
    pub(crate) base: Setting,
    /// The last one that means an operator counts.
    precisions: Vec<Asked>,
}

/// A precision for some operators.
#[derive(Debug, Clone)]
struct Asked {
    /// Their name, scope or type.
    what: String,
    precision: Precision,
    /// Names of the model's operators of this type. A composite one is planned as steps, of types
    /// and names of their own: `encoder/linear1` is a step of `encoder`.
    typed: HashSet<String>,
}

impl Settings {
    /// Without a model: types of composite operators mean nothing yet.
    pub(crate) fn new(base: Setting, precisions: Vec<(String, Precision)>) -> Self {
        let asked = |(what, precision)| Asked { what, precision, typed: HashSet::default() };
        Self { base, precisions: precisions.into_iter().map(asked).collect() }
    }

    /// Looks up in a model what is asked for.
    ///
    /// # Errors
    /// Where neither the model nor a body of its control flow has such an operator.
    pub(crate) fn know(&mut self, model: &Inner) -> Result<(), SessionError> {
        for asked in &mut self.precisions {
            if !asked.find(model) {
                return Err(SessionError::Option {
                    option: "precision_of".into(),
                    expected: "the name, scope or type of an operator of the model".into(),
                    found: asked.what.clone(),
                });
            }
        }
        Ok(())
    }

    /// What the operator at this place is planned with.
    pub(crate) fn of(&self, location: &Location) -> Setting {
        let mut setting = self.base;
        if let Some(asked) = self.precisions.iter().rev().find(|asked| asked.means(location)) {
            setting.precision = asked.precision;
        }
        setting
    }
}

impl Asked {
    /// Notes the operators of this type; whether any operator has the name, scope or type. (Bodies
    /// do not contain themselves: loading refuses that.)
    fn find(&mut self, model: &Inner) -> bool {
        let mut found = false;
        for (_, op) in model.graph.operators() {
            found |= is_called(&self.what, &op.name, &op.kind);
            if op.kind == self.what {
                self.typed.insert(op.name.clone());
            }
        }
        let bodies = model.controls.iter().flat_map(|(_, control)| control.flow.bodies());
        bodies.fold(found, |found, body| self.find(&body.inner) || found)
    }

    fn means(&self, location: &Location) -> bool {
        let name = &location.name;
        let mut wholes = name.match_indices(STEP_OF).filter_map(|(at, _)| name.get(..at));
        is_meant(&self.what, location) || wholes.any(|whole| self.typed.contains(whole))
    }
}

impl Model {
    /// Whether an operator of the model, or of a body of its control flow, has this name. A step of
    /// a composite operator is called after it: `encoder/linear1`.
    pub fn has_operator(&self, name: &str) -> bool {
        let wholes = name.match_indices(STEP_OF).filter_map(|(at, _)| name.get(..at));
        let parts = self.inner.parts();
        let known = |name| parts.iter().any(|part| part.graph.operator_by_name(name).is_some());
        wholes.chain([name]).any(known)
    }

    /// An error where a pass is to leave an operator alone (`fuse@conv1`) that none of the models
    /// has. `option` is where that was asked for.
    ///
    /// # Errors
    /// [`SessionError::NoSuchOperator`].
    pub fn check_passes_off<'a>(
        models: &[&Self],
        option: &str,
        asked: impl IntoIterator<Item = &'a String>,
    ) -> Result<(), SessionError> {
        for asked in asked {
            let Some((_, name)) = asked.split_once('@') else { continue };
            if models.iter().any(|model| model.has_operator(name)) {
                continue;
            }
            let parts: Vec<&Inner> = models.iter().flat_map(|model| model.inner.parts()).collect();
            let names = parts.iter().flat_map(|part| part.graph.operators());
            let nearest = most_similar(name, names.map(|(_, op)| op.name.as_str()));
            return Err(SessionError::NoSuchOperator {
                option: option.to_owned(),
                asked: asked.clone(),
                nearest: nearest.map(str::to_owned),
            });
        }
        Ok(())
    }
}

/// Between the name of a composite operator and that of one of its steps: `encoder/linear1`.
pub(crate) const STEP_OF: char = '/';

/// Whether an operator is called so: by its name, a scope that it is in, or its type. Steps of a
/// composite operator (`encoder/linear1`) are in a scope of its name.
pub(crate) fn is_called(what: &str, name: &str, kind: &str) -> bool {
    let scope = name
        .strip_prefix(what)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', STEP_OF]));
    scope || kind == what
}

/// Whether an operator of a plan is called so.
pub(crate) fn is_meant(what: &str, location: &Location) -> bool {
    is_called(what, &location.name, &location.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_kernels::Isa;

    #[test]
    fn the_last_that_means_an_operator_counts() {
        let asked = [
            ("nn.Linear", Precision::Medium),
            ("layer1", Precision::High),
            ("layer1.0", Precision::Highest),
        ];
        let asked = asked.map(|(what, precision)| (what.to_owned(), precision)).to_vec();
        let mut base = Setting::new(Isa::PORTABLE, 1);
        base.precision = Precision::Highest;
        let settings = Settings::new(base, asked);
        let of = |name: &str, kind: &str| {
            let (name, kind) = (name.to_owned(), kind.to_owned());
            settings.of(&Location { name, kind, ..Location::default() }).precision
        };
        assert_eq!(of("head", "nn.Linear"), Precision::Medium);
        assert_eq!(of("head", "nn.Conv2d"), Precision::Highest);
        assert_eq!(of("layer1.1.conv", "nn.Linear"), Precision::High);
        assert_eq!(of("layer1.0.conv", "nn.Linear"), Precision::Highest);
        assert_eq!(of("layer10.conv", "nn.Conv2d"), Precision::Highest);
        assert_eq!(of("layer1/linear", "nn.Conv2d"), Precision::High);
    }
}

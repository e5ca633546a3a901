//! The bodies of a model's control operators, and what became of them: for those who look on.

use super::Controls;
use crate::load::model::Inner;
use crate::{Model, Plan, Session};
use plutino_ir::Graph;
use plutino_ops::Location;
use std::sync::Arc;

/// A model that an operator of control flow runs. See [`Model::bodies`].
#[derive(Clone)]
#[non_exhaustive]
pub struct BodyInfo {
    /// The operator.
    pub operator: Location,
    /// The parameter that names the body: `then`, `else`, `cond`, `body`.
    pub part: &'static str,
    /// Its type.
    pub kind: String,
    inner: Arc<Inner>,
}

impl BodyInfo {
    /// What it consists of.
    pub fn graph(&self) -> &Graph {
        &self.inner.graph
    }

    /// Whether both are the same model: one that is named several times is decoded and planned
    /// once, unless nodes have weights for it.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl std::fmt::Debug for BodyInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}={}", self.operator, self.part, self.kind)
    }
}

impl Model {
    /// The bodies of `plutino.If`, `plutino.While` and `plutino.Scan`, each followed by those of
    /// its own operators where these were not listed before.
    pub fn bodies(&self) -> Vec<BodyInfo> {
        fn listed(inner: &Inner, bodies: &mut Vec<BodyInfo>) {
            let controls: &Controls = &inner.controls;
            for (id, control) in controls {
                for body in control.flow.bodies() {
                    let seen = bodies.iter().any(|other| Arc::ptr_eq(&other.inner, &body.inner));
                    bodies.push(BodyInfo {
                        operator: inner.location(*id),
                        part: body.part,
                        kind: body.kind.clone(),
                        inner: Arc::clone(&body.inner),
                    });
                    if !seen {
                        listed(&body.inner, bodies); // as deep as control operators may nest
                    }
                }
            }
        }
        let mut bodies = Vec::new();
        listed(&self.inner, &mut bodies);
        bodies
    }
}

impl Session {
    /// The plans of a body that are kept at the moment: for the shapes with which it ran, or with
    /// which the plan around was made. None before that.
    pub fn body_plans(&self, body: &BodyInfo) -> Vec<Arc<Plan>> {
        self.bound().plans(&body.inner)
    }
}

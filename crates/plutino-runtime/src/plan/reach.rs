//! Why a value cannot be computed from what is fed: what is missing, and what could be fed instead.

use crate::SessionError;
use crate::load::model::Inner;
use crate::plan::net::ValueId;
use plutino_ir::{Operand, OperandId, OperatorId};

/// The error of a fetch that cannot be computed. `ready` says of every value whether it can,
/// `order` is an order in which operators can run.
pub(crate) fn not_fed(
    model: &Inner,
    order: &[OperatorId],
    ready: &[bool],
    fetch: ValueId,
) -> SessionError {
    let search = Search::new(model, ready, fetch);
    let (missing, instead) = search.between(order);
    let name = |id: usize| search.operands.get(id).copied().flatten().map(|o| o.name.clone());
    let names = |ids: Vec<usize>| ids.into_iter().filter_map(name).collect();
    SessionError::NotFed {
        fetch: name(fetch.0).unwrap_or_default(),
        missing: names(missing),
        instead: names(instead),
    }
}

/// The values above a fetch that cannot be computed, by number.
struct Search<'a> {
    model: &'a Inner,
    operands: Vec<Option<&'a Operand>>,
    /// Whether the value is one of them.
    above: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(model: &'a Inner, ready: &[bool], fetch: ValueId) -> Self {
        let mut operands = vec![None; ready.len()];
        for (id, operand) in model.graph.operands() {
            operands[id.index()] = Some(operand);
        }
        let mut search = Self { model, operands, above: vec![false; ready.len()] };
        let mut stack = vec![fetch.0];
        while let Some(at) = stack.pop() {
            if ready[at] || std::mem::replace(&mut search.above[at], true) {
                continue;
            }
            let producer = search.operands[at].and_then(|o| o.producer);
            let inputs = producer.and_then(|op| model.graph.operator(op)).map(|op| &op.inputs);
            stack.extend(inputs.into_iter().flatten().map(|i| i.index()));
        }
        search
    }

    fn above(&self, ids: &'a [OperandId]) -> impl Iterator<Item = usize> + '_ {
        ids.iter().map(|id| id.index()).filter(|&id| self.above.get(id) == Some(&true))
    }

    /// The model inputs that are missing; and every other value, but for the fetch itself, that all
    /// ways from them to the fetch lead through. In the order in which they are computed, a way
    /// that avoids a value leaps over it.
    fn between(&self, order: &[OperatorId]) -> (Vec<usize>, Vec<usize>) {
        let operators = || order.iter().filter_map(|&id| self.model.graph.operator(id));
        let line: Vec<usize> = operators().flat_map(|op| self.above(&op.outputs)).collect();
        let mut place = vec![0; self.above.len()];
        line.iter().enumerate().for_each(|(at, &id)| place[id] = at + 1);
        // How many leaps more (or less) go over each place than over the one before.
        let mut leaps = vec![0i64; line.len() + 2];
        let mut missing = Vec::new();
        let mut is_input = vec![false; self.above.len()];
        for op in operators() {
            let input = op.kind == "pnnx.Input";
            for to in self.above(&op.outputs) {
                let from: Vec<usize> = match input {
                    true => vec![0], // the place before all
                    false => self.above(&op.inputs).map(|id| place[id]).collect(),
                };
                is_input[to] = input;
                missing.extend(input.then_some(to));
                for from in from {
                    leaps[from + 1] += 1;
                    leaps[place[to]] -= 1;
                }
            }
        }
        let mut over = 0;
        let mut instead = Vec::new();
        for (at, &id) in line.iter().enumerate() {
            over += leaps[at + 1];
            let last = at + 1 == line.len();
            if over == 0 && !last && !is_input[id] {
                instead.push(id);
            }
        }
        (missing, instead)
    }
}

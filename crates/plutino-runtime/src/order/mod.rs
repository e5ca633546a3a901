//! Order without data: nodes that come after others of which they read nothing.
//!
//! Whoever is waited for carries a *token*, whoever waits names it; a node begins when all others
//! that carry one of its tokens are over. Tokens outlive nodes: what a pass puts in the place of
//! nodes carries and waits for what these did (`passes/patch.rs`). A net without such order has
//! no tokens, and nothing here costs it anything.

use crate::load::model::{Inner, Role};
use crate::plan::net::{Node, Uses, Value, ValueId};
use plutino_ir::{Graph, OperatorId};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Stands for an operator of the graph that others come after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Token(usize);

impl From<OperatorId> for Token {
    fn from(id: OperatorId) -> Self {
        Self(id.index())
    }
}

/// What a node waits for, and what it is to others that wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// It begins when all others that carry these are over.
    pub(crate) waits: BTreeSet<Token>,
    /// What it carries.
    pub(crate) carries: BTreeSet<Token>,
}

impl Order {
    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.waits.is_empty() && self.carries.is_empty()
    }

    /// With what is said of another node.
    pub(crate) fn join(&mut self, other: &Self) {
        self.waits.extend(&other.waits);
        self.carries.extend(&other.carries);
    }
}

/// Who carries and who waits for each token, by position.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    carriers: BTreeMap<Token, BTreeSet<usize>>,
    waiters: BTreeMap<Token, BTreeSet<usize>>,
}

impl Orders {
    pub(crate) fn enter(&mut self, at: usize, order: &Order) {
        for &token in &order.carries {
            self.carriers.entry(token).or_default().insert(at);
        }
        for &token in &order.waits {
            self.waiters.entry(token).or_default().insert(at);
        }
    }

    pub(crate) fn leave(&mut self, at: usize, order: &Order) {
        let gone = |of: &mut BTreeMap<Token, BTreeSet<usize>>, token: &Token| {
            if let Some(positions) = of.get_mut(token) {
                positions.remove(&at);
            }
        };
        order.carries.iter().for_each(|token| gone(&mut self.carriers, token));
        order.waits.iter().for_each(|token| gone(&mut self.waiters, token));
    }

    /// Positions of the nodes that carry a token.
    pub(crate) fn carriers(&self, token: Token) -> impl Iterator<Item = usize> + '_ {
        self.carriers.get(&token).into_iter().flatten().copied()
    }

    /// Positions of the nodes that wait for a token.
    pub(crate) fn waiters(&self, token: Token) -> impl Iterator<Item = usize> + '_ {
        self.waiters.get(&token).into_iter().flatten().copied()
    }
}

impl Uses {
    /// Positions of the nodes that the one at `at` comes after without reading from them.
    pub(crate) fn earlier(&self, at: usize, order: &Order) -> BTreeSet<usize> {
        let carriers = order.waits.iter().flat_map(|&token| self.orders.carriers(token));
        carriers.filter(|&carrier| carrier != at).collect()
    }
}

/// Finds the order of nodes while a net is made of a graph, in which operators may be left out.
pub(crate) struct Ordering<'a> {
    graph: &'a Graph,
    /// For operators that are waited for and are no nodes: what is waited for in their stead. None
    /// where nothing in the graph has an order.
    instead: Option<HashMap<OperatorId, BTreeSet<Token>>>,
    /// Those that are waited for at all.
    awaited: HashSet<OperatorId>,
    /// Those that cannot run, each with an input that is missing.
    stuck: BTreeMap<Token, ValueId>,
}

impl<'a> Ordering<'a> {
    pub(crate) fn new(graph: &'a Graph) -> Self {
        let awaited: HashSet<OperatorId> = graph.controls().map(|(earlier, _)| earlier).collect();
        let instead = (!awaited.is_empty()).then(HashMap::new);
        Self { graph, instead, awaited, stuck: BTreeMap::new() }
    }

    /// What an operator comes after, in terms of those that are nodes.
    fn waits(&self, id: OperatorId) -> BTreeSet<Token> {
        let Some(instead) = &self.instead else { return BTreeSet::new() };
        let after = self.graph.operator(id).map(|op| &op.after[..]).unwrap_or_default();
        let token = |earlier: &OperatorId| match instead.get(earlier) {
            Some(others) => others.clone(),
            None => BTreeSet::from([(*earlier).into()]),
        };
        after.iter().flat_map(token).collect()
    }

    /// The order of an operator that becomes a node.
    pub(crate) fn node(&self, id: OperatorId) -> Order {
        if self.instead.is_none() {
            return Order::default();
        }
        let carries = self.awaited.contains(&id).then(|| id.into());
        Order { waits: self.waits(id), carries: carries.into_iter().collect() }
    }

    /// An operator is no node, because what it makes is there when the run begins: whoever comes
    /// after it comes after what it came after.
    pub(crate) fn there(&mut self, id: OperatorId) {
        if self.awaited.contains(&id) {
            let waits = self.waits(id);
            if let Some(instead) = &mut self.instead {
                instead.insert(id, waits);
            }
        }
    }

    /// An operator is no node, because this input is not there.
    pub(crate) fn stuck(&mut self, id: OperatorId, missing: ValueId) {
        if self.awaited.contains(&id) {
            self.stuck.insert(id.into(), missing);
        }
    }

    /// What the outputs of the model come after.
    pub(crate) fn last(&self, model: &Inner) -> BTreeSet<Token> {
        let outputs = self.graph.operators_of("pnnx.Output").map(|(id, _)| id);
        let outputs =
            outputs.filter(|id| matches!(model.roles.get(id.index()), Some(Some(Role::Output))));
        outputs.flat_map(|id| self.waits(id)).collect()
    }

    /// Forgets waits for operators that cannot run, where the results do not need them.
    ///
    /// # Errors
    /// What is missing of one that they need.
    pub(crate) fn settle(
        &self,
        nodes: &mut [Node],
        values: &[Value],
        fetches: &[ValueId],
        last: &BTreeSet<Token>,
    ) -> Result<(), ValueId> {
        if self.stuck.is_empty() {
            return Ok(());
        }
        let missing = |of: &BTreeSet<Token>| of.iter().find_map(|token| self.stuck.get(token));
        if let Some(&missing) = missing(last) {
            return Err(missing);
        }
        let mut alive = Alive::new(values, fetches, last);
        for node in nodes.iter_mut().rev() {
            if alive.is_needed(node) {
                if let Some(&missing) = missing(&node.order.waits) {
                    return Err(missing);
                }
                alive.needs(node);
            }
            node.order.waits.retain(|token| !self.stuck.contains_key(token));
        }
        Ok(())
    }
}

/// What the results of a run need, found from the last node to the first.
pub(crate) struct Alive {
    values: Vec<bool>,
    tokens: BTreeSet<Token>,
}

impl Alive {
    /// Of a net of these values.
    pub(crate) fn new(values: &[Value], fetches: &[ValueId], last: &BTreeSet<Token>) -> Self {
        let needed = vec![false; values.len()];
        let mut alive = Self { values: needed, tokens: last.clone() };
        fetches.iter().for_each(|fetch| alive.value(*fetch));
        alive
    }

    fn value(&mut self, id: ValueId) {
        if let Some(needed) = self.values.get_mut(id.0) {
            *needed = true;
        }
    }

    /// Whether somebody needs what the node makes, or that it is over.
    pub(crate) fn is_needed(&self, node: &Node) -> bool {
        node.outputs.iter().any(|output| self.values.get(output.0) == Some(&true))
            || node.order.carries.iter().any(|token| self.tokens.contains(token))
    }

    /// Whether anybody waits for a token.
    pub(crate) fn is_awaited(&self, token: Token) -> bool {
        self.tokens.contains(&token)
    }

    /// A node is needed, and so is what it reads and comes after.
    pub(crate) fn needs(&mut self, node: &Node) {
        node.inputs.iter().for_each(|input| self.value(*input));
        self.waits(node);
    }

    /// A node is needed, and so is what it comes after; what it reads is not.
    pub(crate) fn waits(&mut self, node: &Node) {
        self.tokens.extend(&node.order.waits);
    }
}

#[cfg(test)]
mod tests;

//! A model as several: one for each context of a placement.

use crate::tools::extract::{Ends, is_list, is_pack};
use crate::{ExtractError, Model, Plan, Rendezvous, Session, Stage};
use plutino_ir::{Graph, OperandId, Operator, OperatorId, quote, topo};
use std::collections::{BTreeMap, BTreeSet};

/// A model that was cut into parts, each a model of its own: which results of which part feed which
/// inputs of which other.
///
/// ```
/// use plutino_runtime::{Context, Model, Partition, Placement, SessionOptions};
/// use plutino_tensor::{DType, TensorSpec};
/// # use plutino_ops as _;
/// # let model = Model::from_graph(plutino_ir::Graph::parse(
/// #     "7767517\n4 3\npnnx.Input in 0 1 x\nnn.Softmax a 1 1 x y dim=0\nnn.Softmax b 1 1 y z dim=0\npnnx.Output out 1 0 z",
/// # )?)?;
///
/// let contexts = [Context::of_threads(1)?, Context::of_threads(1)?];
/// let placement = Placement::new().place("a", 0).place("b", 1);
/// let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
/// let plan = model.session(options)?.plan(&[TensorSpec::new(DType::F32, [4])])?;
/// let partition = Partition::of(&model, &plan)?;
/// assert_eq!(partition.parts().len(), 2);
/// let keys: Vec<String> = partition.links().iter().map(|link| link.key()).collect();
/// assert_eq!(keys, ["x>0", "y>1", "z>out"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Partition {
    parts: Vec<Part>,
    links: Vec<Link>,
}

/// A part of a model.
#[derive(Debug)]
#[non_exhaustive]
pub struct Part {
    /// The context whose operators it has.
    pub context: usize,
    /// The model, whose operands have the names that they had.
    pub graph: Graph,
}

/// An operand that goes from one part to another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Its name, in both.
    pub operand: String,
    /// The part that makes it; none for an input of the whole model.
    pub from: Option<usize>,
    /// The part that takes it; none for a result of the whole model.
    pub to: Option<usize>,
}

impl Link {
    /// Under which key it goes through a [`Rendezvous`]: `operand>1`, or `operand>out` for results.
    pub fn key(&self) -> String {
        match self.to {
            Some(part) => format!("{}>{part}", self.operand),
            None => format!("{}>out", self.operand),
        }
    }
}

/// A model cannot be cut so.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// The model's operators wait for each other.
    #[error(transparent)]
    Cycle(#[from] topo::CycleError),
    /// A part cannot be taken out.
    #[error("part {part}: {error}")]
    Extract {
        /// Its number.
        part: usize,
        /// Why.
        error: ExtractError,
    },
    /// An operator comes after one of another part of which its own part takes nothing, not even by
    /// way of others: parts run when what they take is there.
    #[error(
        "'{}' in part {to} comes after '{}' in part {from}, of which part {to} takes nothing: place both in one context",
        quote(later),
        quote(earlier)
    )]
    Order {
        /// The operator that comes first.
        earlier: String,
        /// Its part.
        from: usize,
        /// The operator that comes after it.
        later: String,
        /// The part of that.
        to: usize,
    },
    /// What goes from one part to another is a tuple or a list: parts hand over tensors.
    #[error("'{}', which would go from part {from} to part {to}, is no tensor", quote(operand))]
    NoTensor {
        /// The operand.
        operand: String,
        /// The part that makes it.
        from: usize,
        /// The part that takes it.
        to: usize,
    },
}

impl Partition {
    /// Cuts a model as a plan of it is placed. Contexts that need each other's results in turn
    /// become several parts each, so that every part can run once all of its inputs are there.
    ///
    /// # Errors
    /// Where something else than tensors would go from part to part, or an order without data.
    pub fn of(model: &Model, plan: &Plan) -> Result<Self, PartitionError> {
        let mut contexts = BTreeMap::new();
        for step in plan.steps() {
            for name in step.absorbed {
                contexts.insert(name, step.context);
            }
            contexts.insert(step.location.name, step.context);
        }
        Cut::new(model.graph(), &contexts)?.parts()
    }

    /// The parts, each after those whose results it takes.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What goes where: first the inputs of the whole model, last its results, in their order.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The parts as stages around a rendezvous, given a session of each.
    pub fn stages(
        &self,
        sessions: impl IntoIterator<Item = Session>,
        place: &Rendezvous,
    ) -> Vec<Stage> {
        let stage = |(number, session): (usize, Session)| {
            let mut stage = Stage::new(session, place);
            for link in self.links.iter().filter(|link| link.to == Some(number)) {
                stage = stage.take(&link.key(), &link.operand);
            }
            for link in self.links.iter().filter(|link| link.from == Some(number)) {
                stage = stage.give(&link.operand, &link.key());
            }
            stage
        };
        sessions.into_iter().enumerate().map(stage).collect()
    }
}

/// A graph on its way to be cut.
struct Cut<'a> {
    graph: &'a Graph,
    /// Operators that results need, in the order in which they can run, without inputs.
    order: Vec<OperatorId>,
    /// Results, tuples taken apart.
    results: Vec<OperandId>,
    /// What the results come after without being made of it.
    last: Vec<OperatorId>,
    /// What each operator reads.
    reads: BTreeMap<usize, Reads>,
    /// For each operator its part; none for what every part has of its own: constants, and what
    /// follows from them alone.
    part: BTreeMap<usize, usize>,
    /// The context of each part.
    contexts: Vec<usize>,
}

/// What an operator reads.
#[derive(Default)]
struct Reads {
    /// What lists that each part has are made of, then other inputs.
    operands: Vec<OperandId>,
    /// Who makes these lists.
    lists: BTreeSet<usize>,
}

impl<'a> Cut<'a> {
    fn new(graph: &'a Graph, named: &BTreeMap<String, usize>) -> Result<Self, PartitionError> {
        let order = topo::depth_first(graph)?;
        let (mut results, mut last) = (Vec::new(), Vec::new());
        for (_, output) in graph.operators_of("pnnx.Output") {
            output.inputs.iter().for_each(|&id| flatten(graph, id, &mut results));
            last.extend(output.after.iter().filter(|&&id| {
                graph.operator(id).is_some_and(|operator| operator.kind != "pnnx.Input")
            }));
        }
        let mut needed = BTreeSet::new();
        let producer = |id: &OperandId| graph.operand(*id).and_then(|operand| operand.producer);
        let mut left: Vec<OperatorId> = results.iter().filter_map(producer).collect();
        left.extend(&last);
        while let Some(at) = left.pop() {
            if let Some(operator) = graph.operator(at)
                && operator.kind != "pnnx.Input"
                && needed.insert(at.index())
            {
                left.extend(operator.inputs.iter().filter_map(producer));
                left.extend(&operator.after);
            }
        }
        let order: Vec<OperatorId> =
            order.into_iter().filter(|id| needed.contains(&id.index())).collect();
        let (reads, part, contexts) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut cut = Self { graph, order, results, last, reads, part, contexts };
        cut.reads = cut.order.iter().map(|&id| (id.index(), cut.reads_of(id))).collect();
        cut.assign(named);
        Ok(cut)
    }

    fn producer(&self, id: OperandId) -> Option<OperatorId> {
        self.graph.operand(id)?.producer
    }

    /// Whether an operator makes a list, which is no tensor that goes from part to part: every part
    /// that reads it has it. Lists that are results stay where they are made.
    fn is_shared(&self, id: OperatorId) -> bool {
        self.graph.operator(id).is_some_and(|operator| {
            is_list(operator) && !operator.outputs.iter().any(|id| self.results.contains(id))
        })
    }

    /// What an operator reads, with the members of lists that each part has in their place.
    fn reads_of(&self, id: OperatorId) -> Reads {
        let (mut own, mut reads, mut left) = (Vec::new(), Reads::default(), vec![id]);
        while let Some(at) = left.pop() {
            for &input in self.graph.operator(at).map_or(&[][..], |operator| &operator.inputs) {
                match self.producer(input).filter(|&producer| self.is_shared(producer)) {
                    None if at == id => own.push(input),
                    None => reads.operands.push(input),
                    Some(list) => {
                        if reads.lists.insert(list.index()) {
                            left.push(list);
                        }
                    }
                }
            }
        }
        reads.operands.extend(own);
        reads
    }

    /// The operands among that.
    fn operands(&self, of: OperatorId) -> &[OperandId] {
        self.reads.get(&of.index()).map_or(&[], |reads| &reads.operands)
    }

    /// What an operator reads of others, or comes after, that are in a part.
    fn needs<T: Copy>(&self, of: OperatorId, map: &BTreeMap<usize, T>) -> Vec<T> {
        let operator = self.graph.operator(of);
        let after = operator.map(|operator| operator.after.iter().copied());
        let producers = self.operands(of).iter().filter_map(|&id| self.producer(id));
        let producers = after.into_iter().flatten().chain(producers);
        producers.filter_map(|producer| map.get(&producer.index()).copied()).collect()
    }

    /// Finds the part of each operator.
    fn assign(&mut self, named: &BTreeMap<String, usize>) {
        let mut context: BTreeMap<usize, usize> = BTreeMap::new();
        let mut open = Vec::new();
        for &id in &self.order {
            let Some(operator) = self.graph.operator(id).filter(|_| !self.is_shared(id)) else {
                continue;
            };
            // From inputs of the model, if only by way of others.
            let made = |&input: &OperandId| {
                self.producer(input).is_some_and(|at| {
                    let kind = self.graph.operator(at).map(|producer| producer.kind.as_str());
                    kind == Some("pnnx.Input") || open.contains(&at)
                })
            };
            let of = match named.get(&operator.name) {
                _ if is_constant(operator) => None,
                Some(&of) => Some(of),
                // No step of its own: with the last of those that make what it reads.
                None => self.needs(id, &context).last().copied(),
            };
            match of {
                Some(of) => _ = context.insert(id.index(), of),
                None if self.operands(id).iter().any(made) => open.push(id),
                None if operator.inputs.is_empty() && !is_constant(operator) => open.push(id),
                None => {}
            }
        }
        // What reads inputs of the model alone, or nothing, is where its first reader is.
        for &id in open.iter().rev() {
            let readers = |at: &OperatorId| {
                let of = context.get(&at.index()).copied()?;
                let reads = |&input: &OperandId| self.producer(input) == Some(id);
                self.operands(*at).iter().any(reads).then_some(of)
            };
            let of = self.order.iter().find_map(readers).unwrap_or(0);
            context.insert(id.index(), of);
        }
        let ranks = self.ranks(&context);
        let mut parts: Vec<(usize, usize)> = ranks.values().copied().collect();
        parts.sort_unstable();
        parts.dedup();
        let number = |key: &(usize, usize)| parts.iter().position(|part| part == key).unwrap_or(0);
        self.part = ranks.iter().map(|(&at, key)| (at, number(key))).collect();
        self.contexts = parts.into_iter().map(|(_, context)| context).collect();
    }

    /// For each operator a rank and its context: both are those of a part. Parts of a lower rank
    /// need nothing of those of a higher one.
    fn ranks(&self, context: &BTreeMap<usize, usize>) -> BTreeMap<usize, (usize, usize)> {
        let mut edges = BTreeSet::new();
        for &id in &self.order {
            if let Some(&to) = context.get(&id.index()) {
                edges.extend(self.needs(id, context).into_iter().map(|from| (from, to)));
            }
        }
        edges.retain(|(from, to)| from != to);
        let all: BTreeSet<usize> = context.values().copied().collect();
        let mut rank: BTreeMap<usize, usize> = all.iter().map(|&context| (context, 0)).collect();
        // As many rounds as there are contexts: if something changes after that, there is a cycle.
        let raise = |rank: &mut BTreeMap<usize, usize>| {
            let mut changed = false;
            for (from, to) in &edges {
                let least = rank[from] + 1;
                if rank[to] < least {
                    changed |= rank.insert(*to, least).is_some();
                }
            }
            changed
        };
        let settled = (0..=all.len()).any(|_| !raise(&mut rank));
        if settled {
            return context.iter().map(|(&at, &of)| (at, (rank[&of], of))).collect();
        }
        let mut ranks: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for &id in &self.order {
            let Some(&of) = context.get(&id.index()) else { continue };
            let after = |(rank, other): (usize, usize)| rank + usize::from(other != of);
            let rank = self.needs(id, &ranks).into_iter().map(after).max().unwrap_or(0);
            ranks.insert(id.index(), (rank, of));
        }
        ranks
    }

    /// The part that makes an operand; none for inputs of the model.
    fn part_of(&self, id: OperandId) -> Option<usize> {
        let producer = self.producer(id)?;
        if self.graph.operator(producer)?.kind == "pnnx.Input" {
            return None;
        }
        // A result that follows from constants alone: any part has it.
        Some(self.part.get(&producer.index()).copied().unwrap_or(0))
    }

    /// Whether each part takes something, by way of others perhaps, of all parts that its operators
    /// come after.
    fn check_order(&self, links: &[Link]) -> Result<(), PartitionError> {
        let count = self.contexts.len();
        let mut after = vec![BTreeSet::new(); self.contexts.len()];
        // A part comes after those before it in the list only.
        for part in 0..count {
            let from = links.iter().filter(|link| link.to == Some(part)).filter_map(|l| l.from);
            for from in from.collect::<BTreeSet<usize>>() {
                let before: Vec<usize> = after[from].iter().copied().collect();
                after[part].extend(before.into_iter().chain([from]));
            }
        }
        for (earlier, later) in self.graph.controls() {
            let part = |id: OperatorId| self.part.get(&id.index()).copied();
            let (Some(from), Some(to)) = (part(earlier), part(later)) else { continue };
            if from != to && !after[to].contains(&from) {
                let name = |id| self.graph.operator(id).map(|op| op.name.clone());
                let (earlier, later) = (name(earlier), name(later));
                let (earlier, later) = (earlier.unwrap_or_default(), later.unwrap_or_default());
                return Err(PartitionError::Order { earlier, from, later, to });
            }
        }
        Ok(())
    }

    fn parts(&self) -> Result<Partition, PartitionError> {
        let name = |id: OperandId| {
            self.graph.operand(id).map(|operand| operand.name.clone()).unwrap_or_default()
        };
        let mut links: Vec<Link> = Vec::new();
        for &id in &self.order {
            let Some(&to) = self.part.get(&id.index()) else { continue };
            for &input in self.operands(id) {
                let Some(producer) = self.producer(input) else { continue };
                let from = self.part.get(&producer.index()).copied();
                let Some(made) = self.graph.operator(producer) else { continue };
                if from == Some(to) || (from.is_none() && made.kind != "pnnx.Input") {
                    continue;
                }
                let operand = name(input);
                if let Some(from) = from.filter(|_| is_list(made)) {
                    return Err(PartitionError::NoTensor { operand, from, to });
                }
                links.push(Link { operand, from, to: Some(to) });
            }
        }
        links.sort_by_key(|link| (link.from, link.to));
        let mut seen = BTreeSet::new();
        links.retain(|link| seen.insert((link.operand.clone(), link.to)));
        let results = self.results.iter();
        links.extend(results.map(|&id| Link {
            operand: name(id),
            from: self.part_of(id),
            to: None,
        }));
        self.check_order(&links)?;
        let mut parts = Vec::new();
        let contexts = if self.contexts.is_empty() { &[0][..] } else { &self.contexts };
        for (part, &context) in contexts.iter().enumerate() {
            let from = links.iter().filter(|link| link.to == Some(part));
            let from: Vec<&str> = from.map(|link| link.operand.as_str()).collect();
            let mut to: Vec<&str> = Vec::new();
            for link in links.iter().filter(|link| link.from == Some(part)) {
                if !to.contains(&link.operand.as_str()) {
                    to.push(&link.operand);
                }
            }
            let own = self.part.iter().filter(|&(_, &of)| of == part).map(|(&at, _)| at);
            let lists = own.clone().filter_map(|at| self.reads.get(&at)).flat_map(|r| &r.lists);
            let within: BTreeSet<usize> = own.clone().chain(lists.copied()).collect();
            let here = |id: &&OperatorId| within.contains(&id.index());
            let mut last: Vec<OperatorId> = self.last.iter().filter(here).copied().collect();
            // What others come after, which are elsewhere.
            let elsewhere = self.graph.controls().filter(|(earlier, later)| {
                within.contains(&earlier.index()) && !within.contains(&later.index())
            });
            last.extend(elsewhere.map(|(earlier, _)| earlier));
            last.sort_unstable();
            last.dedup();
            let ends = Ends { from: &from, to: &to, last: &last, within: Some(&within) };
            let graph = ends.extract(self.graph);
            let graph = graph.map_err(|error| PartitionError::Extract { part, error })?;
            parts.push(Part { context, graph });
        }
        Ok(Partition { parts, links })
    }
}

/// Whether an operator gives weights or numbers of the file, which every part can have of its own.
fn is_constant(operator: &Operator) -> bool {
    let kinds = ["pnnx.Attribute", "pnnx.Expression", "prim::Constant"];
    operator.inputs.is_empty() && kinds.contains(&operator.kind.as_str())
}

/// The tensors of a result.
fn flatten(graph: &Graph, id: OperandId, results: &mut Vec<OperandId>) {
    let producer = graph.operand(id).and_then(|operand| operand.producer);
    match producer.and_then(|producer| graph.operator(producer)) {
        Some(operator) if is_pack(operator) => {
            operator.inputs.iter().for_each(|&id| flatten(graph, id, results));
        }
        _ => results.push(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{model, vector};
    use crate::{Context, Delivery, Limits, Placement, SessionOptions};
    use plutino_tensor::Tensor;

    /// A model through its parts, and as a whole.
    fn check(lines: &str, placement: Placement, parts: &[usize], keys: &[&str]) {
        let (whole, x) = (model(lines), vector(&[1.0, -2.0, 3.0, 4.0]));
        let contexts: Vec<_> = (0..2).map(|_| Context::of_threads(1).unwrap()).collect();
        let options = SessionOptions::default().with_contexts(contexts).with_placement(placement);
        let session = whole.session(options).unwrap();
        let plan = session.plan(&[x.spec()]).unwrap();
        let partition = Partition::of(&whole, &plan).unwrap();
        let found: Vec<usize> = partition.parts().iter().map(|part| part.context).collect();
        assert_eq!(found, parts);
        let links: Vec<String> = partition.links().iter().map(Link::key).collect();
        assert_eq!(links, keys);
        let place = Rendezvous::new(4);
        let sessions = partition.parts().iter().map(|part| {
            let text = part.graph.to_param_string().unwrap();
            let graph = Graph::parse(&text).unwrap();
            let model = Model::from_graph(graph).unwrap();
            model.session(SessionOptions::default().with_threads(1)).unwrap()
        });
        let stages = partition.stages(sessions.collect::<Vec<_>>(), &place);
        let none = Limits::default();
        let results: Vec<Tensor> = std::thread::scope(|scope| {
            stages.iter().for_each(|stage| _ = scope.spawn(|| stage.step(&none).unwrap()));
            for link in partition.links().iter().filter(|link| link.from.is_none()) {
                place.send(&link.key(), Delivery::from(x.clone()), &none).unwrap();
            }
            let results = partition.links().iter().filter(|link| link.to.is_none());
            let received = results.map(|link| place.receive(&link.key(), &none).unwrap());
            received.map(|delivery| delivery.tensor().unwrap()).collect()
        });
        assert_eq!(results, session.run(std::slice::from_ref(&x)).unwrap());
    }

    #[test]
    fn parts_compute_what_the_whole_does() {
        let lines = "
            pnnx.Input in 0 1 x
            test.Reverse a 1 1 x b
            test.Reverse b 1 1 b c
            test.Add c 2 1 c x d
            test.Reverse d 1 1 d e
            test.Pair p 1 1 e f
            prim::TupleUnpack u 1 2 f g h
            prim::TupleConstruct t 2 1 g b i
            pnnx.Output out 1 0 i";
        let placement = Placement::new().place("a", 0).place("b", 0).place("c", 1);
        let placement = placement.place("d", 1).place("p", 1);
        check(lines, placement, &[0, 1], &["x>0", "x>1", "c>1", "g>out", "b>out"]);
    }

    #[test]
    fn contexts_that_need_each_other_in_turn_are_several_parts() {
        let lines = "
            pnnx.Input in 0 1 x
            test.Reverse a 1 1 x y
            test.Reverse b 1 1 y z
            test.Reverse c 1 1 z w
            pnnx.Output out 1 0 w";
        let placement = Placement::new().place("a", 1).place("b", 0).place("c", 1);
        check(lines, placement, &[1, 0, 1], &["x>0", "y>1", "z>2", "w>out"]);
    }

    #[test]
    fn lists_are_made_where_they_are_read() {
        // Sizes of one part's result, read in two others; a list in a list.
        let lines = "
            pnnx.Input in 0 1 x
            test.Reverse a 1 1 x y
            test.Reverse b 1 1 y z
            pnnx.Expression e 1 1 y s expr=[2,floor_divide(size(@0,0),2)]
            Tensor.reshape r 2 1 z s w $input=z $shape=s
            test.Reverse c 1 1 z u
            Tensor.reshape q 2 1 u s v $input=u $shape=s
            prim::ListConstruct l 2 1 w v m
            torch.cat j 1 1 m n dim=0
            pnnx.Output out 1 0 n";
        let placement = || Placement::new().place("a", 0).place("b", 1);
        let placement = || placement().place("r", 1).place("j", 1);
        let one = placement().place("c", 1).place("q", 1);
        check(lines, one, &[0, 1], &["x>0", "y>1", "n>out"]);
        let back = placement().place("c", 0).place("q", 0);
        // Nothing is left to do for the concatenation, which is where its last part is made.
        check(lines, back, &[0, 1, 0], &["x>0", "y>1", "y>2", "z>2", "w>2", "n>out"]);
    }
}

//! Topological orders: depth first and Kahn's. Both accept the same graphs, and both name the
//! members of a cycle. A graph that is in topological order already keeps its order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use thiserror::Error;

use crate::graph::{Graph, OperatorId};
use crate::quote::quote;

/// Operators that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("these operators form a cycle: {}", chain(names))]
pub struct CycleError {
    /// The members: each makes an operand that the next one reads, or the next one is said to come
    /// after it; so is the first after the last.
    pub members: Vec<OperatorId>,
    /// Names of the members.
    pub names: Vec<String>,
}

/// Members of a cycle that a message names.
const MOST_NAMED: usize = 16;

/// `a -> b -> a`
fn chain(names: &[String]) -> String {
    let mut text = String::new();
    for name in names.iter().take(MOST_NAMED) {
        text.push_str(&format!("{} -> ", quote(name)));
    }
    if let Some(left @ 1..) = names.len().checked_sub(MOST_NAMED) {
        text.push_str(&format!("... {left} more -> "));
    }
    match names.first() {
        Some(first) => text + &quote(first).to_string(),
        None => text,
    }
}

impl CycleError {
    fn new(graph: &Graph, members: Vec<OperatorId>) -> Self {
        let names =
            members.iter().filter_map(|&id| Some(graph.operator(id)?.name.clone())).collect();
        CycleError { members, names }
    }
}

/// The operators that make what `id` reads, in input order, and those that it comes after.
fn producers(graph: &Graph, id: OperatorId) -> impl Iterator<Item = OperatorId> + '_ {
    let (inputs, after) =
        graph.operator(id).map_or((&[][..], &[][..]), |op| (&op.inputs, &op.after));
    let made = inputs.iter().filter_map(|&input| graph.operand(input)?.producer);
    made.chain(after.iter().copied().filter(|&id| graph.operator(id).is_some()))
}

/// Orders operators so that each comes after those it waits for, by depth-first search: operators
/// are taken in file order, and each is preceded by whatever it still needs. The search keeps its
/// own stack, so depth is bounded by memory alone.
///
/// # Errors
/// If operators wait for each other.
pub fn depth_first(graph: &Graph) -> Result<Vec<OperatorId>, CycleError> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        OnStack,
        Done,
    }
    let mut state = vec![State::New; graph.operator_slots()];
    let mut sorted = Vec::with_capacity(graph.operator_count());
    for &root in graph.operator_ids() {
        if state[root.index()] != State::New {
            continue;
        }
        state[root.index()] = State::OnStack;
        let mut stack = vec![(root, producers(graph, root))];
        while let Some((id, pending)) = stack.last_mut() {
            let id = *id;
            let Some(needed) = pending.next() else {
                state[id.index()] = State::Done;
                sorted.push(id);
                stack.pop();
                continue;
            };
            match state[needed.index()] {
                State::Done => {}
                State::New => {
                    state[needed.index()] = State::OnStack;
                    stack.push((needed, producers(graph, needed)));
                }
                State::OnStack => {
                    // The stack runs from reader to producer; the cycle is told the other way
                    // round.
                    let path = stack.iter().map(|&(id, _)| id);
                    let mut members: Vec<_> = path.skip_while(|&id| id != needed).collect();
                    members.reverse();
                    return Err(CycleError::new(graph, members));
                }
            }
        }
    }
    Ok(sorted)
}

/// Orders operators so that each comes after those it waits for, by Kahn's algorithm
/// (Communications of the ACM 5(11), 1962): whoever waits for nobody goes next, the first in file
/// order among them.
///
/// # Errors
/// If operators wait for each other.
pub fn kahn(graph: &Graph) -> Result<Vec<OperatorId>, CycleError> {
    let order = graph.operator_ids();
    let mut position = vec![usize::MAX; graph.operator_slots()];
    for (at, &id) in order.iter().enumerate() {
        position[id.index()] = at;
    }
    let mut waiting: Vec<usize> = order.iter().map(|&id| producers(graph, id).count()).collect();
    let mut ready: BinaryHeap<_> =
        (0..order.len()).filter(|&at| waiting[at] == 0).map(Reverse).collect();
    let mut followers: HashMap<OperatorId, Vec<usize>> = HashMap::new();
    for (before, after) in graph.controls() {
        followers.entry(before).or_default().push(position[after.index()]);
    }
    let mut sorted = Vec::with_capacity(order.len());
    while let Some(Reverse(at)) = ready.pop() {
        let id = order[at];
        sorted.push(id);
        let outputs = graph.operator(id).map_or(&[][..], |operator| &operator.outputs);
        let readers =
            outputs.iter().filter_map(|&output| graph.operand(output)).flat_map(|o| &o.consumers);
        let readers = readers.map(|reader| position[reader.index()]);
        for at in readers.chain(followers.remove(&id).unwrap_or_default()) {
            waiting[at] -= 1;
            if waiting[at] == 0 {
                ready.push(Reverse(at));
            }
        }
    }
    if sorted.len() == order.len() {
        return Ok(sorted);
    }
    Err(CycleError::new(graph, walk_into_cycle(graph, &position, &waiting)))
}

/// Among the operators that Kahn left over each waits for another one, so walking to one that is
/// waited for must come round.
fn walk_into_cycle(graph: &Graph, position: &[usize], waiting: &[usize]) -> Vec<OperatorId> {
    let order = graph.operator_ids();
    let stuck = |id: &OperatorId| waiting[position[id.index()]] > 0;
    let mut seen_at = vec![None; order.len()];
    let mut path = Vec::new();
    let mut next = order.iter().copied().find(stuck);
    while let Some(id) = next {
        let at = position[id.index()];
        if let Some(start) = seen_at[at] {
            let mut members = path.split_off(start);
            members.reverse();
            return members;
        }
        seen_at[at] = Some(path.len());
        path.push(id);
        next = producers(graph, id).find(stuck);
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators 0..n in file order; `(a, b)` lets b read what a makes.
    fn graph(n: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new();
        for i in 0..n {
            let operator = graph.new_operator("test.Op", &format!("op{i}")).unwrap();
            let operand = graph.new_operand(&i.to_string()).unwrap();
            graph.connect_output(operator, operand).unwrap();
        }
        for &(from, to) in edges {
            let operand = graph.operand_by_name(&from.to_string()).unwrap();
            graph.connect_input(OperatorId(to), operand).unwrap();
        }
        graph
    }

    fn indices(sorted: Result<Vec<OperatorId>, CycleError>) -> Vec<usize> {
        sorted.unwrap().into_iter().map(OperatorId::index).collect()
    }

    #[test]
    fn order_is_kept_where_it_is_right_and_mended_where_not() {
        let sorted = graph(4, &[(0, 2), (1, 2), (2, 3), (2, 3)]);
        assert_eq!(indices(depth_first(&sorted)), [0, 1, 2, 3]);
        assert_eq!(indices(kahn(&sorted)), [0, 1, 2, 3]);
        let backwards = graph(4, &[(3, 2), (2, 1), (1, 0)]);
        assert_eq!(indices(depth_first(&backwards)), [3, 2, 1, 0]);
        assert_eq!(indices(kahn(&backwards)), [3, 2, 1, 0]);
    }

    #[test]
    fn a_cycle_is_named_by_its_members() {
        // 0 -> 1 -> 2 -> 3 -> 1, and 4 hangs off the cycle
        let cyclic = graph(5, &[(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]);
        for error in [depth_first(&cyclic).unwrap_err(), kahn(&cyclic).unwrap_err()] {
            let mut members: Vec<_> = error.names.iter().map(String::as_str).collect();
            for pair in error.members.windows(2) {
                let made = &cyclic[pair[0]].outputs;
                assert!(cyclic[pair[1]].inputs.iter().any(|input| made.contains(input)), "{error}");
            }
            members.sort_unstable();
            assert_eq!(members, ["op1", "op2", "op3"]);
        }
        let own = graph(1, &[(0, 0)]);
        assert_eq!(kahn(&own).unwrap_err().to_string(), "these operators form a cycle: op0 -> op0");
        assert_eq!(depth_first(&own), Err(kahn(&own).unwrap_err()));
    }

    #[test]
    fn order_without_data_counts() {
        let mut graph = graph(4, &[(0, 3)]);
        let ids: Vec<OperatorId> = graph.operator_ids().to_vec();
        graph.add_control(ids[3], ids[1]).unwrap();
        graph.add_control(ids[2], ids[1]).unwrap();
        assert_eq!(indices(depth_first(&graph)), [0, 3, 2, 1]);
        assert_eq!(indices(kahn(&graph)), [0, 2, 3, 1]);
        graph.add_control(ids[1], ids[0]).unwrap();
        for error in [depth_first(&graph).unwrap_err(), kahn(&graph).unwrap_err()] {
            assert_eq!(error.names.len(), 3, "{error}");
            assert!(!error.names.contains(&"op2".to_owned()));
        }
    }

    #[test]
    fn depth_is_no_limit() {
        let n = 100_000;
        let edges: Vec<_> = (1..n).map(|i| (i, i - 1)).collect();
        let deep = graph(n, &edges);
        assert_eq!(indices(depth_first(&deep)), (0..n).rev().collect::<Vec<_>>());
        assert_eq!(indices(kahn(&deep)).len(), n);
    }
}

//! Who runs where: groups that stay together, wishes, and costs that are balanced.
//!
//! Knows neither nets nor contexts: numbers of nodes in the order in which they run, and numbers of
//! contexts.

/// Why two nodes run in one context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bond {
    /// One changes a state where it lies that the other one makes or reads.
    State,
    /// One writes over what the other one made, and contexts do not share memory.
    InPlace,
    /// The caller wants it ([`Placement::together`](crate::Placement::together)).
    Group,
    /// One makes a value out of nothing that the other one alone reads.
    Generator,
}

impl std::fmt::Display for Bond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::State => "one changes a state that the other one uses",
            Self::InPlace => "one writes over what the other one made",
            Self::Group => "they were to stay together",
            Self::Generator => "one makes what the other one alone reads",
        })
    }
}

/// Sets that are joined, each with a number that stands for it: the lowest.
#[derive(Debug)]
pub(crate) struct Union(Vec<usize>);

impl Union {
    /// So many sets of one.
    pub(crate) fn new(n: usize) -> Self {
        Self((0..n).collect()) // bounded: nodes
    }

    /// The number that stands for the set.
    pub(crate) fn find(&mut self, of: usize) -> usize {
        let mut root = of;
        while self.0[root] != root {
            root = self.0[root];
        }
        let mut at = of;
        while self.0[at] != root {
            at = std::mem::replace(&mut self.0[at], root);
        }
        root
    }

    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// What is known of the nodes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// Estimated costs, in any unit.
    pub(crate) costs: Vec<f64>,
    /// Contexts that the caller wants.
    pub(crate) wishes: Vec<Option<usize>>,
    pub(crate) bonds: Vec<(usize, usize, Bond)>,
}

/// A wish that a bond overrules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overruled {
    /// The node, and where it was to run.
    pub(crate) node: usize,
    pub(crate) wanted: usize,
    /// The node whose wish came first in the group.
    pub(crate) with: usize,
    pub(crate) bond: Bond,
}

/// For each node its context, out of so many.
///
/// Groups come first: the wish of their first member that has one is that of all. What nobody has a
/// wish for follows the order of the nodes: contexts become stages that follow each other, cut
/// where the greatest cost of a context is smallest, but not within a group.
pub(crate) fn assign(nodes: &Nodes, contexts: usize) -> (Vec<usize>, Vec<Overruled>) {
    let n = nodes.costs.len();
    let contexts = contexts.max(1);
    let mut union = Union::new(n);
    nodes.bonds.iter().for_each(|&(a, b, _)| union.join(a, b));
    let root: Vec<usize> = (0..n).map(|i| union.find(i)).collect(); // bounded: nodes
    let (pinned, overruled) = wishes(nodes, &root);

    // What is cut as one: a node without a wish, or a group with what lies between its members.
    let mut reach: Vec<usize> = (0..n).collect(); // bounded: nodes
    for i in 0..n {
        reach[root[i]] = reach[root[i]].max(i);
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut end = 0;
    for i in 0..n {
        let free = pinned[root[i]].is_none();
        match (pinned[root[i]], blocks.last_mut()) {
            (Some(_), _) => {}
            (None, Some(block)) if i <= end && !block.nodes.is_empty() => block.add(i, nodes),
            (None, _) => {
                let mut block = Block::default();
                block.add(i, nodes);
                blocks.push(block);
            }
        }
        if free {
            end = end.max(reach[root[i]]);
        }
    }
    let mut load: Vec<f64> = Vec::new();
    load.resize(contexts, 0.0); // bounded: contexts
    for i in 0..n {
        if let Some(context) = pinned[root[i]] {
            load[context.min(contexts - 1)] += nodes.costs[i];
        }
    }
    let mut of: Vec<usize> = root.iter().map(|&r| pinned[r].unwrap_or(0)).collect();
    for (block, context) in blocks.iter().zip(stages(&blocks, &load)) {
        block.nodes.iter().for_each(|&node| of[node] = context);
    }
    (of, overruled)
}

/// Nodes that are not separated.
#[derive(Debug, Default)]
struct Block {
    nodes: Vec<usize>,
    cost: f64,
}

impl Block {
    fn add(&mut self, node: usize, nodes: &Nodes) {
        self.nodes.push(node);
        self.cost += nodes.costs[node];
    }
}

/// The wish of each group, by its number, and those that it overrules.
fn wishes(nodes: &Nodes, root: &[usize]) -> (Vec<Option<usize>>, Vec<Overruled>) {
    let mut first: Vec<Option<usize>> = vec![None; root.len()]; // bounded: nodes
    let mut overruled = Vec::new();
    for (node, &wish) in nodes.wishes.iter().enumerate() {
        let Some(wanted) = wish else { continue };
        match first[root[node]] {
            None => first[root[node]] = Some(node),
            Some(with) if nodes.wishes[with] != wish => {
                let of_group = |(a, _, _): &&(usize, usize, Bond)| root[*a] == root[node];
                let names = |(a, b, _): &&(usize, usize, Bond)| *a == node || *b == node;
                let bond = nodes.bonds.iter().filter(of_group).find(names);
                let bond = bond.or_else(|| nodes.bonds.iter().find(of_group));
                let bond = bond.map_or(Bond::Group, |bond| bond.2);
                overruled.push(Overruled { node, wanted, with, bond });
            }
            Some(_) => {}
        }
    }
    let wish = |node: Option<usize>| nodes.wishes[node?];
    (first.into_iter().map(wish).collect(), overruled)
}

/// The context of each block: they never go back, and the greatest load of a context, with what it
/// has already, is as small as can be.
fn stages(blocks: &[Block], load: &[f64]) -> Vec<usize> {
    let total: f64 = blocks.iter().map(|block| block.cost).sum();
    let most = load.iter().copied().fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, most + total);
    let mut best = fill(blocks, load, high).unwrap_or_default();
    // Halved until what is left decides nothing.
    for _ in 0..60 {
        let middle = low + (high - low) / 2.0;
        match fill(blocks, load, middle) {
            Some(stages) => (best, high) = (stages, middle),
            None => low = middle,
        }
    }
    best
}

/// Fills one context after the other up to this load; none, where that does not suffice.
fn fill(blocks: &[Block], load: &[f64], most: f64) -> Option<Vec<usize>> {
    let mut load = load.to_vec();
    let mut at = 0;
    let mut stages = Vec::new();
    for block in blocks {
        while *load.get(at)? + block.cost > most {
            at += 1;
        }
        load[at] += block.cost;
        stages.push(at);
    }
    Some(stages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(costs: &[f64]) -> Nodes {
        Nodes { costs: costs.to_vec(), wishes: vec![None; costs.len()], bonds: Vec::new() }
    }

    #[test]
    fn costs_are_cut_where_the_greatest_is_smallest() {
        let of = |costs: &[f64], contexts| assign(&nodes(costs), contexts).0;
        assert_eq!(of(&[1.0, 1.0, 1.0, 1.0], 2), [0, 0, 1, 1]);
        assert_eq!(of(&[5.0, 1.0, 1.0, 1.0], 2), [0, 1, 1, 1]);
        assert_eq!(of(&[1.0, 1.0, 1.0, 5.0], 2), [0, 0, 0, 1]);
        assert_eq!(of(&[2.0, 3.0, 4.0], 1), [0, 0, 0]);
        assert_eq!(of(&[2.0, 3.0, 4.0, 3.0], 3), [0, 0, 1, 2]);
        assert_eq!(of(&[0.0, 0.0], 3).len(), 2);
        assert!(of(&[], 2).is_empty());
    }

    #[test]
    fn groups_stay_together_with_what_lies_between() {
        let mut group = nodes(&[1.0, 1.0, 1.0, 1.0, 4.0]);
        group.bonds = vec![(1, 3, Bond::State)];
        assert_eq!(assign(&group, 2).0, [0, 0, 0, 0, 1]);
        group.bonds.push((3, 4, Bond::Generator));
        let of = assign(&group, 2).0;
        assert!(of[1..].iter().all(|&context| context == of[1]), "{of:?}");
    }

    #[test]
    fn wishes_hold_unless_a_bond_overrules_them() {
        let mut wish = nodes(&[1.0, 1.0, 1.0, 1.0]);
        wish.wishes[0] = Some(1);
        // Context 1 has that one already.
        assert_eq!(assign(&wish, 2), (vec![1, 0, 0, 1], Vec::new()));
        wish.bonds = vec![(0, 2, Bond::State)];
        wish.wishes[2] = Some(0);
        let (of, overruled) = assign(&wish, 2);
        assert_eq!((of[0], of[2]), (1, 1));
        let expected = Overruled { node: 2, wanted: 0, with: 0, bond: Bond::State };
        assert_eq!(overruled, [expected]);
    }

    /// The smallest greatest cost of all cuts.
    fn best(costs: &[f64], contexts: usize) -> f64 {
        if contexts == 1 || costs.is_empty() {
            return costs.iter().sum();
        }
        let cut = |at: usize| costs[..at].iter().sum::<f64>().max(best(&costs[at..], contexts - 1));
        (0..=costs.len()).map(cut).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn no_cut_is_better(costs in proptest::collection::vec(0u8..20, 0..9), contexts in 1usize..4) {
            let costs: Vec<f64> = costs.into_iter().map(f64::from).collect();
            let of = assign(&nodes(&costs), contexts).0;
            prop_assert!(of.is_sorted());
            let load = |c| of.iter().zip(&costs).filter(|(of, _)| **of == c).map(|(_, x)| x).sum();
            let most = (0..contexts).map(load).fold(0.0, f64::max);
            prop_assert!(most <= best(&costs, contexts) + 1e-9);
        }

        #[test]
        fn bonds_hold_whatever_is_wished(
            wishes in proptest::collection::vec(proptest::option::of(0usize..3), 1..12),
            bonds in proptest::collection::vec((0usize..12, 0usize..12), 0..8),
        ) {
            let n = wishes.len();
            let bonds: Vec<_> = bonds.iter().map(|&(a, b)| (a % n, b % n, Bond::Group)).collect();
            let nodes = Nodes { costs: vec![1.0; n], wishes, bonds };
            let (of, overruled) = assign(&nodes, 3);
            for &(a, b, _) in &nodes.bonds {
                prop_assert_eq!(of[a], of[b]);
            }
            for (i, wish) in nodes.wishes.iter().enumerate() {
                let is_overruled = overruled.iter().any(|o| o.node == i);
                prop_assert_eq!(wish.is_some_and(|wish| wish != of[i]), is_overruled);
            }
        }
    }
}

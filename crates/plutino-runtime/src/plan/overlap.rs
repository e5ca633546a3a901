//! Which nodes of a net run at the same time, and what that means for the memory of their values.
//!
//! A *group* is a run of nodes that follow each other in the net, taken apart into *chains*: nodes
//! of different chains do not need each other's results. So chains may run at the same time, each
//! of them in order on one thread. Where steps are too small to be shared by threads, that is what
//! threads are good for.
//!
//! Groups are found without moving a node. Whatever lies between a fork and its join comes apart
//! by itself: the chains of a stretch of nodes are its connected parts. Of the stretches that begin
//! at a node the one is taken that gains most, by the estimates of [`crate::cost`].
//!
//! Time elsewhere is the position of a node. Within a group positions do not tell who comes first,
//! so that whatever asks for an order of nodes asks [`Overlap`]: a value that several chains read
//! is needed until the group ends.

use crate::memory::{self, Item, Layout};
use crate::plan::net::Net;
use std::ops::Range;

/// Nodes of a group at most: what is looked at of a stretch.
const MOST_NODES: usize = 512;

/// Tasks for each thread that chains are put into: several, so that a thread which comes late
/// leaves something to the others; few, since each has memory of its own and costs some time.
const TASKS: usize = 4;

/// What a node costs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weight {
    /// On one thread.
    pub(crate) alone: f64,
    /// With all threads, where the kernel shares its work among them.
    pub(crate) shared: f64,
}

/// What running chains together costs beside them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) threads: usize,
    /// Handing out the tasks of a group, in nanoseconds.
    pub(crate) job: f64,
    /// What a group must save at least: this share of its time, ...
    pub(crate) share: f64,
    /// ... and so many nanoseconds.
    pub(crate) least: f64,
}

/// A node as the search sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// It has nothing to do at the time of a run, nor do others need to wait for it.
    Nothing,
    /// It can be in a chain, and needs what these nodes make.
    Free { weight: Weight, needs: Vec<usize> },
    /// No group reaches beyond it.
    Wall { weight: Weight, needs: Vec<usize> },
}

impl Part {
    fn needs(&self) -> &[usize] {
        match self {
            Self::Nothing => &[],
            Self::Free { needs, .. } | Self::Wall { needs, .. } => needs,
        }
    }
}

/// Nodes that follow each other, as chains that run at the same time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) nodes: Range<usize>,
    /// For each task the nodes that it runs, ascending.
    pub(crate) chains: Vec<Vec<usize>>,
    /// What it takes, as far as estimates tell: one node after the other, in nanoseconds.
    pub(crate) in_turn: f64,
    /// The same together.
    pub(crate) together: f64,
}

/// Which nodes run at the same time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlap {
    pub(crate) groups: Vec<Group>,
    /// For each node its group and chain; empty where there are no groups.
    of: Vec<Option<(usize, usize)>>,
}

impl Overlap {
    /// Of these groups of a net of so many nodes.
    pub(crate) fn new(groups: Vec<Group>, nodes: usize) -> Self {
        if groups.is_empty() {
            return Self::default();
        }
        let mut of = vec![None; nodes]; // bounded: nodes
        for (number, group) in groups.iter().enumerate() {
            for (chain, nodes) in group.chains.iter().enumerate() {
                for &node in nodes {
                    of[node] = Some((number, chain));
                }
            }
        }
        Self { groups, of }
    }

    fn of(&self, node: usize) -> Option<(usize, usize)> {
        self.of.get(node).copied().flatten()
    }

    /// The group that a node is in.
    pub(crate) fn group(&self, node: usize) -> Option<&Group> {
        self.of(node).and_then(|(group, _)| self.groups.get(group))
    }

    /// Whether two nodes are in different chains of a group.
    fn are_together(&self, a: usize, b: usize) -> bool {
        match (self.of(a), self.of(b)) {
            (Some((group, chain)), Some((of, other))) => group == of && chain != other,
            _ => false,
        }
    }

    /// Whether `node` is over, or is this one, when `at` runs.
    pub(crate) fn is_over(&self, node: usize, at: usize) -> bool {
        node <= at && !self.are_together(node, at)
    }

    /// The later one of two times; where nobody knows which that is, the end of the group.
    pub(crate) fn later(&self, a: usize, b: usize) -> usize {
        match self.group(a).filter(|_| self.are_together(a, b)) {
            Some(group) => group.nodes.end,
            None => a.max(b),
        }
    }

    /// The first node that may not be over when `at` begins.
    pub(crate) fn horizon(&self, at: usize) -> usize {
        self.group(at).map_or(at + 1, |group| group.nodes.start)
    }

    /// What a buffer is to the memory plan: one that lives during a part of a group lives during
    /// all of it.
    pub(crate) fn widened(&self, item: Item) -> Item {
        Item {
            born: self.group(item.born).map_or(item.born, |group| group.nodes.start),
            dies: self.group(item.dies).map_or(item.dies, |group| group.nodes.end - 1),
            ..item
        }
    }

    /// The chain that a buffer is born and dies in.
    fn home(&self, item: &Item) -> Option<(usize, usize)> {
        self.of(item.born).filter(|chain| self.of(item.dies) == Some(*chain))
    }
}

/// Buffers that lie in an arena.
#[derive(Debug, Default)]
pub(crate) struct Arranged {
    /// Offset of each item, in the order given.
    pub(crate) offsets: Vec<usize>,
    /// Size of the arena.
    pub(crate) bytes: usize,
    /// No arena can be smaller, given what chains take.
    pub(crate) lower_bound: usize,
    /// What chains have for their own: nobody else is there while their group runs.
    pub(crate) blocks: Vec<Block>,
    /// All that lies in the arena beside each other: what chains do not have for their own, and
    /// their blocks.
    pub(crate) items: Vec<Item>,
}

/// Memory of a chain: for buffers that it alone needs.
#[derive(Debug)]
pub(crate) struct Block {
    /// Nodes of its group.
    pub(crate) nodes: Range<usize>,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Which items lie in it.
    pub(crate) items: Vec<usize>,
}

/// Finds a place for every item. What a chain alone needs lies in a block of its own, where it is
/// laid out as if there were nothing else.
///
/// # Errors
/// Where a place is none: a defect. None inside where sizes exceed the address space.
pub(crate) fn arrange(items: &[Item], overlap: &Overlap) -> Result<Option<Arranged>, String> {
    let mut blocks: Vec<((usize, usize), Vec<usize>)> = Vec::new();
    let mut global = Vec::new();
    let mut homes: Vec<((usize, usize), usize)> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        match overlap.home(item) {
            Some(chain) if item.bytes > 0 => homes.push((chain, at)),
            _ => global.push(at),
        }
    }
    homes.sort_unstable();
    for (chain, at) in homes {
        match blocks.last_mut() {
            Some((last, items)) if *last == chain => items.push(at),
            _ => blocks.push((chain, vec![at])),
        }
    }
    let lay = |items: &[Item]| -> Result<Option<Layout>, String> {
        let Some(layout) = memory::plan(items) else { return Ok(None) };
        memory::validate(items, &layout)?;
        Ok(Some(layout))
    };
    let mut all: Vec<Item> = global.iter().map(|&at| overlap.widened(items[at])).collect();
    let mut inner = Vec::new();
    for ((group, _), own) in &blocks {
        let own: Vec<Item> = own.iter().map(|&at| items[at]).collect();
        let Some(layout) = lay(&own)? else { return Ok(None) };
        let nodes = overlap.groups[*group].nodes.clone();
        all.push(Item { bytes: layout.bytes, born: nodes.start, dies: nodes.end - 1 });
        inner.push((nodes, layout));
    }
    let Some(layout) = lay(&all)? else { return Ok(None) };
    let mut arranged = Arranged {
        offsets: vec![0; items.len()], // bounded: items
        bytes: layout.bytes,
        lower_bound: memory::lower_bound(all.iter().copied()),
        blocks: Vec::new(),
        items: all,
    };
    let mut offsets = layout.offsets.into_iter();
    for (at, offset) in global.into_iter().zip(offsets.by_ref()) {
        arranged.offsets[at] = offset;
    }
    for (((_, items), (nodes, inner)), offset) in blocks.into_iter().zip(inner).zip(offsets) {
        for (&at, inside) in items.iter().zip(inner.offsets) {
            arranged.offsets[at] = offset + inside;
        }
        arranged.blocks.push(Block { nodes, offset, bytes: inner.bytes, items });
    }
    Ok(Some(arranged))
}

/// The groups of a net that are worth it.
pub(crate) fn find(parts: &[Part], terms: &Terms) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut search = Search::default();
    for stretch in stretches(parts) {
        let mut start = stretch.start;
        while start < stretch.end {
            match search.best(parts, start..stretch.end, terms) {
                Some(group) => {
                    start = group.nodes.end;
                    groups.push(group);
                }
                None => start += 1,
            }
        }
    }
    groups
}

/// Nodes between those that everything goes through: which are beside no other one.
fn stretches(parts: &[Part]) -> Vec<Range<usize>> {
    // How far what a node makes is needed; what needs nothing comes from before the first node.
    let mut reach = vec![0; parts.len()]; // bounded: nodes
    let mut source = 0;
    for (at, part) in parts.iter().enumerate() {
        if part.needs().is_empty() && !matches!(part, Part::Nothing) {
            source = at;
        }
        for &need in part.needs() {
            reach[need] = at;
        }
    }
    let mut stretches: Vec<Range<usize>> = Vec::new();
    let mut farthest = source;
    for (at, part) in parts.iter().enumerate() {
        let wall = matches!(part, Part::Wall { .. });
        if farthest > at && !wall {
            match stretches.last_mut() {
                Some(last) if last.end == at => last.end = at + 1,
                _ => stretches.push(at..at + 1),
            }
        } else if farthest == at && !wall && stretches.last().is_some_and(|last| last.end == at) {
            // The last of the chains, or their join: that is for the search to see.
            if let Some(last) = stretches.last_mut() {
                last.end = at + 1;
            }
        }
        farthest = farthest.max(reach[at]);
    }
    stretches.retain(|stretch| stretch.len() > 1);
    stretches
}

/// The connected parts of a stretch of nodes that grows.
#[derive(Debug, Default)]
struct Search {
    start: usize,
    /// For each node of the stretch one that it is connected with, up to the first one.
    above: Vec<usize>,
    /// For each first node the cost of all that are connected with it.
    cost: Vec<f64>,
}

impl Search {
    fn root(&mut self, mut at: usize) -> usize {
        while self.above[at] != at {
            self.above[at] = self.above[self.above[at]];
            at = self.above[at];
        }
        at
    }

    /// Adds the next node; the cost of what it is connected with.
    fn add(&mut self, cost: f64, needs: &[usize]) -> f64 {
        let own = self.above.len();
        self.above.push(own);
        self.cost.push(cost);
        for &need in needs {
            let Some(need) = need.checked_sub(self.start) else { continue };
            let (a, b) = (self.root(need), self.root(own));
            if a != b {
                let (first, second) = (a.min(b), a.max(b));
                self.above[second] = first;
                self.cost[first] += self.cost[second];
            }
        }
        let root = self.root(own);
        self.cost[root]
    }

    /// The group at the beginning of a range that saves most, if that is enough.
    fn best(&mut self, parts: &[Part], range: Range<usize>, terms: &Terms) -> Option<Group> {
        let threads = terms.threads as f64;
        *self = Self { start: range.start, ..Self::default() };
        let (mut in_turn, mut alone, mut longest) = (0.0f64, 0.0f64, 0.0f64);
        let mut best: Option<(f64, usize, f64, f64)> = None;
        for (at, part) in parts.iter().enumerate().take(range.end).skip(range.start) {
            let (weight, needs) = match part {
                Part::Nothing => (Weight { alone: 0.0, shared: 0.0 }, &[][..]),
                Part::Free { weight, needs } => (*weight, &needs[..]),
                Part::Wall { .. } => break,
            };
            if at - range.start >= MOST_NODES {
                break;
            }
            in_turn += weight.shared;
            alone += weight.alone;
            longest = longest.max(self.add(weight.alone, needs));
            // No better is possible than equal shares, nor than the longest chain.
            let together = (alone / threads).max(longest) + terms.job;
            let saved = in_turn - together;
            let enough = saved >= terms.least && saved >= terms.share * in_turn;
            if enough && best.is_none_or(|(most, ..)| saved > most) {
                best = Some((saved, at + 1, in_turn, together));
            }
        }
        let (_, end, in_turn, _) = best?;
        let chains = self.chains(parts, range.start..end, terms.threads);
        let together = makespan(&chains, parts, terms.threads) + terms.job;
        let saved = in_turn - together;
        let enough = saved >= terms.least && saved >= terms.share * in_turn && chains.len() > 1;
        enough.then_some(Group { nodes: range.start..end, chains, in_turn, together })
    }

    /// The connected parts as tasks: the longest first, each added to the task that is shortest so
    /// far.
    fn chains(&self, parts: &[Part], nodes: Range<usize>, threads: usize) -> Vec<Vec<usize>> {
        // Connected by what is in the range alone: later nodes are no longer there.
        let mut search = Self { start: nodes.start, ..Self::default() };
        let mut worked = Vec::new();
        for part in &parts[nodes.clone()] {
            let (cost, needs) = match part {
                Part::Free { weight, needs } => (weight.alone, &needs[..]),
                _ => (0.0, &[][..]),
            };
            search.add(cost, needs);
            worked.push(matches!(part, Part::Free { .. }));
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()]; // bounded: MOST_NODES
        for at in (0..nodes.len()).filter(|&at| worked[at]) {
            let root = search.root(at);
            members[root].push(nodes.start + at);
        }
        let mut connected: Vec<(f64, Vec<usize>)> = members
            .into_iter()
            .enumerate()
            .filter(|(_, members)| !members.is_empty())
            .map(|(root, members)| (search.cost[root], members))
            .collect();
        connected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        // What has nothing to do at all is no task of its own.
        let tasks = connected.iter().filter(|(cost, _)| *cost > 0.0).count();
        let tasks = tasks.min(threads.saturating_mul(TASKS)).max(1);
        let mut chains: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); tasks]; // bounded: threads
        for (cost, members) in connected {
            let shortest =
                (0..tasks).min_by(|&a, &b| chains[a].0.total_cmp(&chains[b].0)).unwrap_or(0);
            chains[shortest].0 += cost;
            chains[shortest].1.extend(members);
        }
        chains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chains: Vec<Vec<usize>> = chains.into_iter().map(|(_, nodes)| nodes).collect();
        chains.iter_mut().for_each(|nodes| nodes.sort_unstable());
        deal(chains, threads)
    }
}

/// In the order in which threads take tasks: each begins with a share of those that follow each
/// other. From hand to hand and back, so that shares are about equal.
fn deal<T>(tasks: Vec<T>, threads: usize) -> Vec<T> {
    let count = tasks.len();
    let mut hands: Vec<Vec<T>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
    // As `part_of` cuts: later shares are the longer ones, where they differ.
    let room = |hand: usize| plutino_kernels::par::part_of(hand, threads.max(1), count).len();
    let (mut hand, mut forward) = (0usize, true);
    for task in tasks {
        let mut looked = 0;
        while hands[hand].len() >= room(hand) && looked < 2 * threads {
            (hand, forward) = next(hand, forward, threads.max(1));
            looked += 1;
        }
        hands[hand].push(task);
        (hand, forward) = next(hand, forward, threads.max(1));
    }
    hands.into_iter().flatten().collect()
}

/// To and fro: 0, 1, 2, 2, 1, 0, 0, ...
fn next(hand: usize, forward: bool, hands: usize) -> (usize, bool) {
    match forward {
        true if hand + 1 < hands => (hand + 1, true),
        true => (hand, false),
        false if hand > 0 => (hand - 1, false),
        false => (hand, true),
    }
}

/// How long tasks take on so many threads, each given to the first that is free.
fn makespan(chains: &[Vec<usize>], parts: &[Part], threads: usize) -> f64 {
    let cost = |node: &usize| match &parts[*node] {
        Part::Free { weight, .. } => weight.alone,
        _ => 0.0,
    };
    let mut costs: Vec<f64> = chains.iter().map(|chain| chain.iter().map(cost).sum()).collect();
    costs.sort_by(|a, b| b.total_cmp(a));
    let mut loads = vec![0.0f64; threads.max(1)]; // bounded: threads
    for cost in costs {
        let least = (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b])).unwrap_or(0);
        loads[least] += cost;
    }
    loads.into_iter().fold(0.0, f64::max)
}

/// The nodes that make what a node reads and what is not known before, and those it comes after.
pub(crate) fn needs(net: &Net, at: usize) -> Vec<usize> {
    let node = &net.nodes[at];
    let unknown = node.inputs.iter().filter(|&&id| !net.types.is_known(id));
    let mut needs: Vec<usize> =
        unknown.filter_map(|&id| net.producer(id)).filter(|&producer| producer < at).collect();
    needs.extend(net.uses.earlier(at, &node.order).into_iter().filter(|&earlier| earlier < at));
    needs.sort_unstable();
    needs.dedup();
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn free(cost: f64, needs: &[usize]) -> Part {
        Part::Free { weight: Weight { alone: cost, shared: cost }, needs: needs.to_vec() }
    }

    const FREELY: Terms = Terms { threads: 2, job: 0.0, share: 0.0, least: 0.5 };

    #[test]
    fn what_lies_between_fork_and_join_comes_apart() {
        // 0 -> (1 -> 2, 3 -> 4, 5) -> 6 -> 7
        let parts = [
            free(1.0, &[]),
            free(1.0, &[0]),
            free(1.0, &[1]),
            free(1.0, &[0]),
            free(1.0, &[3]),
            free(1.0, &[0]),
            free(1.0, &[2, 4, 5]),
            free(1.0, &[6]),
        ];
        let groups = find(&parts, &FREELY);
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!(group.nodes, 1..6);
        let mut chains = group.chains.clone();
        chains.sort();
        assert_eq!(chains, [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!((group.in_turn, group.together), (5.0, 3.0));
        // Level by level it is the same group.
        let parts = [
            free(1.0, &[]),
            free(1.0, &[0]),
            free(1.0, &[0]),
            free(1.0, &[1]),
            free(1.0, &[2]),
            free(1.0, &[3, 4]),
        ];
        assert_eq!(find(&parts, &FREELY)[0].chains.len(), 2);
    }

    #[test]
    fn chains_alone_and_walls_are_left() {
        let chain: Vec<Part> = (0..20usize)
            .map(|i| free(1.0, &i.checked_sub(1).into_iter().collect::<Vec<_>>()))
            .collect();
        assert_eq!(find(&chain, &FREELY), []);
        assert_eq!(stretches(&chain), []);
        let wall = |needs: &[usize]| Part::Wall {
            weight: Weight { alone: 1.0, shared: 1.0 },
            needs: needs.to_vec(),
        };
        let walled =
            [free(1.0, &[]), free(1.0, &[0]), wall(&[0]), free(1.0, &[0]), free(1.0, &[1, 2, 3])];
        assert_eq!(find(&walled, &FREELY), []);
    }

    #[test]
    fn little_gain_is_none() {
        let parts = [free(10.0, &[]), free(10.0, &[]), free(1.0, &[0, 1])];
        assert_eq!(find(&parts, &FREELY).len(), 1);
        assert_eq!(find(&parts, &Terms { job: 9.0, least: 2.0, ..FREELY }), []);
        assert_eq!(find(&parts, &Terms { share: 0.6, ..FREELY }), []);
        let large: Vec<Part> = parts
            .iter()
            .map(|part| match part {
                Part::Free { weight, needs } => Part::Free {
                    weight: Weight { shared: weight.alone / 2.0, ..*weight },
                    needs: needs.clone(),
                },
                other => other.clone(),
            })
            .collect();
        assert_eq!(find(&large, &FREELY), [], "threads share each of them already");
    }

    #[test]
    fn many_branches_become_few_tasks_of_the_same_length() {
        let mut parts = vec![free(1.0, &[])];
        parts.extend((0..60).map(|i| free(f64::from(1 + i % 3), &[0])));
        let all: Vec<usize> = (1..61).collect();
        parts.push(free(1.0, &all));
        let groups = find(&parts, &FREELY);
        assert_eq!((groups.len(), groups[0].chains.len()), (1, 8));
        let mut found = groups[0].chains.concat();
        found.sort_unstable();
        assert_eq!(found, all);
        assert_eq!(groups[0].together, 60.0);
        assert_eq!(deal(vec![9, 8, 7, 6, 5], 2), [9, 6, 8, 7, 5]);
        assert_eq!(deal(vec![9, 8, 7], 3), [9, 8, 7]);
        assert!(deal(Vec::<u8>::new(), 3).is_empty());
    }

    #[test]
    fn times_within_a_group_are_compared_by_chain() {
        let group = Group {
            nodes: 1..5,
            chains: vec![vec![1, 3], vec![2, 4]],
            in_turn: 0.0,
            together: 0.0,
        };
        let overlap = Overlap::new(vec![group], 7);
        assert!(overlap.is_over(1, 3) && overlap.is_over(3, 3) && overlap.is_over(0, 1));
        assert!(!overlap.is_over(1, 2) && !overlap.is_over(3, 1) && !overlap.is_over(2, 3));
        assert_eq!((overlap.later(1, 3), overlap.later(1, 2), overlap.later(4, 6)), (3, 5, 6));
        assert_eq!((overlap.horizon(3), overlap.horizon(6)), (1, 7));
        let item = |born, dies| Item { bytes: 64, born, dies };
        assert_eq!(overlap.widened(item(0, 2)), item(0, 4));
        assert_eq!(overlap.widened(item(3, 6)), item(1, 6));
        // Two of one chain follow each other; those of two chains lie apart.
        let items = [item(1, 1), item(3, 3), item(2, 2), item(0, 1), item(4, 6), item(6, 6)];
        let arranged = arrange(&items, &overlap).unwrap().unwrap();
        assert_eq!(arranged.offsets[0], arranged.offsets[1]);
        assert_ne!(arranged.offsets[0], arranged.offsets[2]);
        assert_eq!((arranged.bytes, arranged.lower_bound), (256, 256));
        assert_eq!(arranged.blocks.len(), 2);
        let none = arrange(&items, &Overlap::default()).unwrap().unwrap();
        assert_eq!((none.bytes, none.blocks.len()), (128, 0));
    }

    proptest! {
        #[test]
        fn chains_need_nothing_of_each_other(
            picks in prop::collection::vec((any::<u16>(), any::<u16>(), 0u8..12), 1..80),
            threads in 2usize..5,
        ) {
            let part = |(at, &(a, b, kind)): (usize, &(u16, u16, u8))| {
                let need = |n: u16| (at > 0).then(|| at - 1 - n as usize % at.min(9));
                let mut needs: Vec<usize> = need(a).into_iter().chain(need(b)).collect();
                if kind == 0 { needs.clear(); }
                let weight = Weight { alone: f64::from(kind), shared: f64::from(kind) };
                match kind {
                    11 => Part::Wall { weight, needs },
                    10 => Part::Nothing,
                    _ => Part::Free { weight, needs },
                }
            };
            let parts: Vec<Part> = picks.iter().enumerate().map(part).collect();
            let terms = Terms { threads, ..FREELY };
            let mut end = 0;
            for group in find(&parts, &terms) {
                prop_assert!(group.nodes.start >= end);
                end = group.nodes.end;
                let chain = |node: usize| group.chains.iter().position(|c| c.contains(&node));
                for node in group.nodes.clone() {
                    let own = chain(node);
                    prop_assert_eq!(own.is_some(), matches!(parts[node], Part::Free { .. }));
                    for &need in parts[node].needs() {
                        let inside = group.nodes.contains(&need) && own.is_some();
                        prop_assert!(!inside || chain(need).is_none() || chain(need) == own);
                    }
                }
                prop_assert!(group.chains.iter().all(|c| c.windows(2).all(|w| w[0] < w[1])));
                prop_assert!(group.together < group.in_turn);
            }
        }
    }
}

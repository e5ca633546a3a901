//! A run without data: every byte is labelled with the node that wrote it, and every read is
//! checked to see what was meant for it. Done for each plan in builds with debug assertions.
//!
//! This is independent of how places were chosen: whatever in-place, concatenation and the memory
//! planner decided, a value that is overwritten too early shows here.

use crate::SessionError;
use crate::memory::arena::Region;
use crate::memory::concat::Placed;
use crate::memory::lay::Lay;
use crate::memory::storage::{Storage, Stored};
use crate::plan::infer::Types;
use crate::plan::net::{Net, Node};
use plutino_ops::Planned;
use std::collections::{BTreeMap, HashMap};

/// Who wrote a run of bytes: a leaf, or scratch memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Leaf(usize),
    Scratch(usize),
}

/// The labels of one block: first byte to (one past the last byte, label, distance from where the
/// label starts).
#[derive(Default)]
struct Block(BTreeMap<usize, (usize, Label, usize)>);

impl Block {
    /// The labels of a range, cut to it; gaps are left out.
    fn read(&self, start: usize, end: usize) -> Vec<(usize, usize, Label, usize)> {
        if start >= end {
            return Vec::new();
        }
        let first = self.0.range(..=start).next_back().map_or(start, |(&s, _)| s);
        let hits = self.0.range(first..end).filter(|(_, (e, ..))| *e > start);
        hits.map(|(&s, &(e, label, at))| {
            let from = s.max(start);
            (from - start, e.min(end) - start, label, at + (from - s))
        })
        .collect()
    }

    fn write(&mut self, start: usize, end: usize, label: Label) {
        if start >= end {
            return;
        }
        let first = self.0.range(..=start).next_back().map_or(start, |(&s, _)| s);
        let hits: Vec<_> = self.0.range(first..end).map(|(&s, &v)| (s, v)).collect();
        for (s, (e, old, at)) in hits.into_iter().filter(|(_, (e, ..))| *e > start) {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, (start, old, at));
            }
            if e > end {
                self.0.insert(end, (e, old, at + (end - s)));
            }
        }
        self.0.insert(start, (end, label, 0));
    }
}

struct Checker<'a> {
    storage: &'a Storage,
    lay: &'a Lay,
    blocks: HashMap<usize, Block>,
    /// What each leaf's bytes were labelled when it was made.
    contents: HashMap<usize, Vec<(usize, usize, Label, usize)>>,
}

/// Checks a plan.
///
/// # Errors
/// Where a node would read something else than what was made for it: a defect of plutino.
pub(crate) fn verify(
    net: &Net,
    types: &Types,
    storage: &Storage,
    planned: &[Option<Planned>],
    placed: &[Option<Placed>],
    lay: &Lay,
) -> Result<(), SessionError> {
    let mut checker = Checker { storage, lay, blocks: HashMap::new(), contents: HashMap::new() };
    in_order(net, storage)?;
    for (at, node) in net.nodes.iter().enumerate() {
        let typed = types.all(&node.outputs).is_some();
        let (planned, placed) = (planned[at].as_ref(), placed[at].as_ref());
        match (planned, placed) {
            (Some(planned), Some(placed)) => checker.concatenate(at, node, planned, placed)?,
            (Some(planned), None) => checker.compute(at, node, planned)?,
            (None, _) if typed => {}
            (None, _) => checker.check_all(node, &[])?,
        }
    }
    for id in &net.fetches {
        if let Stored::Leaves(leaves) = &storage.values[id.0] {
            leaves.iter().try_for_each(|&leaf| checker.check(leaf, "the end"))?;
        }
    }
    Ok(())
}

/// Whether nodes come after those that they are to come after.
fn in_order(net: &Net, storage: &Storage) -> Result<(), SessionError> {
    for (at, node) in net.nodes.iter().enumerate().filter(|(_, node)| !node.order.is_empty()) {
        let late = net.earlier(at).into_iter().find(|&e| e > at || !storage.overlap.is_over(e, at));
        if let Some(late) = late.and_then(|late| net.nodes.get(late)) {
            let (earlier, later) = (&late.location.name, &node.location.name);
            let what = format!("'{earlier}' is not over when '{later}' begins");
            return Err(SessionError::Internal(what));
        }
    }
    Ok(())
}

impl Checker<'_> {
    fn region(&self, leaf: usize) -> Option<Region> {
        self.lay.region(self.storage, &self.storage.leaves[leaf].place)
    }

    fn snapshot(&self, region: Region) -> Vec<(usize, usize, Label, usize)> {
        let block = self.blocks.get(&region.block);
        block.map_or_else(Vec::new, |b| b.read(region.offset, region.offset + region.len))
    }

    fn write(&mut self, region: Region, label: Label) {
        self.blocks.entry(region.block).or_default().write(
            region.offset,
            region.offset + region.len,
            label,
        );
    }

    /// Whether a leaf's bytes are still what they were when it was made.
    fn check(&self, leaf: usize, reader: &str) -> Result<(), SessionError> {
        let Some(region) = self.region(leaf) else { return Ok(()) };
        if self.contents.get(&leaf).is_some_and(|made| *made == self.snapshot(region)) {
            return Ok(());
        }
        let what = format!("leaf {leaf} was overwritten before {reader} reads it");
        Err(SessionError::Internal(what))
    }

    /// Checks all inputs of a node but some, counted within the node.
    fn check_all(&self, node: &Node, but: &[usize]) -> Result<(), SessionError> {
        let leaves = node.inputs.iter().filter_map(|&id| self.storage.leaves_of(&[id])).flatten();
        leaves
            .enumerate()
            .filter(|(i, _)| !but.contains(i))
            .try_for_each(|(_, leaf)| self.check(leaf, &node.location.name))
    }

    fn compute(&mut self, at: usize, node: &Node, planned: &Planned) -> Result<(), SessionError> {
        self.check_all(node, &[])?;
        let outputs = self.storage.leaves_of(&node.outputs).unwrap_or_default();
        if planned.kernel.is_some() {
            if let Some(scratch) = self.lay.scratch(at) {
                self.write(scratch, Label::Scratch(at));
            }
            for &leaf in outputs.iter().filter(|&&l| self.storage.leaves[l].written) {
                if let Some(region) = self.region(leaf) {
                    self.write(region, Label::Leaf(leaf));
                }
            }
            // The kernel reads while it writes.
            self.check_all(node, &self.storage.shared[at])?;
        }
        self.remember(&outputs);
        Ok(())
    }

    fn concatenate(
        &mut self,
        at: usize,
        node: &Node,
        planned: &Planned,
        placed: &Placed,
    ) -> Result<(), SessionError> {
        self.check_all(node, &[])?;
        let inputs = self.storage.leaves_of(&node.inputs).unwrap_or_default();
        let outputs = self.storage.leaves_of(&node.outputs).unwrap_or_default();
        let wrong = || SessionError::internal(format!("{}: a part lies elsewhere", node.location));
        let whole = outputs.first().and_then(|&l| self.region(l)).ok_or_else(wrong)?;
        let size = self.storage.leaves[outputs[0]].dtype.size_of();
        for (i, &input) in inputs.iter().enumerate() {
            let offset =
                planned.placement.as_ref().and_then(|p| p.get(i)).ok_or_else(wrong)? * size;
            let part = Region {
                block: whole.block,
                offset: whole.offset + offset,
                len: self.storage.leaves[input].place.len,
            };
            if placed.copies.contains(&(i, offset)) {
                self.write(part, Label::Leaf(outputs[0]));
            } else if self.region(input) != Some(part) {
                return Err(wrong());
            }
        }
        self.check_all(node, &[])?;
        let _ = at;
        self.remember(&outputs);
        Ok(())
    }

    fn remember(&mut self, leaves: &[usize]) {
        for &leaf in leaves {
            if let Some(region) = self.region(leaf) {
                let content = self.snapshot(region);
                self.contents.insert(leaf, content);
            }
        }
    }
}

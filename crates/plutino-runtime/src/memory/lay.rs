//! Where everything lies: results in tensors of their own, the rest in the arena.

use crate::SessionError;
use crate::lists;
use crate::memory::Item;
use crate::memory::arena::Region;
use crate::memory::storage::{Home, Place, Storage, Stored};
use crate::open::Resident;
use crate::plan::net::Net;
use crate::plan::overlap::{self, Arranged};
use crate::plan::report::MemoryReport;
use crate::plan::{Direct, Fetch, Source};
use plutino_ops::Planned;
use std::ops::Range;

/// Scratch memory, as buffers that live for one node.
pub(crate) fn scratch_items(planned: &[Option<Planned>]) -> Vec<Item> {
    let scratch = planned.iter().enumerate().filter_map(|(at, p)| Some((at, p.as_ref()?.scratch)));
    scratch
        .filter(|&(_, bytes)| bytes > 0)
        .map(|(at, bytes)| Item { bytes, born: at, dies: at })
        .collect()
}

/// Where the buffers lie.
pub(crate) struct Lay {
    /// Block and offset of each buffer that is no part of another.
    buffers: Vec<(usize, usize)>,
    /// Node and offset of each piece of scratch memory.
    scratch: Vec<(usize, Region)>,
    pub(crate) direct: Vec<Direct>,
    arena: usize,
    lower_bound: usize,
    /// What chains of nodes have of the arena for their own.
    blocks: Vec<ChainBlock>,
    /// What lies in the arena when, as far as the arena is concerned.
    items: Vec<Item>,
}

/// What a chain of nodes has of the arena for its own.
pub(crate) struct ChainBlock {
    /// The nodes of its group: nobody else is there meanwhile.
    pub(crate) nodes: Range<usize>,
    pub(crate) region: Region,
    /// Buffers that lie in it.
    pub(crate) buffers: Vec<usize>,
    /// Nodes whose scratch memory does.
    pub(crate) scratch: Vec<usize>,
}

/// Buffers that are fetched whole become output tensors, the others share the arena with scratch
/// memory.
pub(crate) fn lay_out(
    net: &Net,
    storage: &Storage,
    scratch: &[Item],
    residents: &[Resident],
) -> Result<Lay, SessionError> {
    let mut buffers = lists::filled(storage.buffers.len(), (0, 0))?;
    let mut direct: Vec<Direct> = Vec::new();
    let cache = |resident: &Resident| match &storage.values[resident.output.0] {
        Stored::Leaves(leaves) => {
            match (&leaves[..], leaves.first().map(|&l| &storage.leaves[l])) {
                ([_], Some(leaf)) if leaf.written => match leaf.place.home {
                    Home::Buffer(buffer) if storage.buffers[buffer].parent.is_none() => {
                        Some(buffer)
                    }
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    };
    let caches: Option<Vec<usize>> = residents.iter().map(cache).collect();
    let caches = caches.ok_or_else(|| SessionError::internal("a cache lies elsewhere"))?;
    // None of the arena's, nor of what is handed to the caller.
    caches.iter().for_each(|&buffer| buffers[buffer].0 = usize::MAX);
    let leaves = net.fetches.iter().flat_map(|&id| match &storage.values[id.0] {
        Stored::Leaves(leaves) => leaves.iter().map(|&l| Some(l)).collect(),
        _ => vec![None],
    });
    for (fetch, leaf) in leaves.enumerate() {
        let Some(leaf) = leaf.map(|l| &storage.leaves[l]) else { continue };
        let (Home::Buffer(b), Some(spec)) = (leaf.place.home, &leaf.spec) else { continue };
        let buffer = &storage.buffers[b];
        if buffer.parent.is_none()
            && leaf.place.offset == 0
            && leaf.place.len == buffer.len
            && buffers[b].0 == 0
        {
            direct.push(Direct { fetch, spec: spec.clone() });
            buffers[b].0 = direct.len();
        }
    }
    for (number, &buffer) in caches.iter().enumerate() {
        buffers[buffer].0 = 1 + direct.len() + number;
    }
    let mut items = Vec::new();
    let mut owners = Vec::new();
    for (b, buffer) in storage.buffers.iter().enumerate() {
        if buffer.parent.is_none() && buffers[b].0 == 0 {
            items.push(Item { bytes: buffer.len, born: buffer.born, dies: buffer.dies });
            owners.push(b);
        }
    }
    items.extend(scratch);
    let arranged = overlap::arrange(&items, &storage.overlap).map_err(SessionError::Internal)?;
    let arranged = arranged.ok_or_else(|| {
        SessionError::Tensor(plutino_tensor::TensorError::OutOfMemory { bytes: usize::MAX })
    })?;
    let Arranged { offsets, bytes: arena, lower_bound, blocks, items: placed } = arranged;
    let blocks = blocks.into_iter().map(|block| {
        let of_buffers = |&item: &usize| owners.get(item).copied();
        let of_scratch = |&item: &usize| {
            item.checked_sub(owners.len()).and_then(|at| Some(scratch.get(at)?.born))
        };
        ChainBlock {
            nodes: block.nodes,
            region: Region { block: 0, offset: block.offset, len: block.bytes },
            buffers: block.items.iter().filter_map(of_buffers).collect(),
            scratch: block.items.iter().filter_map(of_scratch).collect(),
        }
    });
    let blocks = blocks.collect();
    let mut offsets = offsets.into_iter();
    for (b, offset) in owners.into_iter().zip(offsets.by_ref()) {
        buffers[b].1 = offset;
    }
    let region =
        |(item, offset): (&Item, usize)| (item.born, Region { block: 0, offset, len: item.bytes });
    let scratch = scratch.iter().zip(offsets).map(region).collect();
    Ok(Lay { buffers, scratch, direct, arena, lower_bound, blocks, items: placed })
}

impl Lay {
    /// Where a place in a buffer lies.
    pub(crate) fn region(&self, storage: &Storage, place: &Place) -> Option<Region> {
        let Home::Buffer(buffer) = place.home else { return None };
        let (root, inside) = storage.root(buffer);
        let &(block, offset) = self.buffers.get(root)?;
        Some(Region { block, offset: offset + inside + place.offset, len: place.len })
    }

    /// Where each buffer lies in the arena; none for those that lie elsewhere, or in another one.
    pub(crate) fn roots<'a>(
        &'a self,
        storage: &'a Storage,
    ) -> impl Iterator<Item = Option<Region>> + 'a {
        self.buffers.iter().zip(&storage.buffers).map(|(&(block, offset), buffer)| {
            let root = buffer.parent.is_none() && block == 0;
            root.then_some(Region { block, offset, len: buffer.len })
        })
    }

    /// What chains have of the arena for their own: buffers and scratch memory that only one of
    /// them needs.
    pub(crate) fn chain_blocks(&self) -> &[ChainBlock] {
        &self.blocks
    }

    /// Bytes of the arena.
    pub(crate) fn arena(&self) -> usize {
        self.arena
    }

    /// The sum of what is needed at some time while these nodes run.
    pub(crate) fn needed(&self, nodes: &Range<usize>) -> usize {
        let items = self.items.iter().filter(|i| i.born < nodes.end && i.dies >= nodes.start);
        items.map(|i| i.bytes).fold(0, usize::saturating_add)
    }

    /// Scratch memory, with the nodes that use it.
    pub(crate) fn scratch_regions(&self) -> impl Iterator<Item = (usize, Region)> + '_ {
        self.scratch.iter().copied()
    }

    /// Scratch memory of a node.
    pub(crate) fn scratch(&self, node: usize) -> Option<Region> {
        let at = self.scratch.binary_search_by_key(&node, |(n, _)| *n).ok()?;
        self.scratch.get(at).map(|(_, region)| *region)
    }
}

pub(crate) fn memory_report(storage: &Storage, lay: &Lay, fetches: &[Fetch]) -> MemoryReport {
    let computed =
        storage.leaves.iter().filter(|l| l.written && matches!(l.place.home, Home::Buffer(_)));
    let outputs = fetches.iter().map(|fetch| match fetch {
        Fetch::Leaf { spec: Some(spec), source: Source::Lent(_), .. } => {
            spec.storage_bytes().unwrap_or(0)
        }
        _ => 0,
    });
    MemoryReport {
        unshared: computed.map(|l| l.place.len).fold(0, usize::saturating_add),
        arena: lay.arena,
        lower_bound: lay.lower_bound,
        scratch: lay.scratch.iter().map(|(_, r)| r.len).max().unwrap_or(0),
        outputs: outputs.fold(0, usize::saturating_add),
        constants: storage.constants.iter().map(|c| c.as_bytes().len()).sum(),
        ..MemoryReport::default()
    }
}

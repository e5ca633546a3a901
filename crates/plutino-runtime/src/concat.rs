//! Concatenation without copying: producers write straight into their part of the result.
//!
//! Where an operator says that its output is its inputs one after the other
//! ([`Planned::placement`](plutino_ops::Planned)), the buffer of an input can become a part of the output's buffer.
//! That is done where nothing written later would be lost, and where it does not raise the most memory that is
//! alive at once: the joint buffer lives as long as any part of it. What cannot be placed is copied.

use crate::memory::{Item, lower_bound};
use crate::net::{Net, Node};
use crate::storage::{Home, Storage};
use plutino_ops::Planned;

/// How a placed concatenation is computed: these input leaves are copied to these bytes of the output; the others
/// are there already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Input leaf (counted within the node) and byte of the output.
    pub(crate) copies: Vec<(usize, usize)>,
}

/// Places what can be placed, in execution order. For each node what became of it; none where it runs as planned.
pub(crate) fn place(
    net: &Net,
    storage: &mut Storage,
    planned: &[Option<Planned>],
    scratch: &[Item],
) -> Vec<Option<Placed>> {
    let nodes = net.nodes.iter().zip(planned).enumerate();
    nodes
        .map(|(at, (node, planned))| {
            let offsets = planned.as_ref()?.placement.as_deref()?;
            place_inputs(storage, scratch, at, node, offsets)
        })
        .collect()
}

fn place_inputs(
    storage: &mut Storage,
    scratch: &[Item],
    at: usize,
    node: &Node,
    offsets: &[usize],
) -> Option<Placed> {
    let inputs = storage.leaves_of(&node.inputs)?;
    let [output] = storage.leaves_of(&node.outputs)?[..] else { return None };
    let place = storage.leaves[output].place;
    let Home::Buffer(whole) = place.home else { return None };
    let owns_buffer = storage.leaves[output].written && place.len == storage.buffers[whole].len;
    if !owns_buffer || !storage.shared[at].is_empty() || offsets.len() != inputs.len() {
        return None;
    }
    let size = storage.leaves[output].dtype.size_of();
    let mut placed = Placed::default();
    for (i, (&input, &offset)) in inputs.iter().zip(offsets).enumerate() {
        let offset = offset.checked_mul(size)?;
        if offset.checked_add(storage.leaves[input].place.len)? > place.len {
            return None; // the plan contradicts itself: let the kernel run
        }
        if !move_into(storage, scratch, at, input, whole, offset) {
            placed.copies.push((i, offset));
        }
    }
    (placed.copies.len() < inputs.len()).then_some(placed)
}

/// Makes the buffer of leaf `input` a part of buffer `whole`, if that is sound and costs no memory.
fn move_into(
    storage: &mut Storage,
    scratch: &[Item],
    at: usize,
    input: usize,
    whole: usize,
    offset: usize,
) -> bool {
    let leaf = &storage.leaves[input];
    let Home::Buffer(part) = leaf.place.home else { return false };
    let (from, to) = (storage.buffers[part], storage.buffers[whole]);
    // The leaf is the whole of a buffer that is no part of another one yet (be it of this very output).
    let alone = part != whole && from.parent.is_none() && to.parent.is_none();
    let entire = leaf.place.offset == 0 && leaf.place.len == from.len && from.len > 0;
    // Nobody writes to the part once the output is there, and nobody reads the part once the output is overwritten.
    let settled = from.last_write <= at && (to.last_write <= at || from.dies <= at);
    if !(alone && entire && settled) || from.fetched {
        return false;
    }
    let before = peak(storage, scratch);
    storage.buffers[part].parent = Some((whole, offset));
    let joint = &mut storage.buffers[whole];
    joint.born = joint.born.min(from.born);
    joint.dies = joint.dies.max(from.dies);
    if peak(storage, scratch) > before {
        storage.buffers[whole] = to;
        storage.buffers[part].parent = None;
        return false;
    }
    true
}

/// The buffers that are no part of another one, as the memory plan sees them.
pub(crate) fn roots(storage: &Storage) -> impl Iterator<Item = Item> + '_ {
    let roots = storage.buffers.iter().filter(|b| b.parent.is_none());
    roots.map(|b| Item { bytes: b.len, born: b.born, dies: b.dies })
}

fn peak(storage: &Storage, scratch: &[Item]) -> usize {
    lower_bound(roots(storage).chain(scratch.iter().copied()))
}

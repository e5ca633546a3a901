//! Concatenation without copying: producers write straight into their part of the result.
//!
//! Where an operator says that its output is its inputs one after the other
//! ([`Planned::placement`](plutino_ops::Planned)), the buffer of an input can become a part of the
//! output's buffer. That is done where nothing written later would be lost, and where it does not
//! raise the most memory that is alive at once: the joint buffer lives as long as any part of it.
//! What cannot be placed is copied.

use crate::memory::storage::{Buffer, Home, Storage};
use crate::memory::{Item, Usage};
use crate::plan::net::{Net, Node};
use plutino_ops::Planned;

/// How a placed concatenation is computed: these input leaves are copied to these bytes of the
/// output; the others are there already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Input leaf (counted within the node) and byte of the output.
    pub(crate) copies: Vec<(usize, usize)>,
}

/// Places what can be placed, in execution order. For each node what became of it; none where it
/// runs as planned.
pub(crate) fn place(
    net: &Net,
    storage: &mut Storage,
    planned: &[Option<Planned>],
    scratch: &[Item],
) -> Vec<Option<Placed>> {
    let mut usage = None;
    let nodes = net.nodes.iter().zip(planned).enumerate();
    nodes
        .map(|(at, (node, planned))| {
            let offsets = planned.as_ref()?.placement.as_deref()?;
            let usage = usage.get_or_insert_with(|| {
                let scratch = scratch.iter().map(|item| storage.overlap.widened(*item));
                Usage::new(roots(storage).chain(scratch), storage.end)
            });
            place_inputs(storage, usage, at, node, offsets)
        })
        .collect()
}

fn place_inputs(
    storage: &mut Storage,
    usage: &mut Usage,
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
        if !move_into(storage, usage, at, input, whole, offset) {
            placed.copies.push((i, offset));
        }
    }
    (placed.copies.len() < inputs.len()).then_some(placed)
}

/// Makes the buffer of leaf `input` a part of buffer `whole`, if that is sound and costs no memory.
fn move_into(
    storage: &mut Storage,
    usage: &mut Usage,
    at: usize,
    input: usize,
    whole: usize,
    offset: usize,
) -> bool {
    let leaf = &storage.leaves[input];
    let Home::Buffer(part) = leaf.place.home else { return false };
    let (from, to) = (storage.buffers[part], storage.buffers[whole]);
    // The leaf is the whole of a buffer that is no part of another one yet (be it of this very
    // output).
    let alone = part != whole && from.parent.is_none() && to.parent.is_none();
    let entire = leaf.place.offset == 0 && leaf.place.len == from.len && from.len > 0;
    // Nobody writes to the part once the output is there, and nobody reads the part once the output
    // is overwritten.
    let settled = from.last_write <= at && (to.last_write <= at || from.dies <= at);
    if !(alone && entire && settled) || from.fetched {
        return false;
    }
    let dies = storage.overlap.later(to.dies, from.dies);
    let joint = Buffer { born: to.born.min(from.born), dies, ..to };
    let before = usage.most();
    let item = |b: &Buffer| storage.overlap.widened(item(b));
    usage.replace(&[item(&from), item(&to)], &[item(&joint)]);
    if usage.most() > before {
        usage.replace(&[item(&joint)], &[item(&from), item(&to)]);
        return false;
    }
    storage.buffers[part].parent = Some((whole, offset));
    storage.buffers[whole] = joint;
    true
}

/// The buffers that are no part of another one, as the memory plan sees them.
pub(crate) fn roots(storage: &Storage) -> impl Iterator<Item = Item> + '_ {
    let roots = storage.buffers.iter().filter(|b| b.parent.is_none());
    roots.map(|b| storage.overlap.widened(item(b)))
}

fn item(b: &Buffer) -> Item {
    Item { bytes: b.len, born: b.born, dies: b.dies }
}

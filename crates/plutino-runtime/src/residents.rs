//! What lies where, and for how long: for each part of memory who writes it and who reads it.
//!
//! Found by following the bytes through the steps of a plan, in order: a step reads what was last
//! written where it reads. Views are seen through that way, since they have no bytes of their own.

use crate::Plan;
use crate::arena::Region;
use crate::late::LateInput;
use crate::plan::{Fetch, Sink, Source, Step, Work};
use std::collections::{BTreeMap, HashMap};

/// A part of memory that a step writes, or that is there when the run starts, for as long as it is
/// needed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resident {
    /// Name of the value; that of the operator for scratch memory, and for values that only exist
    /// while running.
    pub name: String,
    /// Where it lies.
    pub place: ResidentPlace,
    /// Size in bytes; 0 where only a run tells.
    pub bytes: usize,
    /// The step that writes it, by position in [`Plan::steps`]; none for inputs and constants.
    pub written_by: Option<usize>,
    /// The steps that read it, ascending, each once.
    pub read_by: Vec<usize>,
    /// Whether it is, or is a part of, a result of the run.
    pub fetched: bool,
    /// Whether it is memory that a step needs for itself.
    pub scratch: bool,
}

/// Where a [`Resident`] lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResidentPlace {
    /// In the arena, from this byte.
    Arena(usize),
    /// In an output tensor, by its number among those that steps write to, from this byte.
    Output(usize, usize),
    /// An input of the run, by number.
    Input(usize),
    /// A constant of the plan, by number.
    Constant(usize),
    /// A tensor of its own that is made while running, by number.
    Heap(usize),
}

impl Plan {
    /// What lies where, and for how long: in the order of writing, after inputs and constants that
    /// steps read. Takes time of the order of the steps' inputs and outputs.
    pub fn residents(&self) -> Vec<Resident> {
        let mut trace = Trace::default();
        self.steps.iter().enumerate().for_each(|(at, step)| trace.step(self, at, step));
        for fetch in &self.fetches {
            let (name, spot) = match fetch {
                Fetch::Leaf { name, source, .. } => (name, Spot::of(source)),
                Fetch::Late { name, slot, .. } => (name, Some(Spot::whole(Space::Late(*slot)))),
            };
            for id in spot.map(|spot| trace.found(self, &spot, name)).unwrap_or_default() {
                trace.residents[id].fetched = true;
            }
        }
        let mut order: Vec<usize> = (0..trace.residents.len()).collect();
        order.sort_by_key(|&id| trace.residents[id].written_by.map_or(0, |step| step + 1));
        let mut residents: Vec<Option<Resident>> = trace.residents.into_iter().map(Some).collect();
        order.into_iter().filter_map(|id| residents.get_mut(id)?.take()).collect()
    }
}

/// An address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Space {
    /// The arena, and output tensors, as in [`Region::block`].
    Block(usize),
    Feed(usize),
    Constant(usize),
    Heap(usize),
    Late(usize),
}

/// Bytes of an address space.
#[derive(Debug, Clone, Copy)]
struct Spot {
    space: Space,
    start: usize,
    end: usize,
}

impl Spot {
    /// What is read and written as a whole.
    fn whole(space: Space) -> Self {
        Self { space, start: 0, end: 1 }
    }

    fn region(region: &Region) -> Self {
        let end = region.offset.saturating_add(region.len);
        Self { space: Space::Block(region.block), start: region.offset, end }
    }

    /// Where a step reads; nothing where it works in place.
    fn of(source: &Source) -> Option<Self> {
        Some(match source {
            Source::Lent(region) => Self::region(region),
            Source::Shared => return None,
            Source::Feed { feed, .. } => Self::whole(Space::Feed(*feed)),
            Source::Constant { constant, .. } => Self::whole(Space::Constant(*constant)),
            Source::Heap(slot) => Self::whole(Space::Heap(*slot)),
        })
    }

    fn place(&self) -> ResidentPlace {
        match self.space {
            Space::Block(0) => ResidentPlace::Arena(self.start),
            Space::Block(block) => ResidentPlace::Output(block - 1, self.start),
            Space::Feed(feed) => ResidentPlace::Input(feed),
            Space::Constant(constant) => ResidentPlace::Constant(constant),
            Space::Heap(slot) | Space::Late(slot) => ResidentPlace::Heap(slot),
        }
    }
}

/// What has been written so far.
#[derive(Default)]
struct Trace {
    residents: Vec<Resident>,
    /// Who lies where: for each space, ranges that do not meet, from first byte to one past the
    /// last and the resident.
    spaces: HashMap<Space, BTreeMap<usize, (usize, usize)>>,
}

impl Trace {
    fn step(&mut self, plan: &Plan, at: usize, step: &Step) {
        let mut reads: Vec<(Spot, &str)> = Vec::new();
        let mut shared = Vec::new();
        for input in &step.inputs {
            match Spot::of(&input.source) {
                Some(spot) => reads.push((spot, &input.name)),
                None => shared.push(input.spec.storage_bytes().unwrap_or(0)),
            }
        }
        let mut writes: Vec<(Spot, &str, bool)> = Vec::new();
        let mut regions = step.writes.iter();
        for output in &step.outputs {
            let spot = match &output.sink {
                Sink::Lent(_) => regions.next().map(Spot::region),
                Sink::Heap { slot, .. } => Some(Spot::whole(Space::Heap(*slot))),
                Sink::View => None,
            };
            writes.extend(spot.map(|spot| (spot, output.name.as_str(), false)));
        }
        // An input that is worked on in place lies where an output of its size will.
        for bytes in shared {
            let found = writes
                .iter()
                .find(|(spot, ..)| spot.end - spot.start == bytes && self.covers(spot));
            reads.extend(found.map(|(spot, name, _)| (*spot, *name)));
        }
        writes.extend(regions.map(|r| (Spot::region(r), step.location.name.as_str(), true)));
        if let Work::Late(late) = &step.work {
            for input in &late.inputs {
                match input {
                    LateInput::Slot(slot) => reads.push((Spot::whole(Space::Late(*slot)), "")),
                    LateInput::Planned { leaves, .. } => {
                        let spots = leaves.iter().filter_map(|(_, source)| Spot::of(source));
                        reads.extend(spots.map(|spot| (spot, "")));
                    }
                }
            }
            let slots = late.outputs.iter().map(|slot| Spot::whole(Space::Late(*slot)));
            writes.extend(slots.map(|spot| (spot, step.location.name.as_str(), false)));
        }
        for (spot, name) in reads {
            for id in self.found(plan, &spot, name) {
                let readers = &mut self.residents[id].read_by;
                if readers.last() != Some(&at) {
                    readers.push(at);
                }
            }
        }
        for (spot, name, scratch) in writes {
            self.write(spot, name, Some(at), scratch);
        }
    }

    /// Whether every byte was written.
    fn covers(&self, spot: &Spot) -> bool {
        let Some(space) = self.spaces.get(&spot.space) else { return false };
        let written = overlapping(space, spot)
            .map(|(start, end, _)| end.min(spot.end) - start.max(spot.start));
        written.sum::<usize>() == spot.end - spot.start
    }

    /// Who lies there. An input or a constant is there from the start.
    fn found(&mut self, plan: &Plan, spot: &Spot, name: &str) -> Vec<usize> {
        let known = self.spaces.contains_key(&spot.space);
        if !known && matches!(spot.space, Space::Feed(_) | Space::Constant(_)) {
            let bytes = match spot.space {
                Space::Feed(feed) => plan.feeds.get(feed).and_then(|f| f.1.storage_bytes().ok()),
                Space::Constant(constant) => {
                    plan.constants.get(constant).map(|c| c.as_bytes().len())
                }
                _ => None,
            };
            let own = match spot.space {
                Space::Feed(feed) => plan.input_names.get(feed).map(String::as_str),
                _ => None,
            };
            self.write(*spot, own.unwrap_or(name), None, false);
            if let Some(resident) = self.residents.last_mut() {
                resident.bytes = bytes.unwrap_or(0);
            }
        }
        let space = self.spaces.get(&spot.space);
        space.map(|s| overlapping(s, spot).map(|(_, _, id)| id).collect()).unwrap_or_default()
    }

    fn write(&mut self, spot: Spot, name: &str, by: Option<usize>, scratch: bool) {
        if spot.start >= spot.end {
            return;
        }
        let id = self.residents.len();
        let bytes = match spot.space {
            Space::Block(_) => spot.end - spot.start,
            _ => 0,
        };
        self.residents.push(Resident {
            name: name.to_owned(),
            place: spot.place(),
            bytes,
            written_by: by,
            read_by: Vec::new(),
            fetched: false,
            scratch,
        });
        let space = self.spaces.entry(spot.space).or_default();
        let gone: Vec<_> = overlapping(space, &spot).collect();
        for (start, end, owner) in gone {
            space.remove(&start);
            if start < spot.start {
                space.insert(start, (spot.start, owner));
            }
            if end > spot.end {
                space.insert(spot.end, (end, owner));
            }
        }
        space.insert(spot.start, (spot.end, id));
    }
}

/// The ranges that have a byte in common with `spot`: first byte, one past the last, resident.
fn overlapping<'a>(
    space: &'a BTreeMap<usize, (usize, usize)>,
    spot: &'a Spot,
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    let before = space.range(..spot.start).next_back().filter(|(_, (end, _))| *end > spot.start);
    before
        .into_iter()
        .chain(space.range(spot.start..spot.end))
        .map(|(&start, &(end, id))| (start, end, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::session_with;
    use crate::{Session, SessionOptions};
    use plutino_tensor::{DType, TensorSpec};

    fn plan(lines: &str, shape: &[usize]) -> (Session, std::sync::Arc<Plan>) {
        let options = ["fuse", "chain", "identity", "dead"]
            .iter()
            .fold(SessionOptions::default(), |options, pass| options.without_pass(*pass));
        let session = session_with(lines, options);
        let plan = session.plan(&[TensorSpec::new(DType::F32, shape)]).unwrap();
        (session, plan)
    }

    fn named<'a>(residents: &'a [Resident], name: &str) -> &'a Resident {
        residents.iter().find(|r| r.name == name && !r.scratch).unwrap()
    }

    #[test]
    fn bytes_are_followed_through_views_and_in_place() {
        let (_session, plan) = plan(
            "pnnx.Input in 0 1 0 #0=(4,2)f32
             test.Scale a 1 1 0 1 by=2 $input=0
             test.View v 1 1 1 2
             test.Relu b 1 1 2 3
             test.Scale c 1 1 3 4 by=3 $input=3
             pnnx.Output out 1 0 4",
            &[4, 2],
        );
        let residents = plan.residents();
        let step = |name: &str| plan.steps().position(|s| s.location.name == name);
        let input = named(&residents, "0");
        assert_eq!(input.place, ResidentPlace::Input(0));
        assert_eq!((input.bytes, input.written_by), (32, None));
        assert_eq!(input.read_by, [step("a").unwrap()]);
        // The view has no bytes: what it shows is read by its reader.
        let first = named(&residents, "1");
        assert_eq!((first.written_by, &first.read_by[..]), (step("a"), &[step("b").unwrap()][..]));
        let last = named(&residents, "4");
        assert!(last.fetched && last.read_by.is_empty(), "{residents:?}");
        assert_eq!(residents.iter().filter(|r| r.fetched).count(), 1);
        // Every step but the first reads what a step before it wrote.
        for at in 1..plan.steps().len() {
            let writers: Vec<_> = residents.iter().filter(|r| r.read_by.contains(&at)).collect();
            assert!(!writers.is_empty(), "nobody writes what step {at} reads: {residents:?}");
            assert!(writers.iter().all(|r| r.written_by.is_none_or(|by| by < at)));
        }
    }

    #[test]
    fn what_depends_on_data_has_a_heap_slot() {
        let (_session, plan) = plan(
            "pnnx.Input in 0 1 0 #0=(4)f32
             test.Positive p 1 1 0 1
             test.Relu r 1 1 1 2
             pnnx.Output out 1 0 2",
            &[4],
        );
        let residents = plan.residents();
        let heap = |r: &&Resident| matches!(r.place, ResidentPlace::Heap(_));
        let heap: Vec<_> = residents.iter().filter(heap).collect();
        assert_eq!(heap.len(), 2, "{residents:?}");
        assert_eq!((heap[0].written_by, &heap[0].read_by[..]), (Some(0), &[1][..]));
        assert!(heap[1].fetched);
    }

    #[test]
    fn one_that_is_written_over_in_part_is_read_in_what_is_left() {
        let mut trace = Trace::default();
        let spot = |start, end| Spot { space: Space::Block(0), start, end };
        trace.write(spot(0, 100), "a", Some(0), false);
        trace.write(spot(40, 60), "b", Some(1), false);
        let space = &trace.spaces[&Space::Block(0)];
        let owners = |start, end| -> Vec<usize> {
            overlapping(space, &spot(start, end)).map(|(_, _, id)| id).collect()
        };
        assert_eq!(owners(0, 40), [0]);
        assert_eq!(owners(39, 61), [0, 1, 0]);
        assert_eq!(owners(40, 60), [1]);
        assert_eq!(owners(100, 120), []);
        assert!(trace.covers(&spot(0, 100)) && !trace.covers(&spot(0, 101)));
    }
}

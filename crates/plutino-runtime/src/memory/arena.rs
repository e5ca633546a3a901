//! Memory of a run: one arena and the output tensors, lent to kernels part by part.
#![allow(unsafe_code)] // the one place of this crate that hands out parts of one buffer at the same time

use plutino_ops::RunError;
use plutino_tensor::{AlignedBuf, Reserve, Tensor, TensorError, TensorSpec};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    /// 0 is the arena, `1 + i` the `i`-th output tensor that steps write to.
    pub(crate) block: usize,
    /// First byte.
    pub(crate) offset: usize,
    /// Number of bytes.
    pub(crate) len: usize,
}

impl Region {
    /// Whether two regions have a byte in common. Empty ones have none.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.block == other.block
            && self.len > 0
            && other.len > 0
            && self.offset < other.offset.saturating_add(other.len)
            && other.offset < self.offset.saturating_add(self.len)
    }
}

/// Blocks of memory that one run owns.
pub(crate) struct Blocks<'a> {
    blocks: SmallVec<[(*mut u8, usize); 4]>,
    owner: PhantomData<&'a mut [u8]>,
}

impl<'a> Blocks<'a> {
    /// Takes over the memory for as long as it is borrowed.
    pub(crate) fn new(memory: impl Iterator<Item = &'a mut [u8]>) -> Self {
        let blocks = memory.map(|m| (m.as_mut_ptr(), m.len())).collect();
        Self { blocks, owner: PhantomData }
    }

    /// The blocks, for chains of steps that run at the same time: each is lent what it may have of
    /// them, and nothing else is lent meanwhile.
    pub(crate) fn divide<'b>(&'b mut self, territories: &'b Territories) -> Divided<'b> {
        let chains = territories.chains.iter().map(|_| AtomicBool::new(false)).collect();
        Divided { blocks: &self.blocks, territories, taken: chains, owner: PhantomData }
    }
}

/// Whoever lends parts of blocks.
pub(crate) trait Lend {
    /// Lends regions for reading and for writing at the same time, each in order, to `read` and
    /// `write`.
    ///
    /// # Errors
    /// Where a region leaves its block, or one for writing overlaps another. Nothing is lent then.
    fn lend<'b>(
        &'b mut self,
        reads: &[Region],
        writes: &[Region],
        read: impl FnMut(&'b [u8]),
        write: impl FnMut(&'b mut [u8]),
    ) -> Result<(), RunError>;
}

impl Lend for Blocks<'_> {
    fn lend<'b>(
        &'b mut self,
        reads: &[Region],
        writes: &[Region],
        read: impl FnMut(&'b [u8]),
        write: impl FnMut(&'b mut [u8]),
    ) -> Result<(), RunError> {
        // SAFETY: `self` borrows the blocks mutably for 'a, and nothing else is lent while 'b
        // lasts, because `self` is borrowed mutably for it.
        unsafe { hand_out(&self.blocks, reads, writes, read, write) }
    }
}

/// What one step is lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loan {
    reads: Box<[Region]>,
    writes: Box<[Region]>,
}

impl Loan {
    pub(crate) fn new(reads: &[Region], writes: &[Region]) -> Self {
        Self { reads: reads.into(), writes: writes.into() }
    }
}

/// What chains of steps that run at the same time are lent, step by step. That there is one means
/// that no region which a chain writes has a byte in common with any region of another chain.
#[derive(Debug)]
pub(crate) struct Territories {
    chains: Vec<Vec<Loan>>,
}

impl Territories {
    /// # Errors
    /// Where two chains want the same byte, and one of them to write to it: the second one's
    /// region.
    pub(crate) fn new(chains: Vec<Vec<Loan>>) -> Result<Self, Region> {
        let mut all: Vec<(Region, usize, bool)> = Vec::new();
        for (chain, loans) in chains.iter().enumerate() {
            for loan in loans {
                all.extend(loan.reads.iter().map(|r| (*r, chain, false)));
                all.extend(loan.writes.iter().map(|w| (*w, chain, true)));
            }
        }
        all.retain(|(region, ..)| region.len > 0);
        all.sort_by_key(|(r, ..)| (r.block, r.offset));
        let (mut block, mut lent, mut written) = (usize::MAX, Ends::default(), Ends::default());
        for (region, chain, writes) in all {
            if region.block != block {
                (block, lent, written) = (region.block, Ends::default(), Ends::default());
            }
            // What began before overlaps this one if it ends behind its first byte.
            let others = if writes { &lent } else { &written };
            if others.of_others(chain) > region.offset {
                return Err(region);
            }
            let end = region.offset.saturating_add(region.len);
            lent.note(chain, end);
            if writes {
                written.note(chain, end);
            }
        }
        Ok(Self { chains })
    }
}

/// Where the regions of a block end, as far as they go: the farthest, and the farthest of any other
/// chain than that one's.
#[derive(Default)]
struct Ends {
    first: (usize, usize),
    second: usize,
}

impl Ends {
    fn of_others(&self, chain: usize) -> usize {
        if self.first.1 == chain { self.second } else { self.first.0 }
    }

    fn note(&mut self, chain: usize, end: usize) {
        if chain == self.first.1 {
            self.first.0 = self.first.0.max(end);
        } else if end > self.first.0 {
            self.second = self.first.0;
            self.first = (end, chain);
        } else {
            self.second = self.second.max(end);
        }
    }
}

/// Blocks that chains of steps share for a while: see [`Blocks::divide`].
pub(crate) struct Divided<'b> {
    blocks: &'b [(*mut u8, usize)],
    territories: &'b Territories,
    /// By chain.
    taken: Box<[AtomicBool]>,
    owner: PhantomData<&'b mut [u8]>,
}

// SAFETY: threads get nothing of it but chains, each of which one thread gets (`taken`), and which
// are lent memory that no other chain writes to, and write to none that another one is lent
// (`Territories::new`).
unsafe impl Sync for Divided<'_> {}

impl Divided<'_> {
    /// The memory of a chain, for whoever runs it; none for a second one.
    pub(crate) fn chain(&self, number: usize) -> Option<Chain<'_>> {
        let loans = self.territories.chains.get(number)?;
        let taken = self.taken.get(number)?.swap(true, Ordering::SeqCst);
        (!taken).then(|| Chain { blocks: self.blocks, loans: loans.iter() })
    }
}

/// Lends the steps of a chain what they were promised, in order, each once.
pub(crate) struct Chain<'c> {
    blocks: &'c [(*mut u8, usize)],
    loans: std::slice::Iter<'c, Loan>,
}

impl Lend for Chain<'_> {
    fn lend<'b>(
        &'b mut self,
        reads: &[Region],
        writes: &[Region],
        read: impl FnMut(&'b [u8]),
        write: impl FnMut(&'b mut [u8]),
    ) -> Result<(), RunError> {
        match self.loans.next() {
            // SAFETY: the blocks are borrowed mutably by `Divided`, of which this is the only chain
            // of its number; what other chains are lent was compared with this loan
            // (`Territories::new`). `self` is borrowed mutably for 'b: the chain is lent nothing
            // else meanwhile.
            Some(loan) if *loan.reads == *reads && *loan.writes == *writes => unsafe {
                hand_out(self.blocks, reads, writes, read, write)
            },
            _ => Err(RunError::Internal("a step wants other memory than was planned".into())),
        }
    }
}

/// Lends regions of blocks.
///
/// # Errors
/// Where a region leaves its block, or one for writing overlaps another. Nothing is lent then.
///
/// # Safety
/// For as long as 'b the blocks are there, nobody else writes to these regions, and nobody else has
/// those for writing.
unsafe fn hand_out<'b>(
    blocks: &[(*mut u8, usize)],
    reads: &[Region],
    writes: &[Region],
    mut read: impl FnMut(&'b [u8]),
    mut write: impl FnMut(&'b mut [u8]),
) -> Result<(), RunError> {
    for region in reads.iter().chain(writes) {
        let fits = blocks.get(region.block).is_some_and(|&(_, len)| {
            region.offset.checked_add(region.len).is_some_and(|end| end <= len)
        });
        if !fits {
            return Err(RunError::Internal(format!("{region:?} is outside its block")));
        }
    }
    if let Some(w) = lent_twice(reads, writes) {
        return Err(RunError::Internal(format!("{w:?} is lent for writing and once more")));
    }
    for r in reads {
        let (start, _) = blocks[r.block];
        // SAFETY: inside the block, and overlaps no region lent for writing here (both checked
        // above) or elsewhere (precondition).
        read(unsafe { std::slice::from_raw_parts(start.add(r.offset), r.len) });
    }
    for w in writes {
        let (start, _) = blocks[w.block];
        // SAFETY: as above; no other region lent overlaps this one.
        write(unsafe { std::slice::from_raw_parts_mut(start.add(w.offset), w.len) });
    }
    Ok(())
}

/// A region for writing that overlaps another one.
fn lent_twice(reads: &[Region], writes: &[Region]) -> Option<Region> {
    const FEW: usize = 1 << 12;
    if writes.len().saturating_mul(reads.len() + writes.len()) <= FEW {
        let twice = |(i, w): &(usize, &Region)| {
            reads.iter().chain(&writes[i + 1..]).any(|other| w.overlaps(other))
        };
        return writes.iter().enumerate().find(twice).map(|(_, w)| *w);
    }
    // So many that comparing all pairs takes longer than sorting them.
    let written = writes.iter().map(|w| (*w, true));
    let mut all: Vec<(Region, bool)> = reads.iter().map(|r| (*r, false)).chain(written).collect();
    all.retain(|(region, _)| region.len > 0);
    all.sort_by_key(|(r, _)| (r.block, r.offset));
    let (mut block, mut end, mut end_written) = (usize::MAX, 0, 0);
    for (region, writes) in all {
        if region.block != block {
            (block, end, end_written) = (region.block, 0, 0);
        }
        if region.offset < if writes { end } else { end_written } {
            return Some(region);
        }
        let stop = region.offset.saturating_add(region.len);
        end = end.max(stop);
        if writes {
            end_written = end_written.max(stop);
        }
    }
    None
}

/// Arenas: memory of intermediate values. A run takes one from its session's pool, the smallest
/// that is large enough, so that shapes which alternate do not add up; one is made where there is
/// none. Afterwards the pool keeps it for the next run.
///
/// Sessions have pools of their own, unless they are given one that they share
/// ([`SessionOptions::with_arena_pool`](crate::SessionOptions::with_arena_pool)): then those that
/// run one after the other take the memory of the largest, not the sum of all. Values of earlier
/// runs stand in an arena until others are written there; no run reads them.
///
/// Large results come from the pool as well, and come back when their holders drop them: as many
/// bytes are kept as those of the latest run have.
pub struct ArenaPool {
    idle: Mutex<Vec<AlignedBuf>>,
    results: Arc<Reserve>,
    most: usize,
}

impl Default for ArenaPool {
    /// Keeps whatever runs give back.
    fn default() -> Self {
        Self::keeping(usize::MAX)
    }
}

impl ArenaPool {
    /// A pool that keeps arenas of so many bytes together at most, while no run uses them, and no
    /// more of results. With 0, each run takes memory from the system and gives it back.
    pub fn keeping(bytes: usize) -> Self {
        Self { idle: Mutex::default(), results: Arc::default(), most: bytes }
    }

    /// Bytes of the arenas that no run uses at the moment, and of results that came back.
    pub fn idle_bytes(&self) -> usize {
        sum(&self.lock()).saturating_add(self.results.idle_bytes())
    }

    /// Gives them back to the system.
    pub fn release(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle); // outside of the lock
        self.results.release();
    }

    /// Whether the pool has the memory of such a result: smaller ones come from the allocator in no
    /// time.
    fn makes(spec: &TensorSpec) -> bool {
        const LARGE: usize = 128 << 10;
        spec.storage_bytes().is_ok_and(|bytes| bytes >= LARGE)
    }

    /// Tensors for results, which hold anything.
    pub(crate) fn results<'s>(
        &self,
        specs: impl Iterator<Item = &'s TensorSpec> + Clone,
    ) -> Result<SmallVec<[Tensor; 2]>, TensorError> {
        let mut large = specs.clone().filter(|spec| Self::makes(spec)).peekable();
        let large = match large.peek() {
            Some(_) => self.results.tensors(large, self.most)?,
            None => Vec::new(),
        };
        let mut large = large.into_iter();
        let result = |spec: &TensorSpec| match Self::makes(spec).then(|| large.next()).flatten() {
            Some(tensor) => Ok(tensor),
            None => Tensor::zeros(spec.dtype, spec.shape.clone()),
        };
        specs.map(result).collect()
    }

    /// Lends an arena of at least `bytes` to `f`.
    pub(crate) fn with<R, E: From<TensorError>>(
        &self,
        bytes: usize,
        f: impl FnOnce(&mut AlignedBuf) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut arena = match self.take(bytes) {
            Some(arena) => arena,
            None => AlignedBuf::resident(bytes)?,
        };
        let result = f(&mut arena);
        self.keep(arena); // lost if `f` panics: no harm done
        result
    }

    /// Takes an arena back, unless that exceeds what may be kept: then the smaller ones go first,
    /// for which a larger one can stand in.
    fn keep(&self, arena: AlignedBuf) {
        let mut gone = Vec::new();
        let mut idle = self.lock();
        idle.push(arena);
        while sum(&idle) > self.most {
            // Of one size, the one that was used longest ago.
            match (0..idle.len()).min_by_key(|&i| (idle[i].len() <= self.most, idle[i].len())) {
                Some(at) => gone.push(idle.remove(at)),
                None => break,
            }
        }
        drop(idle);
        drop(gone); // outside of the lock: the system takes its time
    }

    /// The smallest idle arena that is large enough. Where there is none, the smallest one makes
    /// room for the new one.
    fn take(&self, bytes: usize) -> Option<AlignedBuf> {
        let mut idle = self.lock();
        let fitting =
            (0..idle.len()).filter(|&i| idle[i].len() >= bytes).min_by_key(|&i| idle[i].len());
        let smallest = || (0..idle.len()).min_by_key(|&i| idle[i].len());
        let (found, gone) = match fitting {
            Some(at) => (Some(idle.swap_remove(at)), None),
            None => (None, smallest().map(|at| idle.swap_remove(at))),
        };
        drop(idle);
        drop(gone); // outside of the lock, as in `keep`
        found
    }

    /// Arenas that no run uses.
    #[cfg(test)]
    pub(crate) fn idle(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AlignedBuf>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ArenaPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let idle = self.lock();
        write!(f, "ArenaPool({} idle arenas, {} bytes)", idle.len(), sum(&idle))
    }
}

fn sum(arenas: &[AlignedBuf]) -> usize {
    arenas.iter().map(AlignedBuf::len).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(block: usize, offset: usize, len: usize) -> Region {
        Region { block, offset, len }
    }

    #[test]
    fn many_regions_are_compared_alike() {
        let writes: Vec<Region> = (0..200).map(|i| region(i % 2, i / 2 * 8, 8)).collect();
        let reads: Vec<Region> = (0..100).map(|i| region(0, 800 + i, 4)).collect();
        assert_eq!(lent_twice(&reads, &writes), None);
        let overlapping = [&writes[..], &[region(1, 100, 1)]].concat();
        assert!(lent_twice(&reads, &overlapping).is_some());
        let read = [&reads[..], &[region(0, 7, 1)]].concat();
        assert!(lent_twice(&read, &writes).is_some());
    }

    #[test]
    fn disjoint_regions_are_lent_together() {
        let (mut a, mut b) = (vec![1u8; 16], vec![2u8; 8]);
        let mut blocks = Blocks::new([&mut a[..], &mut b[..]].into_iter());
        let (mut read, mut written) = (Vec::new(), Vec::new());
        blocks
            .lend(
                &[region(0, 0, 8), region(0, 4, 4)],
                &[region(0, 8, 8), region(1, 0, 8)],
                |r| read.push(r),
                |w| written.push(w),
            )
            .unwrap();
        written[0].copy_from_slice(read[0]);
        written[1].fill(read[1][0] + 2);
        assert_eq!(b, [3; 8]);
    }

    #[test]
    fn overlaps_and_excesses_are_refused() {
        let mut a = [0u8; 16];
        let mut blocks = Blocks::new([&mut a[..]].into_iter());
        let mut lend = |reads: &[Region], writes: &[Region]| {
            blocks.lend(reads, writes, |_| (), |_| ()).is_ok()
        };
        assert!(lend(&[region(0, 0, 8)], &[region(0, 8, 8)]));
        assert!(!lend(&[region(0, 0, 9)], &[region(0, 8, 8)]));
        assert!(!lend(&[], &[region(0, 0, 9), region(0, 8, 8)]));
        assert!(!lend(&[region(0, 9, 8)], &[]));
        assert!(!lend(&[region(1, 0, 0)], &[]));
        assert!(!lend(&[], &[region(0, usize::MAX, 2)]));
        assert!(lend(&[region(0, 4, 0)], &[region(0, 0, 16)]), "an empty region overlaps nothing");
    }

    #[test]
    fn chains_are_lent_their_own_at_the_same_time() {
        let loan = |reads: &[Region], writes: &[Region]| Loan::new(reads, writes);
        let (shared, one, two) = (region(0, 0, 8), region(0, 8, 8), region(0, 16, 8));
        let chains =
            vec![vec![loan(&[shared], &[one]), loan(&[one], &[])], vec![loan(&[shared], &[two])]];
        let territories = Territories::new(chains).unwrap();
        let mut memory = [1u8; 24];
        let mut blocks = Blocks::new([&mut memory[..]].into_iter());
        let divided = blocks.divide(&territories);
        let (mut a, mut b) = (divided.chain(0).unwrap(), divided.chain(1).unwrap());
        assert!(divided.chain(0).is_none(), "one thread runs a chain");
        assert!(divided.chain(2).is_none());
        let (mut read, mut written) = (Vec::new(), Vec::new());
        a.lend(&[shared], &[one], |r| read.push(r), |w| written.push(w)).unwrap();
        b.lend(&[shared], &[two], |r| read.push(r), |w| written.push(w)).unwrap();
        written[0].copy_from_slice(read[1]);
        written[1].fill(7);
        a.lend(&[one], &[], |r| assert_eq!(r, [1; 8]), |_| ()).unwrap();
        assert!(a.lend(&[one], &[], |_| (), |_| ()).is_err(), "the chain is over");
        let mut c = Blocks::new([&mut memory[..]].into_iter());
        let divided = c.divide(&territories);
        let mut other = divided.chain(1).unwrap();
        assert!(other.lend(&[shared], &[one], |_| (), |_| ()).is_err(), "not what was planned");
        assert_eq!(memory[16..], [7; 8]);
    }

    #[test]
    fn chains_that_touch_each_other_are_refused() {
        let chains = |all: &[(usize, Region, bool)]| {
            let mut chains = vec![Vec::new(); 4];
            for &(chain, region, writes) in all {
                let list = [region];
                let (reads, writes) =
                    if writes { (&[][..], &list[..]) } else { (&list[..], &[][..]) };
                chains[chain].push(Loan::new(reads, writes));
            }
            Territories::new(chains).is_ok()
        };
        let (r, w) = (false, true);
        assert!(chains(&[(0, region(0, 0, 8), r), (1, region(0, 4, 8), r)]));
        assert!(!chains(&[(0, region(0, 0, 8), r), (1, region(0, 4, 8), w)]));
        assert!(!chains(&[(1, region(0, 0, 8), w), (0, region(0, 4, 8), r)]));
        assert!(chains(&[(0, region(0, 0, 8), w), (0, region(0, 4, 8), w)]), "of one chain");
        assert!(chains(&[(0, region(0, 0, 8), w), (1, region(1, 0, 8), w)]), "of two blocks");
        assert!(chains(&[(0, region(0, 0, 8), w), (1, region(0, 4, 0), w)]), "an empty one");
        // All pairs compared, against the sweep.
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let (mut fine, mut refused) = (0, 0);
        for _ in 0..2000 {
            let all: Vec<_> = (0..2 + random(5))
                .map(|_| {
                    let place = region(random(2), random(40), random(12));
                    (random(4), place, random(2) == 0)
                })
                .collect();
            let touch = all.iter().enumerate().any(|(i, a)| {
                let other =
                    |b: &&(usize, Region, bool)| a.0 != b.0 && (a.2 || b.2) && a.1.overlaps(&b.1);
                all[i + 1..].iter().any(|b| other(&b))
            });
            assert_eq!(chains(&all), !touch, "{all:?}");
            *(if touch { &mut refused } else { &mut fine }) += 1;
        }
        assert!(fine > 100 && refused > 100);
    }

    #[test]
    fn arenas_are_reused_by_size() {
        let pool = ArenaPool::default();
        let address = |bytes: usize| {
            pool.with(bytes, |a| Ok::<_, TensorError>((a.as_bytes().as_ptr() as usize, a.len())))
                .unwrap()
        };
        let (first, _) = address(4096);
        assert_eq!(address(100), (first, 4096));
        assert_eq!(address(8192).1, 8192);
        assert_eq!(pool.lock().len(), 1, "the small arena made room for the large one");
        assert_eq!(pool.idle_bytes(), 8192);
        pool.release();
        assert_eq!((pool.idle(), pool.idle_bytes()), (0, 0));
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let pool = ArenaPool::keeping(1000);
        let keep = |sizes: &[usize]| {
            sizes.iter().for_each(|&n| pool.keep(AlignedBuf::zeroed(n).unwrap()));
            let mut idle: Vec<usize> = pool.lock().iter().map(AlignedBuf::len).collect();
            idle.sort_unstable();
            idle
        };
        assert_eq!(keep(&[400, 600]), [400, 600]);
        assert_eq!(keep(&[300]), [400, 600], "larger ones can stand in for it");
        assert_eq!(keep(&[1001]), [400, 600], "one that is too large drives no other out");
        let none = ArenaPool::keeping(0);
        none.with(64, |_| Ok::<_, TensorError>(())).unwrap();
        assert_eq!(none.idle(), 0);
    }
}

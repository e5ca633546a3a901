//! Cores: which there are, which belong to one NUMA node, and on which of them this thread runs.
//!
//! All of it is read from the system, which may say nothing (not Linux, no /sys, a container): then
//! there are as many cores as the standard library counts, of one node, and threads run where the
//! system puts them.

use std::collections::BTreeSet;
use std::path::Path;

/// The cores on which this thread may run, lowest first; none where the system does not say.
pub(crate) fn allowed() -> Option<Vec<usize>> {
    affinity::get().map(|cores| cores.into_iter().collect())
}

/// The cores that there are for this process: those on which this thread may run, else as many as
/// the standard library counts.
pub(crate) fn available() -> Vec<usize> {
    let count = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let counted = || (0..count()).collect(); // bounded: cores
    allowed().filter(|cores| !cores.is_empty()).unwrap_or_else(counted)
}

/// NUMA nodes that have some of these cores, each with those; one of no number where the system
/// does not say.
pub(crate) fn by_node(cores: &[usize]) -> Vec<(Option<usize>, Vec<usize>)> {
    by_node_of(Path::new("/sys/devices/system/node"), cores)
}

fn by_node_of(folder: &Path, cores: &[usize]) -> Vec<(Option<usize>, Vec<usize>)> {
    let mut nodes: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (number, list) in node_lists(folder) {
        let members: BTreeSet<usize> = parse_list(&list).unwrap_or_default();
        let members: Vec<usize> = cores.iter().copied().filter(|c| members.contains(c)).collect();
        if !members.is_empty() {
            nodes.push((Some(number), members));
        }
    }
    let known = |core: &usize| nodes.iter().any(|(_, members)| members.contains(core));
    let rest: Vec<usize> = cores.iter().copied().filter(|core| !known(core)).collect();
    if !rest.is_empty() {
        nodes.push((None, rest));
    }
    nodes
}

/// Numbers of nodes with their lists of cores, lowest first.
fn node_lists(folder: &Path) -> Vec<(usize, String)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let node = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((number, std::fs::read_to_string(entry.path().join("cpulist")).ok()?))
    };
    let mut lists: Vec<(usize, String)> = entries.filter_map(node).collect();
    lists.sort_unstable();
    lists
}

/// Cores that are more than any machine has.
const MOST_CORES: usize = 1 << 14;

/// A list as the system writes it: `0-3,8,10-11`.
pub(crate) fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cores = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST_CORES {
            return None;
        }
        cores.extend(first..=last);
    }
    Some(cores)
}

/// While this lives, the thread that made it runs on the cores it was told; then where it ran
/// before.
#[derive(Debug)]
#[must_use = "the thread goes back when this is dropped"]
pub(crate) struct Pinned {
    before: Option<affinity::Mask>,
    /// Belongs to the thread that made it.
    thread: std::marker::PhantomData<*const ()>,
}

impl Pinned {
    /// Runs this thread on these cores. Where the system refuses, it runs where it did.
    pub(crate) fn to(cores: &[usize]) -> Self {
        Self { before: affinity::set(cores), thread: std::marker::PhantomData }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            affinity::restore(before);
        }
    }
}

#[cfg(target_os = "linux")]
mod affinity {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub(super) type Mask = CpuSet;

    pub(super) fn get() -> Option<Vec<usize>> {
        let mask = sched_getaffinity(None).ok()?;
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core));
        Some(cores.collect())
    }

    /// What was before, where it is another one now.
    pub(super) fn set(cores: &[usize]) -> Option<Mask> {
        let mut mask = CpuSet::new();
        for &core in cores.iter().filter(|&&core| core < CpuSet::MAX_CPU) {
            mask.set(core);
        }
        let before = sched_getaffinity(None).ok().filter(|before| *before != mask)?;
        sched_setaffinity(None, &mask).ok().map(|()| before)
    }

    pub(super) fn restore(mask: &Mask) {
        _ = sched_setaffinity(None, mask); // it was allowed before
    }
}

#[cfg(not(target_os = "linux"))]
mod affinity {
    #[derive(Debug)]
    pub(super) struct Mask;

    pub(super) fn get() -> Option<Vec<usize>> {
        None
    }

    pub(super) fn set(_: &[usize]) -> Option<Mask> {
        None
    }

    pub(super) fn restore(_: &Mask) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nonsense_is_none() {
        let list = |text: &str| parse_list(text).map(|cores| cores.into_iter().collect::<Vec<_>>());
        assert_eq!(list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list(" 5 "), Some(vec![5]));
        assert_eq!(list("\n"), Some(Vec::new()));
        for bad in ["3-1", "a", "1-", "-1", "0-99999999999", "0-9999999"] {
            assert_eq!(list(bad), None, "{bad}");
        }
    }

    #[test]
    fn nodes_are_read_from_the_system_as_far_as_it_tells() {
        let folder = std::env::temp_dir().join(format!("plutino-nodes-{}", std::process::id()));
        for (node, list) in [("node1", "2-3\n"), ("node0", "0-1"), ("node7", "what?"), ("has", "")]
        {
            std::fs::create_dir_all(folder.join(node)).unwrap();
            std::fs::write(folder.join(node).join("cpulist"), list).unwrap();
        }
        let nodes = by_node_of(&folder, &[0, 2, 3, 9]);
        let expected = vec![(Some(0), vec![0]), (Some(1), vec![2, 3]), (None, vec![9])];
        assert_eq!(nodes, expected);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(by_node_of(&folder, &[1, 2]), [(None, vec![1, 2])]);
        assert_eq!(by_node(&available()).iter().flat_map(|(_, c)| c).count(), available().len());
    }

    #[test]
    fn a_thread_is_moved_and_goes_back() {
        let Some(before) = allowed() else { return }; // a system that does not say
        let last = before[before.len() - 1];
        {
            let _pinned = Pinned::to(&[last]);
            assert_eq!(allowed(), Some(vec![last]));
            let child = std::thread::spawn(allowed).join().unwrap();
            assert_eq!(child, Some(vec![last]), "threads begin where the one is that starts them");
            let _nothing = Pinned::to(&[]); // refused by the system
            assert_eq!(allowed(), Some(vec![last]));
        }
        assert_eq!(allowed(), Some(before));
    }
}

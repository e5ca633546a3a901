//! A context: the cores on which steps of a plan run, with their threads.

use super::cores::{self, Pinned};
use super::turns::{Turn, Turns};
use crate::{ArenaPool, SessionError};
use plutino_ir::{Interrupted, Limits};
use plutino_kernels::par::Trace;
use plutino_kernels::{Par, Pool};
use std::sync::Arc;

/// A group of cores with threads of its own, on which a session computes, or a part of it
/// ([`SessionOptions::with_contexts`](crate::SessionOptions::with_contexts)).
///
/// One run at a time computes in a context, in the order in which runs arrive. So sessions on
/// different contexts leave each other alone, and several runs of a session that has several
/// contexts follow each other through them.
///
/// ```
/// use plutino_runtime::Context;
///
/// // All cores that there are, in two groups: each in one NUMA node if that is possible.
/// let contexts = Context::split(2)?;
/// assert_eq!(contexts.len(), 2);
/// assert!(contexts.iter().all(|context| context.threads() >= 1));
/// # Ok::<(), plutino_runtime::SessionError>(())
/// ```
#[derive(Debug)]
pub struct Context {
    /// None: wherever the system puts the threads.
    cores: Option<Vec<usize>>,
    node: Option<usize>,
    pool: Pool,
    arenas: Arc<ArenaPool>,
    /// None: runs need not wait for each other.
    turns: Option<Turns>,
    /// Contexts of one number see the same memory.
    memory: usize,
}

impl Context {
    /// A context of these cores, with a thread for each that stays on them. Whoever runs in it is
    /// moved there, and goes back afterwards. (Where the system lets no program say where threads
    /// run, they are not moved.)
    ///
    /// # Errors
    /// Where there is no core, one twice, or one on which this thread may not run.
    pub fn on_cores(cores: &[usize]) -> Result<Arc<Self>, SessionError> {
        let available = cores::available();
        let listed =
            |all: &[usize]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut sorted = cores.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let good = !cores.is_empty()
            && sorted.len() == cores.len()
            && sorted.iter().all(|core| available.contains(core));
        if !good {
            return Err(SessionError::Option {
                option: "cores of a context".into(),
                expected: format!("some of {}, each once", listed(&available)),
                found: listed(cores),
            });
        }
        let pool = {
            // Threads begin where the one is that starts them.
            let _pinned = Pinned::to(&sorted);
            Pool::new(sorted.len())
        };
        let node = match &cores::by_node(&sorted)[..] {
            [(node, _)] => *node,
            _ => None,
        };
        Ok(Arc::new(Self {
            cores: Some(sorted),
            node,
            pool,
            arenas: Arc::default(),
            turns: Some(Turns::default()),
            memory: 0,
        }))
    }

    /// A context of so many threads, which run where the system puts them.
    ///
    /// # Errors
    /// Where there is no thread.
    pub fn of_threads(threads: usize) -> Result<Arc<Self>, SessionError> {
        if threads == 0 {
            return Err(SessionError::Option {
                option: "threads of a context".into(),
                expected: "at least 1".into(),
                found: "0".into(),
            });
        }
        let turns = Some(Turns::default());
        Ok(Arc::new(Self { turns, ..Self::open(threads, Arc::default()) }))
    }

    /// Contexts of all cores that there are: so many groups, as equal as can be. NUMA nodes are
    /// kept whole where there are as many groups as nodes or more.
    ///
    /// # Errors
    /// Where there are fewer cores than groups.
    pub fn split(groups: usize) -> Result<Vec<Arc<Self>>, SessionError> {
        let available = cores::available();
        if groups == 0 || groups > available.len() {
            return Err(SessionError::Option {
                option: "contexts".into(),
                expected: format!("between 1 and {}, the number of cores", available.len()),
                found: groups.to_string(),
            });
        }
        let nodes = cores::by_node(&available).into_iter().map(|(_, cores)| cores).collect();
        split(nodes, groups).iter().map(|cores| Self::on_cores(cores)).collect()
    }

    /// What a session without contexts has: threads, and nobody waits for his turn.
    pub(crate) fn open(threads: usize, arenas: Arc<ArenaPool>) -> Self {
        let pool = Pool::new(threads);
        Self { cores: None, node: None, pool, arenas, turns: None, memory: 0 }
    }

    /// A context with memory of its own, as another device has.
    #[cfg(test)]
    pub(crate) fn apart(memory: usize) -> Arc<Self> {
        Arc::new(Self { memory, ..Self::open(1, Arc::default()) })
    }

    /// A list of cores as the system writes it: `0-3,8`; none where it is no list.
    pub fn parse_cores(text: &str) -> Option<Vec<usize>> {
        cores::parse_list(text).map(|cores| cores.into_iter().collect())
    }

    /// The cores; none where the system decides.
    pub fn cores(&self) -> Option<&[usize]> {
        self.cores.as_deref()
    }

    /// The NUMA node in which all of its cores lie, where the system tells.
    pub fn numa_node(&self) -> Option<usize> {
        self.node
    }

    /// Threads that compute, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Whether a value that is made in one of them can be read in the other as it lies. Between
    /// contexts of which this does not hold values are copied, by nodes of the plan that are put
    /// where a value is made in one and read in the other. All contexts of a CPU share memory.
    pub fn shares_memory_with(&self, other: &Self) -> bool {
        self.memory == other.memory
    }

    /// Memory of runs.
    pub(crate) fn arenas(&self) -> &Arc<ArenaPool> {
        &self.arenas
    }

    /// Runs `f` with the threads of the context, once it is this run's turn; `alone` with the
    /// caller's thread.
    ///
    /// # Errors
    /// Where the limits end the wait.
    pub(crate) fn enter<R>(
        &self,
        limits: &Limits,
        alone: bool,
        trace: Option<&Arc<Trace>>,
        f: impl FnOnce(&Par) -> R,
    ) -> Result<R, Interrupted> {
        let _turn: Option<Turn> =
            self.turns.as_ref().map(|turns| turns.wait(limits)).transpose()?;
        let _pinned = self.cores.as_deref().map(Pinned::to);
        Ok(if alone { f(&Par::serial()) } else { self.pool.enter_traced(trace, f) })
    }

    /// Runs `f` with the threads of the context, beside whoever has the turn: to make a plan.
    pub(crate) fn visit<R>(&self, f: impl FnOnce(&Par) -> R) -> R {
        let _pinned = self.cores.as_deref().map(Pinned::to);
        self.pool.enter(f)
    }
}

/// Cuts nodes into so many groups of at least one core each.
fn split(nodes: Vec<Vec<usize>>, groups: usize) -> Vec<Vec<usize>> {
    let mut parts = nodes;
    if parts.len() > groups {
        parts = vec![parts.concat()]; // more nodes than groups: by number alone
    }
    let mut counts: Vec<usize> = parts.iter().map(|_| 1).collect();
    // One group more where groups are largest.
    while counts.iter().sum::<usize>() < groups {
        let size = |(part, count): (&Vec<usize>, &usize)| part.len() as f64 / *count as f64;
        let sizes = parts.iter().zip(&counts).map(size).enumerate();
        let Some((at, _)) = sizes.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))) else {
            break;
        };
        counts[at] += 1;
    }
    let cut = |(part, count): (&Vec<usize>, usize)| -> Vec<Vec<usize>> {
        let bound = |i: usize| i * part.len() / count;
        (0..count).map(|i| part[bound(i)..bound(i + 1)].to_vec()).collect()
    };
    parts.iter().zip(counts).flat_map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    #[test]
    fn cores_are_cut_into_groups_within_nodes() {
        let all = |nodes: &[&[usize]], n| split(nodes.iter().map(|n| n.to_vec()).collect(), n);
        assert_eq!(all(&[&[0, 1]], 2), [[0], [1]]);
        assert_eq!(all(&[&[0, 1, 2]], 2), [vec![0], vec![1, 2]]);
        assert_eq!(all(&[&[0, 2, 4, 6], &[1, 3]], 3), [vec![0, 2], vec![4, 6], vec![1, 3]]);
        assert_eq!(all(&[&[0, 1], &[2, 3]], 2), [[0, 1], [2, 3]]);
        assert_eq!(all(&[&[0, 1], &[2, 3]], 1), [[0, 1, 2, 3]]);
    }

    #[test]
    fn nonsense_is_named() {
        let first = cores::available()[0];
        for bad in [&[][..], &[first, first], &[1 << 40]] {
            let error = Context::on_cores(bad).unwrap_err().to_string();
            assert!(error.starts_with("cores of a context must be some of "), "{error}");
        }
        assert!(Context::of_threads(0).is_err() && Context::split(0).is_err());
        assert!(Context::split(1 << 20).is_err());
        let context = Context::on_cores(&[first]).unwrap();
        assert_eq!((context.threads(), context.cores()), (1, Some(&[first][..])));
    }

    #[test]
    fn threads_run_on_the_cores_of_their_context() {
        let Some(before) = cores::allowed() else { return }; // a system that does not say
        let context = Context::split(1).unwrap().remove(0);
        let last = Context::on_cores(&before[before.len() - 1..]).unwrap();
        for context in [context, last] {
            let seen = Mutex::new(Vec::new());
            let none = Limits::default();
            let entered = context.enter(&none, false, None, |par| {
                par.run(64, |_| seen.lock().unwrap().extend(cores::allowed()));
            });
            assert_eq!(entered, Ok(()));
            let cores = context.cores().unwrap();
            assert!(seen.into_inner().unwrap().iter().all(|seen| seen == cores));
        }
        assert_eq!(cores::allowed(), Some(before));
    }

    #[test]
    fn one_at_a_time_in_their_order() {
        let context = Context::of_threads(1).unwrap();
        let (none, order) = (Limits::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let turns = context.turns.as_ref().unwrap();
            let first = context.enter(&none, false, None, |_| {
                for i in 0..4 {
                    let (context, order, none) = (&context, &order, &none);
                    scope.spawn(move || {
                        context.enter(none, false, None, |_| order.lock().unwrap().push(i))
                    });
                    while turns.len() < i + 2 {
                        std::thread::yield_now();
                    }
                }
                // Who may not wait leaves the order.
                let soon = Instant::now() + Duration::from_millis(5);
                let limits = Limits { deadline: Some(soon), cancel: None };
                assert_eq!(context.enter(&limits, false, None, |_| ()), Err(Interrupted::Deadline));
                assert_eq!((turns.len(), order.lock().unwrap().len()), (5, 0));
            });
            assert_eq!(first, Ok(()));
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
    }
}

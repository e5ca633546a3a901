//! What a session can be asked to do differently.

use crate::ArenaPool;
use crate::cost::Costs;
use crate::knobs;
use crate::passes;
use crate::place::{Context, Placement};
use crate::plan::dispatch::Dispatch;
use crate::settings::Settings;
use crate::{ModelError, SessionError, TensorStore};
use plutino_ir::{DefineProblem, Definition, Definitions, Graph, LoadOptions, find_param};
use plutino_kernels::Isa;
use plutino_ops::{MemoryUse, Precision, Registry, Setting, Units, WeightDtype};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// How a model is loaded: how its files are read, and which operators there are.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// How the files are read.
    pub load: LoadOptions,
    /// Operators besides those that are linked into the program. Where both know a type, these
    /// decode it.
    pub operators: Option<Arc<Registry>>,
    /// Zeros stand in for weights that were not read, of so many bytes at most: what is planned
    /// then has the shapes, kernels, memory and costs of the model, but not its values. Shapes that
    /// depend on the values of constants may differ.
    pub stand_ins: Option<usize>,
    /// Operator types that are models themselves: see [`ModelOptions::define`]. A model that is
    /// loaded by its path has those of the folder `STEM.definitions` beside it as well.
    pub definitions: Option<Arc<Definitions>>,
}

impl ModelOptions {
    /// Lets another model say what operators of this type are: a module that pnnx kept whole
    /// (`moduleop=`), or any type at all. The operators of the definition take the place of the
    /// node's, called by its name and their own (`focus.conv`), with the node's weights where it
    /// has them: see [`Graph::inline`](plutino_ir::Graph::inline). The last definition that is
    /// given for a type counts.
    ///
    /// ```no_run
    /// use plutino_ir::Graph;
    /// use plutino_runtime::{Model, ModelOptions};
    ///
    /// let focus = Graph::load("focus")?;
    /// let options = ModelOptions::default().define("models.common.Focus", focus);
    /// let model = Model::load_with("yolov5s", options)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn define(mut self, kind: impl Into<String>, definition: impl Into<Definition>) -> Self {
        let mut definitions = self.definitions.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        definitions.define(kind, definition);
        self.definitions = Some(Arc::new(definitions));
        self
    }

    /// These definitions, instead of those that were given before.
    #[must_use]
    pub fn with_definitions(mut self, definitions: impl Into<Arc<Definitions>>) -> Self {
        self.definitions = Some(definitions.into());
        self
    }

    /// The graph of a model's files as it is decoded, with all definitions in their places, those
    /// in the folder beside it among them.
    ///
    /// # Errors
    /// Where a file cannot be read or is malformed, or a definition does not fit.
    pub fn graph(&self, path: impl AsRef<Path>) -> Result<Graph, ModelError> {
        let path = &find_param(path.as_ref())?;
        self.clone().with_own_definitions(path)?.whole(path)
    }

    /// [`ModelOptions::graph`], once all definitions are there.
    pub(crate) fn whole(&self, path: &Path) -> Result<Graph, ModelError> {
        let mut graph = Graph::load_with(path, &self.load)?;
        self.inline(&mut graph, &path.display().to_string())?;
        Ok(graph)
    }

    /// With the definitions that lie beside a model: what is defined here counts before those.
    ///
    /// # Errors
    /// Where one cannot be read, or anything in it is wrong.
    pub fn with_own_definitions(mut self, path: &Path) -> Result<Self, ModelError> {
        if Definitions::folder_beside(path).is_dir() {
            let given = self.definitions.take().map(Arc::unwrap_or_clone);
            let mut definitions = given.unwrap_or_default();
            definitions.load_beside(path, &self.load)?;
            self.definitions = Some(Arc::new(definitions));
        }
        Ok(self)
    }

    /// Puts the definitions in their places.
    pub(crate) fn inline(&self, graph: &mut Graph, file: &str) -> Result<(), ModelError> {
        let Some(definitions) = &self.definitions else { return Ok(()) };
        let LoadOptions { sizes, limits, memory_budget, .. } = &self.load;
        let inlined = graph.inline(file, definitions, sizes, limits, *memory_budget);
        inlined.map_err(|error| match error.problem {
            DefineProblem::Interrupted(error) => {
                ModelError::Interrupted { file: file.to_owned(), error }
            }
            _ => error.into(),
        })
    }

    /// Reads files so.
    #[must_use]
    pub fn with_load(mut self, load: LoadOptions) -> Self {
        self.load = load;
        self
    }

    /// Lets zeros stand in for weights, of so many bytes at most. With
    /// [`Weights::Skip`](plutino_ir::Weights::Skip) a model can be planned from its `.param` file
    /// alone.
    #[must_use]
    pub fn with_stand_ins(mut self, most: usize) -> Self {
        self.stand_ins = Some(most);
        self
    }

    /// Decodes with these operators first, and with those that are linked into the program where
    /// these do not know a type.
    #[must_use]
    pub fn with_operators(mut self, operators: Arc<Registry>) -> Self {
        self.operators = Some(operators);
        self
    }
}

impl From<LoadOptions> for ModelOptions {
    fn from(load: LoadOptions) -> Self {
        Self { load, ..Self::default() }
    }
}

impl From<&LoadOptions> for ModelOptions {
    fn from(load: &LoadOptions) -> Self {
        load.clone().into()
    }
}

impl From<&ModelOptions> for ModelOptions {
    fn from(options: &ModelOptions) -> Self {
        options.clone()
    }
}

/// In which topological order operators run. Results do not depend on it; memory may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Sorting {
    /// Depth first: an operator runs as soon as somebody asks for it.
    #[default]
    DepthFirst,
    /// Kahn's algorithm: an operator runs as soon as its inputs are there.
    Kahn,
}

/// Threads of a session at most: more than machines have. A number out of a configuration that has
/// lost its unit would keep the whole machine busy with threads that wait.
const MOST_THREADS: usize = 1024;

/// Options of a session. `SessionOptions::default()` is what most want.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Threads that compute, the caller's included, 1 to 1024; `None`: `PLUTINO_THREADS`, else the
    /// cores available.
    pub threads: Option<usize>,
    /// Instruction set; `None`: `PLUTINO_ISA`, else the best of the CPU.
    pub isa: Option<Isa>,
    /// Order of the operators.
    pub sorting: Sorting,
    /// Passes to leave out, by name; see [`passes`](crate::passes()). `name@operator` leaves a pass
    /// out for one operator; one that neither the model nor a body of its control flow has is an
    /// error.
    pub passes_off: BTreeSet<String>,
    /// The last pass that runs, but for those without which nothing can be planned: to find the one
    /// that is to blame.
    pub stop_after: Option<String>,
    /// Bytes that the model, a plan and a run may take together
    /// ([`MemoryReport::total`](crate::MemoryReport::total)), and values whose shapes depend on
    /// data besides; exceeding it is an error before more is taken. Weights that sessions share
    /// count for each of them in full. Plans that are kept for further runs make room for new ones.
    /// Inputs belong to the caller and do not count, unless they must be copied.
    ///
    /// What loading may take is said by [`LoadOptions::memory_budget`].
    pub memory_budget: Option<usize>,
    /// Where runs take their arenas from, and give them back to; `None`: a pool of the session's
    /// own.
    pub arena_pool: Option<Arc<ArenaPool>>,
    /// Tensors that stay between runs, where several sessions have them in common; one of its own
    /// otherwise.
    pub store: Option<Arc<TensorStore>>,
    /// What to spend memory on.
    pub memory: MemoryUse,
    /// What the f32 weights of linear layers are kept as.
    pub weights: WeightDtype,
    /// How accurate products of f32 are at least.
    pub precision: Precision,
    /// The same for operators of a name, scope (`layer1`) or type (`nn.Conv2d`), whatever that of
    /// the session; the last one that means an operator counts. One that no operator of the model
    /// has is an error.
    pub precision_of: Vec<(String, Precision)>,
    /// What multiplies bf16, where the precision allows it; `PLUTINO_ISA` may say `amx`,
    /// `amx-emulated` or `bf16-emulated`.
    pub units: Units,
    /// Whether Winograd's algorithms may compute convolutions. Without them some models take up to
    /// a third more time, and rounding errors of 3x3 layers are those of plain sums.
    pub winograd: bool,
    /// Whether a row of a batch has the bits that it has alone, whatever the batch: algorithms are
    /// then chosen as for a single row. See docs/reliability.md for what that costs. (The number of
    /// threads never changes a bit.)
    pub batch_invariant: bool,
    /// How operators are handed to threads; `None`: `PLUTINO_DISPATCH`, else by what they cost.
    /// Changes no bit of a result.
    pub dispatch: Option<Dispatch>,
    /// What operators are reckoned to cost on this machine.
    pub costs: Costs,
    /// Where it computes: on the threads of these contexts, and not on any of its own
    /// ([`SessionOptions::threads`] counts for nothing then).
    pub contexts: Vec<Arc<Context>>,
    /// Which operators run in which of several contexts.
    pub placement: Placement,
    /// Plans kept for further runs with the same input shapes; at least 1.
    pub plan_cache_size: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            threads: None,
            isa: None,
            sorting: Sorting::default(),
            passes_off: BTreeSet::new(),
            stop_after: None,
            memory_budget: None,
            arena_pool: None,
            store: None,
            memory: MemoryUse::default(),
            weights: WeightDtype::default(),
            precision: Precision::default(),
            precision_of: Vec::new(),
            units: Units::default(),
            winograd: true,
            batch_invariant: false,
            dispatch: None,
            costs: Costs::default(),
            contexts: Vec::new(),
            placement: Placement::default(),
            plan_cache_size: 8,
        }
    }
}

impl SessionOptions {
    /// Computes on this many threads, the caller's included.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Computes with this instruction set.
    #[must_use]
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// Leaves out a pass, or one for an operator: `fuse`, `fuse@conv1`.
    #[must_use]
    pub fn without_pass(mut self, name: impl Into<String>) -> Self {
        self.passes_off.insert(name.into());
        self
    }

    /// Leaves out all passes: operators run as the file has them.
    #[must_use]
    pub fn without_passes(mut self) -> Self {
        self.passes_off.extend(passes::optional().map(|pass| pass.name.to_owned()));
        self
    }

    /// Leaves out the passes that come after this one.
    #[must_use]
    pub fn stop_after(mut self, name: impl Into<String>) -> Self {
        self.stop_after = Some(name.into());
        self
    }

    /// Refuses plans and runs that need more bytes; see [`SessionOptions::memory_budget`].
    #[must_use]
    pub fn with_memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// Keeps tensors in a store that other sessions share.
    #[must_use]
    pub fn with_store(mut self, store: Arc<TensorStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Takes arenas from a pool that other sessions share.
    #[must_use]
    pub fn with_arena_pool(mut self, pool: Arc<ArenaPool>) -> Self {
        self.arena_pool = Some(pool);
        self
    }

    /// Takes as little memory as possible, or more of it for speed.
    #[must_use]
    pub fn with_memory(mut self, memory: MemoryUse) -> Self {
        self.memory = memory;
        self
    }

    /// Keeps the f32 weights of linear layers as narrow floats or integers: half or a quarter of
    /// the memory, and less time for steps that read each of them once. Sums stay f32.
    #[must_use]
    pub fn with_weights(mut self, weights: WeightDtype) -> Self {
        self.weights = weights;
        self
    }

    /// Allows products of less than f32, where that is faster; see docs/precision.md.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The same for operators of this name, scope or type alone; see
    /// [`SessionOptions::precision_of`].
    #[must_use]
    pub fn with_precision_of(mut self, what: impl Into<String>, precision: Precision) -> Self {
        self.precision_of.push((what.into(), precision));
        self
    }

    /// Says what multiplies bf16: what other machines have can be emulated.
    #[must_use]
    pub fn with_units(mut self, units: Units) -> Self {
        self.units = units;
        self
    }

    /// Computes convolutions without Winograd's algorithms; see [`SessionOptions::winograd`].
    #[must_use]
    pub fn without_winograd(mut self) -> Self {
        self.winograd = false;
        self
    }

    /// Gives every row of a batch the bits of a run alone; see [`SessionOptions::batch_invariant`].
    #[must_use]
    pub fn with_batch_invariance(mut self) -> Self {
        self.batch_invariant = true;
        self
    }

    /// Hands operators to threads like this; see [`SessionOptions::dispatch`].
    #[must_use]
    pub fn with_dispatch(mut self, dispatch: Dispatch) -> Self {
        self.dispatch = Some(dispatch);
        self
    }

    /// Estimates what operators cost by these figures.
    #[must_use]
    pub fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// Computes in this context: on its cores, and when it is this session's turn.
    #[must_use]
    pub fn with_context(self, context: Arc<Context>) -> Self {
        self.with_contexts([context])
    }

    /// Computes in these contexts, as the placement says: several runs at a time follow each other
    /// through them.
    #[must_use]
    pub fn with_contexts(mut self, contexts: impl IntoIterator<Item = Arc<Context>>) -> Self {
        self.contexts = contexts.into_iter().collect();
        self
    }

    /// Says which operators run in which of several contexts.
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Fills in what was left open, from the environment and the machine, and checks the rest.
    pub(crate) fn resolve(mut self) -> Result<Resolved, SessionError> {
        let bad = |option: &str, expected: String, found: String| SessionError::Option {
            option: option.into(),
            expected,
            found,
        };
        let most = self.contexts.iter().map(|context| context.threads()).max();
        let possible = |n: &usize| (1..=MOST_THREADS).contains(n);
        let threads = match most.or(self.threads) {
            Some(n) if !possible(&n) => {
                return Err(bad("threads", knobs::THREADS.expected.into(), n.to_string()));
            }
            Some(n) => n,
            None => match knobs::THREADS.read(|v| v.parse().ok().filter(possible))? {
                Some(n) => n,
                None => {
                    std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS))
                }
            },
        };
        let asked = match self.isa {
            None if self.units == Units::Cpu => knobs::ISA.read(knobs::isa_and_units)?,
            _ => None,
        };
        let (isa, units) = match asked {
            Some((isa, units)) => (isa, units),
            // The emulation has vectors of its own.
            None if self.units == Units::EmulatedBf16 => (Isa::PORTABLE, self.units),
            None => (self.isa.unwrap_or_default(), self.units),
        };
        if units == Units::Amx && knobs::isa_and_units("amx").is_none() {
            return Err(bad("units", "what this CPU has".into(), "amx".into()));
        }
        self.units = units;
        let dispatch = match self.dispatch {
            Some(dispatch) => dispatch,
            None => knobs::DISPATCH.read(Dispatch::named)?.unwrap_or_default(),
        };
        let expected = |names: Vec<&str>| format!("names out of {}", names.join(", "));
        let of_environment = knobs::passes_off();
        let of_options = self.passes_off.iter().map(|name| ("passes_off", name));
        let mut asked =
            of_options.chain(of_environment.iter().map(|n| (knobs::PASSES_OFF.name, n)));
        let unknown = asked.find(|(_, name)| !passes::can_be_left_out(name));
        if let Some((option, unknown)) = unknown {
            let names = expected(passes::optional().map(|pass| pass.name).collect());
            return Err(bad(option, names, unknown.clone()));
        }
        self.passes_off.extend(of_environment);
        let known = |name: &String| passes::PIPELINE.iter().any(|pass| pass.name == name);
        if let Some(unknown) = self.stop_after.as_ref().filter(|name| !known(name)) {
            let names = expected(passes::PIPELINE.iter().map(|pass| pass.name).collect());
            return Err(bad("stop_after", names, unknown.clone()));
        }
        Ok(Resolved::new(threads, isa, dispatch, self))
    }
}

/// Options without anything left open.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) threads: usize,
    pub(crate) isa: Isa,
    pub(crate) dispatch: Dispatch,
    /// What operators are planned with.
    pub(crate) settings: Settings,
    pub(crate) options: SessionOptions,
}

impl Resolved {
    pub(crate) fn new(
        threads: usize,
        isa: Isa,
        dispatch: Dispatch,
        options: SessionOptions,
    ) -> Self {
        let mut base = Setting::new(isa, threads);
        base.memory = options.memory;
        base.weights = options.weights;
        base.precision = options.precision;
        base.units = options.units;
        base.winograd = options.winograd;
        base.batch_invariant = options.batch_invariant;
        let settings = Settings::new(base, options.precision_of.clone());
        Self { threads, isa, dispatch, settings, options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_resolve() {
        let resolved = SessionOptions::default().resolve().unwrap();
        assert!(resolved.threads >= 1);
    }

    #[test]
    fn nonsense_is_named() {
        let e = SessionOptions::default().with_threads(0).resolve().unwrap_err();
        assert_eq!(e.to_string(), "threads must be a number in 1..=1024, found '0'");
        let e = SessionOptions::default().with_threads(MOST_THREADS + 1).resolve().unwrap_err();
        assert_eq!(e.to_string(), "threads must be a number in 1..=1024, found '1025'");
        assert!(knobs::THREADS.expected.ends_with(&format!("1..={MOST_THREADS}")));
        let e = SessionOptions::default().without_pass("fuze").resolve().unwrap_err();
        assert!(e.to_string().contains("found 'fuze'"), "{e}");
        let e = SessionOptions::default().without_pass("infer@x").resolve().unwrap_err();
        assert!(e.to_string().contains("found 'infer@x'"), "{e}");
        let e = SessionOptions::default().stop_after("fuze").resolve().unwrap_err();
        assert!(e.to_string().contains("found 'fuze'"), "{e}");
        assert!(
            SessionOptions::default().without_pass("fuse@a").stop_after("infer").resolve().is_ok()
        );
    }
}

//! A session: a model with options, threads and plans.

use crate::control::Shared;
use crate::cost::Estimator;
use crate::memory::arena::ArenaPool;
use crate::open::Openings;
use crate::options::Resolved;
use crate::place::Context;
use crate::plan::cache::PlanCache;
use crate::plan::net::{ValueId, Wanted};
use crate::run::bind::{self, Binding, Growing};
use crate::run::exec::{self, Memory, Observed, Run};
use crate::run::request::{Dense, Fed, Request};
use crate::run::watch::Watch;
use crate::{Model, Plan, Profile, SessionError, SessionOptions, TensorStore, spans};
use plutino_ir::Limits;
use plutino_kernels::Isa;
use plutino_tensor::alloc::{self, Ledger};
use plutino_tensor::{Tensor, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

/// A model ready to run. Can be shared between threads and run by several of them at once: each run
/// has its own memory.
///
/// A run with shapes that are new makes a plan first; the last few plans are kept.
pub struct Session {
    model: Model,
    /// At least one.
    contexts: Arc<[Arc<Context>]>,
    plans: PlanCache,
    openings: Openings,
    arenas: Arc<ArenaPool>,
    /// What control operators plan and run with.
    shared: Arc<Shared>,
    /// What stays between runs.
    pub(crate) store: Arc<TensorStore>,
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self, SessionError> {
        Model::check_passes_off(&[&model], "passes_off", &options.passes_off)?;
        let mut resolved = options.resolve()?;
        // The environment is that of all sessions of the process: it may mean another model.
        let means_one =
            |off: &String| off.split_once('@').is_none_or(|(_, op)| model.has_operator(op));
        resolved.options.passes_off.retain(means_one);
        resolved.settings.know(&model.inner)?;
        let plans = PlanCache::new(resolved.options.plan_cache_size);
        let given = &resolved.options.contexts[..];
        let arenas = resolved.options.arena_pool.clone();
        let arenas = arenas.or_else(|| given.first().map(|context| Arc::clone(context.arenas())));
        let arenas = arenas.unwrap_or_default();
        let contexts: Arc<[Arc<Context>]> = match given {
            [] => [Arc::new(Context::open(resolved.threads, Arc::clone(&arenas)))].into(),
            given => given.into(),
        };
        let budget = resolved.options.memory_budget;
        let store = resolved.options.store.clone();
        let store = store.unwrap_or_else(|| Arc::new(TensorStore::new(budget)));
        let shared = Shared::new(resolved, Arc::clone(&arenas));
        let openings = Openings::default();
        Ok(Self { model, contexts, plans, openings, arenas, shared, store })
    }

    /// Runs the model: inputs in the order of [`Model::inputs`], outputs in that of
    /// [`Model::outputs`], tuples and lists flattened in order.
    ///
    /// # Errors
    /// Where the inputs do not suit the model, or an operator meets a value that it does not
    /// accept.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, SessionError> {
        let mut outputs = Vec::new();
        self.run_into(inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Session::run`] that reuses the memory of `outputs` (say, those of the previous run) where
    /// dtype and shape fit and nobody else shares it. Afterwards `outputs` are the outputs of this
    /// run, or empty after an error.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(
        &self,
        inputs: &[Tensor],
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let feeds = positional(inputs);
        let plan = self.positional_plan(&feeds)?;
        self.execute(&plan, &feeds, &Limits::default(), Observed::default(), outputs)
    }

    /// Runs a request: any operands fed, any fetched, with a deadline or a way to cancel.
    ///
    /// # Errors
    /// As [`Session::run`]; where the limits end the run; where what is fed does not suffice for
    /// what is fetched.
    pub fn run_with(&self, request: &Request<'_>) -> Result<Vec<Tensor>, SessionError> {
        let mut outputs = Vec::new();
        self.run_request_into(request, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Session::run_with`] that reuses the memory of `outputs`, as [`Session::run_into`] does.
    ///
    /// # Errors
    /// As [`Session::run_with`].
    pub fn run_request_into(
        &self,
        request: &Request<'_>,
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let (plan, feeds) = (self.plan_request(request)?, &request.feeds);
        self.execute(&plan, feeds, &request.limits, Observed::default(), outputs)
    }

    /// [`Session::run_with`], each result with its name: the operand's, as the request calls it.
    /// The members of a tuple are called `name.0`, `name.1` and so on.
    ///
    /// # Errors
    /// As [`Session::run_with`].
    pub fn run_named(&self, request: &Request<'_>) -> Result<Vec<(String, Tensor)>, SessionError> {
        let (plan, feeds) = (self.plan_request(request)?, &request.feeds);
        let (mut outputs, mut names) = (Vec::new(), Vec::new());
        let observed = Observed { names: Some(&mut names), ..Observed::default() };
        self.execute(&plan, feeds, &request.limits, observed, &mut outputs)?;
        let name = |(of, ending): (usize, String)| {
            let asked = request.fetches.get(of).filter(|_| !request.all).copied();
            let operand = asked.or(plan.fetched.get(of).map(String::as_str)).unwrap_or_default();
            format!("{operand}{ending}")
        };
        Ok(names.into_iter().map(name).zip(outputs).collect())
    }

    /// [`Session::run_with`], each result with the number of the fetch that it belongs to.
    pub(crate) fn run_placed(
        &self,
        request: &Request<'_>,
    ) -> Result<(Vec<Tensor>, Vec<usize>), SessionError> {
        let (plan, feeds) = (self.plan_request(request)?, &request.feeds);
        let (mut outputs, mut names) = (Vec::new(), Vec::new());
        let observed = Observed { names: Some(&mut names), ..Observed::default() };
        self.execute(&plan, feeds, &request.limits, observed, &mut outputs)?;
        Ok((outputs, names.into_iter().map(|(of, _)| of).collect()))
    }

    /// [`Session::run_with`] that shows the values between its steps to `watch`.
    pub(crate) fn watched(
        &self,
        request: &Request<'_>,
        watch: &dyn Watch,
    ) -> Result<Vec<Tensor>, SessionError> {
        let (plan, feeds) = (self.plan_request(request)?, &request.feeds);
        let observed = Observed { watch: Some(watch), ..Observed::default() };
        let mut outputs = Vec::new();
        self.execute(&plan, feeds, &request.limits, observed, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Session::run`] with the times of its steps.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile), SessionError> {
        let feeds = positional(inputs);
        let plan = self.positional_plan(&feeds)?;
        self.timed(&plan, &feeds, &Limits::default())
    }

    /// [`Session::run_with`] with the times of its steps.
    ///
    /// # Errors
    /// As [`Session::run_with`].
    pub fn profile_request(
        &self,
        request: &Request<'_>,
    ) -> Result<(Vec<Tensor>, Profile), SessionError> {
        let (plan, feeds) = (self.plan_request(request)?, &request.feeds);
        self.timed(&plan, feeds, &request.limits)
    }

    fn timed(
        &self,
        plan: &Arc<Plan>,
        feeds: &[(&str, Fed<'_>)],
        limits: &Limits,
    ) -> Result<(Vec<Tensor>, Profile), SessionError> {
        let mut profile = Profile::new(Arc::clone(plan));
        let mut outputs = Vec::new();
        let observed = Observed { profile: Some(&mut profile), ..Observed::default() };
        self.execute(plan, feeds, limits, observed, &mut outputs)?;
        Ok((outputs, profile))
    }

    /// The plan for inputs of these specs, made now if there is none yet. The first run then costs
    /// what any other does.
    ///
    /// # Errors
    /// Where an operator refuses what reaches it, or the plan exceeds the memory budget.
    pub fn plan(&self, inputs: &[TensorSpec]) -> Result<Arc<Plan>, SessionError> {
        self.plan_within(inputs, &Limits::default())
    }

    /// [`Session::plan`] with a deadline or a way to cancel.
    ///
    /// # Errors
    /// As [`Session::plan`], and where the limits end planning.
    pub fn plan_within(
        &self,
        inputs: &[TensorSpec],
        limits: &Limits,
    ) -> Result<Arc<Plan>, SessionError> {
        let binding = Binding::positional(&self.model.inner, inputs.iter().cloned())?;
        self.plan_for(binding, limits)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Threads that compute, the caller's included; of several contexts, those of the largest.
    pub fn threads(&self) -> usize {
        self.contexts.iter().map(|context| context.threads()).max().unwrap_or(1)
    }

    /// What control operators plan and run with.
    pub(crate) fn bound(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The options, with nothing left open.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.shared.resolved
    }

    /// The contexts that it computes in: those it was given, or one of its own.
    pub fn contexts(&self) -> &[Arc<Context>] {
        &self.contexts
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.resolved().isa
    }

    /// What estimates the costs of plans, by the figures of
    /// [`SessionOptions::costs`](crate::SessionOptions::costs).
    pub fn estimator(&self) -> Estimator {
        let resolved = self.resolved();
        resolved.options.costs.estimator(resolved.isa, self.threads())
    }

    /// Gives memory back to the system that is kept for further runs: plans, arenas, and packed
    /// weights that no other session of the model uses. What runs and plans that somebody still
    /// holds use goes when they do. The next run makes a plan first, and packs weights again.
    ///
    /// Tensors of the [store](Session::store) stay: they are the caller's.
    ///
    /// Where the arena pool is shared with other sessions, the arenas in it that nobody uses at the
    /// moment go, whoever made them. Outputs belong to the caller.
    ///
    /// What is dropped with the session is the same, but for packed weights: they stay with the
    /// model, for its next session, until [`Model::release_memory`] or the model goes.
    pub fn release_memory(&self) {
        self.plans.clear();
        self.shared.clear();
        self.arenas.release();
        self.model.release_memory();
    }

    /// Number of plans kept at the moment.
    pub fn plan_count(&self) -> usize {
        self.plans.len()
    }

    /// The plan of a request, for dtypes and shapes of what it feeds. The first run then costs what
    /// any other does.
    ///
    /// # Errors
    /// As [`Session::plan`]; where what is fed does not suffice for what is fetched; where the
    /// limits end planning.
    pub fn plan_request(&self, request: &Request<'_>) -> Result<Arc<Plan>, SessionError> {
        let wanted = bind::wanted(&self.model.inner, request)?;
        self.plan_fed(&request.feeds, wanted, &[], &request.limits)
    }

    /// The plan for these feeds and fetches.
    pub(crate) fn plan_fed(
        &self,
        feeds: &[(&str, Fed<'_>)],
        wanted: Wanted,
        growing: &[Growing],
        limits: &Limits,
    ) -> Result<Arc<Plan>, SessionError> {
        let model = &self.model.inner;
        let ids = feeds.iter().map(|(name, _)| bind::operand(model, name));
        let ids = ids.collect::<Result<SmallVec<[ValueId; 4]>, _>>()?;
        let fed = || ids.iter().copied().zip(feeds.iter().map(|(_, fed)| fed));
        match self.plans.find(|b| b.matches(fed(), &wanted, growing)) {
            Some(plan) => Ok(plan),
            None => {
                let feeds = ids.iter().zip(feeds).map(|(id, (name, fed))| (*id, *name, fed.spec()));
                let binding = Binding::fed(model, feeds, wanted)?;
                self.plan_for(Binding { growing: growing.to_vec(), ..binding }, limits)
            }
        }
    }

    fn positional_plan(&self, feeds: &[(&str, Fed<'_>)]) -> Result<Arc<Plan>, SessionError> {
        let inputs = &self.model.inner.inputs;
        let fed = || inputs.iter().map(|i| ValueId::from(i.id)).zip(feeds.iter().map(|(_, f)| f));
        let matching =
            |b: &Binding| feeds.len() == inputs.len() && b.matches(fed(), &Wanted::Outputs, &[]);
        match self.plans.find(matching) {
            Some(plan) => Ok(plan),
            None => {
                let specs = feeds.iter().map(|(_, fed)| fed.spec());
                self.plan_for(Binding::positional(&self.model.inner, specs)?, &Limits::default())
            }
        }
    }

    fn plan_for(&self, binding: Binding, limits: &Limits) -> Result<Arc<Plan>, SessionError> {
        let make = |binding: Binding, related: &[Arc<Plan>]| {
            let _span = spans::plan(&self.model.inner.file);
            self.openings.make(
                &self.model.inner,
                &self.shared,
                &self.contexts,
                limits,
                binding,
                related,
            )
        };
        let Some(budget) = self.resolved().options.memory_budget else {
            return self.plans.get(binding, limits, make, |_| true);
        };
        let before = self.plans.len();
        let fit = |plans: &[&Plan]| Plan::memory_together(plans) <= budget;
        let plan = self.plans.get(binding, limits, make, fit)?;
        if self.plans.len() <= before {
            self.model.inner.packs.release_unused(); // those of plans that made room
        }
        Ok(plan)
    }

    /// Runs a plan; results replace `outputs`, in their memory where that fits.
    fn execute(
        &self,
        plan: &Plan,
        feeds: &[(&str, Fed<'_>)],
        limits: &Limits,
        observed: Observed<'_>,
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let mut reused: Reused = outputs.drain(..).map(Some).collect();
        let memory = Memory { reused: &mut reused, caches: SmallVec::new() };
        let lent = Lent { memory, held: 0 };
        self.execute_with(plan, feeds, limits, observed, lent, outputs)
    }

    /// [`Session::execute`] with memory that the caller keeps for it.
    pub(crate) fn execute_with(
        &self,
        plan: &Plan,
        feeds: &[(&str, Fed<'_>)],
        limits: &Limits,
        observed: Observed<'_>,
        Lent { memory, held }: Lent<'_>,
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let budget = self.resolved().options.memory_budget;
        let held = held.saturating_add(budget.map_or(0, |_| self.store.bytes()));
        let needed = plan.memory().total().saturating_add(held);
        let left = match budget {
            Some(budget) if held > 0 && needed > budget => {
                return Err(SessionError::Budget { needed, budget });
            }
            _ => budget.map(|budget| budget.saturating_sub(needed)),
        };
        let ledger = left.map(|left| Ledger::new(Some(left)));
        let dense = || feeds.iter().map(|(name, fed)| fed.dense(name)).collect();
        let feeds: Result<SmallVec<[Dense<'_>; 4]>, SessionError> = match &ledger {
            Some(ledger) => alloc::charged(ledger, dense),
            None => dense(),
        };
        let feeds = &feeds?[..];
        let settings = &self.resolved().settings;
        let run = Run { plan, feeds, limits, settings, ledger, watch: observed.watch };
        exec::run(&run, &self.contexts, &self.arenas, memory, observed, outputs)
    }
}

/// Tensors whose memory results may take over, by number of the result.
pub(crate) type Reused = SmallVec<[Option<Tensor>; 4]>;

/// What a caller keeps for a run.
pub(crate) struct Lent<'a> {
    pub(crate) memory: Memory<'a>,
    /// Bytes of values that the run reads and that count as its memory.
    pub(crate) held: usize,
}

/// Feeds by position, in the form of those of a request.
fn positional(inputs: &[Tensor]) -> SmallVec<[(&'static str, Fed<'_>); 4]> {
    inputs.iter().map(|tensor| ("", tensor.into())).collect()
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {} threads, {})", self.model, self.threads(), self.isa())
    }
}

#[cfg(test)]
mod tests;

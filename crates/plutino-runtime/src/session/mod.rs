//! A session: a model with options, threads and plans.

use crate::arena::ArenaPool;
use crate::bind::{self, Binding};
use crate::build;
use crate::cache::PlanCache;
use crate::exec::{self, Run};
use crate::net::ValueId;
use crate::options::Resolved;
use crate::request::Request;
use crate::watch::Watch;
use crate::{Model, Plan, Profile, SessionError, SessionOptions};
use plutino_ir::Limits;
use plutino_kernels::{Isa, Pool};
use plutino_tensor::{Tensor, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

/// A model ready to run. Can be shared between threads and run by several of them at once: each run
/// has its own memory.
///
/// A run with shapes that are new makes a plan first; the last few plans are kept.
pub struct Session {
    model: Model,
    resolved: Resolved,
    pool: Pool,
    plans: PlanCache,
    arenas: ArenaPool,
}

impl Session {
    pub(crate) fn new(model: Model, options: SessionOptions) -> Result<Self, SessionError> {
        let resolved = options.resolve()?;
        let pool = Pool::new(resolved.threads);
        let plans = PlanCache::new(resolved.options.plan_cache_size);
        Ok(Self { model, resolved, pool, plans, arenas: ArenaPool::default() })
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
        let feeds: SmallVec<[&Tensor; 4]> = inputs.iter().collect();
        let plan = self.positional_plan(&feeds)?;
        let mut reused: SmallVec<[Option<Tensor>; 4]> = outputs.drain(..).map(Some).collect();
        self.execute(&plan, &feeds, &mut reused, &Limits::default(), None, outputs)
    }

    /// Runs a request: any operands fed, any fetched, with a deadline or a way to cancel.
    ///
    /// # Errors
    /// As [`Session::run`]; where the limits end the run; where what is fed does not suffice for
    /// what is fetched.
    pub fn run_with(&self, request: &Request<'_>) -> Result<Vec<Tensor>, SessionError> {
        let feeds: SmallVec<[&Tensor; 4]> = request.feeds.iter().map(|(_, t)| *t).collect();
        let plan = self.request_plan(request)?;
        let mut outputs = Vec::new();
        self.execute(&plan, &feeds, &mut [], &request.limits, None, &mut outputs)?;
        Ok(outputs)
    }

    /// [`Session::run`] with the times of its steps.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Profile), SessionError> {
        let feeds: SmallVec<[&Tensor; 4]> = inputs.iter().collect();
        let plan = self.positional_plan(&feeds)?;
        let mut profile = Profile::new(Arc::clone(&plan));
        let mut outputs = Vec::new();
        let limits = Limits::default();
        self.execute(&plan, &feeds, &mut [], &limits, Some(&mut profile), &mut outputs)?;
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

    /// Threads that compute, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.resolved.isa
    }

    /// Options, with nothing left open.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Number of plans kept at the moment.
    pub fn plan_count(&self) -> usize {
        self.plans.len()
    }

    fn positional_plan(&self, feeds: &[&Tensor]) -> Result<Arc<Plan>, SessionError> {
        let inputs = &self.model.inner.inputs;
        let fed = || inputs.iter().map(|i| ValueId::from(i.id)).zip(feeds.iter().copied());
        let found = self.plans.find(|b| feeds.len() == inputs.len() && b.matches(fed(), &[]));
        match found {
            Some(plan) => Ok(plan),
            None => {
                let binding =
                    Binding::positional(&self.model.inner, feeds.iter().map(|t| t.spec()))?;
                self.plan_for(binding, &Limits::default())
            }
        }
    }

    pub(crate) fn request_plan(&self, request: &Request<'_>) -> Result<Arc<Plan>, SessionError> {
        let model = &self.model.inner;
        let ids: Result<SmallVec<[ValueId; 4]>, _> =
            request.feeds.iter().map(|(name, _)| bind::operand(model, name)).collect();
        let fetches: Result<SmallVec<[ValueId; 4]>, _> =
            request.fetches.iter().map(|name| bind::operand(model, name)).collect();
        let (ids, fetches) = (ids?, fetches?);
        let fed = || ids.iter().copied().zip(request.feeds.iter().map(|(_, t)| *t));
        match self.plans.find(|b| b.matches(fed(), &fetches)) {
            Some(plan) => Ok(plan),
            None => {
                let feeds = request.feeds.iter().map(|(name, t)| (*name, t.spec()));
                self.plan_for(Binding::named(model, feeds, &request.fetches)?, &request.limits)
            }
        }
    }

    fn plan_for(&self, binding: Binding, limits: &Limits) -> Result<Arc<Plan>, SessionError> {
        self.plans.get(binding, limits, |binding| {
            build::build(&self.model.inner, &self.resolved, &self.pool, binding, limits)
        })
    }

    /// Runs a plan; results go to the end of `outputs`, in memory of `reused` tensors where that
    /// fits.
    fn execute(
        &self,
        plan: &Plan,
        feeds: &[&Tensor],
        reused: &mut [Option<Tensor>],
        limits: &Limits,
        profile: Option<&mut Profile>,
        outputs: &mut Vec<Tensor>,
    ) -> Result<(), SessionError> {
        let packs = &self.model.inner.packs;
        let budget = self.resolved.options.memory_budget;
        let setting = self.resolved.setting();
        let run = Run { plan, feeds, limits, setting, packs, budget, watch: None };
        exec::run(&run, &self.pool, &self.arenas, reused, profile, outputs)
    }

    /// Runs a request and shows the values between its steps to `watch`.
    pub(crate) fn watched(
        &self,
        request: &Request<'_>,
        watch: &dyn Watch,
    ) -> Result<Vec<Tensor>, SessionError> {
        let feeds: SmallVec<[&Tensor; 4]> = request.feeds.iter().map(|(_, t)| *t).collect();
        let plan = self.request_plan(request)?;
        let run = Run {
            plan: &plan,
            feeds: &feeds,
            limits: &request.limits,
            setting: self.resolved.setting(),
            packs: &self.model.inner.packs,
            budget: self.resolved.options.memory_budget,
            watch: Some(watch),
        };
        let mut outputs = Vec::new();
        exec::run(&run, &self.pool, &self.arenas, &mut [], None, &mut outputs)?;
        Ok(outputs)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?}, {} threads, {})", self.model, self.threads(), self.isa())
    }
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;

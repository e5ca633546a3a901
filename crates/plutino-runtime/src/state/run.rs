//! Runs that carry values.

use super::cache::Cache;
use super::{Carry, Held, State, StateError};
use crate::plan::net::{ValueId, Wanted};
use crate::plan::{Fetch, Plan};
use crate::run::bind;
use crate::run::bind::Growing;
use crate::run::exec::{Memory, Observed, ResultNames};
use crate::run::request::{Fed, Request};
use crate::session::{Lent, Reused};
use crate::{Profile, Session, SessionError};
use plutino_tensor::{Tensor, TensorError, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;

impl Session {
    /// A state of this session's model that carries nothing yet.
    pub fn state(&self) -> State {
        State::new(self.model())
    }

    /// Runs the model with what the run before it left: `inputs` are those of the model's that the
    /// state does not feed, in order; the results are those of its outputs that the state does not
    /// carry, in order.
    ///
    /// # Errors
    /// As [`Session::run`]; where the state belongs to another model, has no value for the first
    /// run, or cannot carry what comes out. The state is as it was before then.
    pub fn run_with_state(
        &self,
        state: &mut State,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, SessionError> {
        self.check_model(state)?;
        let model = &self.model().inner;
        let carried = |id: ValueId| state.carries.iter().any(|c| c.input == id);
        let mut request = Request::new();
        let free = || model.inputs.iter().filter(|input| !carried(input.id.into()));
        if free().count() != inputs.len() {
            let names: Vec<_> = free().map(|input| input.name.as_str()).collect();
            return Err(SessionError::InputCount {
                expected: names.len(),
                names: names.join(", "),
                found: inputs.len(),
            });
        }
        for (input, tensor) in free().zip(inputs) {
            request = request.feed(&input.name, tensor);
        }
        self.run_request_with_state(state, &request)
    }

    /// [`Session::run_with`] with what the run before it left. Where the request fetches nothing,
    /// the results are the model's outputs but for those that the state carries; it may fetch
    /// those, too: such a result shares its memory with the state.
    ///
    /// # Errors
    /// As [`Session::run_with_state`], and as [`Session::run_with`].
    pub fn run_request_with_state(
        &self,
        state: &mut State,
        request: &Request<'_>,
    ) -> Result<Vec<Tensor>, SessionError> {
        let results = self.carry_on(state, request, None)?.into_iter();
        Ok(results.map(|(_, tensor)| tensor).collect())
    }

    /// [`Session::run_request_with_state`], each result with its name, as [`Session::run_named`]
    /// has it.
    ///
    /// # Errors
    /// As [`Session::run_request_with_state`].
    pub fn run_named_with_state(
        &self,
        state: &mut State,
        request: &Request<'_>,
    ) -> Result<Vec<(String, Tensor)>, SessionError> {
        self.carry_on(state, request, None)
    }

    /// [`Session::run_request_with_state`] with the times of its steps.
    ///
    /// # Errors
    /// As [`Session::run_request_with_state`].
    pub fn profile_with_state(
        &self,
        state: &mut State,
        request: &Request<'_>,
    ) -> Result<(Vec<Tensor>, Profile), SessionError> {
        let mut profile = None;
        let results = self.carry_on(state, request, Some(&mut profile))?.into_iter();
        let profile = profile.ok_or_else(|| SessionError::internal("a run without a profile"))?;
        Ok((results.map(|(_, tensor)| tensor).collect(), profile))
    }

    /// The plan of the next run with this state: as [`Session::plan_request`].
    ///
    /// # Errors
    /// As [`Session::run_request_with_state`].
    pub fn plan_with_state(
        &self,
        state: &State,
        request: &Request<'_>,
    ) -> Result<Arc<Plan>, SessionError> {
        let values = self.next_values(state, request)?;
        let feeds = feeds(&values, request);
        let (wanted, growing) = self.wanted(state, request)?;
        self.plan_fed(&feeds, wanted, &growing, &request.limits)
    }

    /// A run: the state takes what it carries, the caller gets what it asked for, with names.
    fn carry_on(
        &self,
        state: &mut State,
        request: &Request<'_>,
        profile: Option<&mut Option<Profile>>,
    ) -> Result<Vec<(String, Tensor)>, SessionError> {
        let (wanted, growing) = self.wanted(state, request)?;
        let mut values = self.next_values(state, request)?;
        let fed = feeds(&values, request);
        let plan = self.plan_fed(&fed, wanted.clone(), &growing, &request.limits)?;
        drop(fed);
        let fetched = Fetched::new(state, &plan, &wanted);
        fetched.check(state, &plan, &values)?;

        let mut timed = profile.as_ref().map(|_| Profile::new(Arc::clone(&plan)));
        let (mut outputs, mut names) = (Vec::new(), ResultNames::new());
        let observed =
            Observed { names: Some(&mut names), profile: timed.as_mut(), ..Observed::default() };
        let mut caches = Caches::take(state, &plan, &mut values)?;
        let held = state.held().saturating_add(caches.bytes());
        let mut reused = fetched.reused(state, &plan);
        let ran = match caches.memory() {
            Ok(memory) => {
                let lent = Lent { memory: Memory { reused: &mut reused, caches: memory }, held };
                let fed = feeds(&values, request);
                self.execute_with(&plan, &fed, &request.limits, observed, lent, &mut outputs)
            }
            Err(error) => Err(error.into()),
        };
        let ran = ran.and_then(|()| fetched.carried(state, &names, &outputs, &values));
        caches.give_back(state, &plan, ran.is_ok());
        let made = ran?;
        drop(values); // what the state holds alone may be written over by the next run
        for (carry, value) in state.carries.iter_mut().zip(made) {
            if let Some(value) = value {
                carry.put(Held::Tensor(value));
            }
        }
        if let Some(profile) = profile {
            *profile = timed;
        }
        let results = names.into_iter().zip(outputs).filter(|((of, _), _)| fetched.is_asked(*of));
        let result = |((of, ending), tensor): ((usize, String), Tensor)| {
            let asked = of.checked_sub(fetched.unasked).and_then(|at| request.fetches.get(at));
            let asked = asked.filter(|_| !request.all).copied();
            let operand = asked.or(plan.fetched.get(of).map(String::as_str)).unwrap_or_default();
            (format!("{operand}{ending}"), tensor)
        };
        Ok(results.map(result).collect())
    }

    /// A state is one of this session's model.
    fn check_model(&self, state: &State) -> Result<(), StateError> {
        let model = self.model();
        if Arc::ptr_eq(&model.inner, &state.model.inner) {
            return Ok(());
        }
        let (state, session) = (state.model.file().to_owned(), model.file().to_owned());
        Err(StateError::AnotherModel { state, session })
    }

    /// What the state feeds the next run with.
    fn next_values(&self, state: &State, request: &Request<'_>) -> Result<Values, SessionError> {
        self.check_model(state)?;
        for (name, _) in &request.feeds {
            let id = bind::operand(&self.model().inner, name)?;
            if let Some(carry) = state.carries.iter().find(|c| c.input == id) {
                let (input, output) = (carry.to.to_string(), carry.from.to_string());
                return Err(StateError::FedAndCarried { input, output }.into());
            }
        }
        let value = |carry: &Carry| {
            let name = Arc::clone(&carry.to);
            if let Some(Held::Cache(cache)) = &carry.value {
                return Ok((name, Value::Cache(cache.spec().clone())));
            }
            let value = carry.next()?.ok_or_else(|| {
                let (input, recorded) = (carry.to.to_string(), carry.recorded.to_string());
                StateError::NoStart { input, recorded }
            })?;
            Ok((name, Value::Tensor(value)))
        };
        state.carries.iter().map(value).collect()
    }

    /// What is fetched: what is carried first, then what the caller asks for. And what grows.
    fn wanted(
        &self,
        state: &State,
        request: &Request<'_>,
    ) -> Result<(Wanted, SmallVec<[Growing; 4]>), SessionError> {
        let model = &self.model().inner;
        let carried = |id: &ValueId| state.carries.iter().any(|c| c.output == *id);
        let asked: Vec<ValueId> = match bind::wanted(model, request)? {
            Wanted::All => return Ok((Wanted::All, SmallVec::new())),
            Wanted::Outputs => {
                let outputs = model.outputs.iter().map(|output| output.id.into());
                outputs.filter(|id| !carried(id)).collect()
            }
            Wanted::These(asked) => asked,
        };
        let growing = state.carries.iter().filter(|carry| !asked.contains(&carry.output));
        let growing = growing.filter_map(|carry| {
            let Carry { input, output, grows, .. } = *carry;
            Some(Growing { input, output, dim: grows? })
        });
        let growing = growing.collect();
        let mut wanted: Vec<ValueId> = Vec::with_capacity(state.carries.len() + asked.len());
        for carry in &state.carries {
            if !wanted.contains(&carry.output) {
                wanted.push(carry.output);
            }
        }
        wanted.extend(asked);
        Ok((Wanted::These(wanted), growing))
    }
}

/// What a state feeds a run with.
enum Value {
    Tensor(Tensor),
    /// What the cache of the state holds.
    Cache(TensorSpec),
}

impl Value {
    fn spec(&self) -> TensorSpec {
        match self {
            Self::Tensor(tensor) => tensor.spec(),
            Self::Cache(spec) => spec.clone(),
        }
    }
}

/// The caches of a state while a run appends to them.
struct Caches(SmallVec<[Taken; 8]>);

struct Taken {
    /// Which of the state's values it is.
    carry: usize,
    cache: Cache,
    /// Whether it holds what the first run starts with.
    start: bool,
}

impl Caches {
    /// Takes them from the state, in memory as the plan wants it. Caches that the plan wants as
    /// tensors are copied to `values`.
    ///
    /// # Errors
    /// Where memory is refused; the state is as before then.
    fn take(state: &mut State, plan: &Plan, values: &mut Values) -> Result<Self, SessionError> {
        let mut caches = SmallVec::new();
        let resident = |carry: &Carry| plan.residents.iter().find(|r| r.input == carry.input);
        for (carry, (_, value)) in state.carries.iter().zip(values.iter_mut()) {
            if let (Some(Held::Cache(cache)), None) = (&carry.value, resident(carry)) {
                *value = Value::Tensor(cache.to_tensor()?);
            }
        }
        for resident in plan.residents.iter() {
            let at = state.carries.iter().position(|carry| carry.input == resident.input);
            let (at, (_, value)) = at
                .and_then(|at| Some((at, values.get_mut(at)?)))
                .ok_or_else(|| SessionError::internal("a cache that nobody carries"))?;
            let carry = &mut state.carries[at];
            let lies = (resident.dim, resident.capacity);
            let made = match (&carry.value, &*value) {
                (Some(Held::Cache(cache)), _) if cache.lies(lies.0, lies.1) => None,
                (Some(Held::Cache(cache)), _) => Some(cache.in_capacity(lies.1)),
                (_, Value::Tensor(tensor)) => {
                    let old = match carry.spare.take() {
                        Some(Held::Cache(old)) => Some(old),
                        _ => None,
                    };
                    Some(Cache::new(tensor, lies, old))
                }
                (_, Value::Cache(_)) => {
                    return Err(SessionError::internal("a cache that is not there"));
                }
            };
            // What was taken goes back where one of the others cannot be made.
            let made = match made.transpose() {
                Ok(made) => made,
                Err(error) => {
                    Self(caches).give_back(state, plan, false);
                    return Err(error.into());
                }
            };
            let start = carry.value.is_none();
            let cache = match (made, carry.value.take()) {
                (Some(made), _) | (None, Some(Held::Cache(made))) => made,
                (None, _) => return Err(SessionError::internal("a cache that is not there")),
            };
            *value = Value::Cache(cache.spec().clone());
            caches.push(Taken { carry: at, cache, start });
        }
        Ok(Self(caches))
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|taken| taken.cache.bytes()).fold(0, usize::saturating_add)
    }

    /// Their memory, in the order of the plan's.
    fn memory(&mut self) -> Result<SmallVec<[&mut [u8]; 4]>, TensorError> {
        self.0.iter_mut().map(|taken| taken.cache.as_mut_bytes()).collect()
    }

    /// Gives them back: with what was appended, or as they were. (What a run that failed appended
    /// lies beyond the end.)
    fn give_back(self, state: &mut State, plan: &Plan, ran: bool) {
        for Taken { carry, mut cache, start } in self.0 {
            let Some(carry) = state.carries.get_mut(carry) else { continue };
            let resident = plan.residents.iter().find(|r| r.input == carry.input);
            let spec = plan.fetches.iter().find_map(|fetch| match fetch {
                Fetch::Resident { value, spec, .. }
                    if Some(*value) == resident.map(|r| r.output) =>
                {
                    Some(spec)
                }
                _ => None,
            });
            match (ran, start, spec) {
                (true, _, Some(spec)) => {
                    cache.set_spec(spec);
                    carry.value = Some(Held::Cache(cache));
                }
                (_, true, _) => carry.spare = Some(Held::Cache(cache)),
                _ => carry.value = Some(Held::Cache(cache)),
            }
        }
    }
}

/// What a state feeds a run with, by the names of the operands.
type Values = SmallVec<[(Arc<str>, Value); 4]>;

/// What the state feeds, then what the request does.
fn feeds<'a>(values: &'a Values, request: &'a Request<'_>) -> SmallVec<[(&'a str, Fed<'a>); 4]> {
    let carried = values.iter().map(|(name, value)| {
        let fed = match value {
            Value::Tensor(tensor) => Fed::from(tensor),
            Value::Cache(spec) => Fed::resident(spec),
        };
        (&**name, fed)
    });
    carried.chain(request.feeds.iter().map(|(name, fed)| (*name, fed.clone()))).collect()
}

/// Which of the values that a run fetches are whose.
struct Fetched {
    /// For each carry, its position among the values.
    places: SmallVec<[usize; 4]>,
    /// So many values come first that the caller did not ask for.
    unasked: usize,
}

impl Fetched {
    fn new(state: &State, plan: &Plan, wanted: &Wanted) -> Self {
        let place = |carry: &Carry| match wanted {
            Wanted::These(ids) => ids.iter().position(|id| *id == carry.output),
            Wanted::All | Wanted::Outputs => plan.fetched.iter().position(|n| **n == *carry.from),
        };
        let places: SmallVec<[usize; 4]> =
            state.carries.iter().map(|carry| place(carry).unwrap_or(usize::MAX)).collect();
        let unasked = match wanted {
            Wanted::These(_) => places.iter().max().map_or(0, |last| last.saturating_add(1)),
            Wanted::All | Wanted::Outputs => 0,
        };
        Self { places, unasked }
    }

    fn is_asked(&self, of: usize) -> bool {
        of >= self.unasked
    }

    /// Refuses what cannot be carried, as far as that is known before the run.
    fn check(&self, state: &State, plan: &Plan, values: &Values) -> Result<(), StateError> {
        for ((carry, &place), (_, value)) in state.carries.iter().zip(&self.places).zip(values) {
            let mut found = 0;
            for fetch in &plan.fetches {
                match fetch {
                    Fetch::Leaf { of, spec, .. } if *of == place => {
                        found += 1;
                        if let Some(spec) = spec {
                            carry.check_next(&value.spec(), spec)?;
                        }
                    }
                    Fetch::Resident { of, spec, .. } if *of == place => {
                        found += 1;
                        carry.check_next(&value.spec(), spec)?;
                    }
                    Fetch::Late { of, .. } if *of == place => found += 1,
                    _ => {}
                }
            }
            if found != 1 {
                return Err(StateError::NotATensor { output: carry.from.to_string(), found });
            }
        }
        Ok(())
    }

    /// Memory of the run before the last one that suits what is made now, by number of the result.
    fn reused(&self, state: &mut State, plan: &Plan) -> Reused {
        let mut reused = Reused::new();
        for (carry, &place) in state.carries.iter_mut().zip(&self.places) {
            let Some(Held::Tensor(spare)) = &carry.spare else { continue };
            let at = plan.fetches.iter().position(|fetch| match fetch {
                Fetch::Leaf { of, spec: Some(spec), .. } => *of == place && spare.spec() == *spec,
                _ => false,
            });
            let spare = carry.spare.take();
            if let (Some(at), Some(Held::Tensor(spare))) = (at, spare) {
                while reused.len() <= at {
                    reused.push(None);
                }
                reused[at] = Some(spare);
            }
        }
        reused
    }

    /// What came out for each carry; none where it was appended to what is there.
    fn carried(
        &self,
        state: &State,
        names: &ResultNames,
        outputs: &[Tensor],
        before: &Values,
    ) -> Result<SmallVec<[Option<Tensor>; 4]>, SessionError> {
        let value = |((carry, place), (_, before)): ((&Carry, &usize), &(_, Value))| {
            if matches!(before, Value::Cache(_)) {
                return Ok(None);
            }
            let mut made = names.iter().zip(outputs).filter(|((of, _), _)| of == place);
            match (made.next(), made.count()) {
                (Some((_, tensor)), 0) => {
                    carry.check_next(&before.spec(), &tensor.spec())?;
                    Ok(Some(tensor.clone()))
                }
                (first, more) => {
                    let found = more + usize::from(first.is_some());
                    Err(StateError::NotATensor { output: carry.from.to_string(), found }.into())
                }
            }
        };
        state.carries.iter().zip(&self.places).zip(before).map(value).collect()
    }
}

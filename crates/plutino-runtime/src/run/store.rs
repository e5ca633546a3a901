//! Tensors that stay between runs, by handle.

use crate::plan::net::ValueId;
use crate::run::bind;
use crate::run::request::Request;
use crate::{MemoryReport, Plan, Session, SessionError, lists};
use plutino_ir::quote;
use plutino_tensor::{Tensor, TensorError};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names a tensor of one [`TensorStore`]: as small as a number, to be copied and kept anywhere. It
/// is never given out twice, so that one whose tensor was removed is an error and no other tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorHandle {
    store: u32,
    slot: u32,
    generation: u32,
}

/// A handle is no use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The tensor was removed.
    #[error("the tensor of this handle was removed from the store")]
    Gone {
        /// The handle.
        handle: TensorHandle,
    },
    /// The handle is one of another store.
    #[error("the handle is one of another store")]
    AnotherStore {
        /// The handle.
        handle: TensorHandle,
    },
    /// What is to be kept is a tuple or a list.
    #[error("'{}' is {found} tensors, and a handle names one: keep its members", quote(operand))]
    NotOne {
        /// The operand.
        operand: String,
        /// Its tensors.
        found: usize,
    },
    /// No memory, or not as much as the store may hold.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Tensors that stay between the runs of a session, each under a [`TensorHandle`]: what a run
/// makes can be kept here and fed to later runs, and nothing is copied on the way.
///
/// Who carries each output to the same input again and again takes a [`State`](crate::State),
/// which does that by itself; a store is for values that are chosen freely: embeddings of
/// documents, prompts that many requests begin with, results of one model that another one reads.
///
/// ```
/// # use plutino_ops as _;
/// use plutino_runtime::{Model, Request, SessionOptions};
/// use plutino_tensor::Tensor;
///
/// # let model = Model::from_graph(plutino_ir::Graph::parse(
/// #     "7767517\n5 4\npnnx.Input in 0 1 x\nnn.ReLU relu 1 1 x y\npnnx.Expression e 1 1 y z expr=neg(@0)\n\
/// #      prim::TupleConstruct t 2 1 y z o\npnnx.Output out 1 0 o",
/// # )?)?;
/// let session = model.session(SessionOptions::default())?;
/// let x = Tensor::from_slice(&[-1.0f32, 2.0], [2])?;
/// // y stays in the store, z is handed out.
/// let (results, kept) = session.run_keeping(&Request::new().feed("x", &x), &["y"])?;
/// assert_eq!(results[0].as_slice::<f32>()?, [0.0, -2.0]);
/// let y = kept[0];
///
/// let z = session.run_with(&Request::new().feed("y", session.store().get(y)?).fetch("z"))?;
/// assert_eq!(z[0].as_slice::<f32>()?, [0.0, -2.0]);
/// assert_eq!(session.store().bytes(), 8);
/// session.store().remove(y)?;
/// assert!(session.store().get(y).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TensorStore {
    number: u32,
    budget: Option<usize>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    /// Those without a tensor that can be given out again.
    free: Vec<u32>,
    /// Bytes of all tensors.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// How often it was given out before.
    generation: u32,
    tensor: Option<Tensor>,
}

/// Tells stores of this process apart.
static STORES: AtomicU32 = AtomicU32::new(0);

impl Default for TensorStore {
    fn default() -> Self {
        Self::new(None)
    }
}

impl TensorStore {
    /// An empty store; its tensors have so many bytes at most.
    pub fn new(budget: Option<usize>) -> Self {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        Self { number, budget, slots: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner) // whole at any time
    }

    /// Keeps a tensor, whose memory is shared with whoever else has it.
    ///
    /// # Errors
    /// Where the store would hold more than it may, or there is no memory for its list.
    pub fn put(&self, tensor: Tensor) -> Result<TensorHandle, StoreError> {
        let slots = &mut *self.slots();
        let bytes = self.room(slots, 0, &tensor)?;
        let number = match slots.free.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(slots.all.len());
                let number = number.map_err(|_| TensorError::invalid("too many tensors"))?;
                lists::push(&mut slots.all, Slot::default())?;
                number
            }
        };
        let slot = slots.all.get_mut(number as usize);
        let slot = slot.ok_or_else(|| TensorError::invalid("a slot is gone"))?;
        slot.tensor = Some(tensor);
        slots.bytes = bytes;
        Ok(TensorHandle { store: self.number, slot: number, generation: slot.generation })
    }

    /// Bytes of the store once this tensor is in the place of `old` bytes.
    fn room(&self, slots: &Slots, old: usize, tensor: &Tensor) -> Result<usize, StoreError> {
        let left = slots.bytes.saturating_sub(old);
        let bytes = left.saturating_add(tensor.as_bytes().len());
        match self.budget {
            Some(budget) if bytes > budget => {
                let needed = bytes;
                Err(TensorError::Budget { needed, budget }.into())
            }
            _ => Ok(bytes),
        }
    }

    /// What a handle names.
    fn slot<'s>(
        &self,
        slots: &'s mut Slots,
        handle: TensorHandle,
    ) -> Result<&'s mut Slot, StoreError> {
        if handle.store != self.number {
            return Err(StoreError::AnotherStore { handle });
        }
        let slot = slots.all.get_mut(handle.slot as usize);
        let slot = slot.filter(|slot| slot.generation == handle.generation);
        slot.filter(|slot| slot.tensor.is_some()).ok_or(StoreError::Gone { handle })
    }

    /// The tensor of a handle; it shares its memory with the store, and stays as it is when the
    /// store changes. Feed it to a [`Request`]: it is read where it lies.
    ///
    /// # Errors
    /// Where the tensor was removed, or the handle is one of another store.
    pub fn get(&self, handle: TensorHandle) -> Result<Tensor, StoreError> {
        let slots = &mut *self.slots();
        let slot = self.slot(slots, handle)?;
        slot.tensor.clone().ok_or(StoreError::Gone { handle })
    }

    /// Lets a handle name another tensor; returns the one before.
    ///
    /// # Errors
    /// As [`TensorStore::get`] and [`TensorStore::put`].
    pub fn replace(&self, handle: TensorHandle, tensor: Tensor) -> Result<Tensor, StoreError> {
        let slots = &mut *self.slots();
        let old = self.slot(slots, handle)?.tensor.as_ref().map_or(0, |t| t.as_bytes().len());
        slots.bytes = self.room(slots, old, &tensor)?;
        let slot = self.slot(slots, handle)?;
        slot.tensor.replace(tensor).ok_or(StoreError::Gone { handle })
    }

    /// Takes a tensor out: the handle names nothing from now on, for good.
    ///
    /// # Errors
    /// As [`TensorStore::get`].
    pub fn remove(&self, handle: TensorHandle) -> Result<Tensor, StoreError> {
        let slots = &mut *self.slots();
        let slot = self.slot(slots, handle)?;
        let tensor = slot.tensor.take().ok_or(StoreError::Gone { handle })?;
        slots.retire(handle.slot, tensor.as_bytes().len());
        Ok(tensor)
    }

    /// Removes all tensors.
    pub fn clear(&self) {
        let mut gone = Vec::new();
        let slots = &mut *self.slots();
        for number in 0..slots.all.len() {
            let tensor = slots.all.get_mut(number).and_then(|slot| slot.tensor.take());
            if let (Some(tensor), Ok(number)) = (tensor, u32::try_from(number)) {
                slots.retire(number, tensor.as_bytes().len());
                gone.push(tensor);
            }
        }
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        let slots = self.slots();
        slots.all.iter().filter(|slot| slot.tensor.is_some()).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all tensors, also of those whose memory others share.
    pub fn bytes(&self) -> usize {
        self.slots().bytes
    }
}

impl Slots {
    /// A slot is free: for handles that nobody had before.
    fn retire(&mut self, number: u32, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(slot) = self.all.get_mut(number as usize) else { return };
        // One that was given out as often as can be told apart is not given out again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(number);
        }
    }
}

impl Session {
    /// Tensors that stay between the runs of this session (or of several:
    /// [`SessionOptions::with_store`](crate::SessionOptions::with_store)). They count as memory of
    /// each run where that has a budget.
    pub fn store(&self) -> &TensorStore {
        &self.store
    }

    /// [`Session::run_with`] that keeps the results for these operands in the session's
    /// [store](Session::store), without a copy, and returns handles of them beside the other
    /// results. Where the request fetches nothing, these are the model's outputs but for those that
    /// are kept.
    ///
    /// # Errors
    /// As [`Session::run_with`]; where an operand is a tuple; where the store holds no more. The
    /// store is as it was then.
    pub fn run_keeping(
        &self,
        request: &Request<'_>,
        keep: &[&str],
    ) -> Result<(Vec<Tensor>, Vec<TensorHandle>), SessionError> {
        let model = &self.model().inner;
        let kept = keep.iter().map(|name| bind::operand(model, name));
        let ids = kept.collect::<Result<HashSet<ValueId>, _>>()?;
        let mut asked = request.clone();
        let others: Vec<String> = match (request.fetches.is_empty(), request.all) {
            (true, false) => {
                let free = model.outputs.iter().filter(|o| !ids.contains(&o.id.into()));
                free.map(|output| output.name.clone()).collect()
            }
            (_, false) => request.fetches.iter().map(|&name| name.to_owned()).collect(),
            (_, true) => {
                let plan = self.plan_request(request)?;
                plan.fetched.to_vec()
            }
        };
        asked.all = false;
        asked.fetches = others.iter().map(String::as_str).chain(keep.iter().copied()).collect();
        if asked.fetches.is_empty() {
            return Ok((self.run_with(request)?, Vec::new())); // a model without outputs
        }
        let (results, places) = self.run_placed(&asked)?;
        let mut outputs = Vec::new();
        let mut own: Vec<Vec<Tensor>> = keep.iter().map(|_| Vec::new()).collect();
        for (tensor, of) in results.into_iter().zip(places) {
            match of.checked_sub(others.len()).and_then(|of| own.get_mut(of)) {
                Some(own) => own.push(tensor),
                None => outputs.push(tensor),
            }
        }
        let mut handles = Vec::new();
        for (operand, mut own) in keep.iter().zip(own) {
            let found = own.len();
            let put = match (own.pop(), found) {
                (Some(tensor), 1) => self.store.put(tensor),
                _ => Err(StoreError::NotOne { operand: (*operand).to_owned(), found }),
            };
            match put {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    let back = handles.into_iter().map(|handle| self.store.remove(handle));
                    back.for_each(drop);
                    return Err(error.into());
                }
            }
        }
        Ok((outputs, handles))
    }

    /// The memory of a run by this plan in this session: what the plan reports, and the tensors of
    /// the [store](Session::store). This is what a memory budget is compared with.
    pub fn memory(&self, plan: &Plan) -> MemoryReport {
        MemoryReport { stored: self.store.bytes(), ..plan.memory() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionOptions;
    use crate::testkit::{model, values, vector};
    use std::sync::Arc;

    #[test]
    fn a_handle_names_one_tensor_and_never_another() {
        let store = TensorStore::new(Some(24));
        let a = store.put(vector(&[1.0, 2.0])).unwrap();
        let b = store.put(vector(&[3.0])).unwrap();
        assert_eq!((store.len(), store.bytes()), (2, 12));
        assert_eq!(values(&store.get(a).unwrap()), [1.0, 2.0]);
        let refused = store.put(vector(&[0.0; 4])).unwrap_err();
        let budget = TensorError::Budget { needed: 28, budget: 24 };
        assert_eq!(refused, StoreError::Tensor(budget.clone()));
        assert_eq!(store.replace(b, vector(&[0.0; 5])).unwrap_err(), StoreError::Tensor(budget));
        assert_eq!(values(&store.replace(b, vector(&[5.0; 4])).unwrap()), [3.0]);
        assert_eq!(values(&store.remove(a).unwrap()), [1.0, 2.0]);
        assert_eq!((store.len(), store.bytes()), (1, 16));
        // The place is used again, the handle is not.
        let c = store.put(vector(&[7.0])).unwrap();
        assert_eq!((a.slot, values(&store.get(c).unwrap())), (c.slot, vec![7.0]));
        for error in [store.get(a).unwrap_err(), store.remove(a).unwrap_err()] {
            assert_eq!(error, StoreError::Gone { handle: a });
        }
        let other = TensorStore::default();
        assert_eq!(other.get(b).unwrap_err(), StoreError::AnotherStore { handle: b });
        store.clear();
        assert_eq!((store.len(), store.bytes(), store.is_empty()), (0, 0, true));
        assert_eq!(store.get(b).unwrap_err(), StoreError::Gone { handle: b });
        assert!(size_of::<TensorHandle>() <= 16);
        // One whose generations are used up is not given out again.
        let last = store.put(vector(&[1.0])).unwrap();
        store.slots().all[last.slot as usize].generation = u32::MAX;
        let last = TensorHandle { generation: u32::MAX, ..last };
        store.remove(last).unwrap();
        assert_ne!(store.put(vector(&[1.0])).unwrap().slot, last.slot);
    }

    const TWO: &str = "
        pnnx.Input in 0 1 x
        test.Scale double 1 1 x d by=2
        test.Reverse back 1 1 d r
        test.Pair pair 1 1 r p
        prim::TupleConstruct t 2 1 d r o
        pnnx.Output out 1 0 o";

    #[test]
    fn what_is_kept_is_not_copied() {
        let session = model(TWO).session(SessionOptions::default().with_threads(1)).unwrap();
        let x = vector(&[1.0, 2.0]);
        let request = Request::new().feed("x", &x);
        let (results, kept) = session.run_keeping(&request, &["d"]).unwrap();
        assert_eq!((results.len(), values(&results[0])), (1, vec![4.0, 2.0]));
        let d = session.store().get(kept[0]).unwrap();
        assert_eq!(values(&d), [2.0, 4.0]);
        // It is fed where it lies: fetched again, it is the same memory.
        let fed = Request::new().feed("d", session.store().get(kept[0]).unwrap()).fetch("d");
        let again = session.run_with(&fed.fetch("r")).unwrap();
        assert_eq!(again[0].as_bytes().as_ptr(), d.as_bytes().as_ptr());
        assert_eq!(values(&again[1]), [4.0, 2.0]);
        // What a request fetches is handed out, and may be kept as well.
        let (both, kept) = session.run_keeping(&request.clone().fetch("d"), &["d", "r"]).unwrap();
        assert_eq!((both.len(), kept.len(), session.store().len()), (1, 2, 3));
        let (all, _) = session.run_keeping(&request.clone().fetch_all(), &["r"]).unwrap();
        assert_eq!(all.len(), 3 + 2 + 2);
        // A run that keeps nothing is a run; one that fails keeps nothing.
        assert_eq!(session.run_keeping(&request, &[]).unwrap().0.len(), 2);
        let before = session.store().len();
        let error = session.run_keeping(&request, &["r", "p"]).unwrap_err();
        let not_one = StoreError::NotOne { operand: "p".into(), found: 2 };
        assert!(matches!(&error, SessionError::Store(found) if *found == not_one), "{error}");
        assert_eq!(session.store().len(), before);
        assert!(session.run_keeping(&request, &["nobody"]).is_err());
        session.release_memory();
        assert_eq!(session.store().len(), before, "values are the caller's");
    }

    #[test]
    fn what_is_kept_counts() {
        let model = model(TWO);
        let plain = model.session(SessionOptions::default().with_threads(1)).unwrap();
        let x = vector(&[0.5; 64]);
        let plan = plain.plan(&[x.spec()]).unwrap();
        let store = Arc::new(TensorStore::default());
        let handle = store.put(vector(&[0.0; 256])).unwrap();
        let total = plan.memory().total();
        let mut options = SessionOptions::default().with_threads(1).with_store(Arc::clone(&store));
        options.memory_budget = Some(total + 1023);
        let session = model.session(options).unwrap();
        assert_eq!(session.memory(&plan).total(), total + 1024);
        let error = session.run(std::slice::from_ref(&x)).unwrap_err();
        assert!(matches!(error, SessionError::Budget { .. }), "{error}");
        store.remove(handle).unwrap();
        session.run(&[x]).unwrap();
        // A store of a session's own takes no more than the session may.
        let mut options = SessionOptions::default().with_threads(1);
        options.memory_budget = Some(100);
        let session = model.session(options).unwrap();
        assert!(session.store().put(vector(&[0.0; 26])).is_err());
    }
}

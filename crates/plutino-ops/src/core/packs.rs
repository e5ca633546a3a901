//! Weights in the forms that kernels want: made once for each model, shared by its sessions and
//! plans, counted by each of them.

use plutino_kernels::PackKey;
use plutino_kernels::conv::ConvWeights;
use plutino_kernels::gemm::PackedMatrix;
use plutino_kernels::recurrent::PackedLayer;
use plutino_tensor::{Tensor, TensorError, alloc, stop};
use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A weight in the form that a kernel wants.
pub trait Packed: Any + Send + Sync {
    /// Bytes in memory.
    fn bytes(&self) -> usize;
}

impl Packed for ConvWeights {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Packed for PackedMatrix {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Packed for PackedLayer {
    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Packed for Tensor {
    fn bytes(&self) -> usize {
        self.as_bytes().len()
    }
}

impl<T: Copy + Send + Sync + 'static> Packed for Arc<[T]> {
    fn bytes(&self) -> usize {
        size_of_val::<[T]>(self)
    }
}

/// The name of a weight, and what decided the form.
type Key = (String, PackKey);

#[derive(Clone)]
struct Form {
    weight: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

impl Form {
    fn downcast<T: Packed>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.weight).downcast().ok()
    }
}

type Forms = Mutex<HashMap<Key, Form>>;

/// Packed weights, keyed by weight and packing: those that a model has, and of these the ones that
/// whoever holds this uses.
#[derive(Default)]
pub struct PackCache {
    /// All that there are: shared by all users of a model.
    all: Arc<Forms>,
    /// Where the forms of weights lie that the model has in common with others.
    common: Arc<HashMap<String, Arc<Forms>>>,
    used: Forms,
}

impl PackCache {
    /// For another user of the same weights, who uses none yet.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self {
            all: Arc::clone(&self.all),
            common: Arc::clone(&self.common),
            used: Forms::default(),
        }
    }

    /// For another model that has these weights in common with the one whose cache this is: the
    /// same numbers under the same full names. What is packed of them is shared, the rest is not.
    #[must_use]
    pub fn for_another_model(&self, weights: impl IntoIterator<Item = String>) -> Self {
        let common = weights.into_iter().map(|weight| {
            let forms = Arc::clone(self.forms(&weight));
            (weight, forms)
        });
        Self { common: Arc::new(common.collect()), ..Self::default() }
    }

    /// Where the forms of a weight lie.
    fn forms(&self, weight: &str) -> &Arc<Forms> {
        self.common.get(weight).unwrap_or(&self.all)
    }

    /// The packed form of `weight` (its full name) that `key` tells from others, which the kernel
    /// made; made by `pack` when it is asked for the first time.
    ///
    /// When this user asks for the first time, the form is charged to the scope of this thread
    /// ([`plutino_tensor::alloc`]), whoever had it made: a user is within its budget alone. What
    /// `pack` takes besides is charged for as long as it runs.
    ///
    /// # Errors
    /// Those of `pack`, and of the ledger.
    pub fn get<T: Packed, E: From<TensorError>>(
        &self,
        weight: &str,
        key: PackKey,
        pack: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = (weight.to_owned(), key);
        if let Some(found) = lock(&self.used).get(&key).and_then(Form::downcast) {
            return Ok(found);
        }
        let get = || {
            let all = self.forms(weight);
            let found = lock(all).get(&key).cloned();
            if let Some((form, packed)) = found.and_then(|f| f.downcast().map(|p| (f, p))) {
                alloc::charge(form.bytes)?;
                return Ok((packed, self.note(key, form)));
            }
            // Packed outside the locks: plans of different operators are made in parallel.
            let made = Arc::new(pack()?);
            let form = Form { bytes: made.bytes(), weight: Arc::clone(&made) as _ };
            // Whoever ends a plan leaves no half-packed weights behind for others.
            if stop::stopped() {
                return Ok((made, form.bytes));
            }
            // Another thread may have been faster: one form in memory is enough.
            let form = lock(all).entry(key.clone()).or_insert(form).clone();
            let packed = form.downcast().unwrap_or(made);
            Ok((packed, self.note(key, form)))
        };
        alloc::keeping(get, |got| got.as_ref().map_or(0, |(_, kept)| *kept)).map(|(got, _)| got)
    }

    /// Notes that this user has it; returns the bytes that are new to it.
    fn note(&self, key: Key, form: Form) -> usize {
        match lock(&self.used).entry(key) {
            Entry::Occupied(_) => 0,
            Entry::Vacant(free) => free.insert(form).bytes,
        }
    }

    /// Bytes of all that this user has asked for, each form once.
    pub fn used_bytes(&self) -> usize {
        sum(&self.used)
    }

    /// Bytes of all that this user has asked for, by full name of the weight.
    pub fn used_by_weight(&self) -> HashMap<String, usize> {
        let mut bytes: HashMap<String, usize> = HashMap::new();
        for ((weight, _), form) in lock(&self.used).iter() {
            let of = bytes.entry(weight.clone()).or_default();
            *of = of.saturating_add(form.bytes);
        }
        bytes
    }

    /// Bytes of what several users of the same weights have asked for, together.
    pub fn used_by_all<'a>(users: impl Iterator<Item = &'a Self>) -> usize {
        let mut forms: HashMap<*const (), usize> = HashMap::new();
        for user in users {
            let used = lock(&user.used);
            forms.extend(used.values().map(|f| (Arc::as_ptr(&f.weight).cast(), f.bytes)));
        }
        forms.into_values().fold(0, usize::saturating_add)
    }

    /// Bytes of all that there are, whoever uses them.
    pub fn bytes(&self) -> usize {
        self.places().map(|forms| sum(forms)).fold(0, usize::saturating_add)
    }

    /// Gives back the memory of forms that no other user of the same weights has asked for and
    /// still lives.
    pub fn release_unused(&self) {
        self.places().for_each(|forms| {
            lock(forms).retain(|_, form| Arc::strong_count(&form.weight) > 1);
        });
    }

    /// Number of forms, whoever uses them.
    pub fn len(&self) -> usize {
        self.places().map(|forms| lock(forms).len()).sum()
    }

    /// Where forms lie, each place once.
    fn places(&self) -> impl Iterator<Item = &Arc<Forms>> {
        let mut places = vec![&self.all];
        for forms in self.common.values() {
            if !places.iter().any(|place| Arc::ptr_eq(place, forms)) {
                places.push(forms);
            }
        }
        places.into_iter()
    }

    /// Whether nothing has been packed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn sum(forms: &Forms) -> usize {
    lock(forms).values().map(|form| form.bytes).fold(0, usize::saturating_add)
}

fn lock(forms: &Forms) -> MutexGuard<'_, HashMap<Key, Form>> {
    forms.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_tensor::DType;
    use plutino_tensor::alloc::Ledger;

    const KEY: PackKey = PackKey {
        groups: 1,
        form: "test",
        sizes: [0; 3],
        isa: plutino_kernels::Isa::PORTABLE,
        precision: DType::F32,
    };

    fn zeros(n: usize) -> Result<Tensor, TensorError> {
        drop(Tensor::zeros(DType::U8, [n])?); // taken for a moment
        Tensor::zeros(DType::U8, [n])
    }

    #[test]
    fn each_user_is_charged_once_for_what_all_share() {
        let first = PackCache::default();
        let second = first.for_another();
        for user in [&first, &second] {
            let ledger = Ledger::new(Some(250));
            for _ in 0..3 {
                let got = alloc::charged(&ledger, || user.get("w", KEY, || zeros(100)));
                assert_eq!(got.unwrap().as_bytes().len(), 100);
            }
            assert_eq!((ledger.spent(), user.used_bytes(), user.bytes()), (100, 100, 100));
            // What packing takes for a moment must be there, too.
            let error = alloc::charged(&ledger, || user.get("v", KEY, || zeros(80))).unwrap_err();
            assert_eq!(error, TensorError::Budget { needed: 260, budget: 250 });
            assert_eq!((ledger.spent(), user.len()), (100, 1), "nothing is left of it");
        }
        drop(second.get("v", KEY, || zeros(10)).unwrap());
        assert_eq!((first.used_bytes(), second.used_bytes()), (100, 110));
        assert_eq!(PackCache::used_by_all([&first, &second].into_iter()), 110);
        let small = Ledger::new(Some(99));
        let third = first.for_another();
        assert!(alloc::charged(&small, || third.get("w", KEY, || zeros(100))).is_err());
        assert_eq!((small.spent(), third.used_bytes()), (0, 0));
    }

    #[test]
    fn models_share_what_they_have_in_common() {
        let first = PackCache::default();
        let second = first.for_another_model(["a".to_owned()]);
        let third = second.for_another_model(["a".to_owned(), "b".to_owned()]);
        let get = |user: &PackCache, weight| user.get(weight, KEY, || zeros(10)).unwrap();
        let of = |weight| [&first, &second, &third].map(|user| get(&user.for_another(), weight));
        let ([a, also_a, a_too], [b, other_b, same_b]) = (of("a"), of("b"));
        assert!(Arc::ptr_eq(&a, &also_a) && Arc::ptr_eq(&a, &a_too));
        assert!(!Arc::ptr_eq(&b, &other_b) && Arc::ptr_eq(&other_b, &same_b));
        assert_eq!([&first, &second, &third].map(PackCache::bytes), [20, 30, 30]);
        drop((a, also_a, a_too, other_b, same_b));
        third.release_unused();
        assert_eq!([&first, &second, &third].map(PackCache::len), [1, 1, 1], "b of the first");
        drop(b);
    }

    #[test]
    fn what_nobody_uses_can_be_released() {
        let model = PackCache::default();
        let (first, second) = (model.for_another(), model.for_another());
        for (user, weight) in [(&first, "a"), (&first, "b"), (&second, "b")] {
            drop(user.get(weight, KEY, || zeros(10)).unwrap());
        }
        model.release_unused();
        assert_eq!(model.bytes(), 20, "both have users");
        drop(first);
        model.release_unused();
        assert_eq!(model.bytes(), 10);
        drop(second);
        model.release_unused();
        assert!(model.is_empty());
    }

    #[test]
    fn threads_that_pack_the_same_keep_one() {
        let model = PackCache::default();
        let both = std::sync::Barrier::new(2);
        let pack = || {
            both.wait(); // nobody finds what the other makes
            zeros(10)
        };
        std::thread::scope(|scope| {
            let one = scope.spawn(|| model.get("w", KEY, pack).unwrap());
            let other = model.get("w", KEY, pack).unwrap();
            assert!(Arc::ptr_eq(&one.join().unwrap(), &other));
        });
    }
}

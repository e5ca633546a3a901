//! Spans for the crate `tracing`, with the feature of that name; without it, nothing at all.
//!
//! `plutino.load` and `plutino.plan` (info), the passes in the latter (`plutino.pass`, debug),
//! `plutino.run` (info), and its steps (`plutino.step`, trace). Tests of this crate have them
//! always.

#[cfg(any(feature = "tracing", test))]
pub(crate) use on::{load, pass, plan, run, step};

#[cfg(not(any(feature = "tracing", test)))]
pub(crate) use off::{load, pass, plan, run, step};

#[cfg(any(feature = "tracing", test))]
mod on {
    use crate::plan::{Plan, Step};
    use tracing::span::EnteredSpan;

    pub(crate) fn load(path: &std::path::Path) -> EnteredSpan {
        tracing::info_span!("plutino.load", file = %path.display()).entered()
    }

    pub(crate) fn plan(file: &str) -> EnteredSpan {
        tracing::info_span!("plutino.plan", file).entered()
    }

    pub(crate) fn pass(name: &str) -> EnteredSpan {
        tracing::debug_span!("plutino.pass", name).entered()
    }

    pub(crate) fn run(plan: &Plan) -> EnteredSpan {
        let (steps, arena) = (plan.steps.len(), plan.memory.arena);
        tracing::info_span!("plutino.run", steps, arena).entered()
    }

    pub(crate) fn step(at: usize, step: &Step) -> EnteredSpan {
        let (operator, kind) = (step.location.name.as_str(), step.location.kind.as_str());
        let kernel = step.kernel_name();
        tracing::trace_span!("plutino.step", step = at, operator, kind, kernel).entered()
    }
}

#[cfg(not(any(feature = "tracing", test)))]
mod off {
    use crate::plan::{Plan, Step};

    /// Stands for a span that nobody made.
    pub(crate) struct None;

    #[inline(always)]
    pub(crate) fn load(_: &std::path::Path) -> None {
        None
    }

    #[inline(always)]
    pub(crate) fn plan(_: &str) -> None {
        None
    }

    #[inline(always)]
    pub(crate) fn pass(_: &str) -> None {
        None
    }

    #[inline(always)]
    pub(crate) fn run(_: &Plan) -> None {
        None
    }

    #[inline(always)]
    pub(crate) fn step(_: usize, _: &Step) -> None {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{session, vector};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};
    use std::thread::ThreadId;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Notes the names of spans with their fields, and how deep inside others they were entered.
    #[derive(Default)]
    struct Notes {
        ids: AtomicU64,
        made: Mutex<Vec<String>>,
        entered: Mutex<Vec<(usize, String)>>,
        depth: Mutex<usize>,
    }

    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!(" {}={value:?}", field.name());
        }
    }

    /// The subscriber of all threads, which notes what one does. (One of this thread alone would be
    /// deaf to spans that another test comes to first meanwhile: tracing asks the subscriber of
    /// that test's thread whether they are wanted, and keeps the answer.)
    struct Shared(Arc<Notes>, ThreadId);

    impl Shared {
        fn is_meant(&self) -> bool {
            std::thread::current().id() == self.1
        }
    }

    impl Subscriber for Shared {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            if !self.is_meant() {
                return Id::from_u64(u64::MAX);
            }
            let mut text = Text(span.metadata().name().to_owned());
            span.record(&mut text);
            self.0.made.lock().unwrap().push(text.0);
            Id::from_u64(self.0.ids.fetch_add(1, Relaxed) + 1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, id: &Id) {
            if !self.is_meant() {
                return;
            }
            let mut depth = self.0.depth.lock().unwrap();
            let name = self.0.made.lock().unwrap()[id.into_u64() as usize - 1].clone();
            self.0.entered.lock().unwrap().push((*depth, name));
            *depth += 1;
        }
        fn exit(&self, _: &Id) {
            if self.is_meant() {
                *self.0.depth.lock().unwrap() -= 1;
            }
        }
    }

    #[test]
    fn plans_runs_and_steps_are_spans() {
        let notes = Arc::new(Notes::default());
        let shared = Shared(Arc::clone(&notes), std::thread::current().id());
        tracing::subscriber::set_global_default(shared).unwrap();
        let session = session(
            "pnnx.Input in 0 1 0
             test.Reverse r 1 1 0 1
             test.Scale s 1 1 1 2 by=2.0
             pnnx.Output o 1 0 2",
        );
        session.run(&[vector(&[1.0])]).unwrap();
        let entered = notes.entered.lock().unwrap();
        let at = |depth: usize, start: &str| {
            entered.iter().filter(|(d, name)| *d == depth && name.starts_with(start)).count()
        };
        assert_eq!((at(0, "plutino.plan"), at(0, "plutino.run")), (1, 1), "{entered:?}");
        assert_eq!(at(1, "plutino.pass name=\"fuse\""), 1, "{entered:?}");
        let step = "plutino.step step=1 operator=\"s\" kind=\"test.Scale\" kernel=\"scale\"";
        assert_eq!(at(1, step), 1, "{entered:?}");
    }
}

//! Runs do not allocate: after the first run for a shape, memory is all there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino::SessionOptions;
use plutino_tests::{fixture, inputs, model};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what each thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands every call on to the system's allocator, under the same conditions.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of one run on one thread that reuses the outputs of the run before.
fn allocations(name: &str) -> usize {
    let fixture = fixture(name);
    let inputs = inputs(&fixture);
    let session = model(&fixture).session(SessionOptions::default().with_threads(1)).unwrap();
    let mut outputs = session.run(&inputs).unwrap();
    session.run_into(&inputs, &mut outputs).unwrap();
    let before = ALLOCATIONS.get();
    session.run_into(&inputs, &mut outputs).unwrap();
    ALLOCATIONS.get() - before
}

#[test]
fn later_runs_do_not_allocate() {
    for name in ["digits", "resnet18", "mobilenet_v3_small", "squeezenet1_1"] {
        assert_eq!(allocations(name), 0, "{name}");
    }
}

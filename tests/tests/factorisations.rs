//! What factorisations of matrices take while they run counts towards the budget: a run within it
//! takes no more, although a library takes the memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino::ir::Graph;
use plutino::{DType, Model, SessionOptions, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counting what is taken and not given back. What is given back before
/// anything else is taken or given back does not count: so the system is asked whether there is so
/// much memory.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// The address of what was taken last.
static LAST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands every call on to the system's allocator, under the same conditions.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(LIVE.fetch_add(layout.size(), Relaxed), Relaxed);
        // SAFETY: the caller's promise is handed on.
        let memory = unsafe { System.alloc(layout) };
        LAST.store(memory.addr(), Relaxed);
        memory
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let live = LIVE.fetch_sub(layout.size(), Relaxed);
        if LAST.load(Relaxed) != ptr.addr() {
            MOST.fetch_max(live, Relaxed);
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The kinds, how many results they have, and whether they take matrices of any shape.
const KINDS: &[(&str, usize, bool)] = &[
    ("torch.inverse k 1 1 0 1", 1, false),
    ("torch.linalg.inv_ex k 1 2 0 1 2", 2, false),
    ("torch.det k 1 1 0 1", 1, false),
    ("torch.linalg.slogdet k 1 2 0 1 2", 2, false),
    ("torch.linalg.cholesky k 1 1 0 1", 1, false),
    ("torch.linalg.cholesky k 1 1 0 1 upper=True", 1, false),
    ("torch.linalg.cholesky_ex k 1 2 0 1 2", 2, false),
    ("torch.cholesky_inverse k 1 1 0 1", 1, false),
    ("torch.linalg.qr k 1 2 0 1 2", 2, true),
    ("torch.linalg.qr k 1 2 0 1 2 mode=complete", 2, true),
    ("torch.linalg.qr k 1 2 0 1 2 mode=r", 2, true),
    ("torch.linalg.svd k 1 3 0 1 2 3 full_matrices=False", 3, true),
    ("torch.linalg.svd k 1 3 0 1 2 3 full_matrices=True", 3, true),
    ("torch.linalg.svdvals k 1 1 0 1", 1, true),
    ("torch.linalg.matrix_rank k 1 1 0 1", 1, true),
    ("torch.linalg.pinv k 1 1 0 1", 1, true),
    ("torch.linalg.eigh k 1 2 0 1 2", 2, false),
    ("torch.linalg.eigvalsh k 1 1 0 1", 1, false),
    ("torch.linalg.eig k 1 2 0 1 2", 2, false),
    ("torch.linalg.eigvals k 1 1 0 1", 1, false),
    ("torch.linalg.lu_factor k 1 2 0 1 2", 2, true),
    ("torch.linalg.lu k 1 3 0 1 2 3", 3, true),
    ("torch.linalg.cond k 1 1 0 1", 1, true),
    ("torch.linalg.cond k 1 1 0 1 p=fro", 1, false),
    ("torch.linalg.cond k 1 1 0 1 p=nuc", 1, false),
    ("torch.matrix_exp k 1 1 0 1", 1, false),
    ("torch.linalg.solve k 2 1 0 0 1", 1, false),
    ("torch.linalg.solve k 2 1 0 0 1 left=False", 1, false),
    ("torch.linalg.solve_triangular k 2 1 0 0 1 upper=True", 1, false),
    ("torch.cholesky_solve k 2 1 0 0 1", 1, false),
    ("torch.cholesky_solve k 2 1 0 0 1 upper=True", 1, false),
    ("torch.linalg.lstsq k 2 4 0 0 1 2 3 4", 4, true),
    ("torch.linalg.lstsq k 2 4 0 0 1 2 3 4 driver=gelsd", 4, true),
];

/// Names, locations and the like of a run.
const SMALL: usize = 16 << 10;

fn model(line: &str, results: usize) -> Model {
    let mut lines = vec!["pnnx.Input a 0 1 0".to_owned(), line.to_owned()];
    lines.extend((1..=results).map(|i| format!("pnnx.Output o{i} 1 0 {i}")));
    let text = format!("7767517\n{} {}\n{}\n", lines.len(), results + 1, lines.join("\n"));
    Model::from_graph(Graph::parse(&text).unwrap()).unwrap()
}

/// Positive definite where it is square, and of full rank.
fn matrix(n: usize, m: usize, dtype: DType) -> Tensor {
    let element = |i: usize, j: usize| {
        let (i, j) = (i.min(j), i.max(j));
        let small = ((i * 31 + j * 17) % 23) as f64 / 23.0;
        if i == j { 2.0 * n.max(m) as f64 } else { small }
    };
    let elements: Vec<f64> = (0..n * m).map(|at| element(at / m, at % m)).collect();
    Tensor::from_vec(elements, [n, m]).unwrap().cast(dtype).unwrap()
}

#[test]
fn what_they_take_is_counted_before_it_is_taken() {
    let mut wrong = Vec::new();
    for (line, results, any) in KINDS {
        let model = model(line, *results);
        let sizes: &[(usize, usize)] =
            if *any { &[(96, 96), (160, 40), (40, 160)] } else { &[(96, 96)] };
        for (&(n, m), dtype) in sizes.iter().zip([DType::F64, DType::F32, DType::F64]) {
            let input = [matrix(n, m, dtype)];
            let session = |budget: Option<usize>| {
                let options = SessionOptions::default().with_threads(1);
                let options = match budget {
                    Some(bytes) => options.with_memory_budget(bytes),
                    None => options,
                };
                model.session(options).unwrap()
            };
            // What a second run has at one time: arena and plan are there.
            let free = session(None);
            let planned = free.plan(&[input[0].spec()]).unwrap().memory().total();
            drop(free.run(&input).unwrap());
            let before = LIVE.load(Relaxed);
            MOST.store(before, Relaxed);
            drop(free.run(&input).unwrap()); // what is dropped counts
            let took = MOST.load(Relaxed) - before;
            // The least budget that suffices.
            let enough = |budget: usize| match session(Some(budget)).run(&input) {
                Ok(_) => true,
                Err(error) => {
                    assert!(error.is_limit(), "{line} {n} x {m}: {error}");
                    false
                }
            };
            let (mut least, mut most) = (0, planned + 8 * took);
            assert!(enough(most), "{line} {n} x {m}: {most} bytes, and it takes {took}");
            while most - least > SMALL / 4 {
                let middle = least.midpoint(most);
                if enough(middle) { most = middle } else { least = middle }
            }
            let at = format!("{line} {n} x {m}: takes {took}, planned {planned}, counted {most}");
            if most + SMALL < took || most > planned + 2 * took + SMALL {
                wrong.push(at);
            } else if std::env::var_os("PLUTINO_FACTORISATIONS").is_some() {
                println!("{at}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

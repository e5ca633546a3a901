//! Running a program: tiles over threads, steps over each tile.

use super::ElementwiseError;
use super::chunks::{BinaryOf, SelectOf, UnaryOf};
use super::nest::{LoopNest, TILE, Tile};
use super::op::Domain;
use super::program::{Action, Operand, Program, Step};
use super::steps::{
    BinaryF32, Converted, EachElement, From, Held, Kept, Loaded, Narrowed, NotZero, Rounded,
    SelectF32, To, Truth, UnaryF32, Widened, Wrapped, any_zero,
};
use crate::extent::elements;
use crate::par::stop;
use crate::{Isa, Par, for_numbers, for_types};
use half::{bf16, f16};
use num_complex::Complex;
use plutino_tensor::{DType, Element};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Work of a task, in additions, below which handing it to another thread does not pay.
const GRAIN: usize = 32 * 1024;
/// Work of a task between two looks whether it is to end.
const LOOK: usize = 4 * GRAIN;

/// Where an input of a program lies.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// In memory of its own: dense, row-major.
    Bytes(&'a [u8]),
    /// Where the result will lie: it is computed in place.
    Result,
}

impl<'a> Source<'a> {
    /// An input in a slice.
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        Self::Bytes(bytemuck::cast_slice(elements))
    }
}

/// Memory of a run, checked against program and nest.
struct Memory<'a> {
    program: &'a Program,
    nest: &'a LoopNest,
    isa: Isa,
    inputs: SmallVec<[*const u8; 8]>,
    result: *mut u8,
    scratch: *mut u8,
    /// Whether an integer was divided by zero.
    zero_division: AtomicBool,
}

// SAFETY: tasks read inputs, and write disjoint tiles of the result and registers of their own
// worker.
unsafe impl Sync for Memory<'_> {}

impl Program {
    /// Bytes of scratch memory that [`Program::run`] needs with this many threads.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        self.worker_scratch().saturating_mul(threads.max(1))
    }

    fn worker_scratch(&self) -> usize {
        self.registers * TILE * self.width
    }

    /// Computes the result: dense, row-major. Its bytes have the alignment of the dtype, as those
    /// of every input; `scratch` has that of f64 where it is needed at all.
    ///
    /// # Errors
    /// Where sizes do not fit, or an integer is divided by zero.
    pub fn run(
        &self,
        isa: Isa,
        par: &Par,
        nest: &LoopNest,
        inputs: &[Source<'_>],
        result: &mut [u8],
        scratch: &mut [u8],
    ) -> Result<(), ElementwiseError> {
        let expect = |what, found: usize, expected: usize| {
            if found == expected {
                Ok(())
            } else {
                Err(ElementwiseError::Size { what, expected, found })
            }
        };
        let misaligned = |address: usize, dtype: DType| address % dtype.size_of().min(8);
        expect("inputs", inputs.len(), self.inputs.len())?;
        expect("inputs of the loop nest", nest.input_count(), self.inputs.len())?;
        let bytes = |numel, dtype: DType| elements([numel, dtype.size_of()]).unwrap_or(usize::MAX);
        expect("bytes of the result", result.len(), bytes(nest.numel(), self.dtype))?;
        let result_ptr = result.as_mut_ptr();
        expect("misaligned bytes of the result", misaligned(result_ptr.addr(), self.dtype), 0)?;
        let mut pointers = SmallVec::new();
        for (i, (input, &dtype)) in inputs.iter().zip(&self.inputs).enumerate() {
            pointers.push(match input {
                Source::Bytes(data) => {
                    expect("bytes of an input", data.len(), bytes(nest.input_numel(i), dtype))?;
                    expect(
                        "misaligned bytes of an input",
                        misaligned(data.as_ptr().addr(), dtype),
                        0,
                    )?;
                    data.as_ptr()
                }
                Source::Result => {
                    expect("elements of an input in place", nest.input_numel(i), nest.numel())?;
                    let (expected, found) = (self.dtype.size_of(), dtype.size_of());
                    expect("bytes of an element of an input in place", found, expected)?;
                    result_ptr.cast_const()
                }
            });
        }
        let workers = par.threads();
        if scratch.len() < self.scratch_bytes(workers) {
            let (expected, found) = (self.scratch_bytes(workers), scratch.len());
            return Err(ElementwiseError::Size {
                what: "bytes of scratch memory",
                expected,
                found,
            });
        }
        if self.registers > 0 {
            expect(
                "misaligned bytes of scratch",
                misaligned(scratch.as_ptr().addr(), DType::F64),
                0,
            )?;
        }
        let memory = Memory {
            program: self,
            nest,
            isa,
            inputs: pointers,
            result: result_ptr,
            scratch: scratch.as_mut_ptr(),
            zero_division: AtomicBool::new(false),
        };
        let tiles = nest.tiles();
        let cost = self.cost().saturating_mul(nest.tile_len()).max(1);
        let grain = GRAIN.div_ceil(cost).max(tiles.div_ceil(workers * 4)).max(1);
        par.run_as(tiles.div_ceil(grain), |worker, task| {
            let part = LOOK.div_ceil(cost);
            for tiles in stop::parts(task * grain..((task + 1) * grain).min(tiles), part) {
                tiles.for_each(|tile| memory.tile(worker, &nest.tile(tile)));
            }
        });
        if memory.zero_division.load(Relaxed) {
            return Err(ElementwiseError::ZeroDivision);
        }
        Ok(())
    }
}

/// Evaluates `$body` with `$T` bound to the type that registers of a domain hold; that of f32 may
/// have a body of its own.
macro_rules! for_domain {
    ($domain:expr, $T:ident => $body:expr) => {
        for_domain!($domain, $T => $body, F32 => {
            type $T = f32;
            $body
        })
    };
    ($domain:expr, $T:ident => $body:expr, F32 => $of_f32:expr) => {
        match $domain {
            Domain::F32 => $of_f32,
            Domain::F64 => {
                type $T = f64;
                $body
            }
            Domain::I32 => {
                type $T = i32;
                $body
            }
            Domain::I64 => {
                type $T = i64;
                $body
            }
            Domain::C128 => {
                type $T = Complex<f64>;
                $body
            }
        }
    };
}

/// Evaluates `$body` with `$T` bound to bf16, or to f16.
macro_rules! for_half {
    ($dtype:expr, $T:ident => $body:expr) => {
        for_types!($dtype, $T => $body, _ => { type $T = f16; $body }; Bf16 bf16)
    };
}

impl Memory<'_> {
    #[inline]
    fn tile(&self, worker: usize, tile: &Tile) {
        let at = At { memory: self, worker, tile };
        for step in &self.program.steps {
            at.step(step);
        }
    }
}

/// A tile in the hands of a worker.
struct At<'a> {
    memory: &'a Memory<'a>,
    worker: usize,
    tile: &'a Tile,
}

impl At<'_> {
    fn register(&self, number: usize) -> *mut u8 {
        let program = self.memory.program;
        let offset = self.worker * program.worker_scratch() + number * TILE * program.width;
        // SAFETY: `worker` is below the number of threads and `number` below the program's
        // registers, so the offset lies in scratch memory, whose size `run` has checked.
        unsafe { self.memory.scratch.add(offset) }
    }

    /// The tile of an input whose elements are `T`.
    fn input<T>(&self, number: usize) -> From<T> {
        let memory = self.memory;
        let (start, down, across) = memory.nest.input_at(number, self.tile);
        // SAFETY: the nest addresses elements of the input only, whose size `run` has checked.
        let ptr = unsafe { memory.inputs[number].cast::<T>().add(start) };
        From { ptr, down, across }
    }

    /// The tile of an operand of a domain that holds `T`.
    fn operand<T: Held>(&self, operand: Operand) -> From<T> {
        match operand {
            Operand::Input(i) => self.input(i),
            Operand::Register(r) => {
                From { ptr: self.register(r).cast_const().cast(), down: self.tile.cols, across: 1 }
            }
            Operand::Constant(k) => {
                let constant = T::constant(&self.memory.program.constants[k]);
                From { ptr: constant, down: 0, across: 0 }
            }
        }
    }

    fn to<T>(&self, target: Option<usize>) -> To<T> {
        match target {
            Some(r) => To { ptr: self.register(r).cast(), down: self.tile.cols },
            None => {
                let (start, down) = self.memory.nest.result_at(self.tile);
                // SAFETY: the tile lies in the result, whose size `run` has checked.
                To { ptr: unsafe { self.memory.result.cast::<T>().add(start) }, down }
            }
        }
    }

    fn step(&self, step: &Step) {
        let size = (self.tile.rows, self.tile.cols);
        let [a, b, c] = step.operands;
        let target = step.target;
        let isa = self.memory.isa;
        // SAFETY, for all that follows: operands and target are tiles of this size in inputs,
        // constants, registers and the result, in bounds as stated where their pointers are made,
        // and aligned as `run` has checked. Registers hold elements of the domain: the compiler of
        // the program only lets steps read what a step of that domain wrote. A register is never
        // target and operand at once. The result may lie where an input lies, whole and in the same
        // order (checked by `run`).
        match step.action {
            Action::Unary(domain, op) => for_domain!(domain, T => {
                let (x, to) = (self.operand::<T>(a), self.to(target));
                isa.run(UnaryOf { op, size, x, to });
            }, F32 => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(UnaryF32 { op, size, x, to });
            }),
            Action::Binary(domain, op) => for_domain!(domain, T => {
                let (a, b, to) = (self.operand::<T>(a), self.operand(b), self.to(target));
                // SAFETY: above.
                if domain.is_integer() && op.divides() && unsafe { any_zero(size, b) } {
                    self.memory.zero_division.store(true, Relaxed);
                }
                isa.run(BinaryOf { op, size, a, b, to });
            }, F32 => {
                let (a, b, to) = (self.operand(a), self.operand(b), self.to(target));
                isa.run(BinaryF32 { op, size, a, b, to });
            }),
            Action::Select(domain) => for_domain!(domain, T => {
                let parts = [a, b, c].map(|x| self.operand::<T>(x));
                isa.run(SelectOf { size, parts, to: self.to(target) });
            }, F32 => {
                let parts = [a, b, c].map(|x| self.operand(x));
                isa.run(SelectF32 { size, parts, to: self.to(target) });
            }),
            Action::Convert(from, to) => for_domain!(from, A => for_domain!(to, B => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(EachElement::<Converted<A, B>> { size, x, to });
            })),
            Action::Load(DType::Bool, input) => {
                isa.run(EachElement::<Truth> { size, x: self.input(input), to: self.to(target) });
            }
            Action::Load(dtype @ (DType::F16 | DType::Bf16), input) => for_half!(dtype, T => {
                let (x, to) = (self.input(input), self.to(target));
                isa.run(EachElement::<Widened<T>> { size, x, to });
            }),
            Action::Round(dtype @ (DType::F16 | DType::Bf16)) => for_half!(dtype, T => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(EachElement::<Rounded<T>> { size, x, to });
            }),
            Action::Store(Domain::F32, dtype @ (DType::F16 | DType::Bf16)) => {
                for_half!(dtype, T => {
                    let (x, to) = (self.operand(a), self.to(target));
                    isa.run(EachElement::<Narrowed<T>> { size, x, to });
                })
            }
            Action::Load(dtype, input) => for_numbers!(dtype, T => {
                let (x, to) = (self.input(input), self.to(target));
                isa.run(EachElement::<Loaded<T>> { size, x, to });
            }),
            Action::Round(dtype) => for_numbers!(dtype, T => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(EachElement::<Wrapped<T>> { size, x, to });
            }),
            Action::Store(domain, DType::Bool) => for_domain!(domain, T => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(EachElement::<NotZero<T>> { size, x, to });
            }),
            Action::Store(_, dtype) => for_numbers!(dtype, T => {
                let (x, to) = (self.operand(a), self.to(target));
                isa.run(EachElement::<Kept<T>> { size, x, to });
            }),
        }
    }
}

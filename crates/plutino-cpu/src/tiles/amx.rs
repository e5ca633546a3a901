//! Intel's AMX: tiles as registers, by inline assembly, since the compiler's intrinsics are not
//! stable.
//!
//! Written to Intel's manual (Architecture Instruction Set Extensions Programming Reference,
//! 319433, chapter "Intel AMX"); where a unit is found it is tried against the emulation before it
//! is used (`TileUnit::of_cpu`). The tiles: 0 to 3 are C (row by row of tiles), 4 and 5 A, 6 and 7
//! B.

use super::{BLOCK, Block, Operands, TILE, Terms};
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;

/// Whether the CPU has tiles of bf16, the system saves them, and this process may use them. Asks
/// for the permission, which all threads share.
pub(super) fn is_permitted() -> bool {
    const TILE_STATE: u64 = 0b11 << 17;
    const OSXSAVE: u32 = 1 << 27;
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    if !is_x86_feature_detected!("avx512f") || leaf(0, 0).0 < 7 {
        return false;
    }
    if leaf(1, 0).1 & OSXSAVE == 0 || leaf(7, 0).2 & BF16_AND_TILES != BF16_AND_TILES {
        return false;
    }
    let (low, high): (u32, u32);
    // SAFETY: the system has enabled XGETBV (OSXSAVE).
    unsafe {
        asm!(
            "xgetbv", in("ecx") 0, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags)
        );
    }
    (u64::from(low) | u64::from(high) << 32) & TILE_STATE == TILE_STATE && permission()
}

/// EAX, ECX and EDX of a leaf.
#[allow(unused_unsafe)] // newer compilers know that it is safe
fn leaf(leaf: u32, sub: u32) -> (u32, u32, u32) {
    // SAFETY: every CPU of this architecture has the instruction; leaves that it lacks are zeros or
    // those of its last one, and the caller asked for the last.
    let found = unsafe { __cpuid_count(leaf, sub) };
    (found.eax, found.ecx, found.edx)
}

/// Asks Linux for the state of tiles (`arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`).
fn permission() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: a call of the system that reads and writes no memory of ours. It clobbers what is
    // named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result == 0
}

/// What `ldtilecfg` reads: palette 1, and bytes of a row and rows of each tile.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Rows of 64 bytes: so many of them in tiles of A and C, 16 in those of B.
    const fn of(rows: u8) -> Self {
        let (a, b) = (rows, TILE as u8);
        Self {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [a, a, a, a, a, a, b, b, 0, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Tiles of this thread until it is dropped. (A thread whose tiles are not released has 8 KiB saved
/// at each switch.)
pub(super) struct Configured(());

impl Configured {
    /// Tiles of A and C have `rows` rows.
    ///
    /// # Safety
    /// [`is_permitted`] holds; rows are 1 to 16.
    pub(super) unsafe fn new(rows: usize) -> Self {
        let config = &Config::of(rows as u8);
        // SAFETY: the CPU has the instruction (precondition), which reads 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) config, options(readonly, nostack, preserves_flags));
        }
        Self(())
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: there is one where the CPU has the instruction.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// Zeros in the tiles of C. What they hold stays there from one statement to the next: no other
/// code has registers of this kind.
///
/// # Safety
/// Tiles of this thread are [`Configured`].
#[inline(always)]
pub(super) unsafe fn clear() {
    // SAFETY: precondition.
    unsafe {
        asm!(
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// Stores the tiles of C.
///
/// # Safety
/// As [`clear`].
#[inline(always)]
pub(super) unsafe fn store(c: &mut Block) {
    // SAFETY: precondition; what is written are the four quarters of `c`.
    unsafe {
        asm!(
            "tilestored [{c} + {row}*1], tmm0",
            "tilestored [{c} + {row}*1 + 64], tmm1",
            "tilestored [{c} + {row}*1 + 2048], tmm2",
            "tilestored [{c} + {row}*1 + 2112], tmm3",
            row = in(reg) BLOCK * size_of::<f32>(),
            c = in(reg) c.0.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
}

/// Adds the products of some steps, one at least, to the tiles of C: steps `from` on of the
/// operands.
///
/// # Safety
/// As [`clear`]; `operands.check()` holds for the rows of the tiles, and the steps exist.
#[inline(always)]
pub(super) unsafe fn add(operands: Operands<'_>, from: usize, count: usize) {
    let Operands { a, first, stride, term, steps, b, ahead, terms, .. } = operands;
    let size = size_of::<u32>();
    let (steps, words) = (steps.as_ptr().wrapping_add(from), from * terms.step() * BLOCK);
    let ahead = match ahead {
        [] => None,
        _ => Some(ahead.as_ptr().addr().wrapping_sub(b.as_ptr().addr())),
    };
    let b = b.as_ptr().wrapping_add(words);
    let [upper, lower] = [a.as_ptr().wrapping_add(first[0]), a.as_ptr().wrapping_add(first[1])];
    // Lines of what comes next are fetched by eights, after each tile of B; from 16 rows of two
    // lines half of them.
    macro_rules! fetch {
        ($($at:literal)+) => {
            concat!(
                ".irp k, 0, 64, 128, 192, 256, 320, 384, 448\n",
                "prefetcht1 [{b} + {ahead}*1 + \\k", $(" + ", $at,)+ "]\n",
                ".endr\n"
            )
        };
    }
    // Tiles are loaded as they are wanted, A's from the term that `u` and `l` point to, B's from so
    // many bytes on.
    macro_rules! load {
        (a 0) => {
            "tileloadd tmm4, [{u} + {stride}*1]\n"
        };
        (a 1) => {
            "tileloadd tmm5, [{l} + {stride}*1]\n"
        };
        (b 0 $at:literal alone) => {
            concat!("tileloadd tmm6, [{b} + {row}*1 + ", $at, "]\n")
        };
        (b 1 $at:literal alone) => {
            concat!("tileloadd tmm7, [{b} + {row}*1 + ", $at, " + 64]\n")
        };
        (b 0 $at:literal fetch) => {
            concat!(load!(b 0 $at alone), fetch!($at))
        };
        (b 1 $at:literal fetch) => {
            concat!(load!(b 1 $at alone), fetch!(1024 $at))
        };
    }
    macro_rules! product {
        (0 0) => {
            "tdpbf16ps tmm0, tmm4, tmm6\n"
        };
        (0 1) => {
            "tdpbf16ps tmm1, tmm4, tmm7\n"
        };
        (1 0) => {
            "tdpbf16ps tmm2, tmm5, tmm6\n"
        };
        (1 1) => {
            "tdpbf16ps tmm3, tmm5, tmm7\n"
        };
    }
    // The four products where both operands are new, or one of them.
    macro_rules! both {
        ($at:literal $how:ident) => {
            concat!(
                load!(a 0), load!(b 0 $at $how), product!(0 0), load!(b 1 $at $how), product!(0 1),
                load!(a 1), product!(1 0), product!(1 1)
            )
        };
    }
    macro_rules! new_a {
        () => {
            concat!(
                load!(a 0), product!(0 0), product!(0 1), load!(a 1), product!(1 0), product!(1 1)
            )
        };
    }
    macro_rules! new_b {
        ($at:literal $how:ident) => {
            concat!(
                load!(b 0 $at $how), product!(0 0), product!(1 0), load!(b 1 $at $how), product!(0 1),
                product!(1 1)
            )
        };
    }
    macro_rules! move_a {
        ($how:literal) => {
            concat!($how, " {u}, {term}\n", $how, " {l}, {term}\n")
        };
    }
    macro_rules! block {
        ($b_step:literal: $($part:expr),*) => {
            // SAFETY: tiles are configured (precondition). Loads read rows of 64 bytes of operands
            // that are as long as that in each step (`Operands::check`); `steps` is read so many
            // times.
            unsafe { asm!(
                "2:",
                "mov {l}, [{steps}]",
                "lea {u}, [{upper} + {l}*4]",
                "lea {l}, [{lower} + {l}*4]",
                concat!($($part),*),
                "add {steps}, 8",
                concat!("add {b}, ", $b_step),
                "dec {count}",
                "jnz 2b",
                upper = in(reg) upper,
                lower = in(reg) lower,
                u = out(reg) _,
                l = out(reg) _,
                stride = in(reg) stride * size,
                term = in(reg) term * size,
                steps = inout(reg) steps => _,
                count = inout(reg) count => _,
                b = inout(reg) b => _,
                ahead = in(reg) ahead.unwrap_or(0),
                row = in(reg) BLOCK * size,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly),
            ) }
        };
    }
    // Terms of B are 16 rows of 128 bytes. The order is that of `Terms::products`.
    macro_rules! terms {
        ($how:ident) => {
            match terms {
                Terms::One => block!("2048": both!("0" $how), "# {term} {ahead}\n"),
                Terms::Two => block!(
                    "4096":
                    both!("2048" $how), // (0, 1)
                    move_a!("add"),
                    both!("0" $how), // (1, 0)
                    move_a!("sub"),
                    new_a!(), // (0, 0)
                    "# {ahead}\n"
                ),
                Terms::Three => block!(
                    "6144":
                    both!("4096" $how), // (0, 2)
                    new_b!("2048" $how), // (0, 1)
                    move_a!("add"),
                    new_a!(), // (1, 1)
                    new_b!("0" $how), // (1, 0)
                    move_a!("add"),
                    new_a!(), // (2, 0)
                    move_a!("sub"),
                    move_a!("sub"),
                    new_a!(), // (0, 0)
                    "# {ahead}\n"
                ),
            }
        };
    }
    match ahead {
        None => terms!(alone),
        Some(_) => terms!(fetch),
    }
}

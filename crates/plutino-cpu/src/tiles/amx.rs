//! Intel's AMX: tiles as registers, by inline assembly, since the compiler's intrinsics are not
//! stable.
//!
//! Written to Intel's manual (Architecture Instruction Set Extensions Programming Reference,
//! 319433, chapter "Intel AMX"); where a unit is found it is tried against the emulation before it
//! is used (`TileUnit::of_cpu`). The tiles: 0 to 3 are C (row by row of tiles), 4 and 5 A, 6 and 7
//! B.

use super::{BLOCK, Block, Operands, Terms};
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

const CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Tiles of this thread, all of 16 rows of 64 bytes, until it is dropped. (A thread whose tiles are
/// not released has 8 KiB saved at each switch.)
pub(super) struct Configured(());

impl Configured {
    /// # Safety
    /// [`is_permitted`] holds.
    pub(super) unsafe fn new() -> Self {
        let config = &CONFIG;
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

/// A block of C. All of its steps are one statement: tiles are no registers that the compiler would
/// keep from one to the next.
///
/// # Safety
/// Tiles of this thread are [`Configured`]; `operands.check()` holds.
pub(super) unsafe fn multiply(operands: Operands<'_>, c: &mut Block) {
    let Operands { a, stride, b, steps, terms } = operands;
    let size = size_of::<u32>();
    let upper = a.as_ptr();
    let lower = a.as_ptr().wrapping_add(BLOCK / 2 * stride);
    // Loads of the tiles of term `$at` (in bytes from the step's first), and the four products of
    // what is loaded.
    macro_rules! a {
        ($at:literal) => {
            concat!(
                "tileloadd tmm4, [{upper} + {stride}*1 + ",
                $at,
                "]\n",
                "tileloadd tmm5, [{lower} + {stride}*1 + ",
                $at,
                "]\n"
            )
        };
    }
    macro_rules! b {
        ($at:literal) => {
            concat!(
                "tileloadd tmm6, [{b} + {row}*1 + ",
                $at,
                "]\n",
                "tileloadd tmm7, [{b} + {row}*1 + ",
                $at,
                " + 64]\n"
            )
        };
    }
    macro_rules! products {
        () => {
            concat!(
                "tdpbf16ps tmm0, tmm4, tmm6\n",
                "tdpbf16ps tmm1, tmm4, tmm7\n",
                "tdpbf16ps tmm2, tmm5, tmm6\n",
                "tdpbf16ps tmm3, tmm5, tmm7\n"
            )
        };
    }
    macro_rules! block {
        ($($part:expr),*) => {
            // SAFETY: tiles are configured (precondition). Loads read 16 rows of 64 bytes of
            // operands that are as long as that in each step (`Operands::check`), stores write the
            // four quarters of `c`.
            unsafe { asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "test {steps}, {steps}",
                "jz 3f",
                "2:",
                concat!($($part),*),
                "add {upper}, {a_step}",
                "add {lower}, {a_step}",
                "add {b}, {b_step}",
                "dec {steps}",
                "jnz 2b",
                "3:",
                "tilestored [{c} + {row}*1], tmm0",
                "tilestored [{c} + {row}*1 + 64], tmm1",
                "tilestored [{c} + {row}*1 + 2048], tmm2",
                "tilestored [{c} + {row}*1 + 2112], tmm3",
                upper = inout(reg) upper => _,
                lower = inout(reg) lower => _,
                stride = in(reg) stride * size,
                b = inout(reg) b.as_ptr() => _,
                row = in(reg) BLOCK * size,
                a_step = in(reg) terms.step() * size,
                b_step = in(reg) terms.step() * BLOCK * size,
                steps = inout(reg) steps => _,
                c = in(reg) c.0.as_mut_ptr(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            ) }
        };
    }
    // Terms of A are 64 bytes apart, those of B 16 rows of 128 bytes. The order is that of
    // `Terms::products`.
    match terms {
        Terms::One => block!(a!("0"), b!("0"), products!()),
        Terms::Two => block!(
            a!("0"),
            b!("2048"),
            products!(), // (0, 1)
            a!("64"),
            b!("0"),
            products!(), // (1, 0)
            a!("0"),
            products!() // (0, 0)
        ),
        Terms::Three => block!(
            a!("0"),
            b!("4096"),
            products!(), // (0, 2)
            b!("2048"),
            products!(), // (0, 1)
            a!("64"),
            products!(), // (1, 1)
            b!("0"),
            products!(), // (1, 0)
            a!("128"),
            products!(), // (2, 0)
            a!("0"),
            products!() // (0, 0)
        ),
    }
}

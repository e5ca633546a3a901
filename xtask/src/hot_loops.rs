//! `cargo xtask hot-loops`: the machine code of the loops in which kernels spend their time.
//!
//! A function that is not inlined into such a loop puts every sum on the stack, twice for each
//! step: the result is right and takes several times as long, which no test of results sees. This
//! reads the code of a built program and fails where that has happened.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::frames::functions;

/// Search the innermost loops of a program's vector kernels for calls and for sums on the stack.
///
/// The kernels are compiled for this program, too, as they ship.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program [default: this one].
    program: Option<PathBuf>,
}

/// Functions that kernels are compiled into, one for each kernel and instruction set.
const KERNELS: [&str; 4] = ["run_avx2", "outlined_avx2", "run_avx512", "outlined_avx512"];

/// Multiply-adds of a loop that counts, and how many of its instructions they are, in percent.
const FEWEST: usize = 6;
const DENSE: usize = 35;

/// Share of multiply-adds, in percent, above which a loop with AVX-512 is a register tile: all its
/// sums fit the 32 registers. (AVX2 has 16, and some of its tiles want one or two more.)
const TILE: usize = 42;

/// An innermost loop with many multiply-adds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Loop {
    instructions: usize,
    multiply_adds: usize,
    calls: usize,
    /// Vectors that are loaded from the stack, or stored there.
    spills: usize,
    /// Whether it uses registers of 512 bits.
    wide: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = args.program.clone().map_or_else(std::env::current_exe, Ok)?;
    check(&program)
}

fn check(program: &Path) -> Result<()> {
    let file = std::fs::read(program).with_context(|| program.display().to_string())?;
    let Some(functions) = functions(&file)? else {
        println!("{}: not an ELF file for x86-64, loops are not checked", program.display());
        return Ok(());
    };
    let kernels = functions.iter().filter(|f| KERNELS.iter().any(|name| f.name.contains(name)));
    let (mut count, mut tiles, mut spilling, mut found) = (0, 0, 0, Vec::new());
    for kernel in kernels {
        for one in loops(kernel.code) {
            let dense = one.multiply_adds * 100 >= one.instructions * DENSE;
            if one.multiply_adds < FEWEST || !dense {
                continue;
            }
            let tile = one.wide && one.multiply_adds * 100 >= one.instructions * TILE;
            count += 1;
            tiles += usize::from(tile);
            spilling += usize::from(one.spills > 0);
            if one.calls > 0 || (tile && one.spills > 0) {
                found.push(format!("{}: {one:?}", kernel.name));
            }
        }
    }
    // An instruction that became a function is called where the instruction set is not known: most
    // often from a closure that was not inlined.
    let alone = functions.iter().filter(|f| is_instruction(f.name));
    found.extend(alone.map(|f| format!("{}: an instruction that is called", f.name)));
    println!(
        "{count} loops of multiply-adds, {tiles} of them tiles with AVX-512; {spilling} keep a sum on \
         the stack"
    );
    ensure!(count >= 100 && tiles >= 20, "kernels not found: has the program symbols?");
    if found.is_empty() {
        return Ok(());
    }
    bail!(
        "calls of instructions, calls in loops of multiply-adds, or sums on the stack:\n{}",
        found.join("\n")
    )
}

/// Whether a function is one of the compiler's for instructions on vectors.
fn is_instruction(name: &str) -> bool {
    name.contains("core_arch") && (name.contains("_mm512_") || name.contains("_mm256_"))
}

/// The innermost loops of a function: from the target of a jump backwards to the jump, with no such
/// loop inside.
fn loops(code: &[u8]) -> Vec<Loop> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.iter().collect();
    let at = |ip: u64| all.binary_search_by_key(&ip, Instruction::ip).ok();
    let back = |(end, instruction): (usize, &Instruction)| {
        let jump = matches!(
            instruction.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let start = jump.then(|| at(instruction.near_branch_target())).flatten()?;
        (start <= end).then_some((start, end))
    };
    let mut ranges: Vec<(usize, usize)> = all.iter().enumerate().filter_map(back).collect();
    ranges.sort_unstable_by_key(|&(start, end)| (end, std::cmp::Reverse(start)));
    let mut innermost: Vec<(usize, usize)> = Vec::new();
    for (start, end) in ranges {
        // In order of their ends: what lies inside has come before.
        if innermost.last().is_none_or(|&(inner, _)| inner < start) {
            innermost.push((start, end));
        }
    }
    innermost.into_iter().map(|(start, end)| count(&all[start..=end])).collect()
}

fn count(body: &[Instruction]) -> Loop {
    let mut counted = Loop { instructions: body.len(), ..Loop::default() };
    for instruction in body {
        let call =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        counted.calls += usize::from(call);
        counted.multiply_adds += usize::from(is_multiply_add(instruction.mnemonic()));
        let vector = |i: u32| {
            instruction.op_kind(i) == OpKind::Register
                && instruction.op_register(i).is_vector_register()
        };
        let vectors = (0..instruction.op_count()).any(vector);
        let stack = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
            && instruction.memory_base() == Register::RSP;
        counted.spills += usize::from(vectors && stack);
        counted.wide |=
            (0..instruction.op_count()).any(|i| vector(i) && instruction.op_register(i).is_zmm());
    }
    counted
}

/// Of packed or scalar f32, with any order of operands, added or subtracted.
fn is_multiply_add(mnemonic: Mnemonic) -> bool {
    let name = format!("{mnemonic:?}");
    ["Vfmadd", "Vfmsub", "Vfnmadd", "Vfnmsub"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `vfmadd231ps zmm0, zmm1, zmm2`
    const FMA: [u8; 6] = [0x62, 0xf2, 0x75, 0x48, 0xb8, 0xc2];
    /// `vmovups [rsp + 64], zmm0`
    const SPILL: [u8; 8] = [0x62, 0xf1, 0x7c, 0x48, 0x11, 0x44, 0x24, 0x01];
    /// `jne` back over so many bytes before it.
    fn jump(back: usize) -> [u8; 2] {
        [0x75, (-(back as i8) - 2) as u8]
    }

    #[test]
    fn innermost_loops_are_counted() {
        // An outer loop around two others, of which one calls.
        let first = [&FMA[..], &FMA, &jump(12)].concat();
        let call = [0xe8, 0, 0, 0, 0];
        let second = [&FMA[..], &SPILL, &call, &jump(19)].concat();
        let inner = [&[0x90][..], &first, &second].concat();
        let code = [&inner[..], &jump(inner.len()), &[0xc3]].concat();
        let one = Loop { instructions: 3, multiply_adds: 2, wide: true, ..Loop::default() };
        let other = Loop { instructions: 4, multiply_adds: 1, calls: 1, spills: 1, wide: true };
        assert_eq!(loops(&code), [one, other]);
        assert_eq!(loops(&[0xc3]), []);
    }
}

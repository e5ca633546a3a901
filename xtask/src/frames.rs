//! Stack frames of a built program, read from its machine code.
//!
//! Threads have 2 MiB of stack by default, and in a program that is not optimised each intermediate
//! value of a function has a place of its own in its frame. No function may take more than [`MOST`]
//! bytes.

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::path::Path;

/// Bytes of the largest frame allowed: an eighth of a thread's stack.
const MOST: u64 = 256 << 10;

/// Bytes of a function in which its frame is made. Large frames are touched page by page, written
/// out for a few pages.
const PROLOGUE: usize = 192;

/// A function of the program.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) code: &'a [u8],
}

/// Fails where a function of `program` has a frame that is too large. Other machines than x86-64
/// with ELF files are not looked at.
pub(crate) fn check(program: &Path) -> Result<()> {
    let file = std::fs::read(program).with_context(|| program.display().to_string())?;
    let Some(functions) = functions(&file)? else {
        println!("{}: not an ELF file for x86-64, frames are not checked", program.display());
        return Ok(());
    };
    let mut frames: Vec<(u64, String)> =
        functions.iter().map(|f| (frame(f.code), readable(f.name))).collect();
    frames.sort_unstable_by(|a, b| b.cmp(a));
    frames.dedup();
    // The standard library alone has thousands; and some of ours are above this in any unoptimised
    // build.
    let large = frames.iter().filter(|(size, _)| *size >= 16 << 10).count();
    ensure!(functions.len() >= 1000 && large > 0, "no frames found: has the program symbols?");
    let (largest, name) = frames.first().context("no functions")?;
    println!("largest frame of {} functions: {largest} bytes, {name}", functions.len());
    let found: Vec<String> = frames
        .iter()
        .take_while(|(size, _)| *size > MOST)
        .map(|(size, name)| format!("{size:>9} {name}"))
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    bail!("{} functions with frames above {MOST} bytes\n{}", found.len(), found.join("\n"))
}

/// Bytes that the prologue takes from the stack: each constant that is subtracted from the stack
/// pointer, or from the copy of it up to which a loop touches pages.
fn frame(code: &[u8]) -> u64 {
    const PAGE: u64 = 4096;
    let code = code.get(..PROLOGUE).unwrap_or(code);
    // Instruction by instruction: the address of a call may hold the bytes of another one.
    let constant = |instruction: &Instruction| {
        let subtracts = instruction.mnemonic() == Mnemonic::Sub
            && instruction.op1_kind() == OpKind::Immediate32to64;
        let constant = instruction.immediate32to64().try_into().unwrap_or(0u64);
        match instruction.op0_register() {
            Register::RSP if subtracts => constant,
            // The loop subtracts a page from rsp, which stands for all of them.
            Register::R11 if subtracts => constant.saturating_sub(PAGE),
            _ => 0,
        }
    };
    let decoder = Decoder::new(64, code, DecoderOptions::NONE);
    decoder.into_iter().map(|instruction| constant(&instruction)).sum()
}

fn number(file: &[u8], at: usize, bytes: usize) -> Result<u64> {
    let field = at.checked_add(bytes).and_then(|end| file.get(at..end)).context("cut off")?;
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(field);
    Ok(u64::from_le_bytes(number))
}

fn place(file: &[u8], at: usize) -> Result<usize> {
    Ok(usize::try_from(number(file, at, 8)?)?)
}

fn slice(file: &[u8], start: usize, len: usize) -> Result<&[u8]> {
    let end = start.checked_add(len);
    end.and_then(|end| file.get(start..end)).context("a section lies outside of the file")
}

/// A section header: <https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.sheader.html>.
struct Section {
    kind: u64,
    address: u64,
    offset: usize,
    size: usize,
    link: usize,
}

/// The functions that the symbol table names; none where the file is no ELF file for x86-64.
pub(crate) fn functions(file: &[u8]) -> Result<Option<Vec<Function<'_>>>> {
    const SYMTAB: u64 = 2;
    const FUNC: u64 = 2;
    // Magic, 64 bits, little endian; the machine.
    if !file.starts_with(b"\x7fELF\x02\x01") || number(file, 18, 2)? != 62 {
        return Ok(None);
    }
    let (first, size) = (place(file, 40)?, usize::try_from(number(file, 58, 2)?)?);
    let sections = (0..usize::try_from(number(file, 60, 2)?)?)
        .map(|i| {
            let at = first + i * size;
            Ok(Section {
                kind: number(file, at + 4, 4)?,
                address: number(file, at + 16, 8)?,
                offset: place(file, at + 24)?,
                size: place(file, at + 32)?,
                link: usize::try_from(number(file, at + 40, 4)?)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let symbols = sections.iter().find(|s| s.kind == SYMTAB).context("no symbols")?;
    let names = sections.get(symbols.link).context("no names of symbols")?;
    let names = slice(file, names.offset, names.size)?;
    let mut functions = Vec::new();
    for symbol in slice(file, symbols.offset, symbols.size)?.chunks_exact(24) {
        let section = sections.get(usize::try_from(number(symbol, 6, 2)?)?);
        let (Some(section), FUNC) = (section, number(symbol, 4, 1)? & 15) else { continue };
        let name = names.get(usize::try_from(number(symbol, 0, 4)?)?..).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        // Symbols count from where the section is loaded.
        let Some(at) = number(symbol, 8, 8)?.checked_sub(section.address) else { continue };
        let code = slice(file, section.offset, section.size)?;
        let code = code.get(usize::try_from(at)?..).unwrap_or_default();
        let code = code.get(..place(symbol, 16)?).unwrap_or(code);
        functions.push(Function { name: std::str::from_utf8(name)?, code });
    }
    Ok(Some(functions))
}

/// The path in a mangled name (`_ZN`, then parts with their lengths before them), without the hash
/// at its end.
fn readable(name: &str) -> String {
    let Some(mut rest) = name.strip_prefix("_ZN") else { return name.to_owned() };
    let mut parts = Vec::new();
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0) {
        let (len, tail) = rest.split_at(end);
        let Some((part, tail)) = len.parse().ok().and_then(|len| tail.split_at_checked(len)) else {
            return name.to_owned();
        };
        parts.push(part);
        rest = tail;
    }
    parts.pop_if(|part| part.len() == 17 && part.starts_with('h'));
    parts.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_added_up() {
        assert_eq!(frame(&[]), 0);
        assert_eq!(frame(&[0x55, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0xc3]), 256);
        // Two pages touched one after the other, and the rest.
        let page = [0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0xc7, 4, 0x24, 0, 0, 0, 0];
        let code = [&page[..], &page, &[0x48, 0x81, 0xec, 8, 0, 0, 0]].concat();
        assert_eq!(frame(&code), 2 * 4096 + 8);
        // A loop over 256 pages.
        let start = [0x49, 0x89, 0xe3, 0x49, 0x81, 0xeb, 0, 0, 0x10, 0];
        let code = [&start[..], &page, &[0x4c, 0x39, 0xdc, 0x75, 0xec]].concat();
        assert_eq!(frame(&code), 1 << 20);
    }

    #[test]
    fn names_are_readable() {
        assert_eq!(readable("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(readable("main"), "main");
        assert_eq!(readable("_ZN99core"), "_ZN99core");
    }
}

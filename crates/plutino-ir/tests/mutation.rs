//! Damaged models are refused or read, never more: no panic, and no memory beyond the size of the
//! input.

#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

mod common;

use std::alloc::System;

use cap::Cap;
use common::{FIXTURES, with_weights};
use plutino_ir::Graph;
use plutino_ir::expr::{Expr, Literal};

/// Fails any allocation that would bring the process beyond its limit, which ends the test.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, 256 << 20);

/// A generator that gives the same numbers everywhere and always: SplitMix64 (Steele, Lea, Flood,
/// 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

/// Reads what may be damaged. Whatever is accepted must also survive being written and read again.
fn digest(param: &[u8], bin: &[u8]) -> bool {
    let Ok(graph) = Graph::from_bytes(param, bin.to_vec()) else {
        return false;
    };
    graph.validate().unwrap();
    for (_, operator) in graph.operators() {
        if let Some(text) = operator.param("expr").and_then(|value| value.as_str()) {
            let _ = (Expr::parse(text), Literal::parse(text));
        }
    }
    if let Ok(text) = graph.to_param_string() {
        assert_eq!(Graph::from_bytes(text, graph.to_bin_bytes().unwrap()).unwrap(), graph);
    }
    true
}

/// Applies `mutate` with `rounds` seeds to both files of every fixture, one at a time.
fn mutated(rounds: u64, mutate: impl Fn(&mut Vec<u8>, &mut Random)) -> usize {
    let mut refused = 0;
    for text in FIXTURES {
        let bin = with_weights(text).to_bin_bytes().unwrap();
        assert!(digest(text.as_bytes(), &bin));
        for seed in 0..rounds {
            let random = &mut Random(seed);
            let mut param = text.as_bytes().to_vec();
            mutate(&mut param, random);
            refused += usize::from(!digest(&param, &bin));
            let mut archive = bin.clone();
            mutate(&mut archive, random);
            refused += usize::from(!digest(text.as_bytes(), &archive));
        }
    }
    refused
}

#[test]
fn truncated() {
    for text in FIXTURES {
        let bin = with_weights(text).to_bin_bytes().unwrap();
        // The last byte of the text is the end of a line, which may be missing.
        for cut in 0..text.len() - 1 {
            digest(&text.as_bytes()[..cut], &bin);
        }
        for cut in 0..bin.len() {
            assert!(!digest(text.as_bytes(), &bin[..cut]), "archive cut at {cut}");
        }
    }
}

#[test]
fn flipped() {
    let refused = mutated(2000, |bytes, random| {
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
    });
    assert!(refused > 4000, "{refused}");
}

#[test]
fn every_bit_of_the_data_is_guarded() {
    let graph = with_weights(FIXTURES[0]);
    let bin = graph.to_bin_bytes().unwrap();
    let weight = graph[graph.operator_by_name("features.0").unwrap()].attr("weight").unwrap();
    let data = weight.data().unwrap();
    let start = bin.windows(data.len()).position(|window| window == &data[..]).unwrap();
    for bit in 0..data.len() * 8 {
        let mut damaged = bin.clone();
        damaged[start + bit / 8] ^= 1 << (bit % 8);
        assert!(!digest(FIXTURES[0].as_bytes(), &damaged), "bit {bit}");
    }
}

#[test]
fn overwritten_with_extremes() {
    mutated(2000, |bytes, random| {
        let at = random.below(bytes.len());
        let value = [0x00, 0xff, 0x7f, 0x80][random.below(4)];
        let end = (at + 1 + random.below(8)).min(bytes.len());
        bytes[at..end].fill(value);
    });
}

#[test]
fn duplicated_and_dropped() {
    mutated(1500, |bytes, random| {
        let (a, b) = (random.below(bytes.len()), random.below(bytes.len()));
        let range = a.min(b)..a.max(b).min(a.min(b) + 200);
        let part = bytes[range.clone()].to_vec();
        match random.below(3) {
            0 => drop(bytes.drain(range)),
            1 => drop(bytes.splice(range.start..range.start, part)),
            _ => bytes.extend(part),
        }
    });
}

/// Swaps, repeats, drops and replaces whole words and lines of the text.
#[test]
fn tokens_and_lines() {
    let extremes = [
        "0",
        "-1",
        "4294967295",
        "18446744073709551615",
        "9".repeat(40).as_str(),
        "?",
        "=",
        "@",
        "((",
        "None",
    ]
    .map(str::to_owned);
    for text in FIXTURES {
        let bin = with_weights(text).to_bin_bytes().unwrap();
        for seed in 0..3000 {
            let random = &mut Random(seed);
            let mut lines: Vec<Vec<String>> = text
                .lines()
                .map(|line| line.split_whitespace().map(str::to_owned).collect())
                .collect();
            for _ in 0..=random.below(2) {
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                match random.below(6) {
                    0 => lines.swap(a, b),
                    1 => lines.insert(b, lines[a].clone()),
                    2 => drop(lines.remove(a)),
                    3 if !lines[a].is_empty() => {
                        let (x, y) = (random.below(lines[a].len()), random.below(lines[a].len()));
                        lines[a].swap(x, y);
                    }
                    4 if !lines[a].is_empty() => {
                        let x = random.below(lines[a].len());
                        lines[a][x].clone_from(&extremes[random.below(extremes.len())]);
                    }
                    _ if !lines[a].is_empty() => {
                        // a value that means something else
                        let x = random.below(lines[a].len());
                        let value = &extremes[random.below(extremes.len())];
                        if let Some((key, _)) = lines[a][x].split_once('=') {
                            lines[a][x] = format!("{key}={value}");
                        } else {
                            lines[a].insert(x, value.clone());
                        }
                    }
                    _ => {}
                }
            }
            let text: String = lines.iter().map(|words| words.join(" ") + "\n").collect();
            digest(text.as_bytes(), &bin);
        }
    }
}

#[test]
fn announcements_take_no_memory() {
    let huge = usize::MAX;
    for text in [
        format!("7767517\n{huge} {huge}\n"),
        format!("7767517\n1 1\npnnx.Input in {huge} {huge} 0\n"),
        format!("7767517\n1 1\nnn.Linear a 0 1 0 @w=({huge})u8\n"),
        format!("7767517\n1 1\nnn.Linear a 0 1 0 @w=({huge},{huge})f32\n"),
        "7767517\n1 1\nnn.Linear a 0 1 0 @w=(1099511627776)f32\n".to_owned(),
        format!("7767517\n1 1\nnn.Linear a 0 1 0 #0=({huge},{huge})f32\n"),
    ] {
        digest(text.as_bytes(), b"");
        let _ = Graph::parse(&text);
    }
}

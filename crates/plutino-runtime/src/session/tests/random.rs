//! Random graphs: whatever shares memory, is fused, placed or dropped, results are those of a naive
//! interpreter.

use crate::testkit::{model, values, vector};
use crate::{Context, Dispatch, SessionOptions, Sorting};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;

/// A graph as text, and what it computes from its input.
struct Random {
    lines: String,
    expected: Vec<Vec<f32>>,
}

/// Builds a graph of one operator for each entry of `picks`: which one, of which earlier values.
/// Each entry of `after` lets one come after an earlier one; builds with debug assertions check
/// that every plan keeps to that.
fn build(picks: &[(u8, u16, u16)], after: &[(u16, u16)], fetch: &[u16], input: &[f32]) -> Random {
    let mut values = vec![input.to_vec()];
    let mut lines = String::from("pnnx.Input in 0 1 0\n");
    for (i, &(op, a, b)) in picks.iter().enumerate() {
        let a = a as usize % values.len();
        let x = values[a].clone();
        let b = b as usize % values.len();
        let y = values[b].clone();
        let same: Vec<usize> = (0..values.len()).filter(|&v| values[v].len() == x.len()).collect();
        let other = same[b % same.len()];
        let (kind, inputs, outputs, rest) = match op % 7 {
            0 => ("Scale", vec![a], vec![x.iter().map(|v| v * -0.5).collect()], "by=-0.5"),
            1 => ("Relu", vec![a], vec![x.iter().map(|v| v.max(0.0)).collect()], ""),
            2 => {
                let sum = x.iter().zip(&values[other]).map(|(p, q)| p + q).collect();
                ("Add", vec![a, other], vec![sum], "")
            }
            3 if x.len() + y.len() <= 64 => {
                ("Cat", vec![a, b], vec![[&x[..], &y[..]].concat()], "")
            }
            4 if x.len() % 2 == 0 => {
                let (p, q) = x.split_at(x.len() / 2);
                ("Split", vec![a], vec![p.to_vec(), q.to_vec()], "")
            }
            5 => ("View", vec![a], vec![x], ""),
            _ => ("Reverse", vec![a], vec![x.iter().rev().copied().collect()], ""),
        };
        write!(lines, "test.{kind} op{i} {} {}", inputs.len(), outputs.len()).unwrap();
        inputs.iter().for_each(|v| write!(lines, " {v}").unwrap());
        (0..outputs.len()).for_each(|k| write!(lines, " {}", values.len() + k).unwrap());
        write!(lines, " {rest}").unwrap();
        let later = |&&(later, _): &&(u16, u16)| later as usize % picks.len() == i && i > 0;
        let earlier: BTreeSet<usize> =
            after.iter().filter(later).map(|&(_, earlier)| earlier as usize % i).collect();
        earlier.iter().for_each(|e| write!(lines, " ^op{e}=after").unwrap());
        writeln!(lines).unwrap();
        values.extend(outputs);
    }
    let fetch: Vec<usize> = fetch.iter().map(|&f| f as usize % values.len()).collect();
    let tuple = values.len();
    write!(lines, "prim::TupleConstruct tuple {} 1", fetch.len()).unwrap();
    fetch.iter().for_each(|f| write!(lines, " {f}").unwrap());
    writeln!(lines, " {tuple}\npnnx.Output out 1 0 {tuple}").unwrap();
    Random { lines, expected: fetch.into_iter().map(|f| values[f].clone()).collect() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_graphs_compute_what_they_say(
        picks in prop::collection::vec((any::<u8>(), any::<u16>(), any::<u16>()), 1..25),
        after in prop::collection::vec((any::<u16>(), any::<u16>()), 0..12),
        fetch in prop::collection::vec(any::<u16>(), 1..4),
        passes in any::<bool>(),
        kahn in any::<bool>(),
        (threads, together, contexts) in (0usize..4, any::<bool>(), 0usize..6),
    ) {
        let input = [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, -7.0, 8.0];
        let graph = build(&picks, &after, &fetch, &input);
        let mut options = SessionOptions::default();
        if !passes {
            options = options.without_passes();
        }
        if kahn {
            options.sorting = Sorting::Kahn;
        }
        if together {
            options = options.with_dispatch(Dispatch::Together);
        }
        let on = |threads| Context::of_threads(threads).unwrap();
        let options = match contexts {
            3 => options.with_contexts([on(2), on(1)]),
            4 => options.with_contexts([on(1), on(2), on(1)]),
            5 => options.with_contexts([Context::apart(0), Context::apart(1), Context::apart(0)]),
            _ => options.with_threads([1, 2, 3, 8][threads]),
        };
        let session = model(&graph.lines).session(options).unwrap();
        for _ in 0..2 {
            let outputs = session.run(&[vector(&input)]).unwrap();
            let found: Vec<Vec<f32>> = outputs.iter().map(values).collect();
            prop_assert_eq!(&found, &graph.expected, "{}", graph.lines);
        }
    }
}

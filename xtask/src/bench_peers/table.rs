//! The report as Markdown, for the terminal and for the README.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::report::{CaseReport, EngineReport, Report};
use super::stats::Quartiles;

/// What stands where nothing was measured.
const NOTHING: &str = "-";

/// All engines on one model.
pub(super) fn case(case: &CaseReport) -> String {
    let mut table = table(&[
        "engine",
        "ms",
        "quartiles",
        "plutino / engine",
        "error",
        "load ms",
        "peak MiB",
        "without",
    ]);
    for engine in &case.engines {
        let row = [
            engine.engine.to_owned(),
            cell(engine.ms, |q| time(q.median)),
            cell(engine.ms, |q| format!("{}..{}", time(q.q1), time(q.q3))),
            cell(engine.ratio, ratio),
            cell(engine.error, |e| format!("{e:.1e}")),
            cell(engine.load(), time),
            cell(engine.peak_mib(), |m| format!("{m:.0}")),
            cell(engine.harness_mib(), |m| format!("{m:.0}")),
        ];
        table.add_row(row);
    }
    let mut text =
        format!("{}, batch {}, {}\n{table}\n", case.model, case.batch, threads(case.threads));
    for engine in &case.engines {
        if let Some(reason) = &engine.failed {
            let _ = writeln!(text, "{} failed: {reason}", engine.engine);
        }
    }
    match (case.best_peer, case.ratio) {
        (Some(peer), Some(q)) => {
            let _ = writeln!(text, "plutino / best peer ({peer}): {}, {}", ratio(q), verdict(q));
        }
        (Some(peer), None) => {
            let _ = writeln!(text, "best peer: {peer}");
        }
        (None, _) => text.push_str("no peer ran\n"),
    }
    text
}

/// The summary of all models: times, as the README shows them, then what they cost, then failures.
pub(super) fn summary(report: &Report) -> String {
    let machine = &report.machine;
    let features = machine.features.join(" ");
    let mut text = format!(
        "{}, {} cores ({features}), {}, plutino {} ({} precision). {}. {} rounds with slices of {} s; load average before: {}.\n",
        machine.cpu,
        machine.cores,
        report.date,
        report.revision,
        report.precision,
        versions(report),
        report.rounds,
        report.slice_seconds,
        cell(machine.load_average, |l| format!("{l:.2}")),
    );
    for (count, cases) in by_threads(report) {
        let times = times(&cases, &engines(&cases));
        let _ = writeln!(text, "\nMilliseconds with {}:\n\n{times}", threads(count));
        if let Some(mean) = report.means.iter().find(|m| m.threads == count) {
            let models = mean.models;
            let _ = writeln!(text, "\nGeometric mean over {models} models: **{:.2}**", mean.ratio);
            if !mean.without.is_empty() {
                let _ = writeln!(text, "(without a ratio: {})", mean.without.join(", "));
            }
        }
    }
    for (count, cases) in by_threads(report) {
        let costs = costs(&cases, &engines(&cases));
        let heading = "Load to first result in ms, peak memory of the process in MiB, error, with";
        let _ = writeln!(text, "\n{heading} {}:\n\n{costs}", threads(count));
    }
    let failures = failures(report);
    if !failures.is_empty() {
        let _ = writeln!(text, "\nFailures:\n\n{failures}");
    }
    text
}

/// The cases of each number of threads, the smallest first.
fn by_threads(report: &Report) -> BTreeMap<usize, Vec<&CaseReport>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for case in &report.cases {
        groups.entry(case.threads).or_default().push(case);
    }
    groups
}

/// Names of the engines in any of the cases, in their order.
fn engines(cases: &[&CaseReport]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for engine in cases.iter().flat_map(|case| &case.engines) {
        if !names.contains(&engine.engine) {
            names.push(engine.engine);
        }
    }
    let all = super::engine::Engine::ALL.iter().map(|e| e.name());
    all.filter(|name| names.contains(name)).collect()
}

fn versions(report: &Report) -> String {
    let cases: Vec<_> = report.cases.iter().collect();
    let version = |name: &&str| {
        let mut all = report.cases.iter().flat_map(|c| &c.engines);
        let found = all.find(|e| e.engine == *name && e.version.is_some())?;
        Some(format!("{name} {}", found.version.as_deref()?))
    };
    let peers = engines(&cases).into_iter().filter(|name| *name != "plutino");
    peers.filter_map(|name| version(&name)).collect::<Vec<_>>().join(", ")
}

fn times(cases: &[&CaseReport], engines: &[&'static str]) -> Table {
    let mut header = vec!["model"];
    header.extend(engines);
    header.extend(["plutino / best peer", "best peer", ""]);
    let mut table = table(&header);
    for case in cases {
        let mut row = vec![case.model.clone()];
        for name in engines {
            row.push(found(case, name, |e| e.ms.map(|q| time(q.median))));
        }
        row.push(cell(case.ratio, ratio));
        row.push(case.best_peer.unwrap_or(NOTHING).to_owned());
        row.push(cell(case.ratio, |q| verdict(q).to_owned()));
        table.add_row(row);
    }
    table
}

fn costs(cases: &[&CaseReport], engines: &[&'static str]) -> Table {
    let mut header = vec!["model"];
    header.extend(engines);
    let mut table = table(&header);
    for case in cases {
        let mut row = vec![case.model.clone()];
        for name in engines {
            row.push(found(case, name, |e| {
                let (load, peak) =
                    (cell(e.load(), time), cell(e.peak_mib(), |m| format!("{m:.0}")));
                Some(format!("{load}, {peak}, {}", cell(e.error, |e| format!("{e:.0e}"))))
            }));
        }
        table.add_row(row);
    }
    table
}

/// A cell of an engine: what it shows where the engine works, "fails" or "-" where it does not or
/// was not asked.
fn found(case: &CaseReport, name: &str, show: impl Fn(&EngineReport) -> Option<String>) -> String {
    match case.engines.iter().find(|e| e.engine == name) {
        Some(engine) if engine.works() => show(engine).unwrap_or_else(|| NOTHING.into()),
        Some(_) => "fails".into(),
        None => NOTHING.into(),
    }
}

/// One line for each engine, model and reason; numbers of threads that fail alike share it.
fn failures(report: &Report) -> String {
    let mut seen: Vec<String> = Vec::new();
    for case in &report.cases {
        for engine in &case.engines {
            let Some(reason) = &engine.failed else { continue };
            let line = format!("- {} on {}: {reason}", engine.engine, case.model);
            if !seen.contains(&line) {
                seen.push(line);
            }
        }
    }
    seen.join("\n")
}

/// A table in Markdown with a left column of names and numbers to the right.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn cell<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOTHING.into(), show)
}

fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Milliseconds with three digits.
fn time(ms: f64) -> String {
    match ms {
        _ if ms < 10.0 => format!("{ms:.2}"),
        _ if ms < 100.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

fn ratio(q: Quartiles) -> String {
    format!("{:.2} ({:.2}..{:.2})", q.median, q.q1, q.q3)
}

/// Whether ours takes less time; not decided where the quartiles lie on both sides of 1.
fn verdict(q: Quartiles) -> &'static str {
    match q {
        _ if q.q3 < 1.0 => "ahead",
        _ if q.q1 > 1.0 => "behind",
        _ => "tie",
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::Engine;
    use super::super::machine::Machine;
    use super::super::report::tests::engine;
    use super::*;

    #[test]
    fn a_failure_is_shown_with_its_reason() {
        let mut ncnn = engine(Engine::Ncnn, &[]);
        ncnn.failed = Some("layer X not registered".into());
        let ours = engine(Engine::Plutino, &[1.0, 1.5]);
        let ort = engine(Engine::OnnxRuntime, &[2.0, 2.0]);
        let found = CaseReport::new("net", 1, 2, vec![ours, ort, ncnn]);
        let text = case(&found);
        assert!(text.contains("ncnn failed: layer X not registered"), "{text}");
        assert!(text.contains("best peer (onnxruntime): 0.62 (0.56..0.69), ahead"), "{text}");

        let mut report = Report {
            date: "2000-01-01".into(),
            revision: "abc".into(),
            machine: Machine {
                cpu: "CPU".into(),
                cores: 2,
                features: vec!["avx2"],
                load_average: None,
            },
            set: "sixteen",
            rounds: 2,
            slice_seconds: 1.0,
            loads: 1,
            precision: "highest",
            mmap: false,
            cases: Vec::new(),
            means: Vec::new(),
        };
        report.add(found);
        report.add(CaseReport::new("net", 1, 1, vec![engine(Engine::OnnxRuntime, &[3.0])]));
        let text = summary(&report);
        let places = ["with 1 thread", "with 2 threads", "Load to first", "Failures"];
        let places = places.map(|words| text.find(words));
        assert!(places.is_sorted() && places[0].is_some(), "{text}");
        assert!(text.contains("Milliseconds with 1 thread:"), "{text}");
        assert!(text.contains("| net   |    1.25 |        2.00 | fails |"), "{text}");
        assert!(text.contains("- ncnn on net: layer X not registered"), "{text}");
        assert!(text.contains("Geometric mean over 1 models: **0.62**"), "{text}");
    }

    #[test]
    fn quartiles_on_both_sides_of_1_are_a_tie() {
        let q = |q1, median, q3| Quartiles { q1, median, q3 };
        assert_eq!(verdict(q(0.9, 0.95, 1.01)), "tie");
        assert_eq!(verdict(q(0.9, 0.95, 0.99)), "ahead");
        assert_eq!(verdict(q(1.01, 1.2, 1.3)), "behind");
    }
}

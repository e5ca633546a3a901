//! `cargo xtask cancel`: how long it takes from a cancel to the end of what was cancelled.

use std::time::Duration;

use anyhow::{Context, anyhow};
use comfy_table::{CellAlignment, Table, presets};
use plutino_tests::cancel::{Outcomes, Subject, loads, plans, runs};

/// Cancel runs, plans and loads at random instants; report latencies.
///
/// Every cancel must end in the right bits or in the typed error, and the session must work on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cancels for each model and number of threads; an operator that takes seconds gets a tenth.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Only models whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

const FIXTURES: [&str; 5] = ["digits", "mobilenet_v2", "resnet18", "minilm", "unet"];

/// Makes what is too large to be kept beside others.
type Make = fn() -> Subject;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut table = Table::new();
    let header = ["what", "threads", "uncancelled", "cancels", "too late", "p50", "p99", "max"];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let mut report = |name: &str, threads: usize, made: Result<Outcomes, String>| {
        let outcomes = made.map_err(|what| anyhow!("{name}, {threads} threads: {what}"))?;
        let row = row(name, threads, &outcomes);
        println!("{}", row.join("  "));
        table.add_row(row);
        anyhow::Ok(())
    };
    for name in FIXTURES.into_iter().filter(|name| wanted(name)) {
        let subject = Subject::fixture(name);
        for threads in [1, 2] {
            report(name, threads, runs(&subject, threads, args.count))?;
        }
    }
    let large: [(&str, Make); 3] = [
        ("matmul", || Subject::product(4096)),
        ("sort", || Subject::sort(10_000_000)),
        ("lstm", || Subject::lstm(4000)),
    ];
    for (_, subject) in large.into_iter().filter(|(name, _)| wanted(name)) {
        let subject = subject();
        for threads in [1, 2] {
            report(&subject.name, threads, runs(&subject, threads, args.count.div_ceil(10)))?;
        }
    }
    for name in ["resnet18", "minilm"].into_iter().filter(|name| wanted(name)) {
        let subject = Subject::fixture(name);
        let count = args.count.div_ceil(10);
        for threads in [1, 2] {
            report(&format!("plan of {name}"), threads, plans(&subject, threads, count))?;
        }
        let folder = std::env::temp_dir().join(format!("plutino-cancel-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let made = loads(&subject, &folder, count);
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        report(&format!("load of {name}"), 1, made)?;
    }
    println!("\n{table}");
    Ok(())
}

fn row(name: &str, threads: usize, outcomes: &Outcomes) -> Vec<String> {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    vec![
        name.to_owned(),
        threads.to_string(),
        ms(outcomes.whole),
        outcomes.latencies.len().to_string(),
        outcomes.finished.to_string(),
        ms(outcomes.quantile(0.5)),
        ms(outcomes.quantile(0.99)),
        ms(outcomes.quantile(1.0)),
    ]
}

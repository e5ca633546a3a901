//! `cargo xtask scale`: how the time to load, check, plan and run grows with the size of a model.

use std::time::Duration;

use anyhow::anyhow;
use comfy_table::{CellAlignment, Table, presets};
use plutino_tests::scale::{FAMILIES, Measured, PHASES, measure};

/// Load, check, plan and run models of many operators; report the time for each size.
///
/// Times are CPU time of one thread, the least of some rounds. The last column says how much more
/// an operator costs in the largest model than in the smallest: with n log n, at most 1.6 from
/// 2,000 to 128,000 operators, and what caches add.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Numbers of operators.
    #[arg(long, value_delimiter = ',', default_value = "2000,8000,32000,128000")]
    sizes: Vec<usize>,
    /// Rounds, of which the fastest counts.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Only families whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// A row for each pass of the planner as well.
    #[arg(long)]
    passes: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut table = Table::new();
    let sizes = args.sizes.iter().map(|n| format!("{n}"));
    let header = ["family", "what"].map(str::to_owned).into_iter().chain(sizes);
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.chain(["growth".to_owned()]));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    for family in FAMILIES.iter().filter(|family| wanted(family.name)) {
        let mut sizes = Vec::new();
        for &n in &args.sizes {
            let text = family.text(n);
            let round = |_| measure(&text).map_err(|what| anyhow!("{} {n}: {what}", family.name));
            sizes.push((0..args.rounds.max(1)).map(round).collect::<anyhow::Result<Vec<_>>>()?);
        }
        let mut add = |name: &str, time: &dyn Fn(&Measured) -> Duration| {
            let least = |rounds: &Vec<Measured>| rounds.iter().map(time).min().unwrap_or_default();
            table.add_row(row(family.name, name, &sizes, least));
        };
        for &phase in PHASES {
            add(phase, &|measured| measured.time(phase));
        }
        let passes = sizes.first().and_then(|rounds| rounds.first()).filter(|_| args.passes);
        for (at, (pass, _)) in passes.into_iter().flat_map(|m| m.passes.iter().enumerate()) {
            let time = |m: &Measured| m.passes.get(at).map_or(Duration::ZERO, |(_, time)| *time);
            add(&format!("pass {pass}"), &time);
        }
    }
    println!("{table}");
    Ok(())
}

fn row(
    family: &str,
    what: &str,
    sizes: &[Vec<Measured>],
    least: impl Fn(&Vec<Measured>) -> Duration,
) -> Vec<String> {
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let times: Vec<Duration> = sizes.iter().map(&least).collect();
    let each = |at: Option<usize>| {
        let at = at?;
        let operators = sizes.get(at)?.first()?.operators;
        Some(times.get(at)?.as_secs_f64() / operators as f64)
    };
    let growth = each(sizes.len().checked_sub(1)).zip(each(Some(0)));
    let growth = growth.filter(|(_, first)| *first > 0.0).map(|(last, first)| last / first);
    let growth = growth.map_or_else(String::new, |growth| format!("{growth:.1}"));
    let cells = [family.to_owned(), what.to_owned()].into_iter();
    cells.chain(times.into_iter().map(ms)).chain([growth]).collect()
}

//! The only place that prints.
#![allow(clippy::print_stderr)] // the reason of this module

use crate::failure::Failure;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plutino::ir::{escaped, write_whole};
use serde::Serialize;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::Path;
use std::time::Duration;

/// Standard output. Printing to a closed pipe is [`Failure::ClosedPipe`].
pub(crate) struct Output {
    stdout: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { stdout: BufWriter::new(io::stdout().lock()) }
    }

    /// One value as indented JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.stdout, value).map_err(io::Error::from)?;
        Ok(writeln!(self.stdout)?)
    }

    /// One value as JSON on a line of its own.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.stdout, value).map_err(io::Error::from)?;
        Ok(writeln!(self.stdout)?)
    }

    /// Values separated by commas, in quotes where need be (RFC 4180).
    pub(crate) fn csv(&mut self, header: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let field = |text: &str| match text.contains(['"', ',', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let header = header.iter().map(|text| (*text).to_owned()).collect();
        for row in std::iter::once(header).chain(rows) {
            let fields: Vec<String> =
                row.iter().map(|text| field(&escaped(text).to_string())).collect();
            writeln!(self.stdout, "{}", fields.join(","))?;
        }
        Ok(())
    }

    /// Columns, separated by blanks. Columns of numbers stand right.
    pub(crate) fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(header.iter().copied());
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if i == 0 { 0 } else { 1 }, 1));
            let numeric = |row: &Vec<String>| {
                row.get(i)
                    .is_some_and(|c| c.is_empty() || c.starts_with(|c: char| c.is_ascii_digit()))
            };
            if i > 0 && rows.iter().all(numeric) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.add_rows(rows);
        for line in table.lines() {
            writeln!(self.stdout, "{}", escaped(line.trim_end()))?;
        }
        Ok(())
    }

    /// What is for a file or another program, not for a terminal.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdout.write_all(bytes)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        Ok(self.stdout.flush()?)
    }
}

impl Write for Output {
    /// Names of a file may be printed, but nothing that a terminal obeys.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(buf) {
            Ok(text) => write!(self.stdout, "{}", escaped(text)).map(|()| buf.len()),
            Err(_) => self.stdout.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// Tells the user why the command ends.
pub(crate) fn report(failure: &Failure) {
    if let Some(message) = failure.message() {
        // Standard error may be closed as well; nothing is left to tell it to.
        let _ = writeln!(io::stderr(), "error: {}", escaped(message));
    }
}

/// Tells the user something that does not end the command.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", escaped(message));
}

/// Tells the user what was decided for them.
pub(crate) fn note(message: &str) {
    let _ = writeln!(io::stderr(), "note: {}", escaped(message));
}

/// Tells the user something that is no part of what was asked for.
pub(crate) fn aside(message: &str) {
    let _ = writeln!(io::stderr(), "{}", escaped(message));
}

/// Warnings that one command prints; there may be one for each operator of a model.
const MOST_WARNINGS: usize = 20;

/// [`warn`] for each of these.
pub(crate) fn warn_all<T: std::fmt::Display>(warnings: impl IntoIterator<Item = T>) {
    let mut warnings = warnings.into_iter();
    warnings.by_ref().take(MOST_WARNINGS).for_each(|warning| warn(&warning.to_string()));
    let rest = warnings.count();
    if rest > 0 {
        warn(&format!("and {rest} more"));
    }
}

/// Shows that something is going on, where standard error is a terminal, until it is over.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    during_on(ProgressDrawTarget::stderr(), what, work)
}

fn during_on<T>(target: ProgressDrawTarget, what: &str, work: impl FnOnce() -> T) -> T {
    let spinner = ProgressBar::with_draw_target(None, target);
    let spinner =
        spinner.with_style(ProgressStyle::default_spinner()).with_message(what.to_owned());
    if !spinner.is_hidden() && a_thread_starts() {
        spinner.enable_steady_tick(Duration::from_millis(120));
    }
    let result = work();
    spinner.finish_and_clear();
    result
}

/// Whether this process may have another thread: the spinner's starts by itself, and would panic.
fn a_thread_starts() -> bool {
    std::thread::Builder::new().spawn(|| ()).is_ok()
}

/// What an option may name that says where results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    File,
    /// A file, or standard output.
    FileOrOutput,
    /// A file whose name ends in .png, or a folder.
    PictureOrFolder,
    /// A folder that is made where it is missing.
    Folder,
    /// What names of files begin with.
    Stem,
}

/// An error where nothing can be written at `path`, which `option` named.
pub(crate) fn check_output(option: &str, place: Place, path: &Path) -> Result<(), Failure> {
    let wrong = |what: String| Err(Failure::usage(format!("{option} {}: {what}", path.display())));
    if path.as_os_str() == "-" {
        return match place {
            Place::FileOrOutput => Ok(()),
            _ => wrong("this does not go to standard output: give a name".into()),
        };
    }
    if matches!(place, Place::File | Place::FileOrOutput) && path.is_dir() {
        return wrong("is a folder: give the file a name in it".into());
    }
    let made = match place {
        Place::Folder => true,
        Place::PictureOrFolder => {
            path.is_dir() || path.extension().is_none_or(|end| !end.eq_ignore_ascii_case("png"))
        }
        _ => false,
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.filter(|parent| !made && !parent.is_dir()) {
        Some(missing) => wrong(format!("there is no folder '{}'", missing.display())),
        None => Ok(()),
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_whole(path, |mut file| file.write_all(bytes))
        .map_err(|e| Failure::usage(format!("cannot write '{}': {e}", path.display())))
}

/// A bar of `steps`, where standard error is a terminal; it goes when it is dropped.
pub(crate) fn progress(what: &str, steps: u64) -> ProgressBar {
    progress_on(ProgressDrawTarget::stderr(), what, steps)
}

fn progress_on(target: ProgressDrawTarget, what: &str, steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}");
    let bar = ProgressBar::with_draw_target(Some(steps), target).with_message(what.to_owned());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Bytes with a unit: `12.3 MB`. Decimal, as disks and networks count.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number with a prefix, to stand before a unit: `12.3 M`.
pub(crate) fn si(n: u64) -> String {
    let mut value = n as f64;
    let mut prefixes = ["", "k", "M", "G", "T", "P", "E"].into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    while value >= 999.95
        && let Some(next) = prefixes.next()
    {
        (value, prefix) = (value / 1000.0, next);
    }
    if prefix.is_empty() { format!("{n} ") } else { format!("{value:.1} {prefix}") }
}

/// A duration in milliseconds, with as many digits as are worth reading.
pub(crate) fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ms if ms < 0.1 => format!("{ms:.4}"),
        ms if ms < 10.0 => format!("{ms:.3}"),
        ms if ms < 1000.0 => format!("{ms:.2}"),
        ms => format!("{ms:.0}"),
    }
}

/// A duration with a unit that suits it: `12.3 µs`, `4.560 ms`, `1.23 s`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 10.0 => format!("{} ms", millis(time)),
        s => format!("{s:.2} s"),
    }
}

/// `1 input`, `2 inputs`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::sync::{Arc, Mutex};

    /// A terminal of a few lines, and all that it ever showed.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<Shown>>);

    #[derive(Debug, Default)]
    struct Shown {
        lines: Vec<String>,
        at: usize,
        ever: String,
    }

    impl Screen {
        fn target(&self) -> ProgressDrawTarget {
            ProgressDrawTarget::term_like(Box::new(self.clone()))
        }

        fn with<T>(&self, f: impl FnOnce(&mut Shown) -> T) -> io::Result<T> {
            Ok(f(&mut self.0.lock().unwrap()))
        }

        /// Whether this was there at any time.
        fn showed(&self, what: &str) -> bool {
            self.with(|shown| shown.ever.contains(what)).unwrap()
        }

        /// Whether nothing is there now.
        fn is_clear(&self) -> bool {
            self.with(|shown| shown.lines.iter().all(|line| line.trim().is_empty())).unwrap()
        }
    }

    impl Shown {
        fn line(&mut self) -> &mut String {
            let lines = self.lines.len().max(self.at + 1);
            self.lines.resize(lines, String::new());
            &mut self.lines[self.at]
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            self.with(|shown| shown.at = shown.at.saturating_sub(n))
        }
        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.with(|shown| shown.at += n)
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)?;
            self.move_cursor_down(1)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.with(|shown| {
                shown.line().push_str(text);
                shown.ever.push_str(text);
            })
        }
        fn clear_line(&self) -> io::Result<()> {
            self.with(|shown| shown.line().clear())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_work_is_shown_until_it_is_over() {
        let screen = Screen::default();
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        let result = during_on(screen.target(), "loading", || {
            // As long as it takes to be shown: a thread of its own draws.
            while screen.is_clear() && std::time::Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            7
        });
        assert!(screen.showed("loading"));
        assert!(screen.is_clear());
        assert_eq!(result, 7);
    }

    #[test]
    fn bars_count_and_go() {
        let screen = Screen::default();
        let bar = progress_on(screen.target(), "running", 3);
        bar.inc(1);
        assert!(screen.showed("running") && screen.showed("1/3"));
        assert!(!screen.is_clear());
        bar.finish_and_clear();
        assert!(screen.is_clear());

        // Work that ends with an error drops the bar.
        let screen = Screen::default();
        let bar = progress_on(screen.target(), "running", 3);
        bar.inc(2);
        assert!(!screen.is_clear());
        drop(bar);
        assert!(screen.is_clear());
    }

    #[test]
    fn units() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "1.0 kB");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(46_800_000), "46.8 MB");
        assert_eq!(bytes(u64::MAX), "18446744.1 TB");
        assert_eq!(millis(Duration::from_micros(1500)), "1.500");
        assert_eq!([999, 1000, 3_628_000_000].map(si), ["999 ", "1.0 k", "3.6 G"]);
        let times = [12_345, 4_560_000, 123_400_000, 12_000_000_000].map(Duration::from_nanos);
        assert_eq!(times.map(time), ["12.3 µs", "4.560 ms", "123.40 ms", "12.00 s"]);
        assert_eq!(count(1, "input"), "1 input");
        assert_eq!(count(0, "input"), "0 inputs");
    }
}

//! How `classify`, `detect` and `segment` print what they find in pictures.

use crate::failure::Failure;
use crate::output::Output;
use serde::Serialize;

/// How it is printed; as text if nothing is said.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct FormatArgs {
    /// Print one JSON object a line for each picture
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a line of values, separated by commas, for each class or box of each picture
    #[arg(long)]
    csv: bool,
}

/// What was found in a picture; as JSON it is what it serializes to.
pub(crate) trait Finding: Serialize {
    /// Lines of values.
    fn rows(self) -> impl Iterator<Item = Vec<String>>;

    /// Text for people.
    fn print(&self, out: &mut Output) -> Result<(), Failure>;
}

/// Prints findings as they come; lines of values when all are there.
pub(crate) struct Printer<'a> {
    format: FormatArgs,
    out: &'a mut Output,
    columns: &'a [&'a str],
    rows: Vec<Vec<String>>,
}

impl FormatArgs {
    /// `columns` are the names of the values.
    pub(crate) fn printer<'a>(self, out: &'a mut Output, columns: &'a [&'a str]) -> Printer<'a> {
        Printer { format: self, out, columns, rows: Vec::new() }
    }
}

impl Printer<'_> {
    pub(crate) fn show(&mut self, finding: impl Finding) -> Result<(), Failure> {
        if self.format.json {
            return self.out.json_line(&finding);
        }
        if self.format.csv {
            self.rows.extend(finding.rows());
            return Ok(());
        }
        finding.print(self.out)
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        if self.format.csv { self.out.csv(self.columns, self.rows) } else { Ok(()) }
    }
}

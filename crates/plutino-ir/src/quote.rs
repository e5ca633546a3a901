//! Text of a file in messages: short, and without what a terminal would obey.

use std::fmt::{self, Write};
use std::path::Path;

/// Characters that a message shows of a file's text, at most.
pub const MOST_QUOTED: usize = 200;

/// Characters of a message that was put together elsewhere.
const MOST_TOLD: usize = 600;

/// Text of a file for a message: at most [`MOST_QUOTED`] characters, with control characters, and
/// those that change the direction of text, escaped (`\u{1b}`).
///
/// ```
/// assert_eq!(plutino_ir::quote("a\x1b[31m").to_string(), r"a\u{1b}[31m");
/// ```
pub fn quote<T: AsRef<str> + ?Sized>(text: &T) -> Quoted<'_> {
    Quoted { text: text.as_ref(), most: MOST_QUOTED, lines: false }
}

/// A path for a message: escaped as by [`quote`]; of a longer one the last characters, since they
/// name the file.
///
/// ```
/// assert_eq!(plutino_ir::quote_path("models/net.pnnx.param"), "models/net.pnnx.param");
/// ```
pub fn quote_path(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().to_string_lossy();
    let mut left = MOST_QUOTED;
    let fits = |(_, c): &(usize, char)| match left.checked_sub(width(*c, false)) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    let start = path.char_indices().rev().take_while(fits).last().map_or(path.len(), |(at, _)| at);
    let shown = quote(path.get(start..).unwrap_or_default());
    if start == 0 { shown.to_string() } else { format!("...{shown}") }
}

/// A message that may quote a file: as [`quote`], but longer, and on as many lines as it has.
pub fn told<T: AsRef<str> + ?Sized>(text: &T) -> Quoted<'_> {
    Quoted { text: text.as_ref(), most: MOST_TOLD, lines: true }
}

/// All of a text, with what a terminal would obey escaped.
pub fn escaped<T: AsRef<str> + ?Sized>(text: &T) -> Quoted<'_> {
    Quoted { text: text.as_ref(), most: usize::MAX, lines: true }
}

/// See [`quote`], [`told`] and [`escaped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'a> {
    text: &'a str,
    most: usize,
    /// Whether lines may end.
    lines: bool,
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Brief::new(f, self.most, self.lines);
        // An error of the writer is that the text is too long, which is none; those of `f` come
        // again below.
        let _ = writer.write_str(self.text);
        writer.finish(|| self.text.chars().count())
    }
}

/// What anything displays as, cut and escaped as by [`quote`], without the whole of it ever being
/// in memory.
pub fn quote_display(value: &impl fmt::Display) -> String {
    let mut out = String::new();
    let mut writer = Brief::new(&mut out, MOST_QUOTED, false);
    let _ = write!(writer, "{value}"); // ends early where the text is too long
    if writer.cut {
        out.push_str("...");
    }
    out
}

/// Passes on a number of characters, escaped.
struct Brief<'a, W> {
    to: &'a mut W,
    left: usize,
    lines: bool,
    cut: bool,
}

impl<'a, W: Write> Brief<'a, W> {
    fn new(to: &'a mut W, most: usize, lines: bool) -> Self {
        Self { to, left: most, lines, cut: false }
    }

    /// Says how much there was, if it was more.
    fn finish(self, all: impl FnOnce() -> usize) -> fmt::Result {
        if self.cut { write!(self.to, "... ({} characters)", all()) } else { Ok(()) }
    }
}

impl<W: Write> Write for Brief<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let width = width(c, self.lines);
            if self.left < width {
                self.cut = true;
                return Err(fmt::Error);
            }
            self.left -= width;
            match width {
                1 => self.to.write_char(c)?,
                _ => write!(self.to, "{}", c.escape_unicode())?,
            }
        }
        Ok(())
    }
}

/// Characters that one of the text is shown as. An escape counts as what is shown: ten characters
/// may stand for one of the file.
fn width(c: char, lines: bool) -> usize {
    if is_safe(c) || (lines && c == '\n') { 1 } else { c.escape_unicode().len() }
}

/// Whether a character is shown as it is: no control character, and none that changes the
/// direction of text, hides, or ends a line unseen.
fn is_safe(c: char) -> bool {
    match c {
        '\u{061c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' => false,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => false,
        c => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(quote("layer1.0/Größe").to_string(), "layer1.0/Größe");
        assert_eq!(quote("a\x1b[31m\x07\u{9b}b").to_string(), r"a\u{1b}[31m\u{7}\u{9b}b");
        assert_eq!(quote("a\u{202e}b\u{2066}c").to_string(), r"a\u{202e}b\u{2066}c");
        assert_eq!(told("two\nlines").to_string(), "two\nlines");
        assert_eq!(quote("two\nlines").to_string(), r"two\u{a}lines");
    }

    #[test]
    fn long_text_is_cut() {
        let long = "x".repeat(5000);
        assert_eq!(quote(&long).to_string(), format!("{}... (5000 characters)", &long[..200]));
        assert_eq!(quote(&long[..200]).to_string(), long[..200]);
        assert_eq!(told(&long).to_string().len(), 600 + "... (5000 characters)".len());
        assert_eq!(quote_display(&long), format!("{}...", &long[..200]));
        assert_eq!(quote_display(&12), "12");
    }

    #[test]
    fn of_a_long_path_the_end_is_shown() {
        let long = format!("{}/net.pnnx.param", "folder/".repeat(500));
        let shown = quote_path(&long);
        assert!(shown.starts_with("...") && shown.ends_with("/net.pnnx.param"), "{shown}");
        assert_eq!(shown.len(), 3 + MOST_QUOTED);
        assert_eq!(quote_path(&long[..200]), long[..200]);
        assert_eq!(quote_path("a\x1b[2J/b"), r"a\u{1b}[2J/b");
        let controls = quote_path("\x12".repeat(300));
        assert_eq!(controls, format!("...{}", r"\u{12}".repeat(MOST_QUOTED / 6)));
        assert_eq!(quote_path(""), "");
    }

    #[test]
    fn escapes_count_as_they_are_shown() {
        let controls = "\x12".repeat(300);
        let shown = r"\u{12}".repeat(MOST_QUOTED / 6);
        assert_eq!(quote(&controls).to_string(), format!("{shown}... (300 characters)"));
        assert_eq!(quote_display(&controls), format!("{shown}..."));
    }
}

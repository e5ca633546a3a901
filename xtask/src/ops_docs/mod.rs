//! `cargo xtask ops-docs`: docs/operators.md, and what `plutino ops NAME` shows. Both come out of
//! the registry, of what builders ask for, and of the documentation of their files.

mod probe;

use anyhow::{Context, Result, bail};
use plutino::DType;
use plutino::ops::{Asked, AskedSort, registry};
use probe::Facts;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Where the page stands, and what the command line shows, from the project's root.
const FILES: [&str; 2] = ["docs/operators.md", "crates/plutino-cli/assets/operators.txt"];

/// Write docs/operators.md: every operator type that is supported, with parameters and dtypes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that the file is current
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let families = families(root)?;
    for (file, text) in FILES.iter().zip([page(&families)?, table(&families)?]) {
        let path = root.join(file);
        if args.check {
            if fs::read_to_string(&path).unwrap_or_default() != text {
                bail!("{file} is not current: run `cargo xtask ops-docs`");
            }
            continue;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A source file that registers operator types.
struct Family {
    file: &'static str,
    /// The file's folder: a chapter of PyTorch's manual.
    chapter: String,
    /// The first sentence of the file's documentation.
    title: String,
    /// The rest of it.
    notes: String,
    /// Types of which the same is known, together.
    rows: Vec<(Vec<&'static str>, Facts)>,
}

/// All of them, by chapter.
fn families(root: &Path) -> Result<Vec<Family>> {
    let registry = registry()?;
    let mut facts = probe::facts(registry)?;
    let mut files: BTreeMap<&str, BTreeMap<Facts, Vec<&str>>> = BTreeMap::new();
    for (kind, entry) in registry.iter() {
        let known = facts.remove(kind).unwrap_or_default();
        files.entry(entry.file).or_default().entry(known).or_default().push(kind);
    }
    let family = |(file, rows): (&'static str, BTreeMap<Facts, Vec<&'static str>>)| {
        let (title, notes) = documentation(root, file)?;
        let chapter = file.split("/src/").nth(1).and_then(|path| path.split('/').next());
        let chapter = chapter.context("a source file outside of src")?.to_owned();
        let mut rows: Vec<_> = rows.into_iter().map(|(facts, kinds)| (kinds, facts)).collect();
        rows.sort();
        Ok(Family { file, chapter, title, notes, rows })
    };
    files.into_iter().map(family).collect()
}

/// The first sentence of a source file's documentation, and what follows.
fn documentation(root: &Path, file: &str) -> Result<(String, String)> {
    let source = fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    let doc = source.lines().map_while(|line| line.strip_prefix("//!"));
    let doc: Vec<&str> = doc.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let text = doc.join("\n");
    let ends = [". ", ".\n", ": <", ":\n<", "\n\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().map_or(text.len(), |end| end + 1);
    let (title, notes) = text.split_at(end);
    let title = plain(title).replace('\n', " ").trim_end_matches(['.', ':', ' ']).to_owned();
    if title.is_empty() {
        bail!("{file} registers operators but has no documentation to name the family by");
    }
    Ok((title, plain(notes.trim())))
}

/// Links to items of the source, as plain words: there are none outside of it.
fn plain(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        match target {
            Some((url, _)) if url.starts_with("http") => plain += &format!("[`{name}`]{rest}"),
            Some((_, rest)) => plain += &format!("`{name}`{rest}"),
            None => plain += &format!("`{}`{rest}", name.trim_start_matches("mod@")),
        }
    }
    plain
}

fn page(families: &[Family]) -> Result<String> {
    let count: usize = families.iter().flat_map(|f| &f.rows).map(|(kinds, _)| kinds.len()).sum();
    let mut text = format!(
        "# Operators\n\n\
         Written by `cargo xtask ops-docs`; do not edit. `plutino ops NAME` shows the same.\n\n\
         plutino runs {count} operator types. A family is one source file: parameters, shape rule, choice of kernel, tests.\n\
         `pnnx.Input`, `pnnx.Output`, `pnnx.Attribute`, `prim::TupleConstruct` and `prim::TupleUnpack` are the \
         graph's own structure and cost nothing. Raw operators (`aten::NAME`) are read by the builder of their public \
         name, with the arguments of PyTorch's native schema.\n\n\
         Columns: *inputs* and *weights* in the order in which they are asked for, *parameters* with what stands for them \
         where a file leaves them out. What has a question mark, or a default, may be missing. A parameter may come as an \
         input of the same name where its value is computed. *Dtypes* are those of the first tensor that a use of the type in \
         `fixtures/` accepts, when everything of the same dtype changes with it; where weights are in the file, they stay \
         f32. An empty cell: nothing, or a constant.\n\n"
    );
    let chapters: BTreeSet<&str> = families.iter().map(|f| f.chapter.as_str()).collect();
    let links: Vec<String> = chapters.iter().map(|name| format!("[{name}](#{name})")).collect();
    writeln!(text, "Chapters: {}.", links.join(", "))?;
    for chapter in chapters {
        writeln!(text, "\n## {chapter}")?;
        for family in families.iter().filter(|f| f.chapter == chapter) {
            writeln!(text, "\n### [{}](../{})\n", family.title, family.file)?;
            if !family.notes.is_empty() {
                writeln!(text, "{}\n", family.notes)?;
            }
            text += "| types | inputs | parameters | weights | dtypes |\n|---|---|---|---|---|\n";
            for (kinds, facts) in &family.rows {
                let kinds: Vec<String> = kinds.iter().map(|k| format!("`{k}`")).collect();
                let cells = cells(facts).map(|cell| cell.replace('|', "\\|"));
                writeln!(text, "| {} | {} |", kinds.join(" "), cells.join(" | "))?;
            }
        }
    }
    Ok(text)
}

/// What the command line reads: a line for each family, and below it one for each of its rows,
/// whose fields are separated by tabs.
fn table(families: &[Family]) -> Result<String> {
    let mut text = String::new();
    for family in families {
        let notes = family.notes.replace('\n', "\\n");
        writeln!(text, "# {}\t{}\t{notes}", family.title, family.file)?;
        for (kinds, facts) in &family.rows {
            writeln!(text, "{}\t{}", kinds.join(" "), cells(facts).join("\t"))?;
        }
    }
    Ok(text)
}

/// Inputs, parameters, weights and dtypes, as they are shown.
fn cells(facts: &Facts) -> [String; 4] {
    let named = |sort| -> Vec<&Asked> { facts.of(sort) };
    let parameters: Vec<&Asked> = named(AskedSort::Parameter);
    let is_parameter = |key: &str| parameters.iter().any(|p| p.key == key);
    let inputs: Vec<String> = named(AskedSort::Input)
        .into_iter()
        .filter(|input| !is_parameter(&input.key))
        .map(|input| format!("{}{}", input.key, if input.default.is_some() { "?" } else { "" }))
        .collect();
    let weights: Vec<&str> = named(AskedSort::Weight).iter().map(|w| w.key.as_str()).collect();
    let parameters: Vec<String> = parameters.iter().map(|p| parameter(p)).collect();
    [inputs.join(", "), parameters.join("; "), weights.join(", "), dtypes(&facts.dtypes)]
}

/// `stride = 1 (2 integers of at least 1)`
fn parameter(asked: &Asked) -> String {
    let default = asked.default.as_deref().map(python);
    let mut text = asked.key.clone();
    match default.as_deref() {
        None => {}
        Some("None") => text += "?",
        Some(default) => text += &format!(" = {default}"),
    }
    match (asked.expected.as_str(), default.as_deref()) {
        ("", _) | ("True or False", Some("True" | "False")) => {}
        (expected, _) => text += &format!(" ({expected})"),
    }
    text
}

/// A value as Python writes it.
fn python(rust: &str) -> String {
    match rust {
        "true" => "True".into(),
        "false" => "False".into(),
        other => {
            let number = other.strip_prefix("Int(").or_else(|| other.strip_prefix("Float("));
            let other = number.and_then(|n| n.strip_suffix(')')).unwrap_or(other);
            other.trim_matches('"').trim_end_matches(".0").to_owned()
        }
    }
}

/// Dtypes, by groups where they are complete.
fn dtypes(found: &BTreeSet<DType>) -> String {
    use DType::{Bf16, Bool, C32, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8};
    if DType::ALL.iter().all(|dtype| found.contains(dtype)) {
        return "any".into();
    }
    let groups: [(&str, &[DType]); 4] = [
        ("bool", &[Bool]),
        ("integers", &[U8, I8, I16, I32, I64]),
        ("floats", &[Bf16, F16, F32, F64]),
        ("complex", &[C32, C64, C128]),
    ];
    let mut words = Vec::new();
    for (name, members) in groups {
        match members.iter().all(|dtype| found.contains(dtype)) {
            true => words.push(name),
            false => words.extend(members.iter().filter(|d| found.contains(d)).map(|d| d.name())),
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_named_by_complete_groups() {
        assert_eq!(dtypes(&DType::ALL.into()), "any");
        let some = [DType::Bool, DType::F32, DType::F64, DType::C32, DType::C64, DType::C128];
        assert_eq!(dtypes(&some.into()), "bool, f32, f64, complex");
    }

    #[test]
    fn links_into_the_source_are_words() {
        let text = "[`a`] and [`b`](crate::b), [`c`](https://c), [`mod@d`]: [e](https://e)";
        assert_eq!(plain(text), "`a` and `b`, [`c`](https://c), `d`: [e](https://e)");
    }

    #[test]
    fn defaults_are_written_as_python_does() {
        let values = ["true", "0.5", "1.0", "\"zeros\"", "None", "Int(-1)"];
        let expected = ["True", "0.5", "1", "zeros", "None", "-1"];
        assert_eq!(values.map(python), expected);
    }
}

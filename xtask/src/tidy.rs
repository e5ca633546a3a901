//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md that no compiler checks.
//!
//! Each rule is a function from the list of the project's files to the places that break it. A rule
//! that knows exceptions names them, so that a new one is a change that a reviewer sees.

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{features, licences, promises, wheel};

/// Check the invariants of ARCHITECTURE.md that no compiler checks
#[derive(clap::Args)]
pub(crate) struct Args;

/// Lines beyond which a file is hard to read in one sitting.
const LONG: usize = 800;

/// Columns beyond which a comment is too wide.
const WIDE: usize = 100;

/// Crates of ours that each crate of ours may depend on, tests included. The order of the project.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("plutino-ir", &[]),
    ("plutino-tensor", &[]),
    ("plutino-cpu", &["plutino-tensor", "plutino-reference"]),
    ("plutino-products", &["plutino-cpu", "plutino-tensor", "plutino-reference"]),
    (
        "plutino-convolution",
        &["plutino-cpu", "plutino-products", "plutino-tensor", "plutino-reference"],
    ),
    ("plutino-fourier", &["plutino-cpu", "plutino-tensor", "plutino-reference"]),
    ("plutino-linalg", &["plutino-tensor"]),
    (
        "plutino-kernels",
        &[
            "plutino-cpu",
            "plutino-products",
            "plutino-convolution",
            "plutino-fourier",
            "plutino-linalg",
            "plutino-tensor",
            "plutino-reference",
        ],
    ),
    (
        "plutino-reference", // a dependency of tests alone, so that this is no circle
        &[
            "plutino-cpu",
            "plutino-products",
            "plutino-convolution",
            "plutino-kernels",
            "plutino-tensor",
        ],
    ),
    ("plutino-ops", &["plutino-ir", "plutino-tensor", "plutino-kernels", "plutino-reference"]),
    (
        "plutino-runtime",
        &["plutino-ir", "plutino-tensor", "plutino-kernels", "plutino-ops", "plutino-fixtures"],
    ),
    ("plutino-generate", &["plutino-ir", "plutino-tensor", "plutino-ops", "plutino-runtime"]),
    (
        "plutino",
        &[
            "plutino-ir",
            "plutino-tensor",
            "plutino-kernels",
            "plutino-ops",
            "plutino-runtime",
            "plutino-generate",
        ],
    ),
    ("plutino-fixtures", &["plutino-ir", "plutino-tensor"]),
    ("plutino-vision", &["plutino"]),
    ("plutino-view", &["plutino"]),
    ("plutino-cli", &["plutino", "plutino-fixtures", "plutino-view", "plutino-vision"]),
    ("plutino-python", &["plutino", "plutino-view"]),
];

/// Where `unsafe` may stand beside [`KERNELS`]: the tensor crate's buffers, the runtime's arena,
/// the mmap module.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/plutino-kernels/benches/",
    "crates/plutino-tensor/src/buffer.rs",
    "crates/plutino-runtime/src/memory/arena.rs",
    "crates/plutino-ir/src/mmap.rs",
    "tests/tests/allocations.rs",    // a counting global allocator
    "tests/tests/refusals.rs",       // one that refuses
    "tests/tests/factorisations.rs", // one that counts what is alive
    "tests/loom/src/",               // memory of tasks, as kernels share it
];

/// Sources of the crates of kernels: unsafe by nature, and of sizes that come from outside.
const KERNELS: &[&str] = &[
    "crates/plutino-cpu/src/",
    "crates/plutino-products/src/",
    "crates/plutino-convolution/src/",
    "crates/plutino-fourier/src/",
    "crates/plutino-kernels/src/",
];

/// The only file that reads environment variables below the command line and the chores.
const KNOBS: &str = "crates/plutino-runtime/src/knobs.rs";

/// The only file that names rayon.
const THREADS: &str = "crates/plutino-cpu/src/par/mod.rs";

/// A source file: its path from the project's root, and its text.
struct Source {
    path: String,
    text: String,
}

/// A broken rule: where, and what.
type Finding = String;

/// A rule: the places that break it.
type Rule = fn(&Path, &[Source]) -> Result<Vec<Finding>>;

/// Runs every rule; an error lists what they found.
pub(crate) fn run(root: &Path) -> Result<()> {
    let sources = rust_files(root)?;
    let rules: &[(&str, Rule)] = &[
        ("dependencies follow the order of the crates", dependencies),
        ("unsafe only where ARCHITECTURE.md allows it", unsafe_code),
        ("crates without unsafe code forbid it", forbid),
        ("nothing below the command line prints", printing),
        ("environment variables are read in knobs.rs only", environment),
        ("one file names rayon", rayon),
        ("files are readable in one sitting", length),
        ("no stub is left", stubs),
        ("sizes from outside are taken through plutino_tensor::alloc", sizes),
        ("comments are at most 100 columns wide", width),
        ("documents name files that exist", documents),
        ("every dependency has a licence of deny.toml", |root, _| licences::refused(root)),
        ("promises of SECURITY.md name tests", |root, _| promises::broken(root)),
        ("the wheel has what the workspace was tested with", |root, _| wheel::drift(root)),
        ("every selection of packages builds the same", |root, _| features::differences(root)),
    ];
    let mut findings = Vec::new();
    for (name, rule) in rules {
        for finding in rule(root, &sources)? {
            findings.push(format!("{name}: {finding}"));
        }
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} findings\n{}", findings.len(), findings.join("\n"))
}

fn rust_files(root: &Path) -> Result<Vec<Source>> {
    let mut pending: Vec<PathBuf> =
        ["crates", "examples", "fuzz", "xtask", "tests"].iter().map(|d| root.join(d)).collect();
    let mut sources = Vec::new();
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    pending.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path)?;
                let path = path.strip_prefix(root)?.display().to_string();
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The lines of code of `source`, numbered from 1, without comments.
fn code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
}

/// Every line of code of `sources` that contains one of `words`, but for the files that `allowed`
/// names.
fn places(sources: &[Source], words: &[&str], allowed: impl Fn(&str) -> bool) -> Vec<Finding> {
    sources
        .iter()
        .filter(|s| !allowed(&s.path))
        .flat_map(|s| {
            code(s)
                .filter(|(_, line)| words.iter().any(|w| line.contains(w)))
                .map(|(n, line)| format!("{}:{n}: {}", s.path, line.trim()))
        })
        .collect()
}

fn dependencies(root: &Path, _: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml"))?;
        let Some((_, allowed)) = MAY_DEPEND.iter().find(|(c, _)| *c == name) else {
            findings.push(format!("crate {name} has no place in the order"));
            continue;
        };
        let ours = |line: &&str| line.starts_with("plutino");
        for line in manifest.lines().filter(ours) {
            let dep: &str = line.split([' ', '=', '.']).next().unwrap_or(line);
            if !allowed.contains(&dep) && dep != "plutino-unify" {
                findings.push(format!("{name} depends on {dep}"));
            }
        }
    }
    Ok(findings)
}

fn unsafe_code(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let words = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "allow(unsafe_code)"];
    Ok(places(sources, &words, |p| {
        KERNELS.iter().chain(MAY_BE_UNSAFE).any(|a| p.starts_with(a)) || p == "xtask/src/tidy.rs"
    }))
}

fn forbid(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let root_file = |p: &str| p.ends_with("src/lib.rs") || p.ends_with("src/main.rs");
    Ok(sources
        .iter()
        .filter(|s| root_file(&s.path))
        .filter(|s| {
            let dir = s.path.rsplit_once("src/").map_or("", |(d, _)| d);
            let may = MAY_BE_UNSAFE.iter().any(|a| a.starts_with(dir));
            let safe = s.text.contains("forbid(unsafe_code)")
                || (may && s.text.contains("deny(unsafe_code)"));
            // Kernels are unsafe by nature: each block states its precondition (a clippy lint).
            !KERNELS.iter().any(|dir| s.path.starts_with(dir)) && !safe
        })
        .map(|s| s.path.clone())
        .collect())
}

fn printing(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let may = |p: &str| {
        p.starts_with("crates/plutino-cli/")
            || p.starts_with("xtask/")
            || p.contains("/tests/")
            || p.ends_with("/tests.rs")
            || p.contains("/benches/")
            || p.contains("/examples/")
            || p.ends_with("/build.rs")
    };
    Ok(places(sources, &["println!", "eprintln!", "print!(", "eprint!(", "dbg!("], may))
}

fn environment(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let may = |p: &str| {
        p == KNOBS || p.starts_with("xtask/") || p.contains("/tests/") || p.contains("build.rs")
    };
    Ok(places(sources, &["env::var", "env::set_var"], may))
}

fn rayon(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    Ok(places(sources, &["rayon"], |p| p == THREADS || p == "xtask/src/tidy.rs"))
}

fn length(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    Ok(sources
        .iter()
        .map(|s| (s, s.text.lines().count()))
        .filter(|(_, lines)| *lines > LONG)
        .map(|(s, lines)| format!("{} has {lines} lines, more than {LONG}", s.path))
        .collect())
}

fn stubs(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    Ok(places(sources, &["todo!(", "unimplemented!(", "#[ignore]"], |p| p == "xtask/src/tidy.rs"))
}

/// Crates beside [`KERNELS`] whose lists and tables are as long as files, shapes and inputs say.
const SIZED: &[&str] = &[
    "crates/plutino-ir/src/",
    "crates/plutino-tensor/src/",
    "crates/plutino-ops/src/",
    "crates/plutino-runtime/src/",
    "crates/plutino-generate/src/",
    "crates/plutino-cli/src/",
    "crates/plutino-view/src/",
    "crates/plutino-vision/src/",
];

/// Where memory is taken for others, and refused as an error.
const TAKING: &[&str] =
    &["crates/plutino-tensor/src/alloc.rs", "crates/plutino-runtime/src/lists.rs"];

/// What makes a list of some length by force. Memory that is refused would end the process, and is
/// on nobody's budget.
const FORCED: &[&str] =
    &["vec![", "with_capacity(", "repeat_n(", ".resize(", "].repeat(", "\".repeat(", ".reserve("];

/// Words of a length that is that of something in memory already, or of a few: dimensions, threads.
/// The length stands as it is written: `shape.numel()` is none of these.
const SMALL: &[&str] = &[
    ".len()",
    "rank",
    "dims",
    "threads",
    "operator_count()",
    "operand_count()",
    "operator_slots()",
    "operand_slots()",
    "leaf_count()",
];

/// Words of a length that is large though it has one of [`SMALL`]: `dims.iter().product()`.
const LARGE: &[&str] = &["product", "numel", "fold", "pow", "<<"];

/// Of crates of whose files each change compiles everything anew: file, what stands there, and why
/// it is bounded.
const FIXED: &[(&str, &str, &str)] = &[
    ("plutino-tensor/src/npy/header.rs", "vec![0; len]", "MAX_TEXT, 64 KiB"),
    ("plutino-tensor/src/npy/header.rs", "repeat_n(' ', end", "ALIGN, 64 bytes"),
    ("plutino-tensor/src/display.rs", "(0..size).map(Some)", "shown whole: 1000 elements"),
    ("plutino-tensor/src/display.rs", "repeat_n(' ', indent", "dimensions"),
    ("plutino-convolution/src/plain/windows.rs", "group_in() * problem.taps()", "a filter"),
    ("plutino-products/src/recurrent/any.rs", "(0..shape.gates())", "rows of the weights"),
];

/// How often each crate says that a list is bounded (`// bounded: why`). The numbers only go down:
/// who removes one lowers its number, who adds one has to say here why memory cannot be refused.
const BOUNDED: &[(&str, usize)] = &[
    ("plutino-cli", 2),
    ("plutino-convolution", 7),
    ("plutino-kernels", 1),
    ("plutino-linalg", 4),
    ("plutino-ops", 28),
    ("plutino-runtime", 23),
    ("plutino-view", 2),
    ("plutino-vision", 1),
];

/// Whether a length is made of numbers and names of constants.
fn is_constant(length: &str) -> bool {
    length.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase() || " _*+".contains(c))
}

/// Lists of a length that neither is that of something in memory nor is said to be bounded (`//
/// bounded: why`).
fn sizes(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let concerned = |s: &&Source| {
        let apart = ["/tests", "/testkit"].iter().any(|part| s.path.contains(part));
        let taking = TAKING.contains(&s.path.as_str());
        KERNELS.iter().chain(SIZED).any(|dir| s.path.starts_with(dir)) && !apart && !taking
    };
    for source in sources.iter().filter(concerned) {
        for (n, line) in source.text.lines().enumerate() {
            if line.contains("#[cfg(test)]") {
                break;
            }
            let code = line.split("//").next().unwrap_or("");
            if let Some(length) = forced_length(code)
                && !line.contains("// bounded: ")
                && !code.contains("alloc::")
                && !FIXED.iter().any(|(p, c, _)| source.path.ends_with(p) && code.contains(c))
                && (!SMALL.iter().any(|word| length.contains(word))
                    || LARGE.iter().any(|word| length.contains(word)))
                && !is_constant(length)
            {
                findings.push(format!("{}:{}: {}", source.path, n + 1, line.trim()));
            }
        }
    }
    findings.extend(exceptions(sources));
    Ok(findings)
}

/// Crates whose number of exceptions is another than [`BOUNDED`] says.
fn exceptions(sources: &[Source]) -> Vec<Finding> {
    let marks =
        |source: &Source| source.text.lines().filter(|l| l.contains("// bounded: ")).count();
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.iter().filter(|s| !TAKING.contains(&s.path.as_str())) {
        if let Some(krate) = source.path.strip_prefix("crates/").and_then(|p| p.split('/').next()) {
            *found.entry(krate).or_default() += marks(source);
        }
    }
    let allowed: BTreeMap<&str, usize> = BOUNDED.iter().copied().collect();
    let all: BTreeSet<&str> = found.keys().chain(allowed.keys()).copied().collect();
    let of = |counts: &BTreeMap<&str, usize>, krate| counts.get(krate).copied().unwrap_or(0);
    let counts = all.into_iter().map(|krate| (krate, of(&found, krate), of(&allowed, krate)));
    let other = counts.filter(|(_, found, allowed)| found != allowed);
    other
        .map(|(krate, found, allowed)| match found > allowed {
            true => format!("{krate} has {found} lists marked as bounded, {allowed} are known"),
            false => format!("{krate} has {found} lists marked as bounded: lower the {allowed}"),
        })
        .collect()
}

/// Tables, formulas, pictures and addresses may be wider: they cannot be broken.
fn width(_: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for source in sources {
        let lines = source.text.lines().enumerate().filter(|(_, l)| l.chars().count() > WIDE);
        for (n, line) in lines {
            let Some(text) = line.trim_start().strip_prefix("//") else { continue };
            let text = text.trim_start_matches(['/', '!']);
            let is_prose = !text.starts_with("  ") && !text.contains("   ") && !text.contains("= ");
            if is_prose
                && !text.starts_with(" |")
                && !text.contains("](")
                && !text.contains("<http")
            {
                findings.push(format!("{}:{}: {}", source.path, n + 1, line.trim()));
            }
        }
    }
    Ok(findings)
}

/// Files that documents name and that are not there: a name is the end of a path, which may begin
/// below `crates/plutino-`. Changes and benchmarks keep the names of their days.
fn documents(root: &Path, sources: &[Source]) -> Result<Vec<Finding>> {
    let exists = |name: &str| {
        sources.iter().any(|source| {
            let short = source.path.strip_prefix("crates/plutino-");
            [Some(&*source.path), short].into_iter().flatten().any(|path| {
                path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            })
        })
    };
    let mut findings = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(root.join(&page))?;
        for (n, line) in text.lines().enumerate() {
            let words = line.split('`').skip(1).step_by(2);
            for name in
                words.filter(|word| word.ends_with(".rs") && !word.contains([' ', '*', '<']))
            {
                if !exists(name) {
                    findings.push(format!("{page}:{}: {name}", n + 1));
                }
            }
        }
    }
    Ok(findings)
}

/// Documents about what is, by their paths from the project's root.
fn pages(root: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/decisions"] {
        for entry in fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?.display().to_string();
            if name.ends_with(".md") && name != "CHANGELOG.md" {
                pages.push(name);
            }
        }
    }
    Ok(pages)
}

/// The length of the list that a line of code makes by force, as it stands there.
fn forced_length(code: &str) -> Option<&str> {
    for word in FORCED {
        let Some((_, rest)) = code.split_once(word) else { continue };
        return match *word {
            "vec![" => rest.split(']').next()?.split_once(';').map(|(_, n)| n),
            "].repeat(" | "\".repeat(" | ".reserve(" => rest.rsplit_once(')').map(|(n, _)| n),
            "repeat_n(" => rest.split_once(',').and_then(|(_, n)| n.split(')').next()),
            _ => rest.split([',', ';']).next(),
        };
    }
    let (_, range) = code.split_once("(0..").filter(|_| code.contains("collect"))?;
    let mut depth = 1;
    let end = range.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    range.get(..end?)
}

#[cfg(test)]
mod tests {
    use super::{BOUNDED, Source, exceptions, forced_length, is_constant};

    #[test]
    fn exceptions_are_counted() {
        let source = |marks: usize| Source {
            path: "crates/plutino-cli/src/x.rs".to_owned(),
            text: "vec![0; n]; // bounded: so\n".repeat(marks),
        };
        let found =
            |marks: usize| exceptions(&[source(marks)]).into_iter().find(|f| f.contains("-cli"));
        let known = BOUNDED.iter().find(|(name, _)| *name == "plutino-cli").unwrap().1;
        assert_eq!(found(known), None);
        assert!(found(known + 1).unwrap().contains(&format!("{known} are known")));
        assert!(found(known - 1).unwrap().contains(&format!("lower the {known}")));
    }

    #[test]
    fn constants_are_no_sizes_from_outside() {
        assert!([" 2 * 8", " RECORD", " MOST_BYTES + 1"].iter().all(|length| is_constant(length)));
        assert!([" n", " N * len", " T::OUT"].iter().all(|length| !is_constant(length)));
    }

    #[test]
    fn lengths_of_lists_are_found() {
        assert_eq!(forced_length("let a = vec![0.0; n * m];"), Some(" n * m"));
        assert_eq!(
            forced_length("let a = Vec::with_capacity(count);").map(str::trim),
            Some("count)")
        );
        assert_eq!(forced_length("(0..size).map(f).collect()"), Some("size"));
        assert_eq!(forced_length("(0..x.shape().rank()).collect()"), Some("x.shape().rank()"));
        assert_eq!(forced_length("axes.extend(repeat_n(None, n))"), Some(" n"));
        assert_eq!(forced_length("let a = [x].repeat(n * m);"), Some("n * m"));
        assert_eq!(forced_length("let a = vec![x, y];"), None);
        assert_eq!(forced_length("for i in 0..n {"), None);
    }
}

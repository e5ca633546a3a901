//! `cargo xtask gallery`: docs/gallery.md and its pictures, as the command makes them.
//!
//! What a picture shows is computed by scalar code, which has the same bits on every machine, so
//! that the chore can tell whether page and command still agree; the times beside are those of the
//! instruction set that the machine has.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Make docs/gallery.md and its pictures
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing: fail where the page or a picture would change (times apart).
    #[arg(long)]
    check: bool,
}

/// A part of the page.
struct Show {
    title: &'static str,
    about: &'static str,
    /// The command's arguments; `{}` is the folder of the picture.
    arguments: &'static str,
    /// What it draws.
    picture: &'static str,
}

const SHOWS: &[Show] = &[
    Show {
        title: "Classify",
        about: "A network of 26,000 weights that has learnt handwritten digits; it is built into the command.",
        arguments: "classify fixtures/digits/model.pnnx.param -i fixtures/digits/samples/3.png \
                    fixtures/digits/samples/8.png --top 3",
        picture: "",
    },
    Show {
        title: "Detect",
        about: "A detector of three classes, trained on shapes that the fixture script drew. The picture is fitted into the \
                model's size as ultralytics does, boxes that overlap are suppressed as torchvision does.",
        arguments: "detect fixtures/shapes/detector/model.pnnx.param -i fixtures/shapes/0.png -o {}boxes.png",
        picture: "boxes.png",
    },
    Show {
        title: "Detect: another picture",
        about: "",
        arguments: "detect fixtures/shapes/detector/model.pnnx.param -i fixtures/shapes/2.png -o {}boxes-2.png",
        picture: "boxes-2.png",
    },
    Show {
        title: "Segment",
        about: "The same shapes, pixel by pixel, with a legend.",
        arguments: "segment fixtures/shapes/segmenter/model.pnnx.param -i fixtures/shapes/0.png -o {}masks.png",
        picture: "masks.png",
    },
    Show {
        title: "Segment: the classes alone",
        about: "A picture of numbers, with the palette of Pascal VOC.",
        arguments: "segment fixtures/shapes/segmenter/model.pnnx.param -i fixtures/shapes/2.png --mask {}classes.png",
        picture: "classes.png",
    },
    Show {
        title: "Memory",
        about: "Which values share the memory of a run, from its first step (left) to its last.",
        arguments: "info fixtures/shapes/segmenter/model.pnnx.param --shape 1x3x96x96 --svg {}arena.svg",
        picture: "arena.svg",
    },
];

/// Where pictures lie, below the project's root.
const PICTURES: &str = "docs/pictures/";

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let plutino = command(root)?;
    let mut page = String::from(
        "# Gallery\n\nWhat `plutino` makes of the pictures and models that come with the sources. `cargo xtask gallery` \
         remakes this page.\n",
    );
    for show in SHOWS {
        let made = tempfile(root)?;
        let drawn = format!("{}/", made.display());
        let told = call(root, &plutino, show, &drawn, "scalar")?.replace(&drawn, PICTURES);
        let fresh = match show.picture {
            "" => None,
            name => Some(std::fs::read(made.join(name)).with_context(|| name.to_owned())?),
        };
        std::fs::remove_dir_all(&made)?;
        let command = show.arguments.replace("{}", PICTURES);
        write!(page, "\n## {}\n\n", show.title)?;
        if !show.about.is_empty() {
            write!(page, "{}\n\n", show.about)?;
        }
        write!(page, "```console\n$ plutino {command}\n")?;
        let told = if args.check { told } else { timed(root, &plutino, show, &told)? };
        writeln!(page, "{told}```")?;
        if let Some(fresh) = fresh {
            write!(page, "\n![{}](pictures/{})\n", show.title.to_lowercase(), show.picture)?;
            let path = root.join(PICTURES).join(show.picture);
            match args.check {
                true => ensure!(
                    std::fs::read(&path).ok() == Some(fresh),
                    "{} is not what `plutino {command}` makes: run `cargo xtask gallery`",
                    path.display()
                ),
                false => std::fs::write(&path, fresh)?,
            }
        }
    }
    let path = root.join("docs/gallery.md");
    if args.check {
        let old = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(
            without_times(&old) == without_times(&page),
            "{} is not what the command prints: run `cargo xtask gallery`",
            path.display()
        );
        return Ok(());
    }
    std::fs::write(&path, page).with_context(|| path.display().to_string())
}

/// The command, beside this chore's own executable; built if it is not there.
fn command(root: &Path) -> Result<PathBuf> {
    let plutino = std::env::current_exe()?.with_file_name("plutino");
    if !plutino.exists() {
        let built = Command::new("cargo")
            .current_dir(root)
            .args(["build", "--workspace", "--locked", "--bin", "plutino"])
            .status()?;
        ensure!(built.success(), "cargo build: {built}");
    }
    Ok(plutino)
}

/// A folder that holds nothing.
fn tempfile(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/gallery");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// What the command prints.
fn call(root: &Path, plutino: &Path, show: &Show, drawn: &str, isa: &str) -> Result<String> {
    let mut command = Command::new(plutino);
    command.current_dir(root).args(show.arguments.replace("{}", drawn).split_whitespace());
    if !isa.is_empty() {
        command.env("PLUTINO_ISA", isa);
    }
    let output = command.output().context("plutino")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "plutino {}: {said}", show.arguments);
    Ok(String::from_utf8(output.stdout)?)
}

/// The same lines with the times of a run by what this machine has: the last of several, when all
/// files are in memory.
fn timed(root: &Path, plutino: &Path, show: &Show, told: &str) -> Result<String> {
    let folder = tempfile(root)?;
    let drawn = format!("{}/", folder.display());
    let mut last = String::new();
    for _ in 0..5 {
        last = call(root, plutino, show, &drawn, "")?;
    }
    std::fs::remove_dir_all(folder)?;
    let times: Vec<&str> = last.lines().map(|line| time_of(line).unwrap_or_default()).collect();
    let mut lines = String::new();
    for (line, time) in told.lines().zip(times.into_iter().chain(std::iter::repeat(""))) {
        match time_of(line) {
            Some(old) if !time.is_empty() => writeln!(lines, "{}", line.replace(old, time))?,
            _ => writeln!(lines, "{line}")?,
        }
    }
    Ok(lines)
}

/// A time in parentheses at the end of a line.
fn time_of(line: &str) -> Option<&str> {
    let time = line.strip_suffix("s)")?.rsplit_once('(')?.1;
    let end = line.len() - 1;
    time.starts_with(|c: char| c.is_ascii_digit()).then(|| &line[end - time.len() - 1..end])
}

fn without_times(page: &str) -> String {
    let line = |line: &str| match time_of(line) {
        Some(time) => line.replace(time, "..."),
        None => line.to_owned(),
    };
    page.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_differ_and_nothing_else() {
        assert_eq!(time_of("a.png: 4 things (559.4 µs)"), Some("559.4 µs"));
        assert_eq!(time_of("a.png (things)"), None);
        assert_eq!(without_times("a (1 ms)\nb"), without_times("a (2.5 µs)\nb"));
        assert_ne!(without_times("a (1 ms)\nb"), without_times("b (1 ms)\nb"));
    }
}

//! `plutino classify`

use crate::failure::Failure;
use crate::findings::{Finding, FormatArgs};
use crate::output::{Output, time};
use crate::pictures::{ImageArgs, Shot};
use crate::session::parse_whole;
use crate::timing::as_millis;
use plutino_vision::{Class, Recipe, likeliest, scores};
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// Say what pictures show: the likeliest classes, with bars
///
/// Pictures are prepared as MODEL.preprocess.json beside the model says; without that file as for
/// torchvision's classifiers: the shorter side is resized to 256 pixels, 224 x 224 are cut out of
/// the middle (in proportion for models that record another size), and ImageNet's mean and
/// deviation are taken off. Models of one channel take the whole picture.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many classes to show
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = parse_whole)]
    top: usize,
    #[command(flatten)]
    format: FormatArgs,
    // Last: what follows its options would stand under their headings.
    #[command(flatten)]
    pub(super) images: ImageArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    picture: String,
    /// Of the run alone; its share where the picture was part of a batch.
    #[serde(serialize_with = "as_millis", rename = "ms")]
    time: Duration,
    classes: Vec<Guess>,
}

#[derive(Serialize)]
struct Guess {
    index: usize,
    name: String,
    probability: f64,
}

/// Characters of a bar for probability 1.
const BAR: usize = 24;

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let pictures = args.images.pictures()?;
    let mut printer =
        args.format.printer(out, &["picture", "rank", "class", "name", "probability"]);
    args.images.each(&pictures, Recipe::of_classifier, |shot, labels| {
        let Shot { name, outputs, time, .. } = shot;
        let scores = scores(&outputs)?;
        let labels = labels.of_classes(scores.numel())?;
        let guess = |class: Class| Guess {
            index: class.index,
            name: labels.name(class.index).to_owned(),
            probability: class.probability,
        };
        let classes = likeliest(&scores, args.top)?.into_iter().flatten().map(guess).collect();
        printer.show(Report { picture: name, time, classes })
    })?;
    printer.finish()
}

impl Finding for Report {
    fn rows(self) -> impl Iterator<Item = Vec<String>> {
        let Self { picture, classes, .. } = self;
        classes.into_iter().zip(1..).map(move |(guess, rank)| {
            let Guess { index, name, probability } = guess;
            let [rank, index] = [rank, index].map(|n: usize| n.to_string());
            vec![picture.clone(), rank, index, name, format!("{probability:.6}")]
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        writeln!(out, "{} ({})", self.picture, time(self.time))?;
        for Guess { index, name, probability } in &self.classes {
            let (percent, bar) = (probability * 100.0, bar(*probability));
            let line = format!("{percent:6.2} % {bar:<BAR$} {index:>4}  {name}");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A bar in eighths of a character.
fn bar(probability: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (probability.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let whole = (0..eighths / 8).map(|_| "█");
    whole.chain([EIGHTHS[eighths % 8]]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_eighths() {
        assert_eq!(bar(1.0).chars().count(), BAR);
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0 / 48.0), "▌");
        assert_eq!(bar(f64::NAN), "");
    }
}

//! `plutino detect`

use crate::failure::Failure;
use crate::findings::{Finding, FormatArgs};
use crate::output::{Output, count, time};
use crate::pictures::{Drawings, ImageArgs, Shot};
use crate::session::parse_whole;
use crate::timing::as_millis;
use plutino_vision::{
    Boxes, Detection, LETTER, Labels, Layout, Pixels, Recipe, Suppressor, palette,
};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Find things in pictures: boxes with names and scores, drawn into the pictures
///
/// Reads what YOLOv5 to YOLOv11 put out, told apart by its shape. Pictures are prepared as
/// MODEL.preprocess.json beside the model says; without that file as ultralytics does: fitted into
/// the size that the model records, 640 x 640 where it records none, with grey beside them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Draw the boxes: a PNG file, or a folder where there are several pictures
    #[arg(short, long, value_name = "OUT.png|FOLDER")]
    pub(super) output: Option<PathBuf>,
    /// Leave out boxes with no higher score
    #[arg(long, value_name = "SCORE", default_value_t = 0.25, value_parser = parse_unit)]
    score: f32,
    /// Leave out boxes that overlap a better one of their class by more: intersection over union
    #[arg(long, value_name = "IOU", default_value_t = 0.45, value_parser = parse_unit)]
    iou: f32,
    /// Boxes of a picture, at most
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = parse_whole)]
    most: usize,
    /// What the numbers of the output mean [default: by its shape]
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    #[command(flatten)]
    format: FormatArgs,
    // Last: what follows its options would stand under their headings.
    #[command(flatten)]
    pub(super) images: ImageArgs,
}

/// For clap: a number from 0 to 1.
fn parse_unit(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|n| (0.0..=1.0).contains(n));
    number.ok_or_else(|| "a number from 0 to 1".into())
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    picture: String,
    /// Of the run alone; its share where the picture was part of a batch.
    #[serde(serialize_with = "as_millis", rename = "ms")]
    time: Duration,
    boxes: Vec<BoxReport>,
}

#[derive(Serialize)]
struct BoxReport {
    class: usize,
    name: String,
    score: f32,
    /// x1, y1, x2, y2 in pixels of the picture.
    corners: [f32; 4],
}

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let pictures = args.images.pictures()?;
    let suppressor = Suppressor::new(args.iou)?;
    let mut drawings = Drawings::asked(args.output.as_deref(), pictures.len())?;
    let mut printer =
        args.format.printer(out, &["picture", "class", "name", "score", "x1", "y1", "x2", "y2"]);
    args.images.each(&pictures, Recipe::of_detector, |shot, labels| {
        let Shot { name, pixels, placement, outputs, time, .. } = shot;
        let decoded = Boxes::read(&outputs, args.layout, args.score)?;
        let mut found = match decoded.layout {
            Layout::EndToEnd => decoded.found,
            _ => suppressor.suppress(decoded.found, args.most)?,
        };
        found.truncate(args.most);
        for one in &mut found {
            *one = one.in_picture(&placement, pixels.size());
        }
        let named = found.iter().map(|d| d.class + 1).max().unwrap_or(0);
        let labels = labels.of_classes(decoded.classes.unwrap_or(named))?;
        if let Some(drawings) = &mut drawings {
            draw(pixels, &found, &labels)?.save(&drawings.path(&name)?)?;
        }
        let boxes = found.iter().map(|one| BoxReport {
            class: one.class,
            name: labels.name(one.class).to_owned(),
            score: one.score,
            corners: one.corners,
        });
        printer.show(Report { picture: name, time, boxes: boxes.collect() })
    })?;
    printer.finish()
}

/// The picture with frames and names, the best on top.
fn draw(pixels: Pixels, found: &[Detection], labels: &Labels) -> Result<Pixels, Failure> {
    let size = pixels.size();
    let mut canvas = pixels.canvas(0)?;
    // In proportion: what can be read of a large picture covers a small one.
    let thick = (size.height.max(size.width) / 320).max(1);
    let scale = thick.div_ceil(2);
    for one in found.iter().rev() {
        let colour = palette(one.class + 1);
        canvas.frame(one.corners, thick, colour);
        let [x, y, _, bottom] = one.corners.map(|at| at.round() as i64);
        let text = match labels.name(one.class) {
            "" => format!("{} {:.2}", one.class, one.score),
            name => format!("{name} {:.2}", one.score),
        };
        let letter = i64::from(LETTER * scale);
        // Above the frame, or where no place is left, below it.
        let top = if y >= letter { y - letter } else { bottom };
        let wide = letter * text.chars().count() as i64;
        let left = x.min(i64::from(size.width) - wide).max(0);
        canvas.text([left, top], scale, &text, colour);
    }
    Ok(canvas)
}

impl Finding for Report {
    fn rows(self) -> impl Iterator<Item = Vec<String>> {
        let Self { picture, boxes, .. } = self;
        boxes.into_iter().map(move |one| {
            let BoxReport { class, name, score, corners } = one;
            let corners = corners.map(|at| format!("{at:.1}"));
            let first = [picture.clone(), class.to_string(), name, format!("{score:.4}")];
            first.into_iter().chain(corners).collect()
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let found = count(self.boxes.len(), "thing");
        writeln!(out, "{}: {found} ({})", self.picture, time(self.time))?;
        for BoxReport { class, name, score, corners: [x1, y1, x2, y2] } in &self.boxes {
            let name = if name.is_empty() { class.to_string() } else { name.clone() };
            writeln!(out, "{score:6.2}  {name:<16} {x1:6.1} {y1:6.1} to {x2:6.1} {y2:6.1}")?;
        }
        Ok(())
    }
}

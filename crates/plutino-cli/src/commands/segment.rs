//! `plutino segment`

use crate::failure::Failure;
use crate::findings::{Finding, FormatArgs};
use crate::output::{Output, time};
use crate::pictures::{Drawings, ImageArgs, Shot};
use crate::timing::as_millis;
use plutino_vision::{LETTER, Labels, Pixels, Recipe, Segments, palette, save_classes};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Say what every pixel of pictures belongs to: a mask laid over the picture, with a legend
///
/// Reads scores of classes for every pixel, (1, classes, height, width), or the numbers of the
/// classes themselves. Pictures are prepared as MODEL.preprocess.json beside the model says;
/// without that file as for torchvision's segmenters: resized to the size that the model records,
/// else to a shorter side of 520 pixels, and ImageNet's mean and deviation taken off.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Draw the mask over the picture: a PNG file, or a folder where there are several pictures
    #[arg(short, long, value_name = "OUT.png|FOLDER")]
    pub(super) output: Option<PathBuf>,
    /// Write the mask alone, in the size of the picture: a PNG file with VOC's palette, in which
    /// the number of a pixel is its class, or a folder
    #[arg(long, value_name = "OUT.png|FOLDER")]
    pub(super) mask: Option<PathBuf>,
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
    /// Those that occur, the largest first.
    classes: Vec<Area>,
}

#[derive(Serialize)]
struct Area {
    class: usize,
    name: String,
    pixels: usize,
    /// Of the picture's pixels.
    share: f64,
}

/// How much of the picture shows through a mask, at most.
const OPACITY: f32 = 0.55;

/// What names of the ground behind all things are: it is not coloured.
const GROUND: [&str; 4] = ["", "__background__", "background", "ground"];

pub(crate) fn run(args: &Args, out: &mut Output) -> Result<(), Failure> {
    let pictures = args.images.pictures()?;
    let mut drawings = Drawings::asked(args.output.as_deref(), pictures.len())?;
    let mut masks = Drawings::asked(args.mask.as_deref(), pictures.len())?;
    let mut printer = args.format.printer(out, &["picture", "class", "name", "pixels", "share"]);
    args.images.each(&pictures, Recipe::of_segmenter, |shot, labels| {
        let Shot { name, pixels, placement, seen, outputs, time } = shot;
        let segments = Segments::read(&outputs, seen, &placement, pixels.size())?;
        let labels = labels.of_classes(segments.count)?;
        let classes = areas(&segments, &labels);
        if let Some(masks) = &mut masks {
            save_classes(&masks.path(&name)?, pixels.size(), &segments.classes)?;
        }
        if let Some(drawings) = &mut drawings {
            draw(pixels, &segments, &classes)?.save(&drawings.path(&name)?)?;
        }
        printer.show(Report { picture: name, time, classes })
    })?;
    printer.finish()
}

/// How much each class takes.
fn areas(segments: &Segments, labels: &Labels) -> Vec<Area> {
    let mut pixels = [0; 256];
    segments.classes.iter().for_each(|&class| pixels[usize::from(class)] += 1);
    let all = segments.classes.len().max(1) as f64;
    let taken = pixels.into_iter().enumerate().filter(|(_, pixels)| *pixels > 0);
    let area = |(class, pixels)| Area {
        class,
        name: labels.name(class).to_owned(),
        pixels,
        share: pixels as f64 / all,
    };
    let mut areas: Vec<Area> = taken.map(area).collect();
    areas.sort_by_key(|area| (std::cmp::Reverse(area.pixels), area.class));
    areas
}

impl Area {
    fn label(&self) -> String {
        if self.name.is_empty() { self.class.to_string() } else { self.name.clone() }
    }

    fn is_ground(&self) -> bool {
        self.class == 0 && GROUND.contains(&self.name.as_str())
    }
}

/// The picture with every class in its colour, and what the colours mean below.
fn draw(pixels: Pixels, segments: &Segments, areas: &[Area]) -> Result<Pixels, Failure> {
    let size = pixels.size();
    let scale = (size.width / 480).max(1);
    let line = LETTER * scale + 2 * scale;
    let coloured: Vec<&Area> = areas.iter().filter(|area| !area.is_ground()).collect();
    let mut canvas = pixels.canvas(line * coloured.len() as u32)?;
    let ground = areas.iter().any(Area::is_ground);
    let places =
        (0..i64::from(size.height)).flat_map(|y| (0..i64::from(size.width)).map(move |x| (x, y)));
    for ((x, y), &class) in places.zip(&segments.classes) {
        if class > 0 || !ground {
            canvas.mix(x, y, palette(class.into()), OPACITY);
        }
    }
    for (area, top) in coloured.iter().zip((size.height..).step_by(line as usize)) {
        let (colour, top) = (palette(area.class), i64::from(top + scale));
        let letter = LETTER * scale;
        canvas.fill([i64::from(scale), top], [letter * 2, letter], colour);
        let text = format!("{} {:.1}%", area.label(), area.share * 100.0);
        canvas.text([i64::from(letter * 3), top], scale, &text, [0; 3]);
    }
    Ok(canvas)
}

impl Finding for Report {
    fn rows(self) -> impl Iterator<Item = Vec<String>> {
        let Self { picture, classes, .. } = self;
        classes.into_iter().map(move |Area { class, name, pixels, share }| {
            let [class, pixels] = [class, pixels].map(|n| n.to_string());
            vec![picture.clone(), class, name, pixels, format!("{share:.6}")]
        })
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        writeln!(out, "{} ({})", self.picture, time(self.time))?;
        for area in &self.classes {
            writeln!(out, "{:6.2} %  {}", area.share * 100.0, area.label())?;
        }
        Ok(())
    }
}

use std::fmt;
use std::path::PathBuf;

use plutino::ir::{quote_path, told};
use plutino::{ModelError, SessionError, TensorError, TensorSpec};
use thiserror::Error;

use crate::{Format, Size};

/// What is wrong with a picture, a recipe, names of classes, or an output that is read as one of
/// pictures.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VisionError {
    /// A file cannot be read or written.
    #[error("{}: {error}", quote_path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// These bytes begin as no picture does.
    #[error("neither {}", Format::NAMES)]
    NoPicture,
    /// A picture that cannot be decoded.
    #[error("{format}: {reason}")]
    Decode {
        /// As what it was read.
        format: Format,
        /// What the decoder says.
        reason: String,
    },
    /// A picture, or one that is to be made, of a size that is not possible.
    #[error("{size} pixels: from 1 to {most} are possible")]
    Size {
        /// That size.
        size: Size,
        /// Height times width, at most.
        most: u64,
    },
    /// A picture in memory has other bytes than its size and channels say.
    #[error(
        "{found} bytes for {size} pixels of {channels} channels: height x width x channels are \
         wanted, for 1 or 3 channels"
    )]
    Bytes {
        /// Its size.
        size: Size,
        /// Its channels.
        channels: usize,
        /// How many bytes there are.
        found: usize,
    },
    /// The model takes another number of channels than pictures can have.
    #[error("the model takes {channels} channels; pictures have 1 or 3")]
    Channels {
        /// That number.
        channels: usize,
    },
    /// A recipe has numbers for another number of channels.
    #[error(
        "{member} has {found} numbers: give 1{}",
        if *channels == 1 { String::new() } else { format!(" or {channels}") }
    )]
    PerChannel {
        /// `mean` or `std`.
        member: &'static str,
        /// How many there are.
        found: usize,
        /// How many channels the model takes.
        channels: usize,
    },
    /// A recipe subtracts or divides by what makes no number.
    #[error("{member} must be {wanted}, found {found}")]
    Number {
        /// `mean` or `std`.
        member: &'static str,
        /// What would have been right.
        wanted: &'static str,
        /// What there is.
        found: f32,
    },
    /// A picture is to be fitted into a size that nobody said.
    #[error("the model records no size to fit pictures into: give one")]
    NoSize,
    /// A recipe that cannot be read.
    #[error("{}: {}", quote_path(path), told(reason))]
    Recipe {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file with names of classes that cannot be read.
    #[error("{}: {error}; these lists ship: {}", quote_path(path), crate::labels::known())]
    Names {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A list of names has fewer than the model has classes.
    #[error("labels: {source_name} has {found} names, and the model {classes} classes")]
    FewLabels {
        /// Where the names come from.
        source_name: String,
        /// How many names there are.
        found: usize,
        /// How many classes.
        classes: usize,
    },
    /// An output is not what it is read as.
    #[error("{wanted}; {}", found(outputs))]
    Output {
        /// What would have been right.
        wanted: Wants,
        /// What there is.
        outputs: Vec<TensorSpec>,
    },
    /// Memory, or data of another dtype.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// From the model that suppresses boxes.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// From the run that suppresses boxes.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What an output should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wants {
    /// That of a classifier.
    Scores,
    /// That of a detector.
    Boxes,
    /// That of a segmenter.
    Segments,
}

impl fmt::Display for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scores => "a classifier's output has one score for each class",
            Self::Boxes => {
                "no output has the shape of boxes: (1, boxes, 5 + classes), (1, 4 + classes, boxes) \
                 or (1, boxes, 6)"
            }
            Self::Segments => {
                "a segmenter's output is (1, classes, height, width), or holds numbers of at most \
                 255 classes"
            }
        })
    }
}

fn found(outputs: &[TensorSpec]) -> String {
    match outputs {
        [] => "the model has no output".into(),
        [only] => format!("this one is {only}"),
        several => {
            let each: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("the outputs are {}", each.join(", "))
        }
    }
}

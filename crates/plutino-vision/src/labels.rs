//! Names of classes: lists that ship, files, and lists in a model's
//! `preprocess.json`.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::str::FromStr;

use plutino::ir;
use serde::Deserialize;

use crate::VisionError;

/// The lists that ship: names as torchvision gives them in the metadata of its weights.
const LISTS: [(&str, &str); 3] = [
    ("imagenet", include_str!("../assets/labels/imagenet.txt")),
    ("coco", include_str!("../assets/labels/coco.txt")),
    ("voc", include_str!("../assets/labels/voc.txt")),
];

/// Of a file of names, at most.
const MOST_BYTES: u64 = 16 << 20;

/// Entries of a list for numbers that mean no thing: COCO's gaps, and the ground behind all things.
/// Models that leave these numbers out have fewer classes.
const NO_THINGS: [&str; 2] = ["N/A", "__background__"];

/// Which names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "NamesForm")]
pub enum Names {
    /// Of a list that ships.
    Shipped(Shipped),
    /// One a line.
    File(PathBuf),
    /// These, by number.
    These(Vec<String>),
}

/// A list that ships: `imagenet`, `coco` or `voc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped(usize);

/// How JSON says names: those of a list that ships, or the names themselves. Files that a file
/// names are not opened.
#[derive(Deserialize)]
#[serde(untagged)]
enum NamesForm {
    Name(String),
    These(Vec<String>),
}

fn shipped(name: &str) -> Option<Names> {
    LISTS.iter().position(|list| list.0 == name).map(|at| Names::Shipped(Shipped(at)))
}

impl TryFrom<NamesForm> for Names {
    type Error = String;

    fn try_from(form: NamesForm) -> Result<Self, String> {
        match form {
            NamesForm::These(names) => Ok(Self::These(names)),
            NamesForm::Name(name) => shipped(&name).ok_or_else(|| {
                format!("labels: '{name}' is none of {}, nor a list of names", known())
            }),
        }
    }
}

/// Names of the lists that ship.
pub(crate) fn known() -> String {
    LISTS.map(|list| list.0).join(", ")
}

impl FromStr for Names {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(shipped(text).unwrap_or_else(|| Self::File(text.into())))
    }
}

/// Names of classes by number; none at all where nobody gave any.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Labels {
    names: Vec<String>,
    /// Where they come from, for messages.
    source: String,
}

impl Labels {
    /// Those that are meant; none at all for `None`.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(names: Option<&Names>) -> Result<Self, VisionError> {
        let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect();
        let (names, source) = match names {
            None => return Ok(Self::default()),
            Some(Names::These(names)) => (names.clone(), "the labels beside the model".into()),
            Some(Names::Shipped(Shipped(at))) => {
                let (name, text) = LISTS.get(*at).copied().unwrap_or_default();
                (lines(text), name.to_owned())
            }
            Some(Names::File(path)) => {
                let text = ir::read_small(path, MOST_BYTES).and_then(|bytes| {
                    String::from_utf8(bytes).map_err(|e| Error::new(ErrorKind::InvalidData, e))
                });
                let text =
                    text.map_err(|error| VisionError::Names { path: path.clone(), error })?;
                (lines(&text), path.display().to_string())
            }
        };
        Ok(Self { names, source })
    }

    /// The names for a model of so many classes. Where a list counts as many only without its
    /// entries for no thing, these are left out.
    ///
    /// # Errors
    /// [`VisionError::FewLabels`].
    pub fn of_classes(&self, classes: usize) -> Result<Self, VisionError> {
        let things = || self.names.iter().filter(|name| !NO_THINGS.contains(&name.as_str()));
        let found = self.names.len();
        if found > classes && things().count() == classes {
            return Ok(Self { names: things().cloned().collect(), source: self.source.clone() });
        }
        if found > 0 && found < classes || found == 0 && !self.source.is_empty() {
            return Err(VisionError::FewLabels {
                source_name: self.source.clone(),
                found,
                classes,
            });
        }
        Ok(self.clone())
    }

    /// The name of a class, empty where there is none.
    #[must_use]
    pub fn name(&self, class: usize) -> &str {
        self.names.get(class).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str, classes: usize) -> Labels {
        let names = list.parse().unwrap();
        Labels::read(Some(&names)).unwrap().of_classes(classes).unwrap()
    }

    #[test]
    fn lists_that_ship() {
        assert_eq!(of("imagenet", 1000).name(0), "tench");
        assert_eq!(of("imagenet", 1000).name(999), "toilet tissue");
        assert_eq!((of("coco", 91).name(1), of("coco", 91).name(90)), ("person", "toothbrush"));
        assert_eq!((of("coco", 80).name(0), of("coco", 80).name(79)), ("person", "toothbrush"));
        assert_eq!((of("voc", 21).name(15), of("voc", 20).name(14)), ("person", "person"));
    }

    #[test]
    fn too_few_are_an_error() {
        let three = Names::These(["a", "b", "c"].map(String::from).to_vec());
        let three = Labels::read(Some(&three)).unwrap();
        assert!(three.of_classes(4).is_err());
        assert_eq!(three.of_classes(2).unwrap().name(1), "b");
        assert_eq!(Labels::read(None).unwrap().of_classes(4).unwrap().name(1), "");
        assert!(Labels::read(Some(&Names::These(Vec::new()))).unwrap().of_classes(1).is_err());
        assert!(Labels::read(Some(&"no such file".parse().unwrap())).is_err());
    }
}

//! The file `model.preprocess.json` beside a model: a [`Recipe`] in its own words, or in those of
//! `preprocessor_config.json`, which Hugging Face's processors of images write.

use std::fmt;
use std::path::{Path, PathBuf};

use plutino::ir;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{Filter, Order, Recipe, Size, VisionError};

/// Of the file, at most: a recipe, and perhaps names of some thousand classes.
const MOST_BYTES: u64 = 4 << 20;

/// What the file may say.
const OWN: &str = "mean, std, size, short, crop, letterbox, filter, order, no_exif, labels";

/// What it may say in the words of Hugging Face.
const FOREIGN: &str = "image_mean, image_std, size, crop_size, resample, rescale_factor, do_resize, \
                       do_center_crop, do_rescale, do_normalize, do_flip_channel_order";

/// Members of Hugging Face's files that change nothing: pictures have three channels, or one, as
/// the model wants it, and outputs are no labels to be changed.
const IGNORED: [&str; 12] = [
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "_processor_class",
    "_valid_processor_keys",
    "do_convert_rgb",
    "do_reduce_labels",
    "data_format",
    "input_data_format",
    "device",
    "return_tensors",
    "disable_grouping",
];

/// Forms of a size.
const SIZE: &str = "height and width from 1 to 32768, as in 224, [224, 320], \"224x320\" or \
                    {\"height\": 224, \"width\": 320}";

impl Recipe {
    /// That of the file beside a model, where there is one: `model.preprocess.json` for
    /// `model.pnnx.param`.
    ///
    /// # Errors
    /// [`VisionError::Io`] and [`VisionError::Recipe`].
    pub fn beside(model: &str) -> Result<Option<Self>, VisionError> {
        let path = file_beside(model);
        match ir::read_small(&path, MOST_BYTES) {
            Ok(text) => match parse(&text) {
                Ok(recipe) => Ok(Some(recipe)),
                Err(reason) => Err(VisionError::Recipe { path, reason }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(VisionError::Io { path, error }),
        }
    }
}

/// `model.preprocess.json` for `model.pnnx.param`.
fn file_beside(model: &str) -> PathBuf {
    let stem = model.strip_suffix(".param").unwrap_or(model);
    let stem = stem.strip_suffix(".pnnx").unwrap_or(stem);
    Path::new(&format!("{stem}.preprocess.json")).to_owned()
}

fn parse(text: &[u8]) -> Result<Recipe, String> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("it must hold one object, in braces".into());
    }
    serde_json::from_slice(text).map_err(|e| e.to_string())
}

/// Members of an object as they stand there: a name that occurs twice is not lost.
pub(crate) struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

impl TryFrom<Members> for Recipe {
    type Error = String;

    fn try_from(Members(members): Members) -> Result<Self, String> {
        let marks = ["do_", "image_", "feature_extractor_type"];
        let foreign = |name: &str| marks.iter().any(|mark| name.starts_with(mark));
        let foreign = members.iter().any(|(name, _)| foreign(name));
        let mut reader = Reader { foreign, ..Reader::default() };
        members.iter().try_for_each(|(name, value)| reader.take(name, value))?;
        reader.finish()
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    recipe: Recipe,
    /// In the words of Hugging Face.
    foreign: bool,
    /// Members by the names that are ours, and by those that they have: none is there twice,
    /// whatever it is called.
    taken: Vec<(&'static str, String)>,
    /// The size, where it is one number.
    side: Option<u32>,
    /// Whether one number is that of both sides.
    square: Option<bool>,
    resizes: Option<bool>,
    crops: Option<bool>,
    rescales: Option<bool>,
    normalizes: Option<bool>,
    factor: Option<f64>,
}

impl Reader {
    fn take(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let recipe = &mut self.recipe;
        let flag = || member::<bool>(name, value, "true or false");
        let ours = match name {
            _ if value.is_null() && (self.foreign || OWN.split(", ").any(|own| own == name)) => {
                return Ok(());
            }
            "mean" | "image_mean" => {
                recipe.mean = numbers(name, value, "a finite number", f32::is_finite)?;
                "mean"
            }
            "std" | "image_std" => {
                recipe.std = numbers(name, value, "a number other than 0", f32::is_normal)?;
                "std"
            }
            "size" => {
                let wanted = format!(r#"{SIZE}, or {{"shortest_edge": 224}}"#);
                match value.get("shortest_edge").filter(|_| is_alone(value)) {
                    Some(edge) => recipe.short = Some(side(name, edge)?),
                    None => recipe.size = Some(member(name, value, &wanted)?),
                }
                self.side = recipe.size.map(|size| size.height).filter(|_| value.is_number());
                "size"
            }
            "short" => {
                recipe.short = Some(side(name, value)?);
                "short"
            }
            "crop" | "crop_size" => {
                recipe.crop = Some(member::<Size>(name, value, SIZE)?);
                "crop"
            }
            "filter" => {
                let wanted = r#""bilinear", "bicubic" or "linear""#;
                recipe.filter = Some(member::<Filter>(name, value, wanted)?);
                "filter"
            }
            "resample" => {
                recipe.filter = Some(match value.as_u64() {
                    Some(2) => Filter::Bilinear,
                    Some(3) => Filter::Bicubic,
                    _ => return Err(wrong(name, value, "2 (bilinear) or 3 (bicubic)")),
                });
                "filter"
            }
            "order" => {
                recipe.order = Some(member::<Order>(name, value, r#""rgb" or "bgr""#)?);
                "order"
            }
            "do_flip_channel_order" => {
                recipe.order = flag()?.then_some(Order::Bgr);
                "order"
            }
            "letterbox" => {
                recipe.letterbox = flag()?;
                "letterbox"
            }
            "no_exif" => {
                recipe.no_exif = flag()?;
                "no_exif"
            }
            "labels" => {
                let wanted = format!("one of {}, or a list of names", crate::labels::known());
                recipe.labels = Some(member(name, value, &wanted)?);
                "labels"
            }
            "default_to_square" => {
                self.square = Some(flag()?);
                "default_to_square"
            }
            "do_resize" => {
                self.resizes = Some(flag()?);
                "do_resize"
            }
            "do_center_crop" => {
                self.crops = Some(flag()?);
                "do_center_crop"
            }
            "do_rescale" => {
                self.rescales = Some(flag()?);
                "do_rescale"
            }
            "do_normalize" => {
                self.normalizes = Some(flag()?);
                "do_normalize"
            }
            "rescale_factor" => {
                let factor = value.as_f64().filter(|factor| *factor > 0.0);
                let wanted = "a number above 0, as in 0.00392156862745098";
                self.factor = Some(factor.ok_or_else(|| wrong(name, value, wanted))?);
                "rescale_factor"
            }
            name if self.foreign && (IGNORED.contains(&name) || *value == Value::Bool(false)) => {
                return Ok(());
            }
            _ => {
                let also = if self.foreign { format!(", {FOREIGN}") } else { String::new() };
                return Err(format!("\"{name}\" is not known: there are {OWN}{also}"));
            }
        };
        if let Some((_, first)) = self.taken.iter().find(|(taken, _)| *taken == ours) {
            return Err(format!("\"{first}\" and \"{name}\" say the same: leave one out"));
        }
        self.taken.push((ours, name.to_owned()));
        Ok(())
    }

    fn finish(self) -> Result<Recipe, String> {
        let Self { mut recipe, taken, side, square, .. } = self;
        let has = |name| taken.iter().any(|(taken, _)| *taken == name);
        if has("short") && has("size") {
            return Err("\"short\" and \"size\" exclude each other".into());
        }
        // Defaults of Hugging Face's classes are not in their files.
        for (step, flag, there, needed) in [
            (self.resizes, "do_resize", has("size") || has("short"), "size"),
            (self.crops, "do_center_crop", has("crop"), "crop_size"),
            (
                self.normalizes,
                "do_normalize",
                has("mean") && has("std"),
                "image_mean and image_std",
            ),
        ] {
            if step == Some(true) && !there {
                return Err(format!("\"{flag}\" is true: it needs {needed} beside it"));
            }
        }
        if self.crops == Some(false) {
            recipe.crop = None;
        }
        match (side, square) {
            (Some(side), Some(false)) => (recipe.size, recipe.short) = (None, Some(side)),
            (Some(side), None) if self.foreign && recipe.crop.is_some() => {
                return Err(format!(
                    "\"size\" is the shorter side for some of Hugging Face's classes, and both for \
                     others: give {{\"shortest_edge\": {side}}} or {{\"height\": {side}, \
                     \"width\": {side}}} instead of {side}"
                ));
            }
            _ => {}
        }
        if self.resizes == Some(false) {
            (recipe.size, recipe.short) = (None, None);
        }
        if self.normalizes == Some(false) {
            (recipe.mean, recipe.std) = (Vec::new(), Vec::new());
        }
        let factor = if self.rescales == Some(false) { Some(1.0) } else { self.factor };
        if let Some(factor) = factor {
            rescale(&mut recipe, factor * 255.0)?;
        }
        if recipe.letterbox && (recipe.short.is_some() || recipe.crop.is_some()) {
            return Err("\"letterbox\" goes with neither \"short\" nor \"crop\"".into());
        }
        Ok(recipe)
    }
}

/// Has numbers from 0 to 1 multiplied before the mean is subtracted.
fn rescale(recipe: &mut Recipe, by: f64) -> Result<(), String> {
    if (by - 1.0).abs() < 1e-6 {
        return Ok(());
    }
    if recipe.std.is_empty() {
        recipe.std = vec![1.0];
    }
    let numbers = recipe.mean.iter_mut().chain(&mut recipe.std);
    numbers.for_each(|number| *number = (f64::from(*number) / by) as f32);
    let (mean, std) = (&recipe.mean, &recipe.std);
    match mean.iter().all(|n| n.is_finite()) && std.iter().all(|n| n.is_normal()) {
        true => Ok(()),
        false => Err("\"rescale_factor\" must be nearer to 1/255".into()),
    }
}

/// Whether one member of an object says something.
fn is_alone(value: &Value) -> bool {
    let members = value.as_object().into_iter().flatten();
    members.filter(|(_, value)| !value.is_null()).count() == 1
}

fn wrong(name: &str, value: &Value, wanted: &str) -> String {
    let found: String = value.to_string().chars().take(60).collect();
    format!("\"{name}\" must be {wanted}; found {found}")
}

fn member<T: DeserializeOwned>(name: &str, value: &Value, wanted: &str) -> Result<T, String> {
    T::deserialize(value).map_err(|_| wrong(name, value, wanted))
}

/// A number of pixels.
fn side(name: &str, value: &Value) -> Result<u32, String> {
    let side = value.as_u64().and_then(|n| u32::try_from(n).ok());
    let side = side.filter(|n| (1..=1 << 15).contains(n));
    side.ok_or_else(|| wrong(name, value, "a number of pixels from 1 to 32768"))
}

/// One number, or one for each channel.
fn numbers(
    name: &str,
    value: &Value,
    each: &str,
    is_right: fn(f32) -> bool,
) -> Result<Vec<f32>, String> {
    let number = |value: &Value| value.as_f64().map(|n| n as f32).filter(|n| is_right(*n));
    let all: Option<Vec<f32>> = match value {
        Value::Array(all) => all.iter().map(number).collect(),
        one => number(one).map(|n| vec![n]),
    };
    let all = all.filter(|all| !all.is_empty());
    all.ok_or_else(|| wrong(name, value, &format!("{each}, or a list of one for each channel")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn read(recipe: &Value) -> Result<Recipe, String> {
        parse(recipe.to_string().as_bytes())
    }

    #[test]
    fn files_in_our_words() {
        let all = json!({"short": 256, "crop": [224, 192], "mean": 0.5, "std": [0.25, 0.5, 1],
            "filter": "bicubic", "order": "bgr", "no_exif": true, "labels": ["a", "b"]});
        let recipe = read(&all).unwrap();
        assert_eq!((recipe.short, recipe.crop), (Some(256), Some(size(224, 192))));
        assert_eq!((recipe.mean, recipe.std), (vec![0.5], vec![0.25, 0.5, 1.0]));
        assert_eq!((recipe.filter, recipe.order), (Some(Filter::Bicubic), Some(Order::Bgr)));
        assert!(recipe.no_exif && recipe.labels.is_some());
        for (form, expected) in [
            (json!(8), size(8, 8)),
            (json!([8, 9]), size(8, 9)),
            (json!("8x9"), size(8, 9)),
            (json!({"height": 8, "width": 9}), size(8, 9)),
        ] {
            assert_eq!(read(&json!({"size": form})).unwrap().size, Some(expected), "{form}");
            assert_eq!(read(&json!({"crop": form})).unwrap().crop, Some(expected), "{form}");
        }
        assert_eq!(read(&json!({"size": {"shortest_edge": 8}})).unwrap().short, Some(8));
        assert_eq!(read(&json!({"size": null, "labels": null})).unwrap(), Recipe::default());
        assert_eq!(file_beside("a.pnnx.param"), Path::new("a.preprocess.json"));
        assert_eq!(file_beside("a/b.param"), Path::new("a/b.preprocess.json"));
    }

    /// Every message names the member, and what would be right.
    #[test]
    fn what_is_wrong_is_told_with_its_member() {
        for (wrong, words) in [
            (json!({"sise": 8}), ["\"sise\"", "mean, std, size"]),
            (json!({"size": 0}), ["\"size\" must be height and width", "found 0"]),
            (json!({"size": [1, 2, 3]}), ["\"size\"", "found [1,2,3]"]),
            (json!({"size": {"height": 8}}), ["\"size\"", "\"width\": 320}"]),
            (json!({"size": {"shortest_edge": 0}}), ["\"size\"", "from 1 to 32768"]),
            (
                json!({"size": {"shortest_edge": 8, "longest_edge": 9}}),
                ["\"size\"", "{\"shortest_edge\": 224}"],
            ),
            (json!({"short": 0}), ["\"short\"", "from 1 to 32768; found 0"]),
            (json!({"short": 99999}), ["\"short\"", "found 99999"]),
            (json!({"short": 8, "size": 8}), ["\"short\"", "exclude"]),
            (json!({"letterbox": true, "crop": 8}), ["\"letterbox\"", "\"crop\""]),
            (json!({"letterbox": 1}), ["\"letterbox\"", "true or false; found 1"]),
            (json!({"labels": "names.txt"}), ["\"labels\"", "imagenet, coco, voc, or a list"]),
            (json!({"filter": "nearest"}), ["\"filter\"", "\"bilinear\", \"bicubic\""]),
            (json!({"resample": 0}), ["\"resample\"", "2 (bilinear) or 3 (bicubic); found 0"]),
            (json!({"order": "gbr"}), ["\"order\"", "\"rgb\" or \"bgr\"; found \"gbr\""]),
            (json!({"mean": [0.5, "a"]}), ["\"mean\"", "finite number"]),
            (json!({"mean": 1e39}), ["\"mean\"", "finite number"]),
            (json!({"mean": []}), ["\"mean\"", "found []"]),
            (json!({"std": [0.5, 0, 0.5]}), ["\"std\"", "other than 0"]),
            (json!({"std": 1e-60}), ["\"std\"", "other than 0"]),
            (json!({"mean": 0, "image_mean": 1}), ["\"image_mean\"", "\"mean\""]),
            (json!({"rescale_factor": 0}), ["\"rescale_factor\"", "above 0"]),
            (json!({"do_normalize": true}), ["\"do_normalize\"", "image_mean"]),
            (json!({"do_resize": true}), ["\"do_resize\"", "size"]),
            (json!({"do_center_crop": true, "size": 8}), ["\"do_center_crop\"", "crop_size"]),
            (json!({"do_resize": true, "size": 8, "crop_pct": 0.9}), ["\"crop_pct\"", "resample"]),
            (json!({"do_resize": true, "size": 8, "crop_size": 7}), ["\"size\"", "shortest_edge"]),
        ] {
            let told = read(&wrong).unwrap_err();
            assert!(words.iter().all(|word| told.contains(word)), "{wrong}: {told}");
            assert!(!told.contains("variant"), "{told}");
        }
        assert!(parse(b"[]").unwrap_err().contains("one object"));
        assert!(parse(br#"{"short": 8, "short": 8}"#).unwrap_err().contains("\"short\""));
    }

    /// What `save_pretrained` of transformers 4 writes for CLIP, ViT and MobileViT.
    #[test]
    fn files_of_hugging_face() {
        let clip = json!({
            "crop_size": {"height": 224, "width": 224}, "do_center_crop": true,
            "do_convert_rgb": true, "do_normalize": true, "do_rescale": true, "do_resize": true,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_processor_type": "CLIPImageProcessor",
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            "resample": 3, "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 224},
        });
        let expected = Recipe {
            short: Some(224),
            crop: Some(size(224, 224)),
            mean: vec![0.48145466, 0.4578275, 0.40821073],
            std: vec![0.26862954, 0.261_302_6, 0.275_777_1],
            filter: Some(Filter::Bicubic),
            ..Recipe::default()
        };
        assert_eq!(read(&clip).unwrap(), expected);
        let vit = json!({
            "do_convert_rgb": null, "do_normalize": false, "do_pad": false, "do_rescale": true,
            "do_resize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
            "rescale_factor": 1.0 / 255.0, "size": {"height": 224, "width": 224},
        });
        let expected = Recipe {
            size: Some(size(224, 224)),
            filter: Some(Filter::Bilinear),
            ..Recipe::default()
        };
        assert_eq!(read(&vit).unwrap(), expected);
        let mobile = json!({
            "crop_size": 256, "do_center_crop": false, "do_flip_channel_order": true,
            "do_rescale": false, "do_resize": true, "resample": 2, "size": 288,
            "default_to_square": false,
        });
        let expected = Recipe {
            short: Some(288),
            filter: Some(Filter::Bilinear),
            order: Some(Order::Bgr),
            std: vec![1.0 / 255.0], // numbers stay from 0 to 255
            ..Recipe::default()
        };
        assert_eq!(read(&mobile).unwrap(), expected);
    }
}

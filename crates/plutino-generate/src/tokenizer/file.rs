//! `tokenizer.json`: the format of the crate tokenizers.

use super::Own;
use super::added::{Added, AddedToken};
use super::bounds::MOST_STEPS;
use super::bpe::{Bpe, Merge};
use super::decode::Decode;
use super::normalize::Normalize;
use super::split::{Front, Split, Words};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum Problem {
    Malformed(String),
    /// A part, and what it is. (With the feature, the crate tokenizers reads such a file instead.)
    #[cfg_attr(feature = "tokenizers", allow(dead_code))]
    Unsupported(&'static str, String),
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Value,
}

pub(super) fn read(json: &[u8]) -> Result<Own, Problem> {
    let file: File = serde_json::from_slice(json)?;
    if let Some(token) = file.added_tokens.iter().find(|token| token.single_word) {
        let kind = format!("{} (single_word)", token.content);
        return Err(Problem::Unsupported("added token", kind));
    }
    let mut normalize = Vec::new();
    normalizer(&file.normalizer, &mut normalize)?;
    let mut split = Vec::new();
    pre_tokenizer(&file.pre_tokenizer, &mut split)?;
    let mut around = (Vec::new(), Vec::new());
    post_processor(&file.post_processor, &mut around)?;
    let decode = match &file.decoder {
        Value::Null => None,
        decoder => {
            let mut steps = Vec::new();
            self::decoder(decoder, &mut steps)?;
            Some(steps)
        }
    };
    for (part, steps) in [
        ("normalizer", normalize.len()),
        ("pre_tokenizer", split.len()),
        ("decoder", decode.as_ref().map_or(0, Vec::len)),
    ] {
        if steps > MOST_STEPS {
            let problem = format!("{part}: {steps} steps in a row, {MOST_STEPS} are possible");
            return Err(Problem::Malformed(problem));
        }
    }
    let (added, bpe) = (Added::new(file.added_tokens), model(&file.model)?);
    Ok(Own { added, normalize, split, bpe, around, decode })
}

/// What a part is called.
fn kind(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The parameters of a part.
fn parameters<T: DeserializeOwned>(part: &Value) -> Result<T, Problem> {
    Ok(T::deserialize(part)?)
}

/// The members of a sequence.
fn members<'a>(part: &'a Value, key: &str) -> Result<&'a [Value], Problem> {
    let list = part.get(key).and_then(Value::as_array).map(Vec::as_slice);
    list.ok_or_else(|| Problem::Malformed(format!("{}: no list '{key}'", kind(part))))
}

/// What is looked for.
#[derive(Deserialize)]
enum Pattern {
    String(String),
    Regex(String),
}

#[derive(Deserialize)]
struct Replace {
    pattern: Pattern,
    content: String,
}

impl Replace {
    fn plain(self, part: &'static str) -> Result<(String, String), Problem> {
        match self.pattern {
            Pattern::String(what) => Ok((what, self.content)),
            Pattern::Regex(what) => Err(Problem::Unsupported(part, format!("Replace {what}"))),
        }
    }
}

fn normalizer(part: &Value, to: &mut Vec<Normalize>) -> Result<(), Problem> {
    #[derive(Deserialize)]
    struct Prepend {
        prepend: String,
    }
    match kind(part) {
        _ if part.is_null() => {}
        "Sequence" => {
            members(part, "normalizers")?.iter().try_for_each(|part| normalizer(part, to))?;
        }
        "Prepend" => to.push(Normalize::Prepend(parameters::<Prepend>(part)?.prepend)),
        "Replace" => {
            let (what, with) = parameters::<Replace>(part)?.plain("normalizer")?;
            to.push(Normalize::Replace(what, with));
        }
        // The crate composes any text.
        "NFC" if cfg!(not(feature = "tokenizers")) => to.push(Normalize::Composed),
        other => return Err(Problem::Unsupported("normalizer", other.to_owned())),
    }
    Ok(())
}

fn pre_tokenizer(part: &Value, to: &mut Vec<Split>) -> Result<(), Problem> {
    #[derive(Deserialize)]
    struct ByteLevel {
        #[serde(default = "yes")]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    }
    #[derive(Deserialize)]
    struct At {
        pattern: Pattern,
        behavior: String,
        #[serde(default)]
        invert: bool,
    }
    #[derive(Deserialize)]
    struct Digits {
        #[serde(default)]
        individual_digits: bool,
    }
    match kind(part) {
        _ if part.is_null() => {}
        "Sequence" => {
            members(part, "pretokenizers")?.iter().try_for_each(|part| pre_tokenizer(part, to))?;
        }
        "ByteLevel" => {
            let ByteLevel { add_prefix_space: blank, use_regex } = parameters(part)?;
            if use_regex && blank {
                // The blank comes before the words are told apart.
                return Err(Problem::Unsupported("pre_tokenizer", "ByteLevel with blank".into()));
            }
            to.extend(use_regex.then_some(Split::Words(Words::Gpt2)));
            to.push(Split::Bytes { blank });
        }
        "Split" => {
            let At { pattern, behavior, invert } = parameters(part)?;
            let split = match pattern {
                Pattern::String(at) => Some(Split::At(at)),
                Pattern::Regex(words) => Words::of(&words).map(Split::Words),
            };
            let split = split.filter(|_| behavior == "Isolated" && !invert);
            let unsupported = || Problem::Unsupported("pre_tokenizer", part.to_string());
            to.push(split.ok_or_else(unsupported)?);
        }
        "Digits" => {
            to.push(Split::Digits { alone: parameters::<Digits>(part)?.individual_digits });
        }
        "Metaspace" => {
            let blanks: Metaspace = parameters(part)?;
            let front = blanks.front()?;
            to.push(Split::Blanks { with: blanks.replacement, front, cut: blanks.split });
        }
        other => return Err(Problem::Unsupported("pre_tokenizer", other.to_owned())),
    }
    Ok(())
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Metaspace {
    replacement: char,
    #[serde(default)]
    prepend_scheme: Option<String>,
    /// Of older files.
    #[serde(default)]
    add_prefix_space: Option<bool>,
    #[serde(default = "yes")]
    split: bool,
}

impl Metaspace {
    fn front(&self) -> Result<Front, Problem> {
        Ok(match (self.prepend_scheme.as_deref(), self.add_prefix_space) {
            (Some("never"), _) | (None, Some(false)) => Front::Never,
            (Some("always"), _) | (None, _) => Front::Always,
            (Some("first"), _) => Front::First,
            (Some(other), _) => {
                return Err(Problem::Malformed(format!("Metaspace: prepend_scheme '{other}'")));
            }
        })
    }
}

fn post_processor(part: &Value, around: &mut (Vec<u32>, Vec<u32>)) -> Result<(), Problem> {
    #[derive(Deserialize)]
    struct Template {
        single: Vec<Piece>,
        special_tokens: HashMap<String, Special>,
    }
    #[derive(Deserialize)]
    enum Piece {
        Sequence {},
        SpecialToken { id: String },
    }
    #[derive(Deserialize)]
    struct Special {
        ids: Vec<u32>,
    }
    match kind(part) {
        _ if part.is_null() => {}
        "ByteLevel" => {} // changes offsets alone
        "Sequence" => {
            let parts = members(part, "processors")?;
            parts.iter().try_for_each(|part| post_processor(part, around))?;
        }
        "TemplateProcessing" => {
            let Template { single, special_tokens } = parameters(part)?;
            let mut behind = false;
            for piece in single {
                match piece {
                    Piece::Sequence {} if behind => {
                        let twice = "TemplateProcessing: the text stands in it twice";
                        return Err(Problem::Malformed(twice.into()));
                    }
                    Piece::Sequence {} => behind = true,
                    Piece::SpecialToken { id } => {
                        let special = special_tokens.get(&id).ok_or_else(|| {
                            Problem::Malformed(format!("TemplateProcessing: no token '{id}'"))
                        })?;
                        let side = if behind { &mut around.1 } else { &mut around.0 };
                        side.extend(&special.ids);
                    }
                }
            }
        }
        other => return Err(Problem::Unsupported("post_processor", other.to_owned())),
    }
    Ok(())
}

fn decoder(part: &Value, to: &mut Vec<Decode>) -> Result<(), Problem> {
    #[derive(Deserialize)]
    struct Strip {
        content: char,
        start: usize,
        stop: usize,
    }
    match kind(part) {
        "Sequence" => {
            members(part, "decoders")?.iter().try_for_each(|part| decoder(part, to))?;
        }
        "ByteLevel" => to.push(Decode::Bytes),
        "ByteFallback" => to.push(Decode::ByteNames),
        "Fuse" => to.push(Decode::Fuse),
        "Replace" => {
            let (what, with) = parameters::<Replace>(part)?.plain("decoder")?;
            to.push(Decode::Replace(what, with));
        }
        "Strip" => {
            let Strip { content: what, start, stop } = parameters(part)?;
            to.push(Decode::Strip { what, start, stop });
        }
        "Metaspace" => {
            let blanks: Metaspace = parameters(part)?;
            let front = blanks.front()? != Front::Never;
            to.push(Decode::Blanks { with: blanks.replacement, front });
        }
        other => return Err(Problem::Unsupported("decoder", other.to_owned())),
    }
    Ok(())
}

/// A pair, as newer and older files write it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Pair {
    Two(String, String),
    Text(String),
}

fn model(part: &Value) -> Result<Bpe, Problem> {
    #[derive(Deserialize)]
    struct Model {
        vocab: HashMap<String, u32>,
        merges: Vec<Pair>,
        #[serde(default)]
        unk_token: Option<String>,
        #[serde(default)]
        fuse_unk: bool,
        #[serde(default)]
        byte_fallback: bool,
        #[serde(default)]
        ignore_merges: bool,
        #[serde(default)]
        continuing_subword_prefix: Option<String>,
        #[serde(default)]
        end_of_word_suffix: Option<String>,
        #[serde(default)]
        dropout: Option<f64>,
    }
    // Old files leave the type out.
    let is_bpe = kind(part) == "BPE" || kind(part).is_empty() && part.get("merges").is_some();
    if !is_bpe {
        return Err(Problem::Unsupported("model", kind(part).to_owned()));
    }
    let model: Model = parameters(part)?;
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if affixes.into_iter().flatten().any(|affix| !affix.is_empty()) {
        return Err(Problem::Unsupported("model", "BPE with prefixes or suffixes".into()));
    }
    if model.dropout.is_some_and(|dropout| dropout > 0.0) {
        return Err(Problem::Unsupported("model", "BPE with dropout".into()));
    }
    let token = |text: &str| {
        let missing = || Problem::Malformed(format!("'{text}' is not in the vocabulary"));
        model.vocab.get(text).copied().ok_or_else(missing)
    };
    let mut merges = HashMap::new();
    for (rank, pair) in (0u32..).zip(&model.merges) {
        let (a, b) = match pair {
            Pair::Two(a, b) => (a.as_str(), b.as_str()),
            Pair::Text(text) => text
                .split_once(' ')
                .ok_or_else(|| Problem::Malformed(format!("merge {rank} is no pair: '{text}'")))?,
        };
        let into = token(&format!("{a}{b}"))?;
        merges.entry((token(a)?, token(b)?)).or_insert(Merge { rank, into });
    }
    let unknown = model.unk_token.as_deref().map(token).transpose()?;
    let texts = model.vocab.iter().map(|(text, &token)| (token, text.clone())).collect();
    Ok(Bpe {
        texts,
        merges,
        unknown,
        fuse_unknown: model.fuse_unk,
        byte_fallback: model.byte_fallback,
        ignore_merges: model.ignore_merges,
        vocab: model.vocab,
    })
}

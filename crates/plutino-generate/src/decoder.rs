//! A decoder: one model or two, and how rows of tokens go through them.

use crate::generation::{GenerateOptions, Generation};
use crate::ports::Part;
use crate::recipe::{Recipe, Stop};
use crate::rows::Rows;
use crate::{GenerateError, Tokenizer};
use plutino_ir::Limits;
use plutino_runtime::{Model, ModelOptions, SessionOptions, State};
use plutino_tensor::{DType, Tensor, alloc};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A model that takes tokens and yields a score for each token that may come next.
///
/// It has one of three forms:
/// - prefill and step: the first takes a prompt and yields scores and caches, the second takes new
///   tokens and caches and yields scores and caches with these tokens;
/// - a step alone: the prompt is its first tokens, with empty caches;
/// - no caches: all tokens go through the model each time.
pub struct Decoder {
    first: Part,
    /// Where that is another model.
    step: Option<Part>,
    recipe: Recipe,
    /// Of a model without caches: whether it takes as many tokens as there are.
    any_width: OnceLock<bool>,
}

/// Rows that go through a decoder together.
pub(crate) struct Batch {
    /// Caches, where the decoder has them.
    state: Option<State>,
    /// Of each row: filling in front, and all tokens so far, where there are no caches.
    filled: Vec<usize>,
    tokens: Vec<Vec<u32>>,
    /// Tokens in the caches.
    past: usize,
}

impl Decoder {
    /// Loads a decoder: `path` is the `.param` file of its only model or of its prefill, or its
    /// stem.
    ///
    /// Beside `x.pnnx.param` or `x.param` are looked for: `x.step.pnnx.param`, the step, with a
    /// `.bin` file of its own or the weights of the prefill, and `x.generate.json`, a [`Recipe`].
    ///
    /// # Errors
    /// Where a file cannot be read, or is no decoder.
    pub fn load(path: impl AsRef<Path>, options: SessionOptions) -> Result<Self, GenerateError> {
        Self::load_with(path, ModelOptions::default(), options)
    }

    /// [`Decoder::load`] with options for how models are loaded.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load_with(
        path: impl AsRef<Path>,
        loading: ModelOptions,
        options: SessionOptions,
    ) -> Result<Self, GenerateError> {
        let path = path.as_ref();
        let recipe = Recipe::load(beside(path, "generate.json"))?;
        let first = Model::load_with(path, &loading)?;
        let step = beside(path, "step.pnnx.param");
        let step = match step.is_file() {
            true => Some(first.load_sharing(step, &loading)?),
            false => None,
        };
        Self::new(first, step, recipe, options)
    }

    /// A decoder of models that are loaded: the only one or the prefill, and the step.
    ///
    /// # Errors
    /// Where they are no decoder.
    pub fn new(
        first: Model,
        step: Option<Model>,
        recipe: Recipe,
        options: SessionOptions,
    ) -> Result<Self, GenerateError> {
        let of = |model: &Model, other: Option<&Model>| {
            let mut options = options.clone();
            // An operator that the other model has alone is not asked for here.
            options.passes_off.retain(|off| match off.split_once('@') {
                Some((_, name)) if !model.has_operator(name) => {
                    !other.is_some_and(|other| other.has_operator(name))
                }
                _ => true,
            });
            options
        };
        let (of_first, of_step) =
            (of(&first, step.as_ref()), step.as_ref().map(|step| of(step, Some(&first))));
        let first = Part::new(&first, &recipe, of_first)?;
        let step = step.zip(of_step);
        let step = step.map(|(step, options)| Part::new(&step, &recipe, options)).transpose()?;
        if let Some(step) = &step {
            if !step.takes_caches() {
                return Err(step.wrong("the step takes no caches"));
            }
            first.suits(step)?;
        }
        Ok(Self { first, step, recipe, any_width: OnceLock::new() })
    }

    /// What the file beside the model says.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.first.session.threads()
    }

    /// The models: the only one, or prefill and step.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        [Some(&self.first), self.step.as_ref()].into_iter().flatten().map(|p| p.session.model())
    }

    /// Whether keys and values of tokens are kept, so that each goes through the model once.
    pub fn has_caches(&self) -> bool {
        self.step.is_some() || self.first.takes_caches()
    }

    /// The tokens that end a text, as the recipe says.
    ///
    /// # Errors
    /// Where the tokenizer does not know one.
    pub fn stop(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, GenerateError> {
        let token = |stop: &Stop| match stop {
            Stop::Token(token) => Ok(*token),
            Stop::Name(name) => tokenizer.token(name).ok_or_else(|| GenerateError::Recipe {
                file: beside(Path::new(self.first.file()), "generate.json").display().to_string(),
                problem: format!("stop: the tokenizer has no token '{name}'"),
            }),
        };
        self.recipe.stop.iter().map(token).collect()
    }

    /// Continues these prompts, each of which is one token at least.
    ///
    /// Rows go through the model together where it was exported for several; rows of different
    /// lengths only where it takes positions and a mask, or has no caches. All others take turns.
    ///
    /// # Errors
    /// Where a prompt is empty or too long, or an option makes no sense.
    pub fn generate(
        &self,
        prompts: &[Vec<u32>],
        options: GenerateOptions,
    ) -> Result<Generation<'_>, GenerateError> {
        if prompts.is_empty() {
            return Err(GenerateError::EmptyPrompt { row: 0 });
        }
        for (row, prompt) in prompts.iter().enumerate() {
            let tokens = prompt.len();
            if tokens == 0 {
                return Err(GenerateError::EmptyPrompt { row });
            }
            if let Some(context) = self.recipe.context.filter(|context| tokens > *context) {
                return Err(GenerateError::Context { row, tokens, context });
            }
        }
        Generation::new(self, prompts, options)
    }

    /// How these rows are put together: in batches of the numbers of rows.
    pub(crate) fn batches(&self, prompts: &[Vec<u32>]) -> Vec<Vec<usize>> {
        let rows = 0..prompts.len();
        let step = self.step.as_ref().unwrap_or(&self.first);
        if self.first.one_row() || step.one_row() {
            return rows.map(|row| vec![row]).collect();
        }
        if !self.has_caches() || self.first.fills() && step.fills() {
            return vec![rows.collect()];
        }
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let tokens = |row: usize| prompts.get(row).map_or(0, Vec::len);
        for row in rows {
            let same = |batch: &&mut Vec<usize>| {
                batch.first().is_some_and(|first| tokens(*first) == tokens(row))
            };
            match batches.iter_mut().find(same) {
                Some(batch) => batch.push(row),
                None => batches.push(vec![row]),
            }
        }
        batches
    }

    /// Lets prompts through the model: the scores behind each.
    pub(crate) fn begin(
        &self,
        prompts: &[&[u32]],
        limits: &Limits,
    ) -> Result<(Batch, Scores), GenerateError> {
        let width = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        if !self.has_caches() {
            let tokens = prompts.iter().map(|prompt| prompt.to_vec()).collect();
            let filled = alloc::filled(prompts.len(), 0)?;
            let batch = Batch { state: None, filled, tokens, past: 0 };
            let scores = self.whole(&batch, limits)?;
            return Ok((batch, scores));
        }
        let filled = alloc::collect(prompts.iter().map(|prompt| width - prompt.len()))?;
        let rows = Rows { tokens: prompts, width, in_front: true, past: 0, filled: &filled };
        let first = &self.first;
        let (state, scores) = match &self.step {
            Some(step) => {
                let (scores, caches) = first.run(&rows, None, true, limits)?;
                let mut state = step.state()?;
                step.begin(&mut state, caches)?;
                (state, scores)
            }
            None => {
                let mut state = first.state()?;
                first.begin(&mut state, first.empty(prompts.len())?)?;
                let scores = self.in_parts(&rows, &mut state, limits)?;
                (state, scores)
            }
        };
        let scores = Scores::last(first, scores, rows.width, prompts.len())?;
        let batch = Batch { state: Some(state), filled, tokens: Vec::new(), past: width };
        Ok((batch, scores))
    }

    /// A prompt through a step: all of it, or token by token where it was exported for one.
    fn in_parts(
        &self,
        rows: &Rows<'_>,
        state: &mut State,
        limits: &Limits,
    ) -> Result<Tensor, GenerateError> {
        if self.first.tokens() != Some(1) {
            return Ok(self.first.run(rows, Some(state), false, limits)?.0);
        }
        let mut scores = None;
        for at in 0..rows.width {
            let token = |tokens: &&[u32]| rows.at(tokens, at);
            let tokens: Vec<[u32; 1]> = rows.tokens.iter().map(|row| [token(row)]).collect();
            let tokens: Vec<&[u32]> = tokens.iter().map(|token| &token[..]).collect();
            let one = Rows { tokens: &tokens, width: 1, past: at, ..*rows };
            scores = Some(self.first.run(&one, Some(state), false, limits)?.0);
        }
        scores.ok_or(GenerateError::EmptyPrompt { row: 0 })
    }

    /// Lets one more token of each row through the model: the scores behind it.
    pub(crate) fn step(
        &self,
        batch: &mut Batch,
        tokens: &[u32],
        limits: &Limits,
    ) -> Result<Scores, GenerateError> {
        let Some(state) = &mut batch.state else {
            batch.tokens.iter_mut().zip(tokens).for_each(|(row, token)| row.push(*token));
            return self.whole(batch, limits);
        };
        let tokens: Vec<&[u32]> = tokens.iter().map(std::slice::from_ref).collect();
        let (past, filled) = (batch.past, &batch.filled[..]);
        let rows = Rows { tokens: &tokens, width: 1, in_front: true, past, filled };
        let part = self.step.as_ref().unwrap_or(&self.first);
        let (scores, _) = part.run(&rows, Some(state), false, limits)?;
        batch.past += 1;
        Scores::last(part, scores, 1, tokens.len())
    }

    /// All tokens through the model.
    fn whole(&self, batch: &Batch, limits: &Limits) -> Result<Scores, GenerateError> {
        let part = &self.first;
        let tokens: Vec<&[u32]> = batch.tokens.iter().map(Vec::as_slice).collect();
        let longest = tokens.iter().map(|row| row.len()).max().unwrap_or(0);
        let mut rows = Rows {
            tokens: &tokens,
            width: longest,
            in_front: false,
            past: 0,
            filled: &batch.filled,
        };
        if let Some(width) = part.tokens() {
            let any = match self.any_width.get() {
                Some(any) => *any,
                None => {
                    let any = width == longest || part.accepts(&rows, limits)?;
                    // A model of its own width says nothing of others.
                    if width != longest { *self.any_width.get_or_init(|| any) } else { any }
                }
            };
            if !any {
                if longest > width {
                    let row = tokens.iter().position(|row| row.len() == longest).unwrap_or(0);
                    return Err(GenerateError::Context { row, tokens: longest, context: width });
                }
                rows.width = width;
            }
        }
        let (scores, _) = part.run(&rows, None, false, limits)?;
        let ends = alloc::collect(tokens.iter().map(|row| row.len()))?;
        Scores::at(part, scores, rows.width, &ends)
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = self.step.as_ref().map(|step| step.file());
        write!(f, "Decoder({:?}, step {step:?})", self.first.file())
    }
}

/// `x.ENDING` for `x.pnnx.param`, `x.param` and `x`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for known in [".param", ".pnnx"] {
        name.truncate(name.strip_suffix(known).map_or(name.len(), str::len));
    }
    path.with_file_name(format!("{name}.{ending}"))
}

/// Scores of all tokens, for each row.
pub(crate) struct Scores {
    all: Tensor,
    /// Where the scores of each row begin.
    starts: Vec<usize>,
    vocabulary: usize,
}

impl Scores {
    /// Of the last token of each row.
    fn last(part: &Part, all: Tensor, width: usize, rows: usize) -> Result<Self, GenerateError> {
        let ends = alloc::filled(rows, width)?;
        Self::at(part, all, width, &ends)
    }

    /// Of the tokens before these places.
    fn at(part: &Part, all: Tensor, width: usize, ends: &[usize]) -> Result<Self, GenerateError> {
        let (rows, shape) = (ends.len(), all.shape().clone());
        let (places, vocabulary) = match shape.dims() {
            [n, vocabulary] if *n == rows => (1, *vocabulary),
            [n, places, vocabulary] if *n == rows && [1, width].contains(places) => {
                (*places, *vocabulary)
            }
            _ => {
                return Err(part.wrong(format!(
                    "the first output must be scores (rows, tokens, vocabulary) or \
                     (rows, vocabulary); of {rows} rows and {width} tokens it is {}",
                    all.spec()
                )));
            }
        };
        // Scores of the last place alone are those of the last token, not of filling behind it.
        if places < width && ends.iter().any(|end| *end != width) {
            return Err(part.wrong(
                "rows of different lengths need the scores of every token, and the model yields \
                 those of the last one",
            ));
        }
        let start = |(row, end): (usize, &usize)| {
            let place = if places == width { end.saturating_sub(1) } else { 0 };
            (row * places + place) * vocabulary
        };
        let starts = alloc::collect(ends.iter().enumerate().map(start))?;
        Ok(Self { all: all.cast(DType::F32)?, starts, vocabulary })
    }

    /// Those of a row of the batch.
    pub(crate) fn row(&self, row: usize) -> Result<&[f32], GenerateError> {
        let all = self.all.as_slice::<f32>()?;
        let start = self.starts.get(row).copied().unwrap_or(0);
        Ok(all.get(start..start + self.vocabulary).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_a_model() {
        for path in ["a/x.pnnx.param", "a/x.param", "a/x", "a/x.pnnx"] {
            let found = beside(Path::new(path), "step.pnnx.param");
            assert_eq!(found, Path::new("a/x.step.pnnx.param"));
        }
        assert_eq!(beside(Path::new("v1.5.param"), "json"), Path::new("v1.5.json"));
    }
}

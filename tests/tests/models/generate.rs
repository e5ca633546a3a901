//! A decoder, token by token: what PyTorch wrote, in every form that a decoder has.

use plutino::generate::{
    Decoder, End, GenerateError, GenerateOptions, Recipe, Sampling, Tokenizer,
};
use plutino::ir::Graph;
use plutino::npy::npz;
use plutino::{CancelToken, Model, ModelOptions, Request, SessionOptions, Tensor};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/story")
}

fn file(name: &str) -> PathBuf {
    folder().join(name)
}

fn options(threads: usize) -> SessionOptions {
    let mut options = SessionOptions::default();
    options.threads = Some(threads);
    options
}

/// What PyTorch was given and what it wrote.
struct Greedy {
    prompts: Vec<Vec<u32>>,
    tokens: Vec<Vec<u32>>,
    logits: Tensor,
    tolerance: f32,
}

impl Greedy {
    fn load() -> Self {
        let arrays = npz::load(file("greedy.npz")).unwrap();
        let get = |name: &str| arrays.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
        let tokens = |name: String| {
            let numbers = get(&name)?;
            Some(numbers.as_slice::<i64>().unwrap().iter().map(|&t| t as u32).collect())
        };
        let all = |what: &str| (0..).map_while(|i| tokens(format!("{what}{i}"))).collect();
        let json = std::fs::read(file("written.json")).unwrap();
        let fixture: serde_json::Value = serde_json::from_slice(&json).unwrap();
        Self {
            prompts: all("prompt"),
            tokens: all("tokens"),
            logits: get("logits0").unwrap(),
            tolerance: fixture["tolerance"].as_f64().unwrap() as f32,
        }
    }

    fn max(&self) -> GenerateOptions {
        GenerateOptions::default().with_max(self.tokens[0].len())
    }
}

fn decoder(first: &str, step: Option<&str>, threads: usize) -> Decoder {
    let whole = Model::load(file("model.pnnx.param")).unwrap();
    let options = options(threads);
    let load = |name: &str| whole.load_sharing(file(name), ModelOptions::default()).unwrap();
    let recipe = Recipe::load(file("model.generate.json")).unwrap();
    Decoder::new(load(first), step.map(load), recipe, options).unwrap()
}

/// Prefill and step; the step alone; the prefill alone, which sees everything each time.
fn forms(threads: usize) -> [Decoder; 3] {
    let (prefill, step) = ("model.pnnx.param", "model.step.pnnx.param");
    [decoder(prefill, Some(step), threads), decoder(step, None, threads), {
        decoder(prefill, None, threads)
    }]
}

/// The tokens that are added to each row.
fn added(decoder: &Decoder, prompts: &[Vec<u32>], options: GenerateOptions) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); prompts.len()];
    for token in decoder.generate(prompts, options).unwrap() {
        let token = token.unwrap();
        rows[token.row].push(token.id);
    }
    rows
}

#[test]
fn every_form_writes_what_pytorch_wrote() {
    let greedy = Greedy::load();
    for threads in [1, 2] {
        for (decoder, caches) in forms(threads).iter().zip([true, true, false]) {
            assert_eq!(decoder.has_caches(), caches);
            // Alone, and side by side, where the shorter ones are filled up.
            for (prompt, tokens) in greedy.prompts.iter().zip(&greedy.tokens) {
                let found = added(decoder, std::slice::from_ref(prompt), greedy.max());
                assert_eq!(found, std::slice::from_ref(tokens), "{decoder:?}");
            }
            assert_eq!(added(decoder, &greedy.prompts, greedy.max()), greedy.tokens, "{decoder:?}");
        }
    }
}

/// Scores of every step with a state of one's own, which is all that a decoder does.
#[test]
fn scores_are_those_of_pytorch() {
    let greedy = Greedy::load();
    let prefill = Model::load(file("model.pnnx.param")).unwrap();
    let step = prefill.load_sharing(file("model.step.pnnx.param"), ModelOptions::default());
    let step = step.unwrap().session(options(2)).unwrap();
    let prefill = prefill.session(options(2)).unwrap();
    let expected = greedy.logits.as_slice::<f32>().unwrap();
    let vocabulary = greedy.logits.shape()[1];
    let largest = expected.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let check = |at: usize, scores: &Tensor| {
        let scores = scores.as_slice::<f32>().unwrap();
        let scores = &scores[scores.len() - vocabulary..];
        let expected = &expected[at * vocabulary..(at + 1) * vocabulary];
        let error = scores.iter().zip(expected).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(error <= greedy.tolerance * largest, "step {at}: {error} of {largest}");
    };

    let prompt = &greedy.prompts[0];
    let integers = |values: &[i64]| Tensor::from_slice(values, [1, values.len()]).unwrap();
    let width = prompt.len();
    let tokens: Vec<i64> = prompt.iter().map(|&t| t.into()).collect();
    let places: Vec<i64> = (0..width as i64).collect();
    let mask: Vec<f32> = (0..width * width)
        .map(|i| if i % width > i / width { f32::NEG_INFINITY } else { 0.0 })
        .collect();
    let mask = Tensor::from_slice(&mask, [1, 1, width, width]).unwrap();
    let outputs = prefill.run(&[integers(&tokens), integers(&places), mask]).unwrap();
    check(0, &outputs[0]);

    let mut state = step.state();
    for (i, cache) in outputs.iter().enumerate().skip(1) {
        state.carry(&format!("out{i}"), &format!("in{}", i + 2)).unwrap();
        state.set(&format!("in{}", i + 2), cache.clone()).unwrap();
    }
    for (i, &token) in greedy.tokens[0].iter().enumerate().take(greedy.tokens[0].len() - 1) {
        let mask = Tensor::from_slice(&vec![0.0f32; width + i + 1], [1, 1, 1, width + i + 1]);
        let (token, place) = (integers(&[token.into()]), integers(&[(width + i) as i64]));
        let scores = step.run_with_state(&mut state, &[token, place, mask.unwrap()]).unwrap();
        check(i + 1, &scores[0]);
    }
}

#[test]
fn prefill_and_step_have_their_weights_once() {
    let decoder = decoder("model.pnnx.param", Some("model.step.pnnx.param"), 1);
    let greedy = Greedy::load();
    added(&decoder, &greedy.prompts, GenerateOptions::default().with_max(3));
    let models: Vec<&Model> = decoder.models().collect();
    let (mut weights, mut total) = (0, 0);
    for (_, operator) in models[1].graph().operators() {
        let id = models[0].graph().operator_by_name(&operator.name);
        for (name, step) in &operator.attrs {
            let first = models[0].graph().operator(id.unwrap()).unwrap().attr(name).unwrap();
            let data = |a: &plutino::ir::Attribute| a.data().unwrap().as_ptr();
            assert_eq!(data(first), data(step), "{}.{name}", operator.name);
            weights += 1;
            total += step.byte_len();
        }
    }
    assert!(weights > 20 && total > 300_000);
    // Both report the same packed weights: what the step asked for is what the prefill has.
    assert!(models[1].packed_bytes() > 0);
    let before = models[0].packed_bytes();
    models[1].release_memory();
    assert_eq!(models[0].packed_bytes(), before, "the prefill's plans hold them");
    assert_eq!(models[1].packed_bytes(), before);
}

#[test]
fn a_row_ends_for_a_reason() {
    let tokenizer = Tokenizer::load(file("tokenizer.json")).unwrap();
    let decoder = Decoder::load(file("model"), options(1)).unwrap();
    let prompts = [tokenizer.encode("Luna").unwrap(), tokenizer.encode("Otto the owl").unwrap()];
    let stop = decoder.stop(&tokenizer).unwrap();
    assert_eq!(stop, [tokenizer.token("<|end|>").unwrap()]);
    let ends = |options: GenerateOptions| {
        let tokens = decoder.generate(&prompts, options).unwrap().map(|token| token.unwrap());
        let mut ends: Vec<_> = tokens.filter_map(|t| Some((t.row, t.end?))).collect();
        ends.sort_by_key(|end| end.0);
        ends
    };
    let plain = GenerateOptions::default();
    assert_eq!(ends(plain.clone().with_stop(stop)), [(0, End::Stop), (1, End::Stop)]);
    assert_eq!(ends(plain.clone().with_max(5)), [(0, End::Max), (1, End::Max)]);
    assert_eq!(ends(plain.clone().with_max(0)), []);
    assert_eq!(ends(plain.clone().with_max(1000)), [(0, End::Context), (1, End::Context)]);
    let mut generation = decoder.generate(&prompts, plain.with_max(1000)).unwrap();
    let tokens = generation.by_ref().count();
    let timing = generation.timing();
    assert_eq!(timing.prompt_tokens, prompts[0].len() + prompts[1].len());
    assert_eq!(timing.step_tokens, tokens - 2, "the last of each row is not fed");
    assert_eq!(tokens, 2 * 257 - timing.prompt_tokens, "the model sees 256 tokens");
}

#[test]
fn draws_are_reproducible_and_of_the_row() {
    let greedy = Greedy::load();
    let [cached, step, whole] = forms(2);
    let sampled = |decoder: &Decoder, seed: u64, prompts: &[Vec<u32>]| {
        let mut sampling = Sampling::default();
        (sampling.temperature, sampling.top_k, sampling.top_p) = (1.0, 40, 0.95);
        sampling.seed = seed;
        added(decoder, prompts, GenerateOptions::default().with_max(40).with_sampling(sampling))
    };
    let first = sampled(&cached, 1, &greedy.prompts);
    assert_eq!(first, sampled(&cached, 1, &greedy.prompts));
    assert_ne!(first, sampled(&cached, 2, &greedy.prompts));
    assert_eq!(first, sampled(&step, 1, &greedy.prompts));
    assert_eq!(first, sampled(&whole, 1, &greedy.prompts));
    assert_eq!(first[..1], sampled(&cached, 1, &greedy.prompts[..1]), "row 0, alone");
}

#[test]
fn limits_end_it() {
    let decoder = Decoder::load(file("model.pnnx.param"), options(1)).unwrap();
    let token = CancelToken::new();
    let prompts = [vec![0, 5]];
    let options = GenerateOptions::default().with_max(100).with_cancel(&token);
    let mut generation = decoder.generate(&prompts, options).unwrap();
    assert!(generation.by_ref().take(3).all(|token| token.is_ok()));
    token.cancel();
    let rest: Vec<_> = generation.collect();
    assert_eq!(rest.len(), 1, "an error is the last item");
    assert!(matches!(&rest[0], Err(error) if error.is_limit()));
    let now = GenerateOptions::default().with_deadline(std::time::Instant::now());
    let error = decoder.generate(&prompts, now).unwrap().next().unwrap().unwrap_err();
    assert!(error.is_limit(), "{error}");
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let decoder = Decoder::load(file("model.pnnx.param"), options(1)).unwrap();
    let error = |prompts: &[Vec<u32>]| {
        decoder.generate(prompts, GenerateOptions::default()).unwrap_err().to_string()
    };
    assert_eq!(error(&[]), "prompt 0 (from 0) has no tokens");
    assert_eq!(error(&[vec![1], vec![]]), "prompt 1 (from 0) has no tokens");
    assert_eq!(
        error(&[vec![1; 257]]),
        "prompt 0 (from 0) has 257 tokens, the model's context is 256"
    );
    let mut unknown = decoder.generate(&[vec![320]], GenerateOptions::default()).unwrap();
    assert!(unknown.next().unwrap().unwrap_err().to_string().contains("320"));

    let model = |lines: &str, count: &str| {
        let graph = Graph::parse(&format!("7767517\n{count}\n{lines}")).unwrap();
        let model = Model::from_graph(graph).unwrap();
        Decoder::new(model, None, Recipe::default(), options(1))
    };
    let digits = Model::load(folder().join("../digits/model.pnnx.param")).unwrap();
    let error = Decoder::new(digits, None, Recipe::default(), options(1)).unwrap_err();
    assert!(matches!(&error, GenerateError::NotADecoder { .. }), "{error}");
    let error = model(
        "pnnx.Input a 0 1 0 #0=(1,?)i64\npnnx.Input b 0 1 1 #1=(1,?)i64\n\
         pnnx.Input c 0 1 2 #2=(1,?)i64\npnnx.Expression e 3 1 0 1 2 3 expr=add(@0,add(@1,@2))\n\
         pnnx.Output o 1 0 3\n",
        "5 4",
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("say so in model.generate.json"), "{error}");
    // It runs, but what comes out are no scores.
    let same = model(
        "pnnx.Input a 0 1 0 #0=(1,?)i64\ntorch.flatten f 1 1 0 1 start_dim=0 end_dim=-1\n\
         pnnx.Output o 1 0 1\n",
        "3 2",
    )
    .unwrap();
    let error = same.generate(&[vec![1, 2, 3]], GenerateOptions::default());
    let error = error.unwrap().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("(rows, tokens, vocabulary)"), "{error}");
}

/// A model of a fixed width that knows nothing of caches: filled up behind.
#[test]
fn a_model_of_a_fixed_width() {
    // The score of token v behind token t is the number in row t, column v.
    let text = "7767517
        3 2
        pnnx.Input in 0 1 0 #0=(?,4)i64
        nn.Embedding next 1 1 0 1 embedding_dim=3 num_embeddings=3 @weight=(3,3)f32 #1=(?,4,3)f32
        pnnx.Output out 1 0 1";
    let mut graph = Graph::parse(text).unwrap();
    let id = graph.operator_by_name("next").unwrap();
    // 0 is followed by 2, 2 by 1, 1 by 0.
    let table = [0.0f32, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let weight = plutino::ir::Attribute::from_elements([3, 3], &table).unwrap();
    *graph.attrs_mut(id).unwrap().get_mut("weight").unwrap() = weight;
    let model = Model::from_graph(graph).unwrap();
    let decoder = Decoder::new(model, None, Recipe::default(), options(1)).unwrap();
    let found = added(&decoder, &[vec![0], vec![1, 0, 2]], GenerateOptions::default().with_max(6));
    assert_eq!(found, [[2, 1, 0, 2, 1, 0], [1, 0, 2, 1, 0, 2]]);
    let fed = Tensor::from_slice(&[0i64, 1], [1, 2]).unwrap();
    let session = decoder.models().next().unwrap().session(options(1)).unwrap();
    assert_eq!(session.run_with(&Request::new().feed("in", &fed)).unwrap()[0].shape()[1], 2);
}

//! Continues a text, token by token.
//!
//! ```console
//! $ cargo run --release -p plutino --example generate -- MODEL.pnnx.param "Once upon a time"
//! ```
//! `tokenizer.json` is looked for beside the model. Without arguments, the decoder of the
//! repository's `fixtures/story` writes a story.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino::SessionOptions;
use plutino::generate::{Decoder, End, GenerateOptions, Sampling, TextStream, Tokenizer};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let story = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/story/model.pnnx.param");
    let model = arguments.next().map_or(story, PathBuf::from);
    let prompt = arguments.next().unwrap_or_else(|| "Mira the fox".to_owned());

    let tokenizer = Tokenizer::load(model.with_file_name("tokenizer.json"))?;
    // Prefill and step, where there are two; both have their weights in common.
    let decoder = Decoder::load(&model, SessionOptions::default())?;

    // Drawn, not the likeliest each time: the same seed writes the same text.
    let mut sampling = Sampling::default();
    (sampling.temperature, sampling.top_p, sampling.seed) = (0.8, 0.95, 7);
    let options = GenerateOptions::default()
        .with_max(120)
        .with_sampling(sampling)
        .with_stop(decoder.stop(&tokenizer)?);

    let mut text = TextStream::new(&tokenizer);
    let mut generation = decoder.generate(&[tokenizer.encode(&prompt)?], options)?;
    print!("{prompt}");
    for token in generation.by_ref() {
        let token = token?;
        if token.end != Some(End::Stop) {
            print!("{}", text.push(token.id)?);
            std::io::stdout().flush()?;
        }
    }
    println!("{}", text.finish()?);
    let timing = generation.timing();
    println!("{} steps in {:.1?}", timing.steps, timing.step_time);
    Ok(())
}

//! Tokenizers, compared with what the package tokenizers of Python made of the same texts.

use plutino::generate::{TextStream, Tokenizer};
use std::path::Path;

#[derive(serde::Deserialize)]
struct Case {
    text: String,
    tokens: Vec<u32>,
    decoded: String,
}

type Expected = std::collections::BTreeMap<String, Vec<Case>>;

#[test]
fn every_kind_agrees_with_python() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tokenizers");
    let json = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: Expected = serde_json::from_slice(&json).unwrap();
    assert_eq!(expected.len(), 7);
    let mut wrong = Vec::new();
    for (kind, cases) in &expected {
        let tokenizer = Tokenizer::load(folder.join(format!("{kind}.json"))).unwrap();
        for Case { text, tokens, decoded } in cases {
            match tokenizer.encode(text) {
                Ok(found) if found == *tokens => {}
                found => wrong.push(format!("{kind}: {text:?} is {found:?}, not {tokens:?}")),
            }
            let found = tokenizer.decode(tokens).unwrap();
            if found != *decoded {
                wrong.push(format!("{kind}: {tokens:?} is {found:?}, not {decoded:?}"));
            }
            let mut stream = TextStream::new(&tokenizer);
            let mut pieces = String::new();
            for &token in tokens {
                pieces += &stream.push(token).unwrap();
            }
            pieces += &stream.finish().unwrap();
            if pieces != *decoded {
                wrong.push(format!("{kind}: {tokens:?} streams as {pieces:?}, not {decoded:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

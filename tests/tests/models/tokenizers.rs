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

/// Damaged files are refused or read: nothing panics, whatever is encoded and decoded then.
#[test]
fn damaged_files_are_harmless() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tokenizers");
    let text = "  Mira's 12 \n\n keys – ü <s> 🦊 ▁";
    let mut word = 1u64;
    let mut random = |below: usize| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 33) as usize % below.max(1)
    };
    let (mut read, mut refused) = (0, 0);
    for kind in ["gpt2", "llama3", "llama2", "first", "digits"] {
        let whole = std::fs::read(folder.join(format!("{kind}.json"))).unwrap();
        for _ in 0..150 {
            let mut json = whole.clone();
            for _ in 0..=random(3) {
                // Most of a file is its vocabulary; what decides stands around it.
                let front = random(2) == 0;
                let at = random(if front { 1200.min(json.len()) } else { json.len() });
                match random(4) {
                    0 => json[at] = b' ' + random(95) as u8,
                    1 => {
                        let end = (at + random(20)).min(json.len());
                        json.drain(at..end);
                    }
                    2 => json.insert(at, b"0-9{}[],\"\\x"[random(11)]),
                    _ => {
                        let part = json[at..(at + random(60)).min(json.len())].to_vec();
                        let to = random(json.len());
                        json.splice(to..to, part);
                    }
                }
            }
            match Tokenizer::from_json(&json) {
                Ok(tokenizer) => {
                    read += 1;
                    let tokens = tokenizer.encode(text).unwrap_or_default();
                    let _ = tokenizer.decode(&tokens);
                    let mut stream = TextStream::new(&tokenizer);
                    for token in tokens.into_iter().chain([0, 7, 300, u32::MAX]) {
                        let _ = stream.push(token);
                    }
                    let _ = stream.finish();
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
}

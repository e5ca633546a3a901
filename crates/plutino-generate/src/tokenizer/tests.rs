//! Parts by themselves. What the crate tokenizers makes of texts is compared in
//! `tests/tests/models/tokenizers.rs`.

use super::split::{Words, byte_of};
use super::*;
use serde_json::{Value, json};

fn of(part: Value) -> Result<Tokenizer, TokenizerError> {
    let mut file = json!({"model": {
        "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": ["a b", ["ab", "ab"]],
    }});
    for (key, value) in part.as_object().unwrap() {
        file[key] = value.clone();
    }
    Tokenizer::from_json(file.to_string().as_bytes())
}

#[test]
fn pairs_merge_in_the_order_learned() {
    let tokenizer = of(json!({})).unwrap();
    let tokens = |text: &str| tokenizer.encode(text).unwrap();
    assert_eq!(tokens("ababab"), [3, 2]);
    assert_eq!(tokens("babaab"), [1, 2, 0, 2]);
    assert_eq!(tokens(""), [0; 0]);
    let error = tokenizer.encode("abc").unwrap_err();
    assert_eq!(error.to_string(), "the text cannot be encoded: 'c' has no token");
    // As the crate does where no decoder is given.
    assert_eq!(tokenizer.decode(&[2, 0]).unwrap(), "ab a");
    assert_eq!(tokenizer.decode(&[4]), Err(TokenizerError::NoSuchToken { token: 4, count: 4 }));
    // Long pieces take n log n.
    assert_eq!(tokens(&"ab".repeat(100_000)).len(), 50_000);
}

#[test]
fn unknown_characters() {
    let model = |fuse: bool, bytes: bool| {
        let model = json!({
            "vocab": {"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xBC>": 3}, "merges": [],
            "unk_token": "<unk>", "fuse_unk": fuse, "byte_fallback": bytes,
        });
        of(json!({"model": model, "decoder": {"type": "ByteFallback"}})).unwrap()
    };
    assert_eq!(model(false, false).encode("aüüa").unwrap(), [0, 1, 1, 0]);
    assert_eq!(model(true, false).encode("aüüa").unwrap(), [0, 1, 0]);
    assert_eq!(model(true, true).encode("aüxya").unwrap(), [0, 2, 3, 1, 0]);
    assert_eq!(model(true, true).decode(&[0, 2, 3, 3]).unwrap(), "a\u{fffd}\u{fffd}\u{fffd}");
    assert_eq!(model(true, true).decode(&[2, 3, 0]).unwrap(), "üa");
}

#[test]
fn every_byte_has_a_name() {
    let mut names: Vec<char> = (0..=255).map(byte_level).collect();
    assert!(names.iter().enumerate().all(|(byte, c)| byte_of(*c) == Some(byte as u8)));
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), byte_level(b' '), byte_level(b'\n')), (256, 'Ġ', 'Ċ'));
    assert_eq!(
        ['é', 'Ń', '▁', '\u{0}', ' '].map(byte_of),
        [Some(0xe9), Some(0xad), None, None, None]
    );
}

/// Each step may double a text: what comes of that is bounded, in memory and in time.
#[test]
fn texts_do_not_grow_without_bound() {
    let twice = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let doubling = |n: usize| json!({"type": "Sequence", "normalizers": vec![twice.clone(); n]});
    let grown = of(json!({"normalizer": doubling(3)})).unwrap();
    assert_eq!(grown.encode("a").unwrap().len(), 8);
    let start = std::time::Instant::now();
    let bomb = of(json!({"normalizer": doubling(60)})).unwrap().encode("a").unwrap_err();
    assert_eq!(bomb, TokenizerError::TooLong { bytes: 1 << 21, most: 1 << 20 });
    let long = json!({"type": "Prepend", "prepend": "a".repeat(3 << 20)});
    assert!(of(json!({"normalizer": long})).unwrap().encode("a").is_err());
    let many = of(json!({"normalizer": doubling(65)})).unwrap_err().to_string();
    assert!(many.ends_with("normalizer: 65 steps in a row, 64 are possible"), "{many}");
    // Bytes that bytes become: two for each that is no ASCII.
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
    let bytes = json!({"type": "Sequence", "pretokenizers": vec![bytes; 40]});
    assert!(of(json!({"pre_tokenizer": bytes})).unwrap().encode("é").is_err());
    let back = json!({"type": "Sequence", "decoders": vec![twice; 60]});
    let back = of(json!({"decoder": back})).unwrap().decode(&[0; 3]).unwrap_err();
    assert!(matches!(back, TokenizerError::TooLong { most: 1_048_576, .. }), "{back}");
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn pipes_and_devices_are_no_tokenizers() {
    let told = Tokenizer::load("/dev/zero").unwrap_err().to_string();
    assert!(told.contains("regular file") || cfg!(not(unix)), "{told}");
}

#[test]
fn what_is_not_read_is_named() {
    let message = |part: Value| of(part).unwrap_err().to_string();
    let crate_only = "is read by the crate tokenizers only: build with --features tokenizers";
    if cfg!(not(feature = "tokenizers")) {
        let unknown = json!({"model": {"type": "Unigram", "vocab": []}});
        assert_eq!(message(unknown), format!("<memory>: model 'Unigram' {crate_only}"));
        let lower =
            json!({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}});
        assert_eq!(message(lower), format!("<memory>: normalizer 'Lowercase' {crate_only}"));
        assert!(Words::of(r"\w+").is_none());
        let split = json!({"pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated", "invert": false,
        }});
        assert!(message(split).contains("pre_tokenizer"));
        let nfc = of(json!({"normalizer": {"type": "NFC"}})).unwrap();
        assert_eq!(nfc.encode("ab").unwrap(), [2]);
        assert!(nfc.encode("a\u{308}").unwrap_err().to_string().contains("NFC"));
    }
    for (part, problem) in [
        (json!({"model": {"merges": []}}), "missing field `vocab`"),
        (json!({"model": {"vocab": {"a": 0}, "merges": ["a b"]}}), "'ab' is not in the vocabulary"),
        (json!({"model": {"vocab": {"a": 0}, "merges": ["ab"]}}), "merge 0 is no pair: 'ab'"),
        (json!({"decoder": {"type": "Sequence"}}), "Sequence: no list 'decoders'"),
        (
            json!({"post_processor": {"type": "TemplateProcessing", "special_tokens": {},
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]}}),
            "TemplateProcessing: no token '<s>'",
        ),
        (
            json!({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}}),
            "expected a character",
        ),
    ] {
        let found = message(part);
        assert!(
            found.starts_with("<memory>: no tokenizer: ") && found.contains(problem),
            "{found}"
        );
    }
    assert!(Tokenizer::from_json(b"[1, 2").is_err());
    let missing = Tokenizer::load("no/such/file.json").unwrap_err();
    assert!(missing.to_string().starts_with("no/such/file.json: "));
}

#[cfg(feature = "tokenizers")]
#[test]
fn the_crate_reads_other_kinds() {
    use crate::TextStream;
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    // As BERT's: pieces of words in lower case.
    let pieces = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "[UNK]")],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "play": 1, "##ing": 2, "the": 3}},
    });
    let tokenizer = Tokenizer::from_json(pieces.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("Playing the xyz").unwrap(), [1, 2, 3, 0]);
    assert_eq!(tokenizer.decode(&[1, 2, 3, 0]).unwrap(), "playing the");
    assert_eq!((tokenizer.token("the"), tokenizer.token("no")), (Some(3), None));
    assert!(tokenizer.is_special(0) && !tokenizer.is_special(1));
    let error = tokenizer.decode(&[1, 99]).unwrap_err();
    assert!(matches!(error, TokenizerError::NoSuchToken { token: 99, count: 4 }), "{error}");
    let mut stream = TextStream::new(&tokenizer);
    let mut text = String::new();
    for token in [1, 2, 3] {
        text += &stream.push(token).unwrap();
    }
    assert_eq!(text + &stream.finish().unwrap(), "playing the");
    // As T5's: the likeliest pieces.
    let unigram = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special(0, "<unk>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": null,
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
            "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["b", -1.0], ["▁ab", -1.5], ["▁", -3.0]]},
    });
    let tokenizer = Tokenizer::from_json(unigram.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode("ab a").unwrap(), [3, 1]);
    assert_eq!(tokenizer.decode(&[3, 1]).unwrap(), "ab a");
    // What neither reads is malformed, and says why.
    let error = of(json!({"normalizer": {"type": "Nothing"}})).unwrap_err();
    assert!(matches!(error, TokenizerError::Malformed { .. }), "{error}");
}

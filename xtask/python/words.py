"""Small tokenizers of the kinds that decoders have, with the tokens that the package tokenizers makes of texts."""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import story_text

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
TEXTS = (
    "",
    " ",
    "Mira the fox",
    " Mira found a red key  under   the bridge. ",
    "It's Bruno's; we'LL, they'Ve, I'M, you'd, don'ſ",
    "1234567 and 12.5 or ½ and Ⅷ3",
    "a\n\n  b\r\n\tc \n",
    "  \n\n x\u00a0y\u3000z",
    "<|end|>Luna <|end|> the<|end|>\ncat <s>",
    "naïve café – Straße, Ελλάδα, Москва, 日本語のテキスト, 한국어, नमस्ते दुनिया",
    "🦊 and 👩‍🔬 and ⓐⓑ",
    "under_score --dash-- (brackets) [x] {y} a+b=c; \"quoted\" 'single'",
    "▁▁ looks like a blank",
    "x" * 40 + "!" * 7,
)


def gpt2() -> tuple[Tokenizer, dict]:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made, {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}


def split(expression: str) -> tuple[Tokenizer, dict]:
    made, options = gpt2()
    made.model = models.BPE(ignore_merges=expression == LLAMA3)
    parts = [pre_tokenizers.Split(Regex(expression), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    made.pre_tokenizer = pre_tokenizers.Sequence(parts)
    return made, options


def digits() -> tuple[Tokenizer, dict]:
    made, options = gpt2()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), made.pre_tokenizer])
    return made, options


def pieces(front: str) -> tuple[Tokenizer, dict]:
    """Characters, with blanks as `▁`, and bytes for those that are not known."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if front == "prepend":  # Llama 2: the whole text is one piece
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=front)
        made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=front)])
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return made, {"special_tokens": names, "plain": True}


KINDS = {
    "gpt2": gpt2,
    "llama3": lambda: split(LLAMA3),
    "qwen2": lambda: split(QWEN2),
    "digits": digits,
    "llama2": lambda: pieces("prepend"),
    "first": lambda: pieces("first"),
    "always": lambda: pieces("always"),
}


def write(_: str, target: Path) -> str:
    target.mkdir(parents=True)
    rng = random.Random(1)
    texts = [story_text.story(rng) for _ in range(300)] + ["12 345 don't WE'LL\n\n  été"] * 20
    expected = {}
    for name, make in KINDS.items():
        made, options = make()
        plain = options.pop("plain", False)
        size = 256 + 80 + (len("abcdefghijklmnopqrstuvwxyz") * 2 if plain else 0)
        made.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, **options))
        if plain:  # bytes are no special tokens: they are text
            file = json.loads(made.to_str())
            file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] == "<unk>"]
            made = Tokenizer.from_str(json.dumps(file))
        made.add_special_tokens(["<|end|>"])
        made.add_tokens([AddedToken("<s>", lstrip=True, rstrip=name == "gpt2", normalized=False)])
        end = made.token_to_id("<|end|>")
        if name in ("llama3", "llama2"):
            made.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", end)])
        made.save(str(target / f"{name}.json"), pretty=False)
        encoded = [made.encode(text).ids for text in TEXTS]
        expected[name] = [
            {"text": text, "tokens": ids, "decoded": made.decode(ids)} for text, ids in zip(TEXTS, encoded, strict=True)
        ]
    lines = json.dumps(expected, ensure_ascii=False).replace('}, {"text"', '},\n{"text"')
    (target / "expected.json").write_text(lines + "\n", encoding="utf-8")
    return f"{len(KINDS)} kinds, {len(TEXTS)} texts"

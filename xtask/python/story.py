"""A small decoder that writes stories, exported as prefill and step that share their weights, with what PyTorch writes."""

import json
import random
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn

import files
import story_text
from export import Exported
from models.decoder import Decoder, Size, causal
from networks import TOLERANCE

END = "<|end|>"
SIZE = Size(vocabulary=320, width=64, layers=2, heads=4, groups=2, inner=128)
CONTEXT = 256
STORIES = 6000
STEPS = 1600
BATCH, WINDOW = 24, 128
PROMPTS = ("Mira the fox", "It was a cold evening. Bruno the bear", "Luna")
TOKENS = 100
"""That PyTorch writes for each prompt, without regard to the end of the story."""
ROLES = ["tokens", "positions", "mask"]


def tokenizer(stories: list[str]) -> Tokenizer:
    """Pairs of bytes, as GPT-2's, learned from the stories; what is encoded begins where a story ends."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=SIZE.vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(stories, trainer)
    made.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, made.token_to_id(END))])
    return made


def trained(stream: Tensor) -> tuple[Decoder, float]:
    """A decoder that has learned the stories, which stand one after the other."""
    torch.manual_seed(0)
    net = Decoder(SIZE)
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.06)
    optimizer = torch.optim.AdamW(net.parameters(), lr=6e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, STEPS, pct_start=0.1)
    mask, positions = causal(1, WINDOW), torch.arange(WINDOW).expand(BATCH, -1)
    for _ in range(STEPS):
        at = torch.randint(len(stream) - WINDOW - 1, (BATCH, 1)) + torch.arange(WINDOW + 1)
        window = stream[at]
        logits = net(window[:, :-1], positions, mask)[0]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return net.eval(), loss.item()


def export(net: Decoder, target: Path) -> None:
    """Prefill as `model`, and `model.step` without weights of its own: they are those of the prefill, by name."""
    prefill = (net.inputs(1, 5), net.inputs(3, 7))
    step = (net.inputs(1, 1, 4), net.inputs(3, 2, 6))
    target.mkdir(parents=True, exist_ok=True)
    with Exported(net, *prefill) as exported:
        exported.save(target, weights=True)
        weights = files.read_weights(exported.bin)
    with Exported(net, *step) as exported:
        own = files.read_weights(exported.bin)
        if strange := {name for name in own if weights.get(name) != own[name]}:
            raise RuntimeError(f"step and prefill have different weights: {', '.join(sorted(strange))}")
        (target / "model.step.pnnx.param").write_bytes(exported.param.read_bytes())


def greedy(net: Decoder, prompt: list[int], dtype: torch.dtype, forced: list[int] | None = None) -> tuple[list[int], np.ndarray]:
    """The likeliest tokens one by one, with a cache, and the logits that they were chosen by; or those of given tokens."""
    net = net.to(dtype)
    tokens, rows, past = [], [], ()
    fed = torch.tensor([prompt])
    with torch.no_grad():
        for i in range(TOKENS):
            seen = past[0].shape[2] if past else 0
            positions = torch.arange(seen, seen + fed.shape[1])[None]
            logits, *past = net(fed, positions, causal(1, fed.shape[1], seen).to(dtype), *past)
            rows.append(logits[0, -1].numpy())
            tokens.append(forced[i] if forced else int(logits[0, -1].argmax()))
            fed = torch.tensor([[tokens[-1]]])
    return tokens, np.stack(rows)


def write(name: str, target: Path) -> str:
    rng = random.Random(0)
    stories = [story_text.story(rng) for _ in range(STORIES)]
    words = tokenizer(stories)
    encoded = words.encode_batch(stories)
    net, loss = trained(torch.tensor([token for story in encoded for token in story.ids]))
    export(net, target)
    words.save(str(target / "tokenizer.json"))
    recipe = {"inputs": ROLES, "context": CONTEXT, "stop": [END]}
    (target / "model.generate.json").write_text(json.dumps(recipe, indent=2) + "\n")

    arrays, written, errors = {}, [], []
    for i, prompt in enumerate(PROMPTS):
        ids = words.encode(prompt).ids
        tokens, logits = greedy(net, ids, torch.float32)
        _, exact = greedy(net, ids, torch.float64, forced=tokens)
        net.to(torch.float32)
        largest = np.abs(exact).max()
        errors.append(float(np.abs(logits - exact).max() / largest))
        first, second = np.sort(exact, 1)[:, :-3:-1].T
        if (first - second).min() <= 2 * TOLERANCE * largest:
            raise RuntimeError(f"which token follows '{prompt}' is decided by rounding")
        arrays |= {f"prompt{i}": np.array(ids), f"tokens{i}": np.array(tokens)}
        arrays |= {"logits0": logits} if i == 0 else {}
        story = words.decode(ids + tokens, skip_special_tokens=False).split(END)[1]
        written.append({"prompt": prompt, "text": story})
    files.write_npz(target / "greedy.npz", arrays)
    fixture = {
        "name": name,
        "parameters": sum(p.numel() for p in net.parameters()),
        "error_of_f32": max(errors),
        "tolerance": TOLERANCE,
        "written": written,
    }
    files.write_json(target / "written.json", fixture)
    return f"loss {loss:.3f}, f32 error {max(errors):.1e}; {written[0]['text']!r}"


if __name__ == "__main__":  # a look at the stories
    print(*(story_text.story(random.Random(seed)) for seed in range(5)), sep="\n\n")

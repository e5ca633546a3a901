"""Models of transformers, small and with random weights."""

from collections.abc import Callable

import torch

from .weights import floats, integers

VOCABULARY, LENGTH = 160, 12

# What configurations call their sizes. Each takes those that it has.
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embedding_size": 64, "embed_dim": 64,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "n_inner": 96, "hidden_dim": 96, "ffn_dim": 96, "d_ff": 96, "d_kv": 16,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "head_dim": 16, "max_position_embeddings": 64, "n_positions": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False,
    "moe_intermediate_size": 48, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "n_routed_experts": 4,
    "sliding_window": 8, "attn_implementation": "sdpa",
}  # fmt: skip


def config(kind: str, **more):
    """A configuration with as small sizes as it allows."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[kind]
    known = vars(cls())

    alias = getattr(cls, "attribute_map", {})

    def fits(key: str) -> bool:
        """Whether it has this size, and one for all of its stages."""
        own = key if key in known else alias.get(key)
        return (key in known or key in alias) and own != "num_stages" and not isinstance(known.get(own), (list, tuple))

    taken = {key: value for key, value in SIZES.items() if fits(key)}
    taken = {key: value for key, value in taken.items() if alias.get(key) not in taken or key in known}
    return cls(**{**taken, **more})


def tokens() -> dict:
    mask = torch.ones(1, LENGTH, dtype=torch.long)
    return {"input_ids": 3 + integers(VOCABULARY - 3, 1, LENGTH), "attention_mask": mask}


def padded() -> dict:
    """Two rows, of which one is shorter."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, -4:] = 0
    return {"input_ids": 3 + integers(VOCABULARY - 3, 2, LENGTH), "attention_mask": mask}


def causal(kind: str, **more) -> Callable:
    def make():
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_config(config(kind, **more)), tokens()

    return make


def encoder(kind: str, inputs: Callable = padded, **more) -> Callable:
    def make():
        from transformers import AutoModel

        return AutoModel.from_config(config(kind, **more)), inputs()

    return make


def translator(kind: str, **more) -> Callable:
    def make():
        from transformers import AutoModelForSeq2SeqLM

        inputs = {**tokens(), "decoder_input_ids": 3 + integers(VOCABULARY - 3, 1, 7, seed=2)}
        return AutoModelForSeq2SeqLM.from_config(config(kind, **more)), inputs

    return make


def vision(kind: str, size: int = 64, frames: tuple = (), **more) -> Callable:
    def make():
        from transformers import CONFIG_MAPPING, AutoModel

        known = vars(CONFIG_MAPPING[kind]())
        square = isinstance(known.get("image_size"), (list, tuple))
        sizes = {"image_size": [size, size] if square else size}
        if "num_hidden_layers" in known:  # not one of stages, each with patches of its own
            sizes["patch_size"] = 16
        sizes = {key: value for key, value in sizes.items() if key in known}
        return AutoModel.from_config(config(kind, **{**sizes, **more})), {"pixel_values": floats(1, *frames, 3, size, size)}

    return make


def audio(kind: str, samples: int = 4000, **more) -> Callable:
    def make():
        from transformers import AutoModel

        return AutoModel.from_config(config(kind, **more)), {"input_values": floats(1, samples)}

    return make


def whisper() -> tuple:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    cfg = WhisperConfig(vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=50, num_mel_bins=16,
                        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                        use_cache=False)  # fmt: skip
    return WhisperForConditionalGeneration(cfg), {
        "input_features": floats(1, 16, 100),
        "decoder_input_ids": 3 + integers(VOCABULARY - 3, 1, 7),
    }


def clip() -> tuple:
    from transformers import CLIPConfig, CLIPModel

    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    cfg = CLIPConfig(text_config={**sizes, "vocab_size": VOCABULARY, "eos_token_id": 2}, projection_dim=32,
                     vision_config={**sizes, "image_size": 64, "patch_size": 16})  # fmt: skip
    return CLIPModel(cfg), {**tokens(), "pixel_values": floats(2, 3, 64, 64)}


def heads(kind: str, head: str, inputs: Callable = padded, **more) -> Callable:
    """A model with a head: `AutoModelFor...`."""

    def make():
        import transformers

        return getattr(transformers, f"AutoModelFor{head}").from_config(config(kind, **more)), inputs()

    return make


CAUSAL = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "mistral", "phi", "phi3", "gpt2", "gpt_neox", "opt",
          "bloom", "mpt", "falcon", "stablelm", "starcoder2", "olmo", "olmo2", "cohere", "glm", "granite", "nemotron",
          "smollm3", "helium", "ernie4_5", "biogpt", "xglm", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe",
          "gpt_oss", "mamba", "rwkv", "openai-gpt", "ctrl")  # fmt: skip

CASES: dict[str, Callable] = {
    **{kind: causal(kind) for kind in CAUSAL},
    "gpt_neo": causal("gpt_neo", attention_types=[[["global", "local"], 1]], num_layers=2),
    "gptj": causal("gptj", rotary_dim=8),
    "codegen": causal("codegen", rotary_dim=8),
    "deepseek_v3": causal("deepseek_v3", num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=8,
                          v_head_dim=16, head_dim=8, n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1),
    "mamba2": causal("mamba2", num_heads=8, head_dim=16, n_groups=1, state_size=16),
    **{kind: encoder(kind) for kind in ("bert", "roberta", "electra", "albert", "distilbert", "mpnet", "deberta", "deberta-v2", "camembert",
                                        "xlm-roberta", "ernie", "modernbert", "squeezebert", "mobilebert", "roformer", "nystromformer",
                                        "convbert", "fnet", "layoutlm", "esm", "megatron-bert", "data2vec-text", "ibert", "rembert", "xlm",
                                        "longformer", "big_bird", "splinter", "mra", "yoso", "xlnet", "canine")},
    **{kind: translator(kind) for kind in ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "blenderbot", "m2m_100", "longt5", "umt5",
                                           "switch_transformers", "led", "prophetnet", "plbart")},
    "t5 v1.1": translator("t5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    **{kind: vision(kind) for kind in ("vit", "deit", "beit", "dinov2", "data2vec-vision", "vit_mae", "vit_msn", "ijepa",
                                       "siglip_vision_model", "clip_vision_model", "dinov3_vit", "hiera", "pvt", "pvt_v2",
                                       "segformer", "mobilevit", "mobilevitv2", "poolformer", "resnet", "regnet", "convnext", "convnextv2",
                                       "bit", "levit", "cvt", "focalnet", "mobilenet_v1", "mobilenet_v2", "dpt", "glpn",
                                       "yolos", "swiftformer", "textnet")},
    "swin": vision("swin", 128, embed_dim=48, window_size=4),
    "swinv2": vision("swinv2", embed_dim=48),
    "efficientnet": vision("efficientnet", hidden_dim=2560),
    "timesformer": vision("timesformer", frames=(8,)),
    **{kind: audio(kind) for kind in ("wav2vec2", "hubert", "wavlm", "sew", "unispeech", "wav2vec2-conformer", "data2vec-audio")},
    "whisper": whisper,
    "clip": clip,
    "bert question answering": heads("bert", "QuestionAnswering"),
    "roberta classifier": heads("roberta", "SequenceClassification"),
    "distilbert masked": heads("distilbert", "MaskedLM"),
    "electra tokens": heads("electra", "TokenClassification"),
}  # fmt: skip

"""Tiny random models in the hub's folder layout, and brute-force twins of their statistics in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.models.weights import load_weights
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS
from audit_pipeline.token_statistics.backend import WindowResult
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.tokens import (
    EncodedText,
    cut_windows,
    encode,
    iterate_batches,
    window_and_stride,
)

Tiny = Callable[[str], tuple[TokenizedModel, ForwardPass]]
"""Function from a family to a tiny model and its forward pass: the fixture ``tiny``."""

CONTEXT = 64
SENTENCES = (
    "The harbour was quiet before the morning boats came in.",
    "A model is asked how likely each word of a text is, given the words before it.",
    "Nobody had counted the lanterns, yet everyone agreed that one was missing!",
    "Numbers such as 12, 345 and 6789 are written with digits; dates such as 2021-03-04 too.",
    "Le café était fermé, les élèves attendaient sous la pluie.",
    "If the wind turns, we sail; if it does not turn, we mend the nets and wait.",
)
TWINS = ("token_id", "logprob", "mean", "std", "max_logprob", "argmax_id", "rank")
"""The statistics that are recomputed here."""


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit torch to one thread inside this block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_byte_level(
    texts: Sequence[str],
    vocab_size: int,
    *,
    pre_tokenizer: Any = None,
    normalizer: Any = None,
    ignores_merges: bool = False,
    adds_bos: bool = False,
    trims_offsets: bool = False,
) -> Tokenizer:
    """Train a byte-level BPE with GPT-2's rule. The other settings apply after the training."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<s>", "</s>", "<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims_offsets)
    if adds_bos:
        bos = ("<s>", tokenizer.token_to_id("<s>"))
        template = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[bos])
        tokenizer.post_processor = processors.Sequence([tokenizer.post_processor, template])
    tokenizer.pre_tokenizer = pre_tokenizer or tokenizer.pre_tokenizer
    tokenizer.model.ignore_merges = ignores_merges
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def save_tokenizer(folder: Path, *, adds_bos: bool = False) -> transformers.PreTrainedTokenizerFast:
    """Save a byte-level BPE tokenizer of about 400 tokens. Id 0 is '!', and special tokens come last."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=train_byte_level(SENTENCES, 380, adds_bos=adds_bos),
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|endoftext|>"],
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    # Large enough for peaked distributions, so that tests can see differences.
    "initializer_range": 0.3,
}
_LOCAL = {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8}
_GEMMA3_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
_FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, _SIZES),
    "qwen2": (transformers.Qwen2Config, _SIZES),
    "gpt_neox": (transformers.GPTNeoXConfig, {key: _SIZES[key] for key in _SIZES if key != "num_key_value_heads"}),
    "mistral": (transformers.MistralConfig, {**_SIZES, "sliding_window": 8}),
    "gemma2": (transformers.Gemma2Config, {**_SIZES, **_LOCAL, "final_logit_softcapping": 5.0}),
    "gemma3": (
        transformers.Gemma3TextConfig,
        {**_SIZES, **_LOCAL, "num_hidden_layers": 3, "layer_types": _GEMMA3_LAYERS},
    ),
    "granite": (transformers.GraniteConfig, {**_SIZES, "logits_scaling": 4.0}),
    "cohere": (transformers.CohereConfig, {**_SIZES, "logit_scale": 0.5}),
    "phi3": (transformers.Phi3Config, {**_SIZES, "pad_token_id": 0}),
    "gpt2": (
        transformers.GPT2Config,
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "initializer_range": 0.3},
    ),
    "gpt_neo": (
        transformers.GPTNeoConfig,
        {
            **{"hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 8, "initializer_range": 0.3},
            **{"attention_types": [[["global", "local"], 1]], "max_position_embeddings": CONTEXT},
        },
    ),
    "opt": (
        transformers.OPTConfig,
        {
            **{"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2},
            **{"num_attention_heads": 4, "max_position_embeddings": CONTEXT, "init_std": 0.3},
        },
    ),
    "bloom": (transformers.BloomConfig, {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3}),
    "falcon": (
        transformers.FalconConfig,
        {
            **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3},
            **{"multi_query": False, "parallel_attn": False},
        },
    ),
    "mamba": (
        transformers.MambaConfig,
        {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "initializer_range": 0.3},
    ),
}


def config_of(family: str, vocab_size: int, **changes: Any) -> Any:
    """Return the configuration of a tiny model of ``family``."""
    make, fields = _FAMILIES[family]
    return make(**{"vocab_size": vocab_size, **fields, **changes})


def save_model(folder: Path, family: str = "llama", *, seed: int = 0, adds_bos: bool = False, **changes: Any) -> Path:
    """Save a random model of ``family`` with its tokenizer in the hub's folder layout (safetensors)."""
    tokenizer = save_tokenizer(folder, adds_bos=adds_bos)
    torch.manual_seed(seed)
    config = config_of(family, changes.pop("vocab_size", len(tokenizer)), **changes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if family == "mamba":
        # After initialisation the state hardly changes. Noise makes earlier tokens matter.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


SAME_IN_FLOAT32 = 1e-4
"""Nats by which two orders of the same float32 sums may differ: the bound of docs/conventions.md."""

SAME_IN_FLOAT64 = SAME_IN_FLOAT32 * np.finfo(np.float64).eps / np.finfo(np.float32).eps
"""The same sums in float64, whose rounding is 2**-29 of that of float32."""

LORA = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"], "task_type": "CAUSAL_LM"}


def save_adapter(folder: Path, base: Path, config: object | None = None, seed: int = 1) -> Path:
    """Save an adapter of a Llama with random weights that change the scores of its base; needs peft.

    The same seed gives the same adapter. peft draws from torch's global generator, so the generator is seeded.
    """
    import peft

    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted = peft.get_peft_model(plain, config or peft.LoraConfig(**LORA))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad and not name.endswith(("embed_tokens.weight", "lm_head.weight")):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(folder)
    return folder


def tokenized(folder: Path, data: Path, **fields: Any) -> TokenizedModel:
    """Load the model in ``folder`` under an entry with ``fields``, without its weights."""
    return load_tokenized(ModelEntry(name=folder.name, path=folder, **fields), DataPaths(data))


def forward_of(model: TokenizedModel, device: str = "cpu") -> ForwardPass:
    """Load a model."""
    return ForwardPass(load_weights(model, device), model.vocab_size)


def twin_of_logits(logits: np.ndarray, target: Sequence[int]) -> dict[str, np.ndarray]:
    """Compute the statistics of each row of ``logits`` [n, V] in float64 with plain formulas (0 log 0 = 0)."""
    rows: dict[str, list[float]] = {name: [] for name in TWINS}
    for row, token in zip(np.asarray(logits, dtype=np.float64), target, strict=True):
        log_p = row - (np.log(np.sum(np.exp(row - row.max()))) + row.max())
        p = np.exp(log_p)
        weighted = np.where(p > 0, p * np.where(p > 0, log_p, 0.0), 0.0)
        mean = weighted.sum()
        variance = np.sum(np.where(p > 0, p * (np.where(p > 0, log_p, 0.0) - mean) ** 2, 0.0))
        rows["token_id"].append(token)
        rows["logprob"].append(log_p[token])
        rows["mean"].append(mean)
        rows["std"].append(np.sqrt(variance))
        rows["max_logprob"].append(log_p.max())
        rows["argmax_id"].append(int(row.argmax()))
        rows["rank"].append(int(np.sum(row > row[token])))
    return {name: np.asarray(values) for name, values in rows.items()}


@torch.inference_mode()
def twin_logits(model: TokenizedModel, forward: ForwardPass, text: EncodedText) -> np.ndarray:
    """Compute the logits [scored tokens, V] of a text in float64, each window alone and without padding."""
    rows = []
    for window in cut_windows(0, text, *window_and_stride(model)):
        start = [] if text.start_token_id is None else [text.start_token_id]
        ids = torch.tensor([[*start, *text.token_id[window.begin : window.end].tolist()]])
        logits = forward.model(input_ids=ids).logits[0].double().numpy()
        first = window.score_from - window.begin + len(start) - 1
        rows.append(logits[first : first + window.end - window.score_from])
    return np.concatenate(rows)


def twin_statistics(model: TokenizedModel, forward: ForwardPass, text: str) -> dict[str, np.ndarray]:
    """Compute the statistics of a text window by window in float64."""
    [encoded] = encode(model, [text])
    targets = encoded.token_id[encoded.first_scored :].tolist()
    return twin_of_logits(twin_logits(model, forward, encoded), targets)


def score(
    model: TokenizedModel, forward: ForwardPass, texts: Sequence[str], budget: int = 1 << 14, *also: str
) -> list[dict[str, np.ndarray]]:
    """Score texts together and return the statistics of each text."""
    encoded = encode(model, texts)
    window, stride = window_and_stride(model)
    windows = [part for number, text in enumerate(encoded) for part in cut_windows(number, text, window, stride)]
    done: list[list[WindowResult]] = [[] for _ in texts]
    for batch in iterate_batches(windows, budget, equal_lengths=forward.equal_lengths, length_step=forward.length_step):
        for one in forward.begin(encoded, batch, {*KINDS["base"].statistics, *also})():
            done[one.window.text].append(one)
    rows = []
    for parts in done:
        parts.sort(key=lambda part: part.window.begin)
        rows.append({name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values})
    return rows


def assert_like_twin(
    model: TokenizedModel, forward: ForwardPass, text: str, ours: dict[str, np.ndarray], tolerance: float = 1e-4
) -> None:
    """Check that the statistics ``ours`` of ``text`` equal those of the bare model, reduced in float64."""
    [encoded] = encode(model, [text])
    targets = encoded.token_id[encoded.first_scored :].tolist()
    logits = twin_logits(model, forward, encoded)
    twin = twin_of_logits(logits, targets)
    for name in ("logprob", "mean", "std", "max_logprob"):
        np.testing.assert_allclose(ours[name], twin[name], atol=tolerance, err_msg=name)
    # Two paths to the same logits may order near-ties differently.
    own = logits[np.arange(len(targets)), targets]
    certain = (logits > own[:, None] + 1e-4).sum(1)
    possible = (logits > own[:, None] - 1e-4).sum(1)
    assert ((ours["rank"] >= certain) & (ours["rank"] <= possible)).all()
    assert (logits.max(1) - logits[np.arange(len(targets)), ours["argmax_id"]] < 1e-4).all()


def error_line(work: Callable[[], object]) -> str:
    """Return the message of the ModelError that ``work`` raises. Check that it is one line."""
    with pytest.raises(ModelError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def never(*_: object) -> ForwardPass:
    """Fail, as the function that loads a model in tests with a complete cache."""
    raise AssertionError("the model must not be loaded: everything is cached")

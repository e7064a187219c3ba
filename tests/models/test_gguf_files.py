"""Metadata of a .gguf: its split rule, and the check that it holds a whole model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from test_tokenizer_files import TEXTS, train_byte_level
from tiny_models import tokenized
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from audit_pipeline.errors import ModelError
from audit_pipeline.models.conversion import SPLIT_RULES
from audit_pipeline.models.tokenized_model import TokenizedModel

pytestmark = pytest.mark.usefixtures("one_thread")
_TYPES = {bool: "bool", int: "uint32", str: "string", list: "array"}


def write_gguf(path: Path, *, architecture: str = "llama", **fields: Any) -> Path:
    """Write a .gguf with one tensor and the given fields. Two underscores in a field's name stand for a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": 4,
        "attention.head_count_kv": 4,
        "rope.dimension_count": 8,
        "vocab_size": len(fields.get("tokenizer__ggml__tokens", ())),
    }
    for name, size in sizes.items():
        writer.add_uint32(f"{architecture}.{name}", size)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for name, value in fields.items():
        getattr(writer, f"add_{_TYPES[type(value)]}")(name.replace("__", "."), value)
    writer.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_bpe_gguf(path: Path, tokenizer: Tokenizer, **fields: Any) -> Path:
    """Write the .gguf of a Llama with the vocabulary and the merges of a byte-level BPE."""
    model = json.loads(tokenizer.to_str())
    by_id = sorted((number, token) for token, number in tokenizer.get_vocab().items())
    added = {token["id"] for token in model["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["model"]["merges"]]
    return write_gguf(
        path,
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__tokens=[token for _, token in by_id],
        tokenizer__ggml__token_type=[3 if number in added else 1 for number, _ in by_id],
        tokenizer__ggml__merges=merges,
        tokenizer__ggml__bos_token_id=tokenizer.token_to_id("<s>"),
        tokenizer__ggml__eos_token_id=tokenizer.token_to_id("</s>"),
        **fields,
    )


def load_with_rule(folder: Path, name: str | None, **fields: object) -> TokenizedModel:
    """Load a model with GPT-2-like merges whose .gguf names a split rule."""
    rule = {} if name is None else {"tokenizer__ggml__pre": name}
    return tokenized(write_bpe_gguf(folder / f"{name}.gguf", train_byte_level(), **rule, **fields), folder / "data")


# Worked out by hand from the patterns.
TEXT = "It'LL 1234 ab12,\n\n 7!? 漢字a"
SPLIT = {
    "gpt-2": ["It", "'", "LL", " 1234", " ab", "12", ",", "\n\n", " 7", "!?", " 漢字a"],
    "smollm": ["It", "'", "LL", " ", "1", "2", "3", "4", " ab", "1", "2", ",", "\n\n ", "7", "!?", " 漢字a"],
    "command-r": ["It", "'", "LL", " ", "1", "2", "3", "4", " ab", "1", "2", ",", "\n\n ", "7", "!?", " 漢字a"],
    "llama-bpe": ["It", "'LL", " ", "123", "4", " ab", "12", ",\n\n", " ", "7", "!?", " 漢字a"],
    "glm4": ["It", "'LL", " ", "123", "4", " ab", "12", ",\n\n", " ", "7", "!?", " 漢字a"],
    "qwen2": ["It", "'LL", " ", "1", "2", "3", "4", " ab", "1", "2", ",\n\n", " ", "7", "!?", " 漢字a"],
    "deepseek-v3": ["It", "'LL", " ", "123", "4", " ab", "12", ",\n\n", " ", "7", "!?", " ", "漢字", "a"],
    "deepseek-coder": [
        *("It", "'", "LL", " ", "1", "2", "3", "4", " ab", "1", "2", ",", "\n", "\n", " ", "7", "!?"),
        *(" ", "漢字", "a"),
    ],
    "falcon": ["It", "'", "LL", " ", "123", "4", " ab", "12", ",", "\n\n", " 7", "!?", " 漢字a"],
    "tekken": ["It", "'LL", " ", "1", "2", "3", "4", " ab", "1", "2", ",\n\n", " ", "7", "!?", " 漢字a"],
    "gpt-4o": ["It'LL", " ", "123", "4", " ab", "12", ",\n\n", " ", "7", "!?", " 漢字a"],
    "bloom": ["It'LL", " 1234", " ab12", ",\n\n", " 7", "!?", " 漢字a"],
}


@pytest.mark.parametrize("name", SPLIT)
def test_texts_are_split_by_the_rule_in_the_gguf(name: str, tmp_path: Path) -> None:
    # The second load reads the stored conversion.
    for _ in range(2):
        split = load_with_rule(tmp_path, name).tokenizer.backend.pre_tokenizer
        assert [TEXT[start:end] for _, (start, end) in split.pre_tokenize_str(TEXT)] == SPLIT[name]


@pytest.mark.parametrize("name", sorted(SPLIT_RULES.keys() & GGUF_PRE_TOKENIZER_SPLITS.keys()))
def test_our_split_rules_match_those_of_transformers(name: str) -> None:
    [pattern] = SPLIT_RULES[name].patterns
    ours, theirs = (
        pre_tokenizers.Split(Regex(regex), "isolated") for regex in (pattern, GGUF_PRE_TOKENIZER_SPLITS[name])
    )
    for text in (*TEXTS, TEXT, "Don'T ſ's हिन्दी été İSTANBUL\r\n\t x/y\n//"):
        assert ours.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepseek-llm", "names the unknown rule 'deepseek-llm'"),
        (None, "contains no rule for splitting"),
    ],
)
def test_an_unknown_split_rule_raises_an_error_with_its_name(name: str | None, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"^the tokenizer of {name}\.gguf is not supported: .*{words}") as caught:
        load_with_rule(tmp_path, name)
    assert "\n" not in str(caught.value)


def test_a_piece_in_the_vocabulary_is_one_token_if_the_rule_ignores_merges(tmp_path: Path) -> None:
    # The merges of a vocabulary do not lead to every token of it.
    core = train_byte_level()
    core.add_tokens(["Ġoutlandish"])
    text = "an outlandish word"
    for name, whole in (("llama-bpe", True), ("dbrx", False)):
        path = write_bpe_gguf(tmp_path / f"{name}.gguf", core, tokenizer__ggml__pre=name)
        for _ in ("converted", "kept"):
            model = tokenized(path, tmp_path / "data")
            [encoded] = model.tokenizer.encode([text], add_special_tokens=False)
            assert ("Ġoutlandish" in encoded.tokens) == whole


@pytest.mark.parametrize(
    ("name", "flag", "starts"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("gpt-2", None, False), ("gpt-2", True, True)],
)
def test_the_gguf_or_else_the_rule_decides_about_a_start_token(
    name: str, flag: bool | None, starts: bool, tmp_path: Path
) -> None:
    model = load_with_rule(tmp_path, name, **({} if flag is None else {"tokenizer__ggml__add_bos_token": flag}))
    [encoded] = model.tokenizer.encode(["ab"], add_special_tokens=True)
    assert (encoded.tokens[0] == "<s>") == starts


@pytest.mark.parametrize("prefix", [None, True, False])
def test_a_sentencepiece_text_gets_a_leading_blank_only_if_the_gguf_states_it(
    prefix: bool | None, tmp_path: Path
) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256)), "▁", "a", "b", "▁a", "ab", "▁ab"]
    scores = [-1000.0] * 259 + [-9.0, -8.0, -7.0, -2.0, -3.0, -1.0]
    path = write_gguf(
        tmp_path / "m.gguf",
        tokenizer__ggml__model="llama",
        tokenizer__ggml__tokens=tokens,
        tokenizer__ggml__scores=scores,
        tokenizer__ggml__token_type=[2, 3, 3, *[6] * 256, *[1] * 6],
        tokenizer__ggml__bos_token_id=1,
        tokenizer__ggml__eos_token_id=2,
        **({} if prefix is None else {"tokenizer__ggml__add_space_prefix": prefix}),
    )
    model = tokenized(path, tmp_path / "data")
    first, byte = model.tokenizer.encode(["ab ab", "é"], add_special_tokens=False)
    assert first.tokens == (["ab", "▁ab"] if prefix is False else ["▁ab", "▁ab"])
    assert byte.tokens[-2:] == ["<0xC3>", "<0xA9>"]
    assert model.tokenizer.decode(first.ids) == "ab ab"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"general__type": "adapter"}, r"^m.gguf is not a model: .* is 'adapter'"),
        ({"split__count": 3, "split__no": 1}, r"^m.gguf is part 2 of 3 \(.*Join the parts"),
        ({"architecture": "controlvector"}, "controlvector is not supported"),
    ],
)
def test_a_gguf_without_a_whole_model_is_refused(fields: dict[str, object], words: str, tmp_path: Path) -> None:
    path = write_bpe_gguf(tmp_path / "m.gguf", train_byte_level(), tokenizer__ggml__pre="gpt-2", **fields)
    with pytest.raises(ModelError) as caught:
        tokenized(path, tmp_path / "data")
    assert re.search(words, str(caught.value))
    assert "\n" not in str(caught.value)

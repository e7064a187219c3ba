"""The tokenizer of a folder: tokenizer.json is used unchanged, for every class in tokenizer_config.json."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from tiny_models import SENTENCES, config_of, tokenized
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from audit_pipeline.errors import ModelError, OtherTokenizerWarning
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.conversion import read_tokenizer_files, read_with_transformers
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.tokens import encode

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::audit_pipeline.errors.OtherTokenizerWarning"),
]

TEXTS = (
    *SENTENCES,
    "In 2023 the bridge cost 12,600 pounds;\n\n  by 650841823 it'll be DONE'LL.",
    "  two  blanks, ﬁne ½ CAFÉ cafe\u0301 한국어 🙂",
    "a <s> spelled </s> b",
    "",
)
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = [f"<0x{number:02X}>" for number in range(256)]


def split_by(pattern: str) -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def train_byte_level(pre_tokenizer: Any = None, **settings: Any) -> Tokenizer:
    """Train a byte-level BPE whose merges contain numbers of several digits, as GPT-2's rule learns them."""
    return tiny_models.train_byte_level(TEXTS * 3, 600, pre_tokenizer=pre_tokenizer or split_by(CL100K), **settings)


def train_sentencepiece(normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    """Train a BPE like SentencePiece's, with a mark in place of blanks and bytes for unknown characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=450, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_tokens(_BYTES)
    return tokenizer


def save_folder(folder: Path, tokenizer: Tokenizer, family: str | None = "llama", **fields: Any) -> Path:
    """Save the folder of a model without usable weights. If ``family`` is None, it has no config.json."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    if family is not None:
        config_of(family, tokenizer.get_vocab_size()).save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"")
    return folder


def build_metaspace(scheme: str) -> pre_tokenizers.Metaspace:
    return pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)


BLANKS = normalizers.Replace(" ", "▁")
KINDS: dict[str, tuple[str | None, str, Callable[[], Tokenizer], dict[str, Any]]] = {
    "gpt2": ("GPT2Tokenizer", "gpt2", train_byte_level, {}),
    "lower case": ("GPT2Tokenizer", "llama", lambda: train_byte_level(normalizer=normalizers.Lowercase()), {}),
    "prefix space in the config alone": ("GPT2Tokenizer", "gpt2", train_byte_level, {"add_prefix_space": True}),
    "prefix space in the file alone": (
        "GPT2Tokenizer",
        "gpt2",
        lambda: train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        {},
    ),
    "merges ignored": ("GPT2Tokenizer", "llama", lambda: train_byte_level(ignores_merges=True), {}),
    "neox without NFC": ("GPTNeoXTokenizer", "gpt_neox", train_byte_level, {}),
    "start token in the file alone": (
        "GPTNeoXTokenizer",
        "gpt_neox",
        lambda: train_byte_level(adds_bos=True),
        {"add_bos_token": False},
    ),
    "start token in the config alone": (
        "PreTrainedTokenizerFast",
        "llama",
        train_byte_level,
        {"add_bos_token": True, "add_eos_token": True},
    ),
    "llama with NFKC": (
        "LlamaTokenizer",
        "llama",
        lambda: train_sentencepiece(normalizers.Sequence([normalizers.NFKC(), BLANKS])),
        {"legacy": True},
    ),
    "llama that prepends": (
        "LlamaTokenizer",
        "llama",
        lambda: train_sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), BLANKS])),
        {},
    ),
    "llama without a prefix space": (
        "LlamaTokenizerFast",
        "llama",
        lambda: train_sentencepiece(None, build_metaspace("never")),
        {"add_prefix_space": True, "legacy": False},
    ),
    "gemma with a prefix space": (
        "GemmaTokenizer",
        "gemma2",
        lambda: train_sentencepiece(None, build_metaspace("always")),
        {},
    ),
    "gemma that cannot be built": ("GemmaTokenizer", "llama", train_byte_level, {}),
    "qwen2 without NFC": ("Qwen2Tokenizer", "qwen2", train_byte_level, {}),
    "of a class that is not there": ("NoSuchTokenizer", "gpt2", train_byte_level, {}),
    "of a class for another kind of vocabulary": ("T5Tokenizer", "llama", train_byte_level, {}),
    "of no class": (None, "gpt_neox", train_byte_level, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizer_json_is_used_unchanged(kind: str, tmp_path: Path) -> None:
    name, family, make, fields = KINDS[kind]
    file = make()
    named = {} if name is None else {"tokenizer_class": name}
    folder = save_folder(tmp_path / "m", file, family, bos_token="<s>", eos_token="</s>", **named, **fields)
    for _ in ("converted", "kept"):
        model = tokenized(folder, tmp_path / "data")
        assert len(model.tokenizer) == file.get_vocab_size()
        for special in (True, False):
            ours = model.tokenizer.encode(TEXTS, add_special_tokens=special)
            theirs = file.encode_batch(list(TEXTS), add_special_tokens=special)
            assert [text.ids for text in ours] == [text.ids for text in theirs]
            assert [text.offsets for text in ours] == [text.offsets for text in theirs]


@pytest.mark.parametrize("adds_bos", [True, False])
def test_tokenizer_json_decides_about_the_start_token_of_policy_tokenizer(tmp_path: Path, adds_bos: bool) -> None:
    fields = {"tokenizer_class": "GPTNeoXTokenizer", "bos_token": "<s>", "add_bos_token": not adds_bos}
    folder = save_folder(tmp_path / "m", train_byte_level(adds_bos=adds_bos), "llama", **fields)
    always, as_it_is = (
        encode(tokenized(folder, tmp_path / "data", start_token_policy=policy), ["A b."])[0]
        for policy in ("always", "tokenizer")
    )
    assert always.token_id.tolist() == as_it_is.token_id.tolist()
    assert always.start_token_id is not None
    assert as_it_is.start_token_id == (always.start_token_id if adds_bos else None)


def test_special_tokens_of_a_class_need_an_entry_in_the_vocabulary(tmp_path: Path) -> None:
    # GPT-2's published tokenizer_config.json names no token: its class does.
    gpt2 = save_folder(tmp_path / "gpt2", train_byte_level(), "gpt2", tokenizer_class="GPT2Tokenizer")
    assert tokenized(gpt2, tmp_path / "data").start_token == "<|endoftext|>"
    cohere = save_folder(tmp_path / "cohere", train_byte_level(), tokenizer_class="CohereTokenizer", bos_token="</s>")
    model = tokenized(cohere, tmp_path / "data")
    assert model.tokenizer.find_id("<BOS_TOKEN>") is None
    assert len(model.tokenizer) == model.vocab_size


def test_padding_and_truncation_in_tokenizer_json_are_ignored(tmp_path: Path) -> None:
    file = train_byte_level()
    size = file.get_vocab_size()
    file.enable_truncation(3)
    file.enable_padding(length=50)
    folder = save_folder(tmp_path / "m", file, tokenizer_class="GPT2Tokenizer", bos_token="<s>")
    model = tokenized(folder, tmp_path / "data")
    file.no_truncation()
    file.no_padding()
    assert model.tokenizer.encode(TEXTS[:1], add_special_tokens=False)[0].ids == file.encode(TEXTS[0]).ids
    assert len(model.tokenizer) == size


def test_tokens_of_tokenizer_config_json_are_added_with_their_ids(tmp_path: Path) -> None:

    def describe_token(content: str, *, special: bool) -> dict[str, object]:
        return {"content": content, "special": special, **dict.fromkeys(("lstrip", "rstrip", "single_word"), False)}

    size = train_byte_level().get_vocab_size()
    fields = {
        "bos_token": "<start>",
        "added_tokens_decoder": {
            str(size): describe_token("<tool>", special=False),
            str(size + 1): describe_token("<start>", special=True),
        },
    }
    folder = save_folder(tmp_path / "m", train_byte_level(), None, tokenizer_class="GPT2Tokenizer", **fields)
    read = read_tokenizer_files(folder, "m")
    assert read("a <tool>b")["input_ids"][-2:] == [size, read.convert_tokens_to_ids("b")]
    assert (read.bos_token, read.bos_token_id, len(read)) == ("<start>", size + 1, size + 2)
    fields["added_tokens_decoder"] = {str(size + 3): describe_token("<tool>", special=False)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **fields}))
    with pytest.raises(ValueError, match=f"gives <tool> the id {size + 3}, but .* its id would be {size}"):
        read_tokenizer_files(folder, "m")


def test_a_start_token_beyond_the_models_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = save_folder(
        tmp_path / "m", train_byte_level(), "gpt2", tokenizer_class="GPT2Tokenizer", bos_token="<start>"
    )
    with pytest.raises(
        ModelError, match=r"start token <start> has the id (\d+), but the model has only \1 ids. Set another"
    ):
        tokenized(folder, tmp_path / "data")
    assert tokenized(folder, tmp_path / "data", start_token="</s>").start_token == "</s>"


def test_a_warning_reports_that_transformers_gives_other_tokens(tmp_path: Path) -> None:
    folder = save_folder(
        tmp_path / "m", train_byte_level(split_by(r"\p{N}")), tokenizer_class="GPT2Tokenizer", bos_token="<s>"
    )
    # Two of the five texts hold numbers that GPT-2's rule leaves whole.
    words = (
        r"^m: tokenizer.json is used unchanged\. The class GPT2Tokenizer .* would split \d of 5 probe texts into other"
    )
    with pytest.warns(OtherTokenizerWarning, match=words):
        tokenized(folder, tmp_path / "data")
    same = save_folder(
        tmp_path / "same", train_byte_level(), tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenized(same, tmp_path / "data")


def test_an_endpoint_without_config_json_uses_tokenizer_json(tmp_path: Path) -> None:
    file = train_byte_level(ignores_merges=True)
    folder = save_folder(tmp_path / "dolma2", file, None, tokenizer_class="GPT2Tokenizer", eos_token="<|endoftext|>")
    entry = ModelEntry(
        name="s",
        backend="openai",
        path=folder,
        window=64,
        endpoint=Endpoint(url="http://127.0.0.1:1/v1", model="s", dialect="vllm"),
    )
    model = load_tokenized(entry, DataPaths(tmp_path / "data"))
    ours = model.tokenizer.encode(TEXTS, add_special_tokens=False)
    assert [text.ids for text in ours] == [text.ids for text in file.encode_batch(list(TEXTS))]
    assert (model.start_token, model.vocab_size) == ("<|endoftext|>", file.get_vocab_size())


def test_without_tokenizer_json_transformers_builds_the_tokenizer(tmp_path: Path) -> None:
    file = train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    folder = save_folder(tmp_path / "m", file, "gpt2", tokenizer_class="GPT2Tokenizer", bos_token="<s>")
    model = json.loads(file.to_str())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(file.get_vocab()))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]))
    ours = tokenized(folder, tmp_path / "data").tokenizer.encode(SENTENCES, add_special_tokens=False)
    assert [text.ids for text in ours] == [text.ids for text in file.encode_batch(list(SENTENCES))]


def test_a_damaged_tokenizer_json_raises_a_one_line_error(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "m", train_byte_level(), bos_token="<s>")
    whole = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"^the tokenizer or config of m cannot be read.*tokenizer\.json"):
        tokenized(folder, tmp_path / "data")


def test_controls_are_trained_with_tokenizer_json(tmp_path: Path) -> None:
    file = train_byte_level()
    base = tokenized(
        save_folder(tmp_path / "m", file, tokenizer_class="GPT2Tokenizer", bos_token="<s>"), tmp_path / "data"
    )
    tokenizer, start_id = read_with_transformers(base.located)[0], base.start_token_id
    assert tokenizer(TEXTS[-4])["input_ids"] == file.encode(TEXTS[-4]).ids
    assert start_id == file.token_to_id("<s>")
    tokenizer.save_pretrained(tmp_path / "control")
    saved = read_tokenizer_files(tmp_path / "control", "control")
    assert saved(TEXTS[-4])["input_ids"] == file.encode(TEXTS[-4]).ids

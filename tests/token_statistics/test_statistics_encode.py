"""The scored tokens: start-token policies, offsets, unusual texts, and cache keys."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from tiny_models import CONTEXT, SENTENCES, Tiny, save_model, tokenized, train_byte_level
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from audit_pipeline.errors import ModelError
from audit_pipeline.extras.extraction.documents import quote_window
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.tables import KINDS, Kind, text_sha256
from audit_pipeline.token_statistics.tokens import EncodedText, cache_keys, encode, widen_spans, window_and_stride

pytestmark = pytest.mark.usefixtures("one_thread")

Build = Callable[..., TokenizedModel]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds a tiny model whose tokenizer adds a start token or not."""
    root = tmp_path_factory.mktemp("encode")
    folders = {adds: save_model(root / f"adds-{adds}", adds_bos=adds) for adds in (True, False)}

    def make(*, adds_bos: bool, **fields: Any) -> TokenizedModel:
        return tokenized(folders[adds_bos], root / "data", **fields)

    return make


def encode_one(model: TokenizedModel, text: str) -> EncodedText:
    [encoded] = encode(model, [text])
    return encoded


@pytest.mark.parametrize("adds_bos", [True, False])
def test_policy_always_adds_exactly_one_start_token(build: Build, adds_bos: bool) -> None:
    model = build(adds_bos=adds_bos)
    text = encode_one(model, SENTENCES[0])
    assert text.start_token_id == model.tokenizer.find_id("<s>")
    assert model.tokenizer.find_id("<s>") not in text.token_id
    assert text.n_scored == len(text.token_id) > 5
    assert (text.char_start[0], text.char_end[-1]) == (0, len(SENTENCES[0]))


def test_policy_tokenizer_keeps_the_tokens_of_the_tokenizer(build: Build) -> None:
    adding = encode_one(build(adds_bos=True, start_token_policy="tokenizer"), SENTENCES[0])
    plain = encode_one(build(adds_bos=False, start_token_policy="tokenizer"), SENTENCES[0])
    np.testing.assert_array_equal(adding.token_id, plain.token_id)
    assert adding.start_token_id is not None
    assert adding.n_scored == len(adding.token_id)
    assert plain.start_token_id is None
    assert plain.n_scored == len(plain.token_id) - 1


@pytest.mark.parametrize(
    ("policy", "adds_bos", "scored"),
    [("always", False, 1), ("always", True, 1), ("tokenizer", False, 0), ("tokenizer", True, 1)],
)
def test_texts_of_one_token_and_empty_texts(build: Build, policy: str, adds_bos: bool, scored: int) -> None:
    text, empty = encode(build(adds_bos=adds_bos, start_token_policy=policy), ["a", ""])
    assert (len(text.token_id), text.n_scored) == (1, scored)
    assert (len(empty.token_id), empty.n_scored) == (0, 0)


def test_emoji_and_token_zero_are_text_like_any_other(build: Build) -> None:
    model = build(adds_bos=False)
    emoji = encode_one(model, "🙂🙂")
    assert emoji.n_scored == 8
    assert emoji.char_start.tolist() == [0] * 4 + [1] * 4
    assert emoji.char_end.tolist() == [1] * 4 + [2] * 4
    zeros = encode_one(model, "!!!")
    assert zeros.token_id.tolist() == [0, 0, 0]
    assert zeros.n_scored == 3


@max_examples(60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=5))
def test_texts_are_encoded_independently_with_valid_offsets(build: Build, texts: list[str]) -> None:
    model = build(adds_bos=False)
    for text, together in zip(texts, encode(model, texts), strict=True):
        alone = encode_one(model, text)
        assert together.text_sha256 == text_sha256(text)
        np.testing.assert_array_equal(together.token_id, alone.token_id)
        assert ((together.char_start >= 0) & (together.char_start <= together.char_end)).all()
        assert (together.char_end <= len(text)).all()
        assert model.tokenizer.decode(together.token_id.tolist()) == text


def train_tokenizer(normalizer: Any = None, *, trims: bool = False) -> Tokenizer:
    """Train a byte-level BPE with composed letters, ligatures, jamo and emoji in its vocabulary."""
    texts = [f"{' '.join(SENTENCES)} café naïve 한국어 final ½ 👩‍👩‍👧"] * 3
    return train_byte_level(texts, 500, normalizer=normalizer, trims_offsets=trims)


def build_sentencepiece() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram([("<unk>", -20.0), *((piece, -2.0) for piece in "▁abcdefin1é한국½")], 0))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Prepend("▁"),
            normalizers.Replace(" ", "▁"),
        ]
    )
    return tokenizer


def build_bert() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "cafe": 1, "##a": 2, "a": 3, "b": 4}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "NFC": lambda: train_tokenizer(normalizers.NFC()),
    "NFC, trimmed": lambda: train_tokenizer(normalizers.NFC(), trims=True),
    "NFD": lambda: train_tokenizer(normalizers.NFD()),
    "NFKC": lambda: train_tokenizer(normalizers.NFKC()),
    "lower case without accents": lambda: train_tokenizer(
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    ),
    "letters dropped": lambda: train_tokenizer(normalizers.Replace(Regex("[aé]"), "")),
    "stripped": lambda: train_tokenizer(normalizers.Strip()),
    "sentencepiece": build_sentencepiece,
    "bert": build_bert,
}
PARTS = (
    *"ab e\n",
    "  ",
    "\u0301",
    "\u0308",
    "q\u0307\u0323",
    "é",
    "ﬁ",
    "½",
    "한",
    "\u1112\u1161\u11ab",
    "👩‍👩‍👧",
    "\u200b",
    "İ",
)


@pytest.mark.parametrize("kind", TOKENIZERS)
@max_examples(60)
@given(
    parts=st.lists(st.sampled_from(PARTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=12)
)
def test_every_character_belongs_to_a_token_for_every_tokenizer(kind: str, parts: list[str]) -> None:

    @cache
    def _build_once(kind: str) -> Tokenizer:
        return TOKENIZERS[kind]()

    text = "".join(parts)
    encoding = _build_once(kind).encode(text)
    spans = widen_spans(text, np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2))
    assert len(spans) == len(encoding.ids)
    if not len(spans) or text.isspace():
        # White space alone may be in no span.
        return
    assert (np.diff(spans, axis=0) >= 0).all()
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert set().union(*(range(start, end) for start, end in spans)) == set(range(len(text)))
    # A span only grows: no token loses what its tokenizer says.
    offsets = np.asarray(encoding.offsets)
    assert (spans[:, 0] <= offsets[:, 0]).all()
    assert (spans[:, 1] >= offsets[:, 1]).all()


@pytest.mark.parametrize(
    ("text", "offsets", "spans"),
    [
        # A letter and its combining mark are composed to "é", which has two bytes.
        ("e\u0301 x", [(0, 1), (0, 1), (2, 3), (3, 4)], [(0, 2), (0, 2), (2, 3), (3, 4)]),
        # Blanks are left out, and so is a mark before one of them.
        ("a\u0301 b ", [(0, 1), (3, 4)], [(0, 2), (2, 5)]),
        # A blank of its own, without its character.
        ("a  b", [(0, 1), (2, 2), (3, 4)], [(0, 1), (1, 2), (2, 4)]),
        # Characters dropped at the beginning belong to the first token.
        ("\u0301 a", [(2, 3)], [(0, 3)]),
        # A token that the tokenizer appends has no characters.
        ("ab\u0301", [(0, 2), (0, 0)], [(0, 3), (0, 0)]),
        ("\u0301", [], []),
    ],
)
def test_characters_without_a_token_join_a_neighbour(
    text: str, offsets: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    assert list(map(tuple, widen_spans(text, np.array(offsets, dtype=np.int32).reshape(-1, 2)).tolist())) == spans


def test_decomposed_text_is_scored_and_quoted_with_its_accents(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", vocab_size=600)
    train_tokenizer(normalizers.NFC()).save(str(folder / "tokenizer.json"))
    model = tokenized(folder, tmp_path / "data", start_token="!")
    composed = "Le café était fermé, les élèves attendaient."
    decomposed = unicodedata.normalize("NFD", composed)
    first, second = encode(model, [composed, decomposed])
    np.testing.assert_array_equal(first.token_id, second.token_id)
    pieces = [decomposed[start:end] for start, end in zip(second.char_start, second.char_end, strict=True)]
    assert unicodedata.normalize("NFC", pieces[1]) == composed[first.char_start[1] : first.char_end[1]]
    row = {
        "start": 0,
        "char_start": second.char_start[3:].tolist(),
        "char_end": second.char_end[3:].tolist(),
        "argmax_id": second.token_id[3:].tolist(),
    }
    quotation = quote_window(decomposed, row, model.tokenizer)
    assert quotation.prefix + "".join(quotation.pieces) == decomposed


def test_a_special_token_beyond_the_vocabulary_is_read_as_text(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.save_pretrained(folder)
    model = tokenized(folder, tmp_path)
    assert model.tokenizer.find_id("<image>") == size == model.vocab_size
    spelled, plain, known = encode(model, ["an <image> here", "plain", "a </s> b"])
    assert spelled.token_id.max() < size
    assert spelled.char_end[-1] == len("an <image> here")
    np.testing.assert_array_equal(plain.token_id, encode_one(model, "plain").token_id)
    assert model.tokenizer.find_id("</s>") in known.token_id
    assert model.tokenizer.find_id("</s>") in encode_one(model, "a </s> b").token_id


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", vocab_size=100)
    model = tokenized(folder, tmp_path, start_token_policy="tokenizer")
    with pytest.raises(ModelError, match="do not belong together"):
        encode(model, [SENTENCES[0]])


@given(st.none() | st.integers(2, 200), st.none() | st.integers(1, 200))
def test_window_and_stride_fit_the_context(tiny: Tiny, window: int | None, stride: int | None) -> None:
    model, _ = tiny("llama")
    if window is not None and stride is not None and stride >= window:
        return
    changed = model.entry.model_copy(update={"window": window, "stride": stride})
    located = type(model.located)(changed, model.located.folder, None, None)
    got_window, got_stride = window_and_stride(replace(model, located=located))
    assert 2 <= got_window <= CONTEXT
    assert 1 <= got_stride <= max(1, got_window - 2)
    if window is not None and window <= CONTEXT:
        assert got_window == window


def test_cache_keys_change_only_if_a_row_changes(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def key_of(model: TokenizedModel, sha256: str, kind: Kind) -> str:
        return cache_keys(model, [sha256], kind)[sha256]

    sha = text_sha256("text")
    base = key_of(build(adds_bos=False), sha, "base")
    others = {
        "text": key_of(build(adds_bos=False), text_sha256("other"), "base"),
        "tokenizer": key_of(build(adds_bos=True), sha, "base"),
        "policy": key_of(build(adds_bos=False, start_token_policy="tokenizer"), sha, "base"),
        "start token": key_of(build(adds_bos=False, start_token="</s>"), sha, "base"),
        "dtype": key_of(build(adds_bos=False, dtype="bfloat16"), sha, "base"),
        "window": key_of(build(adds_bos=False, window=32), sha, "base"),
        "stride": key_of(build(adds_bos=False, stride=5), sha, "base"),
        "kind": key_of(build(adds_bos=False), sha, "topk"),
    }
    assert len({base, *others.values()}) == len(others) + 1
    notes = {"release_date": "2024-01-01", "notes": "other", "licence": "MIT", "reference_model": "r"}
    assert key_of(build(adds_bos=False, **notes), sha, "base") == base
    assert key_of(build(adds_bos=False, start_token="<s>"), sha, "base") == base
    assert key_of(build(adds_bos=False, window=CONTEXT, stride=CONTEXT // 2), sha, "base") == base
    copied = shutil.copytree(build(adds_bos=False).located.folder, tmp_path / "renamed")
    assert key_of(tokenized(copied, tmp_path), sha, "base") == base

    monkeypatch.setitem(KINDS, "topk", replace(KINDS["topk"], version=KINDS["topk"].version + 1))
    assert key_of(build(adds_bos=False), sha, "base") == base
    assert key_of(build(adds_bos=False), sha, "topk") != others["kind"]

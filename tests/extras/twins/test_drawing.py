"""Drawing twins: equal probabilities, secret files, and unusable items."""

from __future__ import annotations

import hashlib
import json
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scipy import stats as distributions
from timestamp_authority import make_authority, serve_authority

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.evidence_packs.timestamps import AuthorityError
from audit_pipeline.extras.twins.publication_draw import (
    WORDS,
    TwinItem,
    build_stamp_path,
    draw_twins,
    draw_version_indices,
    make_canaries,
    read_items,
    read_twins,
    write_published,
)

KEY = "00" * 32


def made_items(number: int = 4, versions: int = 3) -> list[TwinItem]:
    return [
        TwinItem(f"q{item}", f"g{item % 2}", tuple(f"item {item}, version {place}" for place in range(versions)))
        for item in range(number)
    ]


def test_a_key_draws_each_version_equally_often() -> None:
    items = [TwinItem(str(number), "", tuple("abcdefg"[: 2 + number % 6])) for number in range(12_000)]
    places = draw_version_indices(items, KEY)
    assert places == draw_version_indices(items, KEY)
    assert places != draw_version_indices(items, "01" * 32)
    for size in range(2, 8):
        drawn = Counter(place for item, place in zip(items, places, strict=True) if len(item.versions) == size)
        assert sorted(drawn) == list(range(size))
        assert distributions.chisquare(list(drawn.values())).pvalue > 1e-4


def test_the_draw_depends_only_on_key_and_name() -> None:
    items = made_items()
    # HMAC-SHA256 (RFC 2104) of "q0" under 32 zero bytes, by hand of its definition.
    block = bytes(64)
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + b"q0").digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).hexdigest()
    assert draw_version_indices(items[:1], KEY) == [int(outer, 16) % 3]
    assert draw_version_indices(items[::-1], KEY) == draw_version_indices(items, KEY)[::-1]


def test_written_twins_are_read_unchanged(tmp_path: Path) -> None:
    secret, out = tmp_path / "secret.json", tmp_path / "public.jsonl"
    items = [*made_items(), TwinItem("alone", "alone", ("x", "y"), {"answer": "B", "text": "not this"})]
    drawn = draw_twins(items, secret)
    found = read_twins(secret)
    assert (found.items, found.published, found.sha256) == (items, drawn.published, drawn.sha256)
    assert found.sha256 == hashlib.sha256(secret.read_bytes()).hexdigest()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "without a timestamp" in found.origin
    write_published(out, drawn)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["text"] for line in lines] == drawn.published_texts
    assert [text in item.versions for item, text in zip(items, drawn.published_texts, strict=True)] == [True] * 5
    assert lines[0] == {"item": "q0", "text": drawn.published_texts[0], "group": "g0"}
    assert lines[4] == {"item": "alone", "text": drawn.published_texts[4], "answer": "B"}
    found.require_published({line["text"] for line in lines}, out)
    with pytest.raises(DataError, match=r"lacks the published version of 1 of 5 items \(the first: q0\)\. The secret"):
        found.require_published({line["text"] for line in lines[1:]}, out)
    with pytest.raises(DataError, match="exists already"):
        draw_twins(items, secret)
    assert read_twins(secret) == found


@pytest.mark.parametrize("key", ["key", "items"])
def test_a_changed_secret_file_is_refused(tmp_path: Path, key: str) -> None:
    secret = tmp_path / "secret.json"
    draw_twins(made_items(), secret)
    document = json.loads(secret.read_text())
    document[key] = document[key][1:]
    secret.write_text(json.dumps(document))
    with pytest.raises(DataError, match="its content does not match its digest"):
        read_twins(secret)


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"items": 3}', b"\xff\xfe"])
def test_an_invalid_secret_file_is_refused(tmp_path: Path, content: bytes) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(content)
    with pytest.raises(DataError, match=r"secret\.json"):
        read_twins(secret)
    with pytest.raises(DataError, match=r"none\.json does not exist"):
        read_twins(tmp_path / "none.json")


def test_a_timestamp_of_another_file_is_refused(tmp_path: Path) -> None:
    secret, other = tmp_path / "secret.json", tmp_path / "other.json"
    with serve_authority(make_authority(tmp_path / "authority")) as authority:
        drawn = draw_twins(made_items(), secret, authority.url)
    assert "timestamp of CN=" in drawn.origin
    assert build_stamp_path(secret).exists()
    draw_twins(made_items(), other)
    build_stamp_path(secret).rename(build_stamp_path(other))
    with pytest.raises(DataError, match="The timestamp is of another digest"):
        read_twins(other)


def test_no_file_is_written_without_a_timestamp(tmp_path: Path) -> None:
    with pytest.raises(AuthorityError):
        draw_twins(made_items(), tmp_path / "secret.json", "http://127.0.0.1:9")
    assert list(tmp_path.iterdir()) == []


def write_rows(path: Path, *rows: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_items_are_read_from_lists_and_columns(tmp_path: Path) -> None:
    listed = write_rows(
        tmp_path / "v.jsonl",
        {"id": 7, "versions": ["a", "b", "c"], "answer": "A"},
        {"id": "x", "versions": ["d", "e"], "group": "g", "answer": "B"},
    )
    assert read_items(listed) == [TwinItem("7", "7", ("a", "b", "c")), TwinItem("x", "g", ("d", "e"))]
    assert read_items(listed)[0].other_columns == {"answer": "A"}
    table = tmp_path / "v.csv"
    table.write_text("item,version_1,version_2,version_3,group\nq1,a,b,c,g\nq2,d,,e,g\n", encoding="utf-8")
    assert read_items(table) == [TwinItem("q1", "g", ("a", "b", "c")), TwinItem("q2", "g", ("d", "e"))]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "versions": ["x"]}], r"v\.jsonl:1 has 1 version\(s\) in versions .* needs at least two"),
        ([{"id": "a", "text": "x"}], "has 0 version"),
        ([{"id": "a", "versions": ["x", "x"]}], "contains the same version twice"),
        ([{"id": "a", "versions": ["x", " "]}], "has a version that is empty"),
        ([{"id": "a", "versions": ["x", None]}], "has a version that is null"),
        ([{"id": "a", "versions": ["x", 3]}], "has a version that is not a string but int"),
        ([{"versions": ["x", "y"]}], "has no name in one of the columns item, id, item_id"),
        (
            [{"id": "a", "versions": ["x", "y"]}, {"id": "a", "versions": ["v", "w"]}],
            r"v\.jsonl:2 has the same name as v\.jsonl:1",
        ),
        (
            [{"id": "a", "versions": ["x", "y"]}, {"id": "b", "versions": ["v", "x"]}],
            r"v\.jsonl:2 has the same version as v\.jsonl:1",
        ),
    ],
)
def test_unusable_items_are_reported(tmp_path: Path, rows: list[Mapping[str, object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_items(write_rows(tmp_path / "v.jsonl", *rows))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"v\.jsonl"):
        read_items(write_rows(tmp_path / "v.jsonl"))


def test_canaries_are_items_of_random_words() -> None:
    made = make_canaries(3, 19, template="« {canary} »")
    assert [len(item.versions) for item in made] == [20] * 3
    texts = [text for item in made for text in item.versions]
    assert len(set(texts)) == 60
    assert all(text.startswith("« ") and set(text[2:-2].split()) <= set(WORDS) for text in texts)
    assert all(len(text[2:-2].split()) == 12 for text in texts)
    drawn = Counter(word for item in make_canaries(500, 4) for text in item.versions for word in text.split())
    assert distributions.chisquare([drawn[word] for word in WORDS]).pvalue > 1e-6


def test_each_canary_word_has_eight_bits() -> None:
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.isalpha() and word == word.lower() for word in WORDS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_sets": 0}, "--sets and --alternatives must be at least 1, but are 0 and "),
        ({"alternatives": 0}, "--sets and --alternatives must be at least 1"),
        ({"template": "none"}, "exactly once"),
    ],
)
def test_invalid_canary_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_canaries(**{"n_sets": 1, "alternatives": 3, **options})

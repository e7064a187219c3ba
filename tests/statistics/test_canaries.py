"""Making canaries: every text and every choice equally likely, the file whole or refused, the seal that fits it."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.statistics.canaries import (
    BY_CHANCE,
    WORDS,
    make_canaries,
    read_canaries,
    read_seal,
    seal_path,
    write_canaries,
)

Line = dict[str, Any]


def test_sets_have_one_published_canary_and_its_alternatives() -> None:
    made = make_canaries(3, 19)
    assert [one.number for one in made.sets] == [1, 2, 3]
    assert [len(one.alternatives) for one in made.sets] == [19] * 3
    assert all(one.published.published for one in made.sets)
    assert not any(canary.published for one in made.sets for canary in one.alternatives)
    everything = [canary for one in made.sets for canary in one.canaries]
    assert len({canary.text for canary in everything}) == len({canary.name for canary in everything}) == 60
    assert made.to_publish == [one.published.text for one in made.sets]
    assert all(len(canary.text.split()) == 12 and set(canary.text.split()) <= set(WORDS) for canary in everything)
    assert made.drawn_by == BY_CHANCE
    assert make_canaries(1, 1).to_publish != make_canaries(1, 1).to_publish


def test_the_words_are_eight_bits_each() -> None:
    assert len(WORDS) == len(set(WORDS)) == 256
    assert all(word.isascii() and word.isalpha() and word == word.lower() for word in WORDS)


def test_every_place_is_published_equally_often_and_every_word_drawn() -> None:
    made = make_canaries(2000, 4, seed=5)
    places = Counter(int(one.published.name.split("-")[1]) for one in made.sets)
    assert stats.chisquare([places[place] for place in range(1, 6)]).pvalue > 1e-4
    drawn = Counter(word for one in made.sets for canary in one.canaries for word in canary.text.split())
    assert stats.chisquare([drawn[word] for word in WORDS]).pvalue > 1e-4


def test_a_seed_is_repeatable_and_told() -> None:
    assert make_canaries(2, 3, seed=1) == make_canaries(2, 3, seed=1)
    assert make_canaries(2, 3, seed=1).to_publish != make_canaries(2, 3, seed=2).to_publish
    assert "for tests only" in make_canaries(1, 1, seed=1).drawn_by


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"style": "hex", "words": 3}, r"[0-9a-f]{4}( [0-9a-f]{4}){2}"),
        ({"style": "digits", "words": 4}, r"\d{4}( \d{4}){3}"),
        ({"words": 5, "template": "Ref. {canary}, p. {1}"}, r"Ref\. [a-z]+( [a-z]+){4}, p\. \{1\}"),
    ],
)
def test_styles_and_templates(options: dict[str, Any], pattern: str) -> None:
    made = make_canaries(1, 5, **options)
    assert all(re.fullmatch(pattern, canary.text) for canary in made.sets[0].canaries)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_sets": 0}, "at least one set"),
        ({"alternatives": 0}, "one alternative"),
        ({"words": 0}, "one word"),
        ({"words": 4}, "32 random bits, a canary needs 40"),
        ({"template": "none"}, "exactly once"),
        ({"template": "{canary}{canary}"}, "exactly once"),
    ],
)
def test_canaries_that_would_not_do_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_canaries(**{"n_sets": 1, "alternatives": 3, **options})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "planted.jsonl"
    made = make_canaries(2, 19, template="« {canary} »")
    seal = write_canaries(path, made)
    assert read_canaries(path) == list(made.sets)
    assert seal.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert read_seal(path) == seal
    assert (seal.file, seal.sets, seal.alternatives, seal.drawn_by) == ("planted.jsonl", 2, 19, BY_CHANCE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = json.loads(path.read_text().splitlines()[0])
    assert list(first) == ["set", "canary", "text", "published", "sha256"]
    assert first["sha256"] == hashlib.sha256(first["text"].encode()).hexdigest()


def test_a_file_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_canaries(path, make_canaries(1, 1))
    before = path.read_bytes()
    with pytest.raises(DataError, match="exists already"):
        write_canaries(path, make_canaries(1, 1))
    path.rename(tmp_path / "moved.jsonl")
    with pytest.raises(DataError, match=r"c\.seal\.json: exists already"):
        write_canaries(path, make_canaries(1, 1))
    assert (tmp_path / "moved.jsonl").read_bytes() == before
    with pytest.raises(DataError, match=r"end in \.jsonl"):
        write_canaries(tmp_path / "c.json", make_canaries(1, 1))


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[Callable[[list[Line]], object]], Path]:
    """A file of two sets of three, changed."""

    def write(change: Callable[[list[Line]], object]) -> Path:
        path = tmp_path / "c.jsonl"
        write_canaries(path, make_canaries(2, 2, seed=3))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


def publish(lines: list[Line], value: int) -> None:
    for line in lines[:3]:
        line["published"] = value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1].pop("text"), r"c\.jsonl:2: has no text"),
        (lambda lines: lines[1].update(set="one"), r"c\.jsonl:2: set is not a number"),
        (lambda lines: lines[1].update(set=True), r"c\.jsonl:2: set is not a number"),
        (lambda lines: lines[1].update(canary=7), r"c\.jsonl:2: canary is not a name"),
        (lambda lines: lines[1].update(published="yes"), r"c\.jsonl:2: published is neither"),
        (lambda lines: lines[1].update(text=" "), r"c\.jsonl:2: text is empty"),
        (lambda lines: lines[1].update(text="other"), r"c\.jsonl:2: the text does not match its sha256"),
        (
            lambda lines: lines[1].update(text=lines[0]["text"], sha256=lines[0]["sha256"]),
            r"its text is that of c\.jsonl:1",
        ),
        (lambda lines: lines[1].update(canary=lines[0]["canary"]), r"c\.jsonl:2: its name is that of c\.jsonl:1"),
        (lambda lines: publish(lines, 0), "set 1: has 0 published canaries"),
        (lambda lines: publish(lines, 1), "set 1: has 3 published canaries"),
        (lambda lines: [lines.remove(one) for one in list(lines) if not one["published"]], "set 1: has no alternative"),
    ],
)
def test_bad_lines_are_named_and_nothing_is_skipped(
    damaged: Callable[[Callable[[list[Line]], object]], Path], change: Callable[[list[Line]], object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_canaries(damaged(change))


def test_a_file_that_is_not_the_sealed_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_canaries(path, make_canaries(1, 3))
    path.write_text(path.read_text() + "\n")
    with pytest.raises(DataError, match="is not the file that was sealed"):
        read_seal(path)
    seal_path(path).write_text("{}")
    with pytest.raises(DataError, match="is not a seal"):
        read_seal(path)
    seal_path(path).write_text("[1")
    with pytest.raises(DataError, match="is not a seal"):
        read_seal(path)
    seal_path(path).unlink()
    assert read_seal(path) is None

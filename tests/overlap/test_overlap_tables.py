"""The rows of corpus_overlap and overlap_spans, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from audit_pipeline.catalogue.contracts import CORPUS_OVERLAP, OVERLAP_SPANS
from audit_pipeline.errors import ConfigError
from audit_pipeline.overlap import tables
from audit_pipeline.overlap.rules import RULES, OverlapRule, choose_rule
from audit_pipeline.overlap.search import search_corpus
from audit_pipeline.overlap.shards import open_sharded_corpus
from audit_pipeline.overlap.tables import build_overlap_tables

RULE = OverlapRule("three", 3, "words", 0.5, "here")


def rows_of(
    tmp_path: Path, texts: Sequence[str], documents: Sequence[str], only: str | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"id": f"d{number}", "text": document}) + "\n")
    result = search_corpus(texts, open_sharded_corpus(str(tmp_path), only=only), RULE)
    found = build_overlap_tables(result, "b", [f"e{number}" for number in range(len(texts))], texts, "r")
    return found[CORPUS_OVERLAP].to_pylist(), found[OVERLAP_SPANS].to_pylist()


def test_shares_and_verdicts(tmp_path: Path) -> None:
    texts = ["a b c d e f g h", "p q r s", "a b", "x a b c x x"]
    rows, spans = rows_of(tmp_path, texts, ["A b, c d!", "e f g", "nothing of it"])
    first, second, short, fourth = rows
    # Runs abc, bcd and efg of six; all words but h.
    assert (first["words"], first["runs"], first["found_runs"]) == (8, 6, 3)
    assert first["covered"] == first["covered_by_copies"] == 7 / 8
    assert (first["passages"], first["longest"], first["documents"]) == (2, 4, 1)
    assert (first["verdict"], first["contaminated"]) == ("found", True)
    assert (second["verdict"], second["contaminated"], second["covered"]) == ("not found", False, 0.0)
    assert (short["verdict"], short["contaminated"], short["covered"]) == ("too short", None, 0.0)
    assert (fourth["verdict"], fourth["covered"], fourth["contaminated"]) == ("found", 0.5, True)
    assert all((row["shards_read"], row["shards"], row["is_complete"]) == (3, 3, True) for row in rows)
    of_first = [span for span in spans if span["example_id"] == "e0"]
    assert [(span["char_start"], span["char_end"], span["excerpt"]) for span in of_first] == [
        (0, 7, "a b c d"),
        (8, 13, "e f g"),
    ]
    assert [(span["found_in"], span["shards"], span["starts"]) for span in of_first] == [
        (["d0"], ["0.jsonl"], [0]),
        (["d1"], ["1.jsonl"], [0]),
    ]
    assert of_first[1]["before"] == "a b c d"
    assert of_first[1]["after"] == "h"
    assert of_first[0]["contexts"] == ["… !"]


def test_common_phrases_are_told_from_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "COMMON_FROM", 3)
    texts = ["we all know that it is so", "we all know this"]
    rows, spans = rows_of(tmp_path, texts, ["we all know", "we all know", "we all know x", "we all know that it"])
    copied, common = rows
    # The phrase stands in four documents, the two runs that go on from it in one.
    assert (copied["verdict"], copied["covered"], copied["covered_by_copies"]) == ("found", 5 / 7, 4 / 7)
    assert (common["verdict"], common["covered"], common["covered_by_copies"]) == ("common", 0.75, 0.0)
    assert [(span["is_common"], span["documents"], span["documents_of_rarest_run"]) for span in spans] == [
        (False, 1, 1),
        (True, 4, 4),
    ]


def test_a_corpus_that_is_read_in_part_says_so(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, ["a b c", "x y z"], ["a b c", "x y z"], only="0*")
    assert [(row["verdict"], row["shards_read"], row["shards"], row["is_complete"]) for row in rows] == [
        ("found", 1, 2, False),
        ("not found", 1, 2, False),
    ]


@pytest.mark.parametrize(
    ("rule", "of_runs", "of_words", "contaminated"),
    [
        ("gpt-3", 0.01, 0.1, True),
        ("gpt-3", 0.0, 0.0, False),
        ("palm", 0.69, 0.9, False),
        ("palm", 0.7, 0.1, True),
        ("llama-2", 1.0, 0.79, False),
        ("llama-2", 0.1, 0.8, True),
        ("tulu-3", 0.1, 0.5, True),
    ],
)
def test_rules(rule: str, of_runs: float, of_words: float, contaminated: bool) -> None:
    assert RULES[rule].is_contaminated(of_runs, of_words) is contaminated


def test_a_rule_with_other_words() -> None:
    assert choose_rule("gpt-3", 8) == OverlapRule("gpt-3, 8 words", 8, "any", 0.0, RULES["gpt-3"].source)
    assert choose_rule("gpt-3", 13) is RULES["gpt-3"]
    with pytest.raises(ConfigError, match="there is no rule gpt-5: use one of gpt-3"):
        choose_rule("gpt-5")
    with pytest.raises(ConfigError, match="at least 4"):
        choose_rule("palm", 3)

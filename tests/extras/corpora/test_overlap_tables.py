"""The rows of corpus_overlap and overlap_spans, worked out by hand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.corpora import overlap_tables, text_index
from audit_pipeline.extras.corpora.config import RULES, OverlapRule, choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
from audit_pipeline.extras.corpora.search import AuditedTexts, search_corpus
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS

RULE = OverlapRule("three", 3, "words", 0.5, "here")


def rows_of(
    tmp_path: Path, texts: AuditedTexts | Sequence[str], documents: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"id": f"d{number}", "text": document}) + "\n")
    result = search_corpus(texts, open_sharded_corpus(str(tmp_path)), RULE)
    names = [("b", f"e{number}") for number in range(len(result.audited.texts))]
    found = build_overlap_tables(result, names, "r")
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
    assert (short["verdict"], short["contaminated"], short["covered"]) == ("too short to tell", None, 0.0)
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


@pytest.mark.parametrize(
    ("documents", "part"),
    [
        (["where is it it is here"], "question and answer"),
        (["where is it", "it is here"], "question and answer"),
        (["it it is"], "question and answer"),
        (["(where is it?)"], "question"),
        (["it is here"], "answer"),
        # A phrase that two documents hold names no side, where a copy is found.
        (["where is it", "where is it", "it is here"], "answer"),
        (["where is it", "where is it"], "question"),
        (["nothing of it"], None),
    ],
)
def test_which_sides_a_published_rule_finds(
    documents: Sequence[str], part: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap_tables, "COMMON_FROM", 1)
    question, answer = "Where is it?\n", "It is here."
    for border, expected in ((len(question), part), (0, part and "text")):
        audited = AuditedTexts([question + answer], [border])
        [row], _ = rows_of(tmp_path, audited, documents)
        assert row["part"] == expected


Words = list[str]


def list_runs(words: Words) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + RULE.n]) for at in range(len(words) - RULE.n + 1)]


def holds(document: Words, words: Words) -> list[int]:
    """The places of a document at which these words stand."""
    return [at for at in range(len(document) - len(words) + 1) if document[at : at + len(words)] == words]


def describe_by_definition(
    texts: Sequence[Words], documents: Sequence[Words], common_from: int, most_places: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The columns of both tables word by word, as their declarations say."""
    all_runs = [run for text in texts for run in list_runs(text)]
    rows, spans = [], []
    for number, text in enumerate(texts):
        runs = list_runs(text)
        wanted = [all_runs.count(run) <= most_places for run in runs]
        holders = [sum(bool(holds(document, list(run))) for document in documents) for run in runs]
        stretches = [
            (first, last + RULE.n)
            for first in range(len(runs))
            for last in range(first, len(runs))
            if all(wanted[first : last + 1])
            and any(holds(document, text[first : last + RULE.n]) for document in documents)
        ]
        longest = [
            (a, b) for a, b in stretches if not any((c, d) != (a, b) and c <= a and b <= d for c, d in stretches)
        ]
        own = []
        for a, b in sorted(longest):
            found_in = [
                (f"d{at}", places[0]) for at, document in enumerate(documents) if (places := holds(document, text[a:b]))
            ]
            rarest = min(holders[a : b - RULE.n + 1])
            own.append(
                {"example_id": f"e{number}", "char_start": 2 * a, "char_end": 2 * b - 1, "words": b - a}
                | {"documents": len(found_in), "documents_of_rarest_run": rarest, "is_common": rarest > common_from}
                | {"found_in": [name for name, _ in found_in][:5], "starts": [2 * at for _, at in found_in][:5]}
            )
        found = [count > 0 and looked_for for count, looked_for in zip(holders, wanted, strict=True)]
        in_runs = {at + step for at, flag in enumerate(found) if flag for step in range(RULE.n)}
        copied = {
            at
            for span in own
            if not span["is_common"]
            for at in range(span["char_start"] // 2, (span["char_end"] + 1) // 2)
        }
        verdict = (
            "found" if copied else "shared text" if in_runs else "not found" if any(wanted) else "too short to tell"
        )
        rows.append(
            {"words": len(text), "runs": sum(wanted), "templates": len(runs) - sum(wanted), "found_runs": sum(found)}
            | {"covered": len(in_runs) / len(text) if text else None}
            | {"covered_by_copies": len(copied) / len(text) if text else None}
            | {"passages": len(own), "longest": max((span["words"] for span in own), default=0)}
            | {"documents": max((span["documents"] for span in own), default=0), "verdict": verdict}
            | {"contaminated": len(in_runs) / len(text) >= RULE.share if any(wanted) else None}
        )
        spans += own
    return rows, spans


WORDS = st.lists(st.sampled_from("abcd"), max_size=14)


@given(
    texts=st.lists(WORDS, min_size=1, max_size=3).filter(lambda texts: max(map(len, texts)) >= RULE.n),
    documents=st.lists(WORDS.filter(bool), min_size=1, max_size=9),
    common_from=st.integers(1, 3),
    most_places=st.integers(3, 6),
)
def test_every_column_is_what_its_declaration_says(
    texts: list[Words], documents: list[Words], common_from: int, most_places: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(overlap_tables, "COMMON_FROM", common_from)
        patch.setattr(text_index, "MAX_PLACES", most_places)
        expected_rows, expected_spans = describe_by_definition(texts, documents, common_from, most_places)
        if not any(row["runs"] for row in expected_rows):
            return
        rows, spans = rows_of(Path(folder), [*map(" ".join, texts)], [*map(" ".join, documents)])
    assert [{name: row[name] for name in expected_rows[0]} for row in rows] == expected_rows
    assert [{name: span[name] for name in expected} for span, expected in zip(spans, expected_spans, strict=True)] == (
        expected_spans
    )


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
    with pytest.raises(ConfigError, match=r"unknown rule 'gpt-5'\. Use one of these rules: evidence, gpt-3"):
        choose_rule("gpt-5")
    with pytest.raises(ConfigError, match="at least 4"):
        choose_rule("palm", 3)

"""The rows of corpus_overlap and overlap_spans, against values by hand and by definition."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_corpora import Rows, find_passages, find_words, search_texts

from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.corpora import overlap_tables, text_index
from audit_pipeline.extras.corpora.config import RULES, OverlapRule, choose_rule
from audit_pipeline.extras.corpora.search import AuditedTexts

RULE = OverlapRule("three", 3, "words", 0.5, "here")


def test_shares_and_verdicts(tmp_path: Path) -> None:
    texts = ["a b c d e f g h", "p q r s", "a b", "x a b c x x"]
    _, rows, spans = search_texts(tmp_path, ["A b, c d!", "e f g", "nothing of it"], texts, RULE, shards=3)
    first, second, short, fourth = rows
    # Three of the six runs are found (abc, bcd, efg), and all words except h.
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
        # Shared text in two documents does not decide the part if a copy is found.
        (["where is it", "where is it", "it is here"], "answer"),
        (["where is it", "where is it"], "question"),
        (["nothing of it"], None),
    ],
)
def test_the_part_that_a_published_rule_finds(
    documents: Sequence[str], part: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap_tables, "COMMON_FROM", 1)
    question, answer = "Where is it?\n", "It is here."
    for border, expected in ((len(question), part), (0, part and "text")):
        audited = AuditedTexts([question + answer], [border])
        _, [row], _ = search_texts(tmp_path, documents, audited, RULE)
        assert row["part"] == expected


WORDS = st.lists(st.sampled_from("abcd"), max_size=14)


@given(
    texts=st.lists(WORDS, min_size=1, max_size=3).filter(lambda texts: max(map(len, texts)) >= RULE.n),
    documents=st.lists(WORDS.filter(bool), min_size=1, max_size=9),
    common_from=st.integers(1, 3),
    max_positions=st.integers(3, 6),
)
def test_every_column_follows_its_declaration(
    texts: list[list[str]], documents: list[list[str]], common_from: int, max_positions: int
) -> None:
    expected_rows: Rows = []
    expected_spans: Rows = []
    run_counts = Counter(tuple(text[at : at + 3]) for text in texts for at in range(len(text) - 2))
    for number, passages in enumerate(find_passages(texts, documents, RULE.n, max_positions)):
        text = texts[number]
        runs = [tuple(text[at : at + 3]) for at in range(len(text) - 2)]
        is_searched = [run_counts[run] <= max_positions for run in runs]
        holders = [sum(find_words(document, run) is not None for document in documents) for run in runs]
        own = []
        for (first, end), places in sorted(passages.items()):
            rarest = min(holders[first : end - 2])
            span = {"example_id": f"e{number}", "char_start": 2 * first, "char_end": 2 * end - 1, "words": end - first}
            span |= {"documents": len(places), "documents_of_rarest_run": rarest, "is_common": rarest > common_from}
            span |= {"found_in": [f"d{at}" for at in places][:5], "starts": [2 * at for at in places.values()][:5]}
            own.append(span)
        found = [at for at, searched in enumerate(is_searched) if searched and holders[at]]
        covered = {at + step for at in found for step in range(3)}
        copied: set[int] = set()
        for span in own:
            if not span["is_common"]:
                copied |= set(range(span["char_start"] // 2, span["char_end"] // 2 + 1))
        verdict = "found" if copied else "shared text" if covered else "not found"
        row = {"words": len(text), "runs": sum(is_searched), "templates": len(runs) - sum(is_searched)}
        row |= {"found_runs": len(found), "passages": len(own), "longest": max((s["words"] for s in own), default=0)}
        row |= {"documents": max((span["documents"] for span in own), default=0), "verdict": verdict}
        row |= {"covered": len(covered) / len(text) if text else None, "contaminated": None}
        row |= {"covered_by_copies": len(copied) / len(text) if text else None}
        if any(is_searched):
            row["contaminated"] = len(covered) / len(text) >= RULE.share
        else:
            row["verdict"] = "too short to tell"
        expected_rows.append(row)
        expected_spans += own
    if not any(row["runs"] for row in expected_rows):
        return
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(overlap_tables, "COMMON_FROM", common_from)
        patch.setattr(text_index, "MAX_PLACES", max_positions)
        joined = [*map(" ".join, documents)]
        _, rows, spans = search_texts(Path(folder), joined, [*map(" ".join, texts)], RULE)
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

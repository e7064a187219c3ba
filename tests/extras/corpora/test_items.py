"""The command items: verdicts on the items of a test set, results of a model, and its accuracy by verdict."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cli_results import answered, error_of, told
from click.testing import CliRunner
from made_corpora import write_corpus
from made_files import write_rows
from made_rows import make_row, make_table
from made_workspace import Workspace

from audit_pipeline.cli.main_command import main
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.command_actions import choose_row_names
from audit_pipeline.extras.corpora.config import choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.item_verdicts import (
    BenchmarkItem,
    CorpusFindings,
    ModelEvidence,
    Verdict,
    classify_items,
    compare_accuracy,
    compute_permutation_p_value,
    measure_accuracy,
)
from audit_pipeline.extras.corpora.model_results import (
    ItemResult,
    MatchedResults,
    ResultsFile,
    list_clean_positions,
    match_results,
)
from audit_pipeline.extras.corpora.overlap_tables import search_benchmarks
from audit_pipeline.readers.text_rows import SkippedRows, TextRow
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import (
    CORPUS_OVERLAP,
    DOCUMENT_MEMORISATION,
    EXAMPLES,
    GROUP_TESTS,
    OVERLAP_SPANS,
    PAIR_ANSWERS,
    Pair,
)

QUESTION, ANSWER = "Where does the river rise? ", "It rises in the old marsh"
TEXT, BORDER = QUESTION + ANSWER, len(QUESTION)


def span(start: int, end: int, document: str = "d1", begin: int = 100, **values: Any) -> dict[str, Any]:
    """Return a row of overlap_spans: a passage in one document."""
    lists = {"found_in": [document], "starts": [begin], "shards": ["s.jsonl"], "urls": [""], "contexts": [""]}
    places = {"example_id": "a", "char_start": start, "char_end": end, "words": end - start, "documents": 1}
    return make_row(OVERLAP_SPANS, **places, **lists, **values)


def examples_of(*names: str, **values: Any) -> pa.Table:
    rows = [{"example_id": name, "document_id": f"made:{name}", "group": f"made:{name}"} for name in names]
    return make_table(
        EXAMPLES, [{"benchmark": "made", "text": ANSWER, "context": QUESTION, **row, **values} for row in rows]
    )


def findings(verdict: str, spans: Sequence[Mapping[str, Any]] = (), **values: Any) -> CorpusFindings:
    """Return the findings of a corpus on the item a."""
    row = {"example_id": "a", "words": 30, "runs": 18, "n": 13, "rule": "gpt-3", "is_complete": True}
    row |= {"verdict": verdict, "shards": 4, "shards_read": 4}
    if verdict == "found":
        row |= {"covered": 0.5, "documents": 2, "passages": 1, "contaminated": True, "part": "question and answer"}
    overlap = make_table(CORPUS_OVERLAP, [{**row, **values}])
    return CorpusFindings("web", overlap, table_from_rows(spans, OVERLAP_SPANS))


PARTLY = {"is_complete": False, "shards_read": 3}


@pytest.mark.parametrize(
    ("found", "values", "spans", "verdict", "words"),
    [
        ("found", {}, [span(0, 50)], "contaminated", "question and answer (50% of its words, in 2 document(s))"),
        ("found", PARTLY, [span(0, 50)], "contaminated", "in the 3 of 4 shards that were read"),
        ("found", {"part": "question"}, [span(0, 20)], "suspect", "found: question (50%"),
        ("found", {"contaminated": False}, [span(0, 50)], "suspect", "this is too little for the rule gpt-3"),
        ("shared text", {}, [span(0, 50, is_common=True)], "shared text", "many documents"),
        ("not found", {}, [], "clean", "the corpus contains no text of the item, except shared text"),
        ("not found", PARTLY, [], "unknown", "; the unread part may contain it"),
        ("not found", {"runs": 0}, [], "unknown", "all of its text is in many items"),
        ("too short to tell", {"words": 5}, [], "unknown", "the item has only 5 words"),
    ],
)
def test_verdicts_by_the_corpus(
    found: str, values: Mapping[str, Any], spans: Sequence[dict[str, Any]], verdict: Verdict, words: str
) -> None:
    [item] = classify_items(examples_of("a"), findings(found, spans, **values))
    assert item.verdict == verdict
    assert words in item.reason


def test_the_first_place_is_a_copy_and_not_shared_text() -> None:
    spans = [span(0, 40, "d2", 0, is_common=True), span(0, 20)]
    [item] = classify_items(examples_of("a"), findings("found", spans))
    assert item.first_place == "s.jsonl, d1, character 100"


def test_an_unsearched_item_is_unknown() -> None:
    [item] = classify_items(examples_of("new"), findings("not found"))
    assert (item.verdict, item.where, item.covered) == ("unknown", None, None)
    assert "run `corpus-audit overlap` again" in item.reason


TEST = make_row(GROUP_TESTS, group="made:a", detector="min_k", p_value=0.01, q_bh=0.03, n_calibration_groups=99)
TEST["claim_level"] = "statistical evidence"


def test_findings_on_a_model_make_items_suspect_but_never_clean() -> None:
    first, second = classify_items(examples_of("a", "b"), None, ModelEvidence("m", {"made:a": TEST}, {}, {}))
    assert (first.verdict, first.p_value) == ("suspect", 0.01)
    assert first.p_value_of == "min_k of its group, against 99 held-out groups"
    assert "q = 0.03, statistical evidence" in first.reason
    assert second.verdict == "unknown"
    assert "shows no sign of having read the item, but may have read it" in second.reason


def test_a_detector_in_the_opposite_direction_is_no_sign() -> None:
    turned = ModelEvidence("m", {"made:a": {**TEST, "direction": "opposite"}}, {}, {})
    [item] = classify_items(examples_of("a"), None, turned)
    assert (item.verdict, item.p_value) == ("unknown", 0.01)


@pytest.mark.parametrize(("q", "verdict"), [(0.01, "contaminated"), (0.2, "suspect"), (None, "suspect")])
def test_a_text_that_the_model_reproduces(q: float | None, verdict: Verdict) -> None:
    documents = {"a": make_row(DOCUMENT_MEMORISATION, claim="reproduced", longest_run=80, q_bh=q)}
    window = {"suffix_begin": BORDER, "set_apart": None, "log_p_top_40": -1.0}
    windows = [window, {**window, "suffix_begin": 3, "log_p_top_40": -0.1}, {**window, "set_apart": "predictable"}]
    evidence = ModelEvidence("m", {"made:a": TEST}, documents, {"a": windows})
    [item] = classify_items(examples_of("a"), findings("not found"), evidence)
    assert item.verdict == verdict
    assert item.longest_run == 80
    assert item.answer_probability == pytest.approx(np.exp(-1.0))
    assert item.reason.startswith("the corpus contains no text of the item, except shared text; m reproduces 80 ")


MANIFEST: dict[str, Any] = {
    "benchmark": "made",
    "family": "made",
    "texts_left_out": {},
    "spec": {"builder": "labelled", "context_column": "q", "text_column": "a", "id_column": "task"},
}


def results_of(*results: ItemResult, kind: Any = "table") -> ResultsFile:
    return ResultsFile(kind, "acc", (), None, results, SkippedRows())


@pytest.mark.parametrize("name", ["b", "made:b"])
def test_results_are_matched_by_names(name: str) -> None:
    results = results_of(
        *(ItemResult(one, None, {}, correct) for one, correct in ((name, 1.0), ("other", 1.0), (name, 0.0)))
    )
    matched = match_results(results, examples_of("a", "b"), MANIFEST)
    assert (matched.correct, matched.averaged, matched.unmatched) == ({"b": 0.5}, 1, 1)
    with pytest.raises(
        DataError,
        match=r"none of the 1 results matches an item of made\. The first item of the benchmark has the name made:a",
    ):
        match_results(results_of(ItemResult("7", None, {}, 1.0)), examples_of("a", "b"), MANIFEST)


def test_results_are_matched_by_the_text_of_the_item() -> None:
    examples = pa.concat_tables([examples_of("a"), examples_of("b", text="Nowhere")])
    results = [ItemResult(None, 40, {"q": QUESTION, "a": "Nowhere", "task": "a"}, 0.0)]
    matched = match_results(results_of(*results, kind="lm-evaluation-harness"), examples, MANIFEST)
    assert (matched.correct, matched.positions, matched.averaged) == ({"b": 0.0}, {"b": 40}, 0)
    templated = {**MANIFEST, "spec": {"builder": "templated", "template": "{{ q }}{{ a }}"}}
    assert match_results(results_of(*results), examples, templated).correct == {"b": 0.0}
    # If two items have the same text, the id column decides.
    results = [ItemResult(None, 40, {"q": QUESTION, "a": ANSWER, "task": "b"}, 1.0)]
    assert match_results(results_of(*results), examples_of("a", "b"), MANIFEST).correct == {"b": 1.0}


def item(name: str, verdict: Verdict, correct: float | None = None, group: str = "") -> BenchmarkItem:
    return BenchmarkItem(name, f"made:{name}", group or name, verdict, "", correct=correct)


def test_positions_of_clean_items() -> None:
    items = [item("a", "clean"), item("b", "unknown"), item("c", "clean")]
    assert list_clean_positions(items, MANIFEST, None) == ([0, 2], 0)
    lost = {**MANIFEST, "texts_left_out": {"beyond the limit max_texts": 9}}
    with pytest.raises(DataError, match=r"samples_\*\.jsonl\) with --results"):
        list_clean_positions(items, lost, None)
    matched = MatchedResults({"a": 1, "b": 1}, {"a": 31, "b": 5}, 0, 0)
    assert list_clean_positions(items, lost, matched) == ([31], 1)
    with pytest.raises(DataError, match="the positions of clean items are unknown"):
        list_clean_positions([item("c", "clean")], lost, matched)
    with pytest.raises(DataError, match="no item is clean"):
        list_clean_positions(items[1:2], MANIFEST, None)
    with pytest.raises(DataError, match="not every row of the data set is an item of made"):
        list_clean_positions(items, {**MANIFEST, "spec": {"builder": "temporal"}}, None)


def sides_of(contaminated: Sequence[float], clean: Sequence[float]) -> list[BenchmarkItem]:
    return [
        *(item(f"m{at}", "contaminated", value) for at, value in enumerate(contaminated)),
        *(item(f"c{at}", "clean", value) for at, value in enumerate(clean)),
    ]


def test_accuracies_and_their_difference() -> None:
    items = sides_of([1, 1, 1, 0] * 5, [1, 0, 0, 0] * 5)
    others = [item("s", "suspect", 1.0), item("n", "clean"), item("u", "unknown", 0.0)]
    found = compare_accuracy([*items, *others])
    assert (found.contaminated.value, found.clean.value, found.difference) == (0.75, 0.25, 0.5)
    assert found.contaminated.n == found.clean.n == 20
    assert found.interval.low is not None
    assert found.interval.high is not None
    # The Clopper-Pearson interval is [.509, .913] for 15 of 20, and [.087, .491] for 5 of 20.
    assert found.interval.low == pytest.approx(0.5 - math.hypot(0.241, 0.241), abs=0.001)
    assert found.interval.high == pytest.approx(0.5 + math.hypot(0.163, 0.163), abs=0.001)
    # Fisher's exact test of 15 and 5 of 20 gives 0.0038.
    assert found.p_value == pytest.approx(0.0038, abs=0.003)
    assert measure_accuracy(others, "suspect").value == 1
    draw = random.Random(3)
    draw.shuffle(items)
    assert compare_accuracy(items) == compare_accuracy(sides_of([1, 1, 1, 0] * 5, [1, 0, 0, 0] * 5))


def test_a_side_with_fewer_than_two_groups_is_not_compared() -> None:
    for items, words in (
        (sides_of([], [1, 0, 1]), "0 contaminated item(s) have a result, in 0 group(s)"),
        (sides_of([1, 0, 1], [1]), "1 clean item(s) have a result, in 1 group(s)"),
        ([item(f"m{at}", "contaminated", 1.0, "one") for at in range(9)] + sides_of([], [0] * 9), "in 1 group(s)"),
    ):
        found = compare_accuracy(items)
        assert (found.interval.low, found.interval.high, found.p_value) == (None, None, None)
        assert words in found.method
    assert compare_accuracy(sides_of([], [1])).difference is None
    assert compare_accuracy(sides_of([1], [1, 0])).difference == 0.5


def test_flags_of_uniform_groups_are_permuted_between_groups() -> None:
    # The groups have 1, 2, 3 and 4 items. The first two groups are flagged.
    sizes, rates = (1, 2, 3, 4), (1.0, 1.0, 0.0, 0.5)
    groups = [f"g{at}" for at, size in enumerate(sizes) for _ in range(size)]
    values = np.array([1, 1, 1, 0, 0, 0, 1, 1, 0, 0], dtype=float)
    flags = np.array([True] * 3 + [False] * 7)
    assert values[3:6].mean() == rates[2]

    def difference(chosen: Sequence[int]) -> float:
        flagged = np.array([int(group[1]) in chosen for group in groups])
        return float(abs(values[flagged].mean() - values[~flagged].mean()))

    ways = [difference(chosen) for chosen in combinations(range(4), 2)]
    expected = np.mean([way >= difference((0, 1)) - 1e-12 for way in ways])
    assert compute_permutation_p_value(values, flags, groups) == pytest.approx(expected, abs=0.04)


def test_flags_of_mixed_groups_are_permuted_within_groups() -> None:
    # In each group the flagged item is right and the other is wrong. Two of 2^3 permutations are as extreme.
    groups = ["x", "x", "y", "y", "z", "z"]
    values = np.array([1.0, 0, 1, 0, 1, 0])
    assert compute_permutation_p_value(values, values > 0, groups) == pytest.approx(0.25, abs=0.04)
    # Without groups, 2 of 20 permutations are as extreme.
    assert compute_permutation_p_value(values, values > 0, list("abcdef")) == pytest.approx(0.1, abs=0.03)


NAMES = ("ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "holly", "ivy", "juniper", "kapok", "larch")
QUESTION_ABOUT = "Which of the {0} trees that stand beside the {0} pond near the {0} hill was planted first?"
ANSWER_ABOUT = " The {0} at the gate, in a cold spring, by {0} gardeners whom nobody remembers."


@pytest.fixture
def built(workspace: Workspace) -> Workspace:
    """Build a test set of 24 questions, and search a corpus with the answers to six and with three more questions."""
    names = [f"{name}{number}" for number in (1, 2) for name in NAMES]
    rows = [{"task": f"T/{name}", "q": QUESTION_ABOUT.format(name), "a": ANSWER_ABOUT.format(name)} for name in names]
    write_rows(workspace.root / "rows.jsonl", rows)
    entry = {"builder": "labelled", "description": "made up", "path": str(workspace.root / "rows.jsonl"), "seed": 5}
    columns = {"text_column": "a", "context_column": "q", "label_column": None, "id_column": "task", "words": "any"}
    workspace.write_benchmarks(trees={**entry, **columns, "design": "unlabelled", "calibration_fraction": 0})
    workspace.build("trees")
    pages = [f"{row['q']}\n{row['a'].upper()}" for row in rows[:6]]
    pages += [f"Ask this: {row['q']} Write your own." for row in rows[6:9]]
    search(workspace, write_corpus(workspace.root / "web", pages))
    return workspace


def search(workspace: Workspace, corpus: Path) -> None:
    search_benchmarks(["trees"], open_sharded_corpus(str(corpus)), workspace.paths, "found", choose_rule("gpt-3"))


def write_results(workspace: Workspace) -> Path:
    """Write samples of lm-evaluation-harness in another order. The first six answers and every third are right."""
    rows = [json.loads(line) for line in (workspace.root / "rows.jsonl").read_text("utf-8").splitlines()]
    samples = [
        {"doc_id": 23 - at, "doc": row, "metrics": ["acc"], "acc": float(at < 6 or at % 3 == 0)}
        for at, row in enumerate(rows)
    ]
    return write_rows(workspace.root / "samples_ask_trees_2026-01-02T03-04-05.jsonl", samples)


def test_the_items_of_a_test_set_are_listed_and_counted(built: Workspace) -> None:
    shown = told(built.run("items", "--benchmark", "trees"))
    assert "24 items: 6 contaminated, 3 suspect, 15 clean" in shown
    document = answered(built.run("items", "--benchmark", "trees", "--corpus", "web", "--json"))
    assert document["counts"] == {"contaminated": 6, "suspect": 3, "shared text": 0, "clean": 15, "unknown": 0}
    corpus = {"name": "web", "rule": "gpt-3", "n": 13, "shards_read": 1, "shards": 1, "is_complete": True}
    where = [item["where"] for item in document["items"]]
    assert document["corpus"] == corpus
    assert where == ["question and answer"] * 6 + ["question"] * 3 + [None] * 15
    first = document["items"][0]
    assert (first["document_id"], first["covered"], first["documents"]) == ("trees:T/ash1", 1.0, 1)
    failed = built.run("items", "--benchmark", "trees", "--json", "--fail-on", "contaminated")
    assert (failed.exit_code, json.loads(failed.stdout)["counts"]) == (1, document["counts"]), "after all of it"
    assert built.run("items", "--benchmark", "trees", "--fail-on", "not-clean").exit_code == 1
    assert first["first_place"] == "http://x/0, character 0"


def test_accuracies_on_contaminated_and_clean_items(built: Workspace) -> None:
    results = write_results(built)
    document = answered(built.run("items", "--benchmark", "trees", "--results", results, "--json"))
    assert document["results"] == {
        **{"kind": "lm-evaluation-harness", "measure": "acc"},
        **{"items": 24, "unmatched": 0, "averaged": 0, "skipped": 0},
    }
    rates = {row["items"]: (row["n"], row["value"]) for row in document["accuracy"]}
    # Every third of the other answers is right: 6 (suspect), and 9, 12, 15, 18, 21 (clean).
    assert rates == {
        **{"all": (24, 0.5), "contaminated": (6, 1.0)},
        **{"suspect": (3, pytest.approx(1 / 3)), "clean": (15, pytest.approx(1 / 3))},
    }
    assert document["comparison"]["difference"] == pytest.approx(2 / 3)
    assert document["comparison"]["p_value"] < 0.05
    shown = told(built.run("items", "--benchmark", "trees", "--results", results))
    assert "Accuracy on contaminated minus clean items: +66.7%" in shown
    assert "A difference does not show that contamination raised the score" in shown


def test_the_list_of_clean_items_has_the_format_of_the_harness(built: Workspace) -> None:
    out = built.root / "clean.json"
    told(built.run("items", "--benchmark", "trees", "--clean", out))
    assert json.loads(out.read_text("utf-8")) == {"trees": list(range(9, 24))}
    told(built.run("items", "--benchmark", "trees", "--results", write_results(built), "--clean", out))
    assert json.loads(out.read_text("utf-8")) == {"ask_trees": list(range(15))}


def test_a_corpus_that_was_read_in_part_has_no_clean_items(built: Workspace) -> None:
    corpus = built.root / "web"
    (corpus / "z.jsonl.gz").write_bytes(b"\x1f\x8b and no more")
    search(built, corpus)
    document = answered(built.run("items", "--benchmark", "trees", "--json"))
    assert [document["counts"][verdict] for verdict in ("clean", "unknown", "contaminated")] == [0, 15, 6]
    assert "Corpus web: 1 of 2 shards were read; rule gpt-3" in told(built.run("items", "--benchmark", "trees"))
    out = built.root / "clean.json"
    assert "no item is clean" in error_of(built.run("items", "--benchmark", "trees", "--clean", out))
    assert not out.exists()


def test_errors_name_the_command_to_run(built: Workspace) -> None:
    assert "did you mean trees?" in error_of(built.run("items", "--benchmark", "tree"))
    wrong = error_of(built.run("items", "--benchmark", "trees", "--corpus", "books"))
    assert "(searched corpora: web). Search the corpus: corpus-audit overlap --benchmark trees --corpus books" in wrong
    other = built.root / "wiki"
    (built.root / "web").rename(other)
    search(built, other)
    assert "Choose a corpus with --corpus: web, wiki" in error_of(built.run("items", "--benchmark", "trees"))
    missing = error_of(built.run("items", "--benchmark", "trees", "--model", "tiny"))
    assert "corpus-audit audit --model tiny --benchmark trees" in missing
    results = built.root / "other.jsonl"
    results.write_text('{"item": "T/none", "correct": 1}', encoding="utf-8")
    refused = built.run("items", "--benchmark", "trees", "--corpus", "web", "--results", results)
    assert "none of the 1 results matches an item of trees" in error_of(refused)


def test_verdicts_by_a_model_alone(built: Workspace) -> None:
    pair = Pair("trees", "tiny")
    of_pair = {"run_id": "r", "model": "tiny", "benchmark": "trees", "detector": "min_k", "parameters": "{}"}
    test = {"group": "trees:T/elm1", "p_value": 0.02, "q_bh": 0.04, "n_calibration_groups": 49}
    rows = {
        PAIR_ANSWERS: [make_row(PAIR_ANSWERS, **of_pair)],
        GROUP_TESTS: [
            make_row(GROUP_TESTS, **of_pair, **test),
            make_row(GROUP_TESTS, **{**of_pair, "detector": "loss"}, **{**test, "p_value": 0.9, "q_bh": 0.9}),
        ],
    }
    for table, found in rows.items():
        step = LineageStep.now("r", table.name, "1")
        store.write(built.paths, step, table, pair, table_from_rows(found, table), upstream={})
    both = answered(built.run("items", "--benchmark", "trees", "--model", "tiny", "--json"))
    assert (both["counts"]["contaminated"], both["counts"]["suspect"]) == (6, 3)
    for table in (CORPUS_OVERLAP, OVERLAP_SPANS):
        shutil.rmtree(built.paths.rewritten_file(table.name, table.partitioned_by, "trees|web").parent)
    wrong = error_of(built.run("items", "--benchmark", "trees"))
    assert wrong.endswith("corpus-audit overlap --benchmark trees --corpus C")
    document = answered(built.run("items", "--benchmark", "trees", "--model", "tiny", "--json"))
    assert document["counts"] == {"contaminated": 0, "suspect": 1, "shared text": 0, "clean": 0, "unknown": 23}
    [elm] = [one for one in document["items"] if one["verdict"] == "suspect"]
    assert (elm["document_id"], elm["p_value"], elm["where"]) == ("trees:T/elm1", 0.02, None)


def test_a_file_and_its_benchmark_get_the_same_verdicts_and_the_report_shows_them(workspace: Workspace) -> None:
    answers = ["grey bark of ash", "B", 4, None, "wide crown of elm", "thin leaf of fir"]
    names = [f"{name}{number}" for number in (1, 2, 3) for name in ("ash", "elm")]
    rows = [
        {"id": name, "text": QUESTION_ABOUT.format(name), "answer": answer}
        for name, answer in zip(names, answers, strict=True)
    ]
    file = write_rows(workspace.root / "quiz.jsonl", rows)
    pages = [f"{row['text']} {row['answer']}." for row in rows[:4]] + [rows[4]["text"], "nothing of it"] * 20
    corpus = write_corpus(workspace.root / "web", pages)
    entry = {"builder": "templated", "description": "made up", "path": str(workspace.root), "files": [file.name]}
    templates = {"template": "{{ text }}", "answer": "{{ answer }}", "id_column": "id"}
    workspace.write_benchmarks(quiz={**entry, **templates, "words": "any", "seed": 5, "calibration_fraction": 0})
    workspace.build("quiz")
    told(workspace.run("overlap", "--benchmark", "quiz", "--corpus", str(corpus)))
    of_file = answered(workspace.run("items", "--texts", str(file), "--corpus", str(corpus), "--json"))
    of_benchmark = answered(workspace.run("items", "--benchmark", "quiz", "--json"))
    shown = ("verdict", "where", "reason", "covered", "documents", "first_place")
    by_name = {item["document_id"].removeprefix("quiz:"): item for item in of_benchmark["items"]}
    for row, item in zip(rows, of_file["items"], strict=True):
        assert [item[name] for name in shown] == [by_name[row["id"]][name] for name in shown], row
    assert of_file["counts"] == of_benchmark["counts"]
    assert len({item["where"] for item in of_file["items"]}) > 2
    # The report shows the search although no model was audited.
    assert "<h3>quiz in web</h3>" in workspace.paths.report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["q1", "q2"], ["q1", "q2"]),
        ([7, 8], ["7", "8"]),
        (["q1", "q1"], ["items.jsonl:1", "items.jsonl:2"]),
        (["q1", None], ["items.jsonl:1", "items.jsonl:2"]),
        ([None, None], ["items.jsonl:1", "items.jsonl:2"]),
        (["q1", "  "], ["items.jsonl:1", "items.jsonl:2"]),
        (["q1", "\ud800"], ["items.jsonl:1", "items.jsonl:2"]),
        ([True, False], ["items.jsonl:1", "items.jsonl:2"]),
    ],
)
def test_items_have_their_own_ids_if_all_ids_are_unique(ids: list[object], names: list[str]) -> None:
    rows = [TextRow(f"items.jsonl:{place + 1}", place, "a text", {"id": ids[place]}) for place in range(2)]
    assert choose_row_names(rows, "id", required=False) == names
    if names[0] != str(ids[0]):
        with pytest.raises(DataError, match=r"The 2 texts have only \d different ids"):
            choose_row_names(rows, "id", required=True)


def test_the_exit_code_is_1_if_an_item_is_not_clean(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("nothing of the kind")
    clean = {"text": "Who keeps the lamp of the old harbour lit?", "answer": "Nobody since the great storm"}
    command = ["items", "--corpus", str(corpus), "--fail-on"]
    file = write_rows(tmp_path / "clean.jsonl", [clean])
    assert CliRunner().invoke(main, [*command, "not-clean", "--texts", str(file)]).exit_code == 0
    file = write_rows(tmp_path / "short.jsonl", [clean, {"text": "Who?", "answer": "Me"}])
    unknown = CliRunner().invoke(main, [*command, "not-clean", "--texts", str(file)])
    assert unknown.exit_code == 1
    assert "2 items: 1 clean, 1 unknown" in unknown.stdout
    assert CliRunner().invoke(main, [*command, "contaminated", "--texts", str(file)]).exit_code == 0


def test_a_missing_column_of_a_file_of_items_is_named(tmp_path: Path) -> None:
    file, corpus = tmp_path / "items.csv", tmp_path / "corpus.txt"
    file.write_text("Id,Question,Answer\nq1,Who keeps the lamp of the old harbour lit?,Nobody since the great storm\n")
    corpus.write_text("nothing of the kind")
    asked = ["items", "--texts", str(file), "--text-column", "Question", "--corpus", str(corpus)]
    for option in ("--answer-column", "--id-column"):
        wrong = CliRunner().invoke(main, [*asked, option, "nope"])
        assert wrong.exit_code == 2
        assert "no column 'nope'; the columns are: Id, Question, Answer" in wrong.stderr
    [item] = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)["items"]
    assert item["example_id"] == "q1", "capitals of a column's name make no difference"

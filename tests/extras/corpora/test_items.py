"""Items of a test set: where each stands, its verdict, whose a result is, the accuracies, and the command items."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cli_results import answered, error_of, told
from click.testing import CliRunner
from made_rows import make_row
from made_workspace import Workspace, make_workspace, quick_folder

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.cli.main_command import main
from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.command_actions import name_rows
from audit_pipeline.extras.corpora.config import choose_rule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.item_verdicts import (
    BenchmarkItem,
    CorpusFindings,
    ModelEvidence,
    Verdict,
    compare_accuracy,
    compute_permutation_p_value,
    judge_items,
    measure_accuracy,
)
from audit_pipeline.extras.corpora.model_results import (
    ItemResult,
    MatchedResults,
    ResultsFile,
    list_clean_positions,
    match_results,
)
from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
from audit_pipeline.extras.corpora.search import AuditedTexts, search_corpus
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


def span(start: int, end: int, *places: tuple[str, int], **values: Any) -> dict[str, Any]:
    """A row of overlap_spans: a passage, and the documents that hold it with its place there."""
    named = places or (("d1", 100 + start),)
    return make_row(
        OVERLAP_SPANS,
        **{"char_start": start, "char_end": end, "words": end - start, "documents": len(named)},
        **{"found_in": [name for name, _ in named], "starts": [at for _, at in named]},
        **{"shards": ["s.jsonl"] * len(named), "urls": [""] * len(named), "contexts": [""] * len(named), **values},
    )


def examples_of(*names: str, **values: Any) -> pa.Table:
    rows = [
        make_row(
            EXAMPLES,
            **{"example_id": name, "benchmark": "made", "document_id": f"made:{name}", "group": f"made:{name}"},
            **{"text": ANSWER, "context": QUESTION, **values},
        )
        for name in names
    ]
    return table_from_rows(rows, EXAMPLES)


def overlap_row(name: str, verdict: str, **values: Any) -> dict[str, Any]:
    found = {"covered": 0.5, "documents": 2, "passages": 1, "contaminated": True, "part": "question and answer"}
    found = found if verdict == "found" else {}
    usual = {"words": 30, "runs": 18, "n": 13, "rule": "gpt-3", "shards": 4, "shards_read": 4, "is_complete": True}
    return make_row(CORPUS_OVERLAP, example_id=name, verdict=verdict, **{**usual, **found, **values})


def findings(rows: Sequence[Mapping[str, Any]], spans: Sequence[Mapping[str, Any]] = ()) -> CorpusFindings:
    return CorpusFindings("web", table_from_rows(rows, CORPUS_OVERLAP), table_from_rows(spans, OVERLAP_SPANS))


PARTLY = {"is_complete": False, "shards_read": 3}


@pytest.mark.parametrize(
    ("row", "spans", "verdict", "words"),
    [
        (("found", {}), [span(0, 50)], "contaminated", "question and answer (50% of its words, in 2 document(s))"),
        (("found", PARTLY), [span(0, 50)], "contaminated", "in the 3 of 4 shards that were read"),
        (("found", {"part": "question"}), [span(0, 20)], "suspect", "found: question (50%"),
        (("found", {"contaminated": False}), [span(0, 50)], "suspect", "this is too little for the rule gpt-3"),
        (("shared text", {}), [span(0, 50, is_common=True)], "shared text", "many documents"),
        (("not found", {}), [], "clean", "the corpus contains no text of the item, except shared text"),
        (("not found", PARTLY), [], "unknown", "; the unread part may contain it"),
        (("not found", {"runs": 0}), [], "unknown", "all of its text is in many items"),
        (("too short to tell", {"words": 5}), [], "unknown", "the item has only 5 words"),
    ],
)
def test_verdicts_by_the_corpus(
    row: tuple[str, Mapping[str, Any]], spans: Sequence[dict[str, Any]], verdict: Verdict, words: str
) -> None:
    found = findings([overlap_row("a", row[0], **row[1])], [{**one, "example_id": "a"} for one in spans])
    [item] = judge_items(examples_of("a"), found)
    assert item.verdict == verdict
    assert words in item.reason


def test_the_first_place_is_that_of_a_copy_and_not_of_shared_text() -> None:
    spans = [span(0, 40, ("d2", 0), is_common=True), span(0, 20)]
    found = findings([overlap_row("a", "found")], [{**row, "example_id": "a"} for row in spans])
    [item] = judge_items(examples_of("a"), found)
    assert item.first_place == "s.jsonl, d1, character 100"


def test_an_item_that_the_search_does_not_know_is_unknown() -> None:
    [item] = judge_items(examples_of("new"), findings([overlap_row("old", "not found")]))
    assert (item.verdict, item.where, item.covered) == ("unknown", None, None)
    assert "run overlap again" in item.reason


def evidence(**of_document: Any) -> ModelEvidence:
    test = make_row(GROUP_TESTS, group="made:a", detector="min_k", p_value=0.01, q_bh=0.03, n_calibration_groups=99)
    test["claim_level"] = "statistical evidence"
    documents = {"a": make_row(DOCUMENT_MEMORISATION, claim="reproduced", longest_run=80, **of_document)}
    window = {"suffix_begin": BORDER, "set_apart": None, "log_p_top_40": -1.0}
    windows = [window, {**window, "suffix_begin": 3, "log_p_top_40": -0.1}, {**window, "set_apart": "predictable"}]
    return ModelEvidence("m", {"made:a": test}, documents if of_document else {}, {"a": windows} if of_document else {})


def test_what_a_model_shows_makes_an_item_suspect_and_none_clean() -> None:
    first, second = judge_items(examples_of("a", "b"), None, evidence())
    assert (first.verdict, first.p_value) == ("suspect", 0.01)
    assert first.p_value_of == "min_k of its group, against 99 held-out groups"
    assert "q = 0.03, statistical evidence" in first.reason
    assert second.verdict == "unknown"
    assert "shows no sign of having read the item, but may have read it" in second.reason


def test_a_detector_that_runs_against_training_is_no_sign() -> None:
    shown = evidence()
    turned = ModelEvidence("m", {"made:a": {**shown.tests["made:a"], "direction": "opposite"}}, {}, {})
    [item] = judge_items(examples_of("a"), None, turned)
    assert (item.verdict, item.p_value) == ("unknown", 0.01)


@pytest.mark.parametrize(("q", "verdict"), [(0.01, "contaminated"), (0.2, "suspect"), (None, "suspect")])
def test_a_text_that_the_model_gives_word_for_word(q: float | None, verdict: Verdict) -> None:
    [item] = judge_items(examples_of("a"), findings([overlap_row("a", "not found")]), evidence(q_bh=q))
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


def named(name: str, correct: float = 1.0) -> ItemResult:
    return ItemResult(name, None, {}, correct)


@pytest.mark.parametrize("name", ["b", "made:b"])
def test_results_are_matched_by_names(name: str) -> None:
    results = results_of(named(name, 1.0), named("of another set"), named(name, 0.0))
    matched = match_results(results, examples_of("a", "b"), MANIFEST)
    assert (matched.correct, matched.averaged, matched.unmatched) == ({"b": 0.5}, 1, 1)
    with pytest.raises(
        DataError, match=r"none of the 1 results matches an item of made\. Its first item has the name made:a"
    ):
        match_results(results_of(named("7")), examples_of("a", "b"), MANIFEST)


def test_results_are_matched_by_the_text_that_the_entry_makes() -> None:
    examples = table_from_rows([*examples_of("a").to_pylist(), *examples_of("b", text="Nowhere").to_pylist()], EXAMPLES)
    results = [ItemResult(None, 40, {"q": QUESTION, "a": "Nowhere", "task": "a"}, 0.0)]
    matched = match_results(results_of(*results, kind="lm-evaluation-harness"), examples, MANIFEST)
    assert (matched.correct, matched.positions, matched.averaged) == ({"b": 0.0}, {"b": 40}, 0)
    templated = {**MANIFEST, "spec": {"builder": "templated", "template": "{{ q }}{{ a }}"}}
    assert match_results(results_of(*results), examples, templated).correct == {"b": 0.0}
    # Both items have this text: then the column that the entry names tells them apart.
    results = [ItemResult(None, 40, {"q": QUESTION, "a": ANSWER, "task": "b"}, 1.0)]
    assert match_results(results_of(*results), examples_of("a", "b"), MANIFEST).correct == {"b": 1.0}


def item(name: str, verdict: Verdict, correct: float | None = None, group: str = "") -> BenchmarkItem:
    return BenchmarkItem(name, f"made:{name}", group or name, verdict, "", correct=correct)


def test_places_of_clean_items() -> None:
    items = [item("a", "clean"), item("b", "unknown"), item("c", "clean")]
    assert list_clean_positions(items, MANIFEST, None) == ([0, 2], 0)
    lost = {**MANIFEST, "texts_left_out": {"over max_texts": 9}}
    with pytest.raises(DataError, match="pass --results with samples of lm-evaluation-harness"):
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
    # Clopper and Pearson's of 15 of 20 is [.509, .913], of 5 of 20 [.087, .491].
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
        (sides_of([], [1, 0, 1]), "0 contaminated item(s) with a result, of 0 group(s)"),
        (sides_of([1, 0, 1], [1]), "1 clean item(s) with a result, of 1 group(s)"),
        ([item(f"m{at}", "contaminated", 1.0, "one") for at in range(9)] + sides_of([], [0] * 9), "of 1 group(s)"),
    ):
        found = compare_accuracy(items)
        assert (found.interval.low, found.interval.high, found.p_value) == (None, None, None)
        assert words in found.method
    assert compare_accuracy(sides_of([], [1])).difference is None
    assert compare_accuracy(sides_of([1], [1, 0])).difference == 0.5


def test_flags_change_places_between_groups_as_a_whole() -> None:
    # Groups of 1, 2, 3 and 4 items; those of 1 and 2 are flagged.
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


def test_flags_change_places_within_groups_of_both() -> None:
    # In each group one of two is flagged, and it alone is right: as large or as small in 2 of 2^3 ways.
    groups = ["x", "x", "y", "y", "z", "z"]
    values = np.array([1.0, 0, 1, 0, 1, 0])
    assert compute_permutation_p_value(values, values > 0, groups) == pytest.approx(0.25, abs=0.04)
    # Taken apart from their groups, it would be 2 of 20.
    assert compute_permutation_p_value(values, values > 0, list("abcdef")) == pytest.approx(0.1, abs=0.03)


# The command.

_NAMES = ("ash", "birch", "cedar", "dogwood", "elm", "fir", "gum", "holly", "ivy", "juniper", "kapok", "larch")


def question_of(name: str) -> str:
    return f"Which of the {name} trees that stand beside the {name} pond near the {name} hill was planted first?"


def answer_of(name: str) -> str:
    return f" The {name} at the gate, in a cold spring, by {name} gardeners whom nobody remembers."


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Iterator[Workspace]:
    """A test set of 24 questions, of which the corpus `web` holds the first six with their answers, three without."""
    with quick_folder(tmp_path) as folder:
        workspace = make_workspace(folder / "made", monkeypatch, tiny=tiny_folder("llama"))
        names = [f"{name}{number}" for number in (1, 2) for name in _NAMES]
        rows = [{"task": f"T/{name}", "q": question_of(name), "a": answer_of(name)} for name in names]
        file = workspace.root / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        entry = {"builder": "labelled", "description": "made up", "path": str(file), "words": "any", "seed": 5}
        columns = {"text_column": "a", "context_column": "q", "label_column": None, "id_column": "task"}
        workspace.write_benchmarks(trees={**entry, **columns, "design": "unlabelled", "calibration_fraction": 0})
        workspace.build("trees")
        corpus = workspace.root / "web"
        corpus.mkdir()
        pages = [f"{question_of(name)}\n{answer_of(name).upper()}" for name in names[:6]]
        pages += [f"Ask this: {question_of(name)} Write your own." for name in names[6:9]]
        lines = [json.dumps({"id": f"page{at}", "text": page}) for at, page in enumerate(pages)]
        (corpus / "part.jsonl").write_text("\n".join(lines), encoding="utf-8")
        search(workspace, corpus)
        yield workspace


def search(workspace: Workspace, corpus: Path) -> None:
    """Search the corpus for the test set, and keep what is found as the asset does."""
    examples = read_built(workspace.paths, "trees").examples
    borders = [len(context or "") for context in examples["context"].to_pylist()]
    audited = AuditedTexts(EXAMPLES.texts(examples), borders)
    result = search_corpus(audited, open_sharded_corpus(str(corpus)), choose_rule("gpt-3"))
    names = [("trees", name) for name in examples["example_id"].to_pylist()]
    tables = build_overlap_tables(result, names, "found")
    for table, rows in tables.items():
        step = LineageStep.now("found", table.name, "1")
        store.write(workspace.paths, step, table, f"trees|{result.corpus.name}", rows, upstream={})


def write_results(workspace: Workspace) -> Path:
    """Samples of the harness, whose documents are in another order; what was found is right, the rest every third."""
    rows = [json.loads(line) for line in (workspace.root / "rows.jsonl").read_text("utf-8").splitlines()]
    path = workspace.root / "samples_ask_trees_2026-01-02T03-04-05.jsonl"
    lines = [
        json.dumps({"doc_id": 23 - at, "doc": row, "metrics": ["acc"], "acc": float(at < 6 or at % 3 == 0)})
        for at, row in enumerate(rows)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


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
    assert first["first_place"] == "part.jsonl, page0, character 0"


def test_accuracies_on_contaminated_and_clean_items(built: Workspace) -> None:
    results = write_results(built)
    document = answered(built.run("items", "--benchmark", "trees", "--results", results, "--json"))
    assert document["results"] == {
        **{"kind": "lm-evaluation-harness", "measure": "acc"},
        **{"items": 24, "unmatched": 0, "averaged": 0, "skipped": 0},
    }
    rates = {row["items"]: (row["n"], row["value"]) for row in document["accuracy"]}
    # Of the others each third is right: 6 (suspect), and 9, 12, 15, 18, 21 (clean).
    assert rates == {
        **{"all": (24, 0.5), "contaminated": (6, 1.0)},
        **{"suspect": (3, pytest.approx(1 / 3)), "clean": (15, pytest.approx(1 / 3))},
    }
    assert document["comparison"]["difference"] == pytest.approx(2 / 3)
    assert document["comparison"]["p_value"] < 0.05
    shown = told(built.run("items", "--benchmark", "trees", "--results", results))
    assert "Accuracy on contaminated minus clean items: +66.7%" in shown
    assert "A difference does not show that contamination raised the score" in shown


def test_the_list_of_clean_items_is_one_that_the_harness_takes(built: Workspace) -> None:
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


def test_what_is_missing_is_one_line_with_its_command(built: Workspace) -> None:
    assert "did you mean trees?" in error_of(built.run("items", "--benchmark", "tree"))
    wrong = error_of(built.run("items", "--benchmark", "trees", "--corpus", "books"))
    assert "(searched corpora: web). Search it: corpus-audit overlap --benchmark trees --corpus books" in wrong
    other = built.root / "wiki"
    (built.root / "web").rename(other)
    search(built, other)
    assert "Choose one with --corpus: web, wiki" in error_of(built.run("items", "--benchmark", "trees"))
    missing = error_of(built.run("items", "--benchmark", "trees", "--model", "tiny"))
    assert "corpus-audit audit --model tiny --benchmark trees" in missing
    results = built.root / "other.jsonl"
    results.write_text('{"item": "T/none", "correct": 1}', encoding="utf-8")
    refused = built.run("items", "--benchmark", "trees", "--corpus", "web", "--results", results)
    assert "none of the 1 results matches an item of trees" in error_of(refused)


def test_the_evidence_of_a_model_alone(built: Workspace) -> None:
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


def test_a_file_and_a_benchmark_of_it_get_the_same_verdicts_and_the_report_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = make_workspace(tmp_path / "made", monkeypatch)
    answers = ["grey bark of ash", "B", 4, None, "wide crown of elm", "thin leaf of fir"]
    names = [f"{name}{number}" for number in (1, 2, 3) for name in ("ash", "elm")]
    rows = [
        {"id": name, "text": question_of(name), "answer": answer} for name, answer in zip(names, answers, strict=True)
    ]
    file = workspace.root / "quiz.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    corpus = workspace.root / "web"
    corpus.mkdir()
    pages = [f"{row['text']} {row['answer']}." for row in rows[:4]] + [rows[4]["text"], "nothing of it"] * 20
    lines = [json.dumps({"id": f"page{at}", "text": page}) for at, page in enumerate(pages)]
    (corpus / "part.jsonl").write_text("\n".join(lines), encoding="utf-8")
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
    # No model was audited.
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
def test_items_are_called_by_their_own_ids_if_each_has_one(ids: list[object], names: list[str]) -> None:
    rows = [TextRow(f"items.jsonl:{place + 1}", place, "a text", {"id": ids[place]}) for place in range(2)]
    assert name_rows(rows, "id", required=False) == names
    if names[0] != str(ids[0]):
        with pytest.raises(DataError, match=r"the 2 texts have \d different ids"):
            name_rows(rows, "id", required=True)


def test_a_named_column_that_a_file_of_items_lacks_is_named(tmp_path: Path) -> None:
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

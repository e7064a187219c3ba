"""The option --joint of the command items: one list of items that are clean for several models."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import torch
from cli_results import answered, error_of, told
from made_files import write_rows
from made_rows import make_row, scores_table
from made_workspace import Workspace, made_text, make_workspace, quick_folder, tiny_control
from tiny_models import save_model, tokenized
from transformers import AutoModelForCausalLM

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.corpora.joint_scores import assign_members
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import PAIR_ANSWERS, SCORES, Pair
from audit_pipeline.token_statistics.tokens import encode

ROWS = {
    "builder": "labelled",
    "description": "made up",
    "text_column": "text",
    "id_column": "id",
    "words": "any",
    "split_column": "split",
}
NAMES = ("a", "b", "c")
N_MEMBERS = 39


def build_rows(workspace: Workspace, name: str, rows: Sequence[Mapping[str, object]], **changes: object) -> None:
    """Build a benchmark of rows. The labelled rows are for calibration, and the others are evaluated."""
    split_rows = []
    for row in rows:
        split_rows.append({**row, "split": "evaluation" if row["label"] is None else "calibration"})
    path = write_rows(workspace.root / f"{name}.jsonl", split_rows)
    entry = {**ROWS, "path": str(path), "design": "selected", "calibration_fraction": 0, "seed": 5, **changes}
    workspace.write_benchmarks(**{name: entry})
    workspace.build(name)


def store_scores(
    workspace: Workspace,
    model: str,
    benchmark: str,
    score_of: Mapping[str, float],
    detector: str = "loss",
    **changes: Any,
) -> None:
    """Store the scores of a model by the name of the item, and its answer. Other items have no score."""
    built = read_built(workspace.paths, benchmark)
    pair = Pair(benchmark, model)
    rows = []
    for example in built.examples.to_pylist():
        name = example["document_id"].partition(":")[2]
        value = {"example_id": example["example_id"], "score": score_of.get(name), "detector": detector}
        if name not in score_of:
            value |= {"status": "not_applicable", "reason": "too short"}
        own = {"model": model, "benchmark": benchmark, "parameters": "{}", "is_default": True, "run_id": "r"}
        rows.append(make_row(SCORES, **{"status": "ok", **own, **value, **changes}))
    step = LineageStep.now("r", "scores", "1")
    store.write(workspace.paths, step, SCORES, pair, scores_table(rows), upstream={}, benchmark_digest=built.digest)
    answer = make_row(PAIR_ANSWERS, model=model, benchmark=benchmark, detector=detector, parameters="{}", run_id="r")
    store.write(workspace.paths, step, PAIR_ANSWERS, pair, table_from_rows([answer], PAIR_ANSWERS), upstream={})


def write_models(workspace: Workspace) -> None:
    workspace.write_models(**{name: {"path": str(workspace.root / name)} for name in NAMES})


@pytest.fixture
def quiz(workspace: Workspace) -> Workspace:
    """Build a quiz of 39 known members and ten other items, and store the scores of three models.

    The members have the scores 1 to 39 by all models. Seven of the other items score 0 by all models. The item q7 is
    high by the model b. The item q8 has no score by c, and q9 ties with the lowest member by a.
    """
    write_models(workspace)
    rows: list[dict[str, object]] = []
    for number in range(N_MEMBERS):
        rows.append({"id": f"m{number}", "text": made_text(f"m{number}", 8), "label": 1})
    for number in range(10):
        rows.append({"id": f"q{number}", "text": made_text(f"q{number}", 8), "label": None})
    build_rows(workspace, "quiz", rows)
    base = {f"m{number}": number + 1.0 for number in range(N_MEMBERS)}
    base |= dict.fromkeys((f"q{number}" for number in range(10)), 0.0)
    store_scores(workspace, "a", "quiz", base | {"q9": 1.0})
    store_scores(workspace, "b", "quiz", base | {"q7": 20.5})
    store_scores(workspace, "c", "quiz", {name: value for name, value in base.items() if name != "q8"})
    return workspace


def find_items(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["document_id"].partition(":")[2]: item for item in document["items"]}


JOINT = ("items", "--joint", "--benchmark", "quiz", "--model", "a,b,c")


def test_the_list_of_three_models_by_hand(quiz: Workspace) -> None:
    document = answered(quiz.run(*JOINT, "--json"))
    items = find_items(document)
    assert len(items) == 49
    assert [items["q0"][f"p_value_{name}"] for name in NAMES] == [1 / 40] * 3
    # Twenty members score at most 20.5 by b, and one member at most 1 by a.
    assert (items["q7"]["p_value_a"], items["q7"]["p_value_b"], items["q7"]["p_value"]) == (1 / 40, 21 / 40, 21 / 40)
    assert items["q9"]["p_value"] == items["q9"]["p_value_a"] == 2 / 40
    # Nine items are tested. The q-values are 9/7 * 1/40, 9/8 * 2/40 and 21/40.
    assert items["q0"]["q_bh"] == pytest.approx(9 / 7 / 40)
    assert items["q9"]["q_bh"] == pytest.approx(9 / 8 * 2 / 40)
    assert items["q7"]["q_bh"] == pytest.approx(21 / 40)
    harmonic = sum(1 / rank for rank in range(1, 10))
    assert items["q0"]["q_by"] == pytest.approx(harmonic * 9 / 7 / 40)
    listed = {name for name, item in items.items() if item["clean_bh"]}
    assert listed == {f"q{number}" for number in range(7)}
    assert not any(item["clean_by"] for item in items.values())
    assert (items["q8"]["p_value"], items["q8"]["clean_bh"]) == (None, False)
    assert items["q8"]["reason"] == "no score by c (too short)"
    assert items["m3"]["reason"] == "known to be contaminated: a labelled member of quiz"
    assert items["m3"]["p_value"] is None
    counts = {"items": 49, "tested": 9, "known_contaminated": 39, "clean_bh": 7, "clean_by": 0}
    assert {name: document["joint"][name] for name in counts} == counts
    # 9 * (1/40) / .05 is 4.5, and times 2.83 it is 12.7.
    assert (document["joint"]["min_listed_bh"], document["joint"]["min_listed_by"]) == (5, 13)
    models = [(row["model"], row["detector"], row["members_of"], row["n_calibration"]) for row in document["models"]]
    assert models == [(name, "loss", "quiz", N_MEMBERS) for name in NAMES]


def test_the_terminal_shows_counts_first_items_and_the_claim(quiz: Workspace) -> None:
    shown = told(quiz.run(*JOINT))
    assert "quiz: 7 of 9 tested items are listed as clean for every model (Benjamini-Hochberg). The expected" in shown
    assert "share of contaminated items in the list is at most 5%. A list that allows for any dependence" in shown
    assert "of the items has 0 (Benjamini-Yekutieli)." in shown
    assert "Not tested: 39 item(s) known to be contaminated, 1 item(s) without a score by at least one model." in shown
    assert "has at least 5 item(s) (Benjamini-Hochberg), and the list of Benjamini-Yekutieli is always empty." in shown
    assert "the calibration items must be contaminated in the same way" in shown
    first, *_, last = [line for line in shown.splitlines() if " quiz:q" in line]
    assert first.split()[1:] == ["quiz:q0", "0.025", "0.025", "0.025", "0.025", "0.032", "0.091", "yes", "no"]
    assert last.split()[1] == "quiz:q7"


def test_a_higher_rate_lists_more_items_and_another_detector_has_other_scores(quiz: Workspace) -> None:
    document = answered(quiz.run(*JOINT, "--rate", "0.2", "--json"))
    assert (document["joint"]["clean_bh"], document["joint"]["clean_by"], document["joint"]["rate"]) == (8, 8, 0.2)
    wrong = error_of(quiz.run(*JOINT, "--detector", "min_k"))
    assert wrong.startswith("a has no scores by min_k on quiz; ")


def test_all_items_are_written_to_a_file(quiz: Workspace) -> None:
    rows = answered(quiz.run(*JOINT, "--out", quiz.root / "joint.parquet", "--json"))["items"]
    assert pq.read_table(quiz.root / "joint.parquet").to_pylist() == rows
    told(quiz.run(*JOINT, "--out", quiz.root / "joint.csv"))
    with (quiz.root / "joint.csv").open(encoding="utf-8") as opened:
        cells = list(csv.DictReader(opened))
    assert list(cells[0]) == list(rows[0])
    expected = [str(row["clean_bh"]).lower() for row in rows]
    assert [cell["clean_bh"] for cell in cells] == expected
    assert "Choose a file name that ends in .parquet or .csv" in error_of(quiz.run(*JOINT, "--out", "joint.json"))


def test_the_clean_items_are_written_for_the_harness(quiz: Workspace) -> None:
    out = quiz.root / "clean.json"
    told(quiz.run(*JOINT, "--clean", out))
    assert json.loads(out.read_text("utf-8")) == {"quiz": list(range(N_MEMBERS, N_MEMBERS + 7))}
    results = write_rows(quiz.root / "results.jsonl", [{"item": f"q{number}", "correct": 1} for number in range(10)])
    document = answered(quiz.run(*JOINT, "--results", results, "--json"))
    assert {row["items"]: row["n"] for row in document["accuracy"]} == {"all": 10, "clean": 7, "unknown": 3}


def test_calibration_items_of_another_benchmark(quiz: Workspace) -> None:
    """Check that the members of a pool calibrate the model b alone. An item in the pool is not tested."""
    rows: list[dict[str, object]] = [{"id": "copy", "text": made_text("q0", 8), "label": 1, "book": "copy"}]
    for number in range(60):
        # Two texts per group: one of them, chosen by a hash, calibrates.
        group = f"book{number // 2}"
        rows.append({"id": f"p{number}", "text": made_text(f"p{number}", 8), "label": 1, "book": group})
    rows.append({"id": "new", "text": made_text("new", 8), "label": None, "book": "new"})
    build_rows(quiz, "pool", rows, group_column="book")
    store_scores(quiz, "b", "pool", {str(row["id"]): 30.0 for row in rows})
    document = answered(quiz.run(*JOINT, "--members", "b=pool", "--json"))
    calibrated = [(row["members_of"], row["n_members"], row["n_calibration"]) for row in document["models"]]
    assert calibrated[0] == calibrated[2] == ("quiz", 39, 39)
    assert calibrated[1] == ("pool", 61, 31)
    items = find_items(document)
    assert items["q0"]["reason"] == "known to be contaminated: a labelled member of pool"
    # All 31 calibration items of b score above 20.5, the score of q7.
    assert (items["q7"]["p_value_b"], items["q7"]["p_value"]) == (1 / 32, 1 / 32)
    wrong = error_of(quiz.run(*JOINT, "--members", "pool"))
    assert wrong == ("a has no scores on pool yet. Audit the model: corpus-audit audit --model a --benchmark pool")


def test_benchmarks_of_calibration_items_are_assigned_to_models() -> None:
    assert assign_members([], ["a", "b"], "quiz") == {"a": "quiz", "b": "quiz"}
    assert assign_members(["pool"], ["a", "b"], "quiz") == {"a": "pool", "b": "pool"}
    assert assign_members(["b=other", "pool"], ["a", "b"], "quiz") == {"a": "pool", "b": "other"}
    for options, words in (
        (["c=pool"], "--model does not name 'c'"),
        (["a=pool", "a=other"], "two benchmarks for a"),
        (["pool", "other"], "several benchmarks for all models: pool, other"),
    ):
        with pytest.raises(ConfigError, match=words):
            assign_members(options, ["a", "b"], "quiz")


def test_a_list_is_refused_with_the_number_of_missing_calibration_items(quiz: Workspace) -> None:
    few = error_of(quiz.run(*JOINT, "--rate", "0.02"))
    assert few.startswith(
        "a contamination rate of 0.02 requires at least 49 calibration items per model, one per group"
    )
    assert "a has 39 (10 are missing); b has 39 (10 are missing); c has 39 (10 are missing)." in few


def test_a_model_without_calibration_items_is_refused(quiz: Workspace) -> None:
    build_rows(quiz, "new", [{"id": "n", "text": made_text("n", 8), "label": None}])
    store_scores(quiz, "c", "new", {"n": 1.0})
    none = error_of(quiz.run(*JOINT, "--members", "c=new"))
    assert "c has no calibration items: loss scored no labelled member of new." in none
    assert "--members c=BENCHMARK" in none


def test_scores_that_cannot_be_ranked_together_are_refused(quiz: Workspace) -> None:
    rows: list[dict[str, object]] = [{"id": "p19", "text": made_text("p19", 8), "label": None}]
    for number in range(19):
        rows.append({"id": f"p{number}", "text": made_text(f"p{number}", 8), "label": 1})
    build_rows(quiz, "pool", rows)
    scores = {f"p{at}": 1.0 for at in range(20)}
    store_scores(quiz, "a", "pool", scores, parameters='{"k":0.5}')
    only_a = ("items", "--joint", "--benchmark", "quiz", "--model", "a", "--members", "pool")
    assert 'a was scored by loss with {} on the items and with {"k":0.5} on pool.' in error_of(quiz.run(*only_a))
    for detector in ("combined", "recall"):
        for benchmark, values in (("quiz", {"q0": 1.0, "m0": 1.0}), ("pool", scores)):
            store_scores(quiz, "a", benchmark, values, detector)
        wrong = error_of(quiz.run(*only_a))
        assert wrong.startswith(f"scores by {detector} depend on the other texts of their benchmark")


def test_stale_and_missing_audits_are_named(quiz: Workspace) -> None:
    quiz.write_models(**{name: {"path": str(quiz.root / name)} for name in (*NAMES, "new")})
    missing = error_of(quiz.run("items", "--joint", "--benchmark", "quiz", "--model", "a,new"))
    assert missing.startswith("new has no headline detector on quiz. Name a detector with --detector")
    missing = error_of(quiz.run("items", "--joint", "--benchmark", "quiz", "--model", "new", "--detector", "loss"))
    assert missing.endswith("Audit the model: corpus-audit audit --model new --benchmark quiz")
    build_rows(quiz, "quiz", [{"id": "q0", "text": made_text("q0", 8), "label": None}])
    stale = error_of(quiz.run(*JOINT))
    assert stale.startswith("the scores of a on quiz were computed for an earlier build of the benchmark.")


def test_the_control_model_that_did_not_read_the_members_is_refused(quiz: Workspace) -> None:
    quiz.write_config("controls", {"controls": {"check": tiny_control()}})
    quiz.write_models(twin={"control": {"name": "check", "role": "twin"}})
    wrong = error_of(quiz.run("items", "--joint", "--benchmark", "quiz", "--model", "twin"))
    assert wrong.startswith("twin has no calibration items: it is the control model")


def build_pool(quiz: Workspace, *items: str) -> None:
    """Build the benchmark ``pool``: 30 members, and copies of items of the quiz as members. The model b has read it."""
    rows: list[dict[str, object]] = [{"id": "new", "text": made_text("new", 8), "label": None}]
    for name in (*(f"p{number}" for number in range(30)), *items):
        rows.append({"id": name, "text": made_text(name, 8), "label": 1})
    build_rows(quiz, "pool", rows)
    store_scores(quiz, "b", "pool", {str(row["id"]): 30.0 for row in rows})


def test_the_exit_code_is_1_if_an_item_is_not_listed(quiz: Workspace) -> None:
    document = answered(quiz.run(*JOINT, "--fail-on", "not-clean", "--json"), code=1)
    assert document["joint"]["clean_bh"] == 7
    # All ten items are listed by the scores of a alone. The 39 calibration items do not count.
    only_a = ("items", "--joint", "--benchmark", "quiz", "--model", "a", "--fail-on", "not-clean")
    assert answered(quiz.run(*only_a, "--rate", "0.1", "--json"))["joint"]["clean_bh"] == 10
    # The item q8 has no score by c. All other items are listed.
    only_c = ("items", "--joint", "--benchmark", "quiz", "--model", "c", "--fail-on", "not-clean")
    assert answered(quiz.run(*only_c, "--json"), code=1)["joint"]["clean_bh"] == 9


def test_the_exit_code_is_1_if_an_item_is_known_to_be_contaminated(quiz: Workspace) -> None:
    failing = ("--fail-on", "contaminated")
    told(quiz.run(*JOINT, *failing))
    build_pool(quiz)
    told(quiz.run(*JOINT, "--members", "b=pool", *failing))
    # The members of the quiz calibrate no model here, so they are items like the others.
    only_b = ("items", "--joint", "--benchmark", "quiz", "--model", "b", "--members", "pool")
    assert quiz.run(*only_b, *failing).exit_code == 1
    build_pool(quiz, "q0")
    failed = quiz.run(*JOINT, "--members", "b=pool", *failing)
    assert failed.exit_code == 1
    assert "Not tested: 40 item(s) known to be contaminated" in failed.stdout


def test_a_benchmark_whose_items_are_all_known_is_refused(quiz: Workspace) -> None:
    build_pool(quiz, *(f"q{number}" for number in range(10)))
    wrong = error_of(quiz.run(*JOINT, "--members", "b=pool"))
    assert wrong.startswith("every item of quiz has the text of a labelled member, so no item is left to test.")


def test_scores_by_other_weights_are_refused(quiz: Workspace) -> None:
    build_pool(quiz)
    built = read_built(quiz.paths, "pool")
    pair = Pair("pool", "b")
    scores = store.read(quiz.paths, SCORES, pair, label="scores", run_id="r")
    store.write(
        quiz.paths,
        LineageStep.now("r2", "scores", "1"),
        SCORES,
        pair,
        scores.set_column(scores.schema.get_field_index("run_id"), SCORES.field("run_id"), [["r2"] * len(scores)]),
        upstream={},
        benchmark_digest=built.digest,
        model_fingerprint="other weights",
    )
    wrong = error_of(quiz.run(*JOINT, "--members", "b=pool"))
    assert wrong.startswith("b was scored with other weights or another tokenizer on pool than on quiz")
    assert wrong.endswith("Audit the model again on both: corpus-audit audit --model b --benchmark quiz,pool")


def test_a_detector_without_scores_at_its_default_setting_is_refused(quiz: Workspace) -> None:
    store_scores(quiz, "a", "quiz", {"q0": 1.0, "m0": 1.0}, parameters='{"k":0.5}', is_default=False)
    wrong = error_of(quiz.run(*JOINT))
    assert wrong.startswith("a has no scores by loss on quiz; ")
    assert "did you mean loss" not in wrong


def test_models_whose_names_differ_only_in_case_get_no_file(quiz: Workspace) -> None:
    quiz.write_models(**{name: {"path": str(quiz.root / name)} for name in (*NAMES, "A")})
    command = ("items", "--joint", "--benchmark", "quiz", "--model", "a,A", "--out", quiz.root / "joint.parquet")
    assert error_of(quiz.run(*command)).startswith("the names of a and A differ only in case, so --out cannot")


def test_the_items_are_written_even_if_none_is_clean(quiz: Workspace) -> None:
    high = {f"m{number}": 1.0 for number in range(N_MEMBERS)}
    high |= {f"q{number}": 9.0 for number in range(10)}
    store_scores(quiz, "c", "quiz", high)
    out = quiz.root / "joint.parquet"
    refused = quiz.run(*JOINT, "--out", out, "--clean", quiz.root / "clean.json")
    assert refused.exit_code == 2
    assert "no item is clean, so --clean wrote no file" in refused.stderr
    assert not any(row["clean_bh"] for row in pq.read_table(out).to_pylist())


PAGE = Path(__file__).parents[3] / "docs" / "overlap.md"


def test_the_documented_queries_of_the_file_return_rows(quiz: Workspace) -> None:
    told(quiz.run(*JOINT, "--out", quiz.root / "joint.parquet"))
    build_warehouse(quiz.paths, config=quiz.config)
    section = PAGE.read_text("utf-8").partition("**The file in SQL.**")[2].partition("**Measured.**")[0]
    [block] = re.findall(r"^```sql\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)
    attach, *queries = [statement.strip() for statement in block.split(";") if statement.strip()]
    quiz.monkeypatch.chdir(quiz.root)
    with duckdb.connect() as connection:
        connection.execute(attach)
        counted, decisive, listed = [connection.sql(query).fetchall() for query in queries]
    assert dict(counted) == {
        "listed": 7,
        "not listed": 2,
        "known to be contaminated: a labelled member of quiz": 39,
        "no score by c (too short)": 1,
    }
    assert decisive == [("quiz:q9", "p_value_a", 2 / 40), ("quiz:q7", "p_value_b", 21 / 40)]
    assert [excerpt for _, excerpt in sorted(listed)] == [made_text(f"q{number}", 8) for number in range(7)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--joint", "--benchmark", "quiz"], "--joint requires --benchmark and --model"),
        (["--joint", "--texts", "quiz.jsonl", "--model", "a"], "--joint requires --benchmark and --model"),
        (["--joint", "--benchmark", "quiz", "--model", "a", "--corpus", "c"], "uses no --corpus"),
        (["--joint", "--benchmark", "quiz", "--model", "a", "--id-column", "id"], "--id-column require --texts"),
        (["--benchmark", "quiz", "--rate", "0.1"], "--members, --detector, --rate and --out require --joint"),
    ],
)
def test_options_that_do_not_fit_are_refused(workspace: Workspace, options: list[str], words: str) -> None:
    done = workspace.run("items", *options)
    assert done.exit_code == 2
    assert words in done.stderr


# Three models with known truth.

READ_BY_ONE = 12
CLEAN = 24
MEMBERS = 80


def train(folder: Path, texts: Sequence[str], seed: int) -> Path:
    """Train a tiny model on texts."""
    save_model(folder, seed=seed, initializer_range=0.05, hidden_size=64)
    model = tokenized(folder, folder / "data")
    network = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    ids = [torch.tensor([model.start_token_id, *text.token_id.tolist()]) for text in encode(model, texts)]
    inputs = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
    torch.manual_seed(seed)
    for _ in range(25):
        for batch in torch.randperm(len(texts)).split(16):
            optimizer.zero_grad()
            network(input_ids=inputs[batch], labels=labels[batch]).loss.backward()
            optimizer.step()
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Train three models on 80 common texts, and each on twelve items of its own. 24 items are in no training set."""
    texts = {f"m{number}": made_text(f"m{number}", 8) for number in range(MEMBERS)}
    texts |= {f"{name}{number}": made_text(f"{name}{number}", 8) for name in NAMES for number in range(READ_BY_ONE)}
    texts |= {f"new{number}": made_text(f"new{number}", 8) for number in range(CLEAN)}
    root = tmp_path_factory.mktemp("taught")
    with pytest.MonkeyPatch.context() as patch, quick_folder(root) as folder:
        models = {}
        for seed, name in enumerate(NAMES):
            read = [text for item, text in texts.items() if item[0] in ("m", name)]
            models[name] = train(root / name, read, seed)
        workspace = make_workspace(folder / "made", patch, **models)
        rows: list[dict[str, object]] = []
        for item, text in texts.items():
            rows.append({"id": item, "text": text, "label": 1 if item[0] == "m" else None})
        build_rows(workspace, "quiz", rows)
        workspace.assess("quiz")
        for name in NAMES:
            workspace.audit(name, "quiz")
        yield workspace


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "quick_audits")
def test_the_joint_list_of_three_trained_models_has_only_items_that_none_has_read(taught: Workspace) -> None:
    document = answered(taught.run(*JOINT, "--json"))
    items = find_items(document)
    listed = [name for name, item in items.items() if item["clean_bh"]]
    clean = [name for name in listed if name.startswith("new")]
    assert len(clean) >= 0.9 * CLEAN
    # At a rate of 5%, a list of 24 clean items has one or two contaminated items at most, on average.
    assert len(listed) - len(clean) <= 2
    # Each model alone would list the items that the others have read.
    for name in NAMES:
        others = [item for item in items if item[0] in NAMES and item[0] != name]
        low = [item for item in others if items[item][f"p_value_{name}"] <= 0.05]
        assert len(low) >= len(others) / 2

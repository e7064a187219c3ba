"""`corpus-audit score`: its files, columns and options, its table, and its output."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_results import answered, error_of, length_of, run_in_a_new_process, scores_of, texts_file, told
from click.testing import CliRunner, Result
from made_files import save_dataset, write_rows
from made_workspace import Workspace, made_text
from tiny_models import save_model

from audit_pipeline.cli import main
from audit_pipeline.detectors.registry import REGISTRY

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


Score = Callable[..., Result]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the path of the table that the command writes."""
    return tmp_path / "scores" / "s.parquet"


@pytest.fixture
def score(workspace: Workspace, out: Path) -> Score:
    """Run the command on texts with options."""

    def run(texts: Path | str, *options: str | Path) -> Result:
        return workspace.run("score", "--model", "tiny", "--texts", texts, "--out", out, *options)

    return run


def test_unusable_files_are_refused(workspace: Workspace, score: Score, out: Path, tmp_path: Path) -> None:
    for name, content, message in (
        ("missing.jsonl", None, "no such file"),
        (
            "bad.jsonl",
            b'{"input": \n[1]\n',
            "none of the 2 rows can be used. The first row is bad.jsonl:1: broken JSON",
        ),
        ("torn.parquet", b"PAR1 torn", "not a readable Parquet file"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert message in error_of(score(tmp_path / name))
    assert not out.exists()
    assert not workspace.parts()


def test_the_prefix_options_meet_the_need_or_are_refused(score: Score, out: Path, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "a text", "another")
    known = texts_file(tmp_path, "QA", "QB", "QC", name="known.jsonl")
    recall = ("--detectors", "recall")
    assert "Name a file of known non-members" in error_of(score(texts, *recall))
    assert not out.exists()
    told(score(texts, *recall, "--prefix-texts", known, "--set", "recall.shots=2"))
    assert {row["status"] for row in scores_of(out).values()} == {"ok"}
    # Whoever gives none and names none of these detectors is told in the table.
    told(score(texts))
    assert "--prefix-texts" in scores_of(out)[0, "recall", '{"shots":7}']["reason"]


def test_unusable_options_are_refused(score: Score, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "a text")
    for options, message in (
        (("--detectors", "loss,min_kk"), "there is no detector 'min_kk'; did you mean min_k"),
        (("--set", "min_k=0.3"), "does not have the form DETECTOR.PARAMETER=VALUE"),
        (("--set", "min_k.k=.1", "--set", "min_k.k=.2"), "set twice"),
        (("--text-column", "body"), "no column 'body'; the columns are: input"),
        (("--label-column", "side"), "no column 'side'; the columns are: input"),
    ):
        assert message in error_of(score(texts, *options))


def test_rows_good_and_bad_and_odd(workspace: Workspace, score: Score, out: Path, tmp_path: Path) -> None:
    assert length_of(workspace.model("tiny"), "!") == 1
    lines = [
        json.dumps({"input": "a plain text of some words", "label": 1}).encode(),
        b'{"input": "broken',
        b'{"input": "caf\xe9"}',
        b'{"input": "lone \\ud800 surrogate"}',
        json.dumps({"input": "!", "label": 0}).encode(),
        json.dumps({"input": "😀🎉👩‍👩‍👧"}).encode(),
        json.dumps({"input": "a plain text of some words"}).encode(),
        json.dumps({"input": "<script>alert(1)</script> [bold]x[/bold]"}).encode(),
        b"{}",
    ]
    (tmp_path / "t.jsonl").write_bytes(b"\n".join(lines))
    chosen = ("--detectors", "loss,zlib,min_k,min_k_plus_plus")
    result = score(tmp_path / "t.jsonl", *chosen, "--start-token", "tokenizer")
    assert told(result).startswith("20 scores in ")
    skips = result.stderr[result.stderr.index("4 row(s) skipped:") :].splitlines()
    assert [line.split(": ")[0].strip() for line in skips[1:5]] == [f"t.jsonl:{number}" for number in (2, 3, 4, 9)]
    assert "5 texts: 0 from the cache, 3 computed" in skips[5]

    rows = scores_of(out)
    assert {index for index, _, _ in rows} == {0, 4, 5, 6, 7}, "places in the file, bad rows counted"
    for (index, detector, parameters), row in rows.items():
        expected = ("not_applicable", "the text has no scored token") if index == 4 else ("ok", None)
        assert (row["status"], row["reason"]) == expected
        assert (row["score"] is None) == (index == 4)
        assert rows[0, detector, parameters]["score"] == rows[6, detector, parameters]["score"], "the same text"
        assert detector in REGISTRY

    # With a start token in front the one token is scored.
    score(tmp_path / "t.jsonl", *chosen)
    assert scores_of(out)[4, "loss", "{}"]["status"] == "ok"


def test_a_spreadsheets_csv_and_what_was_taken_of_it(score: Score, out: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('text;label\n"one, two; three";1\nfour five;0\n')
    result = score(tmp_path / "t.csv", "--detectors", "loss")
    assert "2 texts: 0 from the cache, 2 computed" in result.stderr
    first, second, *_ = result.stderr.splitlines()
    said = f"• {tmp_path / 't.csv'}: read as CSV with ';' between fields and '\"' as quote; columns: text, label"
    assert (first, second) == (said, "• t.csv: 2 row(s)")
    assert "1 + 1" in told(result)
    assert {row["status"] for row in scores_of(out).values()} == {"ok"}


def test_standard_input_and_a_data_set_on_disk(score: Score, out: Path, tmp_path: Path) -> None:
    texts = ["one text", "another text"]
    save_dataset(tmp_path / "saved", [{"text": text} for text in texts])
    told(score(tmp_path / "saved", "--detectors", "loss"))
    saved = scores_of(out)
    base = ("score", "--model", "tiny", "--detectors", "loss", "--out", str(out), "--texts", "-")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    result = CliRunner().invoke(main, base, input=lines)
    assert result.stderr.splitlines()[:2] == [
        "• reading lines of JSON from standard input",
        "• standard input: 2 row(s)",
    ]
    assert "2 texts: 2 from the cache, 0 computed" in result.stderr
    assert scores_of(out) == saved
    refused = CliRunner().invoke(main, base, input=bytes(range(256)))
    assert "standard input: the input is not text, but must consist of lines of JSON" in error_of(refused)


@pytest.mark.slow
def test_a_second_call_loads_no_model_and_no_heavy_package(
    workspace: Workspace, score: Score, out: Path, tmp_path: Path
) -> None:
    texts = texts_file(tmp_path, "one text", "another text")
    first = score(texts)
    assert "• loading tiny" in first.stderr
    assert "2 texts: 0 from the cache, 2 computed" in first.stderr
    before = scores_of(out)
    out.unlink()
    rows = "".join(f"{number % 17},{number % 2}\n" for number in range(100))
    (tmp_path / "given.csv").write_text(f"score,label\n{rows}", encoding="utf-8")
    again = ["score", "--model", "tiny", "--texts", str(texts), "--out", str(out)]
    done = run_in_a_new_process(again, ["evaluate", "--scores", str(tmp_path / "given.csv")])
    assert done.stdout.splitlines()[-1] == "[]"
    assert "loading" not in done.stderr
    assert "2 texts: 2 from the cache, 0 computed" in done.stderr
    assert scores_of(out) == before
    assert not workspace.runs(), "no Dagster in it"


def test_labels_are_found_despite_the_changes_of_spreadsheets_to_the_header(score: Score, tmp_path: Path) -> None:
    rows = "".join(f"{made_text(str(number), 9)},{number % 2}\n" for number in range(4))
    for header in ("text, label", "Text,Label", "sep=,\ntext,label"):
        (tmp_path / "t.csv").write_text(f"{header}\n{rows}")
        assert "2 + 2" in told(score(tmp_path / "t.csv", "--detectors", "loss"))


def test_detectors_without_scores_and_the_warning_on_the_best_of_several(score: Score, tmp_path: Path) -> None:
    rows = [{"text": made_text(str(number), 9), "label": number % 2} for number in range(8)]
    file = write_rows(tmp_path / "t.jsonl", rows)
    one = score(file, "--detectors", "loss,combined")
    assert "best of several" not in told(one)
    assert [line for line in one.stderr.splitlines() if "scored no text" in line] == [
        "combined scored no text: ranks require all texts of a benchmark, but a file is scored in parts. Define a"
        " benchmark of the texts in config/benchmarks.yaml, and audit it."
    ]
    several = score(file, "--detectors", "loss,zlib")
    assert (
        "The best of several looks better than it is. Choose the detector that you report before you see any result."
        in told(several)
    )
    assert "scored no text" not in several.stderr


def test_the_blind_control_is_run_by_the_line_that_is_printed(
    workspace: Workspace, score: Score, out: Path, tmp_path: Path
) -> None:
    rows = [{"words": made_text(str(number), 9), "label": number % 2} for number in range(200)]
    file, options = write_rows(tmp_path / "t.jsonl", rows), ("--detectors", "loss", "--text-column", "words")
    line = answered(score(file, *options, "--json"))["evaluate"]
    assert shlex.split(line)[:6] == ["corpus-audit", "evaluate", "--scores", str(out), "--texts", str(file)]
    assert "blind control, which never sees the model: AUROC 0." in told(workspace.run(*shlex.split(line)[1:]))
    few = write_rows(tmp_path / "few.jsonl", rows[:199])
    assert "was not run. It requires at least 200 labelled texts, and the file has 199." in told(score(few, *options))


def test_the_grid_and_what_is_set(score: Score, out: Path, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "one text", "another text")

    def settings(*options: str) -> list[tuple[str, str]]:
        told(score(texts, *options))
        rows = scores_of(out)
        labels = [(detector, parameters) for index, detector, parameters in rows if index == 0]
        assert [(detector, parameters) for index, detector, parameters in rows if index == 1] == labels
        return labels

    ks = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]
    grid = settings("--grid")
    assert {("loss", "{}"), ("zlib", "{}"), ("lowercase", "{}")} <= set(grid)
    for detector in ("min_k", "min_k_plus_plus"):
        own = [json.loads(parameters) for name, parameters in grid if name == detector]
        assert [(one["k"], one.get("window", 1)) for one in own] == [
            (float(k), window) for k in ks for window in (1, 3)
        ]
        assert (detector, '{"k":0.3}') in grid, "0.3, not 0.30000000000000004"
    assert settings("--detectors", "min_k,loss") == [("min_k", '{"k":0.2}'), ("loss", "{}")]
    assert settings("--detectors", "min_k", "--set", "min_k.k=.35") == [("min_k", '{"k":0.35}')]
    fixed = settings("--grid", "--set", "min_k.k=0.5")
    assert [parameters for name, parameters in fixed if name == "min_k"] == ['{"k":0.5}', '{"k":0.5,"window":3}']
    assert len([name for name, _ in fixed if name == "min_k_plus_plus"]) == 2 * len(ks)


def test_other_files_columns_and_a_dtype(workspace: Workspace, score: Score, out: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('body,side\n"a text, with a comma",1\nanother,0\n')
    pq.write_table(pa.table({"text": ["a text", None, "b text"]}), tmp_path / "t.parquet")
    (tmp_path / "t.txt").write_text("one line\n\nanother line\n")
    for name, options, places in (
        ("t.csv", ("--text-column", "body", "--label-column", "side"), {0, 1}),
        ("t.parquet", (), {0, 2}),
        ("t.txt", ("--dtype", "bfloat16", "--device", "cpu"), {0, 1}),
    ):
        told(score(tmp_path / name, *options))
        assert {index for index, _, _ in scores_of(out)} == places, name
    assert len({part.parent for part in workspace.parts()}) == 2, "another dtype is another model to the cache"


@pytest.mark.slow
def test_a_text_of_a_hundred_thousand_words(workspace: Workspace, tmp_path: Path) -> None:
    context = 4096
    folder = save_model(tmp_path / "long", "llama", max_position_embeddings=context)
    workspace.write_models(long={"path": folder, "stride": context - 2})
    text = " ".join(random.Random(3).choices(["the", "boats", "and", "a", "model", "is"], k=100_000))
    texts, out = texts_file(tmp_path, "a short text", text), tmp_path / "s.parquet"
    detectors = ("--detectors", "zlib,min_k_plus_plus,lowercase,infilling", "--set", "infilling.m=1")
    result = workspace.run("score", "--model", "long", "--texts", texts, "--out", out, *detectors)
    assert "2 texts: 0 from the cache, 2 computed" in result.stderr
    assert [row["status"] for row in scores_of(out).values()] == ["ok"] * 8
    part = workspace.parts()[0]
    tokens = [len(row) for row in pq.read_table(part, columns=["token_id"], partitioning=None)["token_id"].to_pylist()]
    assert sorted(tokens)[-1] == length_of(workspace.model("long"), text) >= 100_000


def test_scores_of_a_file_as_json(score: Score, out: Path, tmp_path: Path) -> None:
    rows = [{"text": made_text(str(n), 9), "label": "maybe" if n == 0 else n % 2} for n in range(9)]
    file = write_rows(tmp_path / "t.csv", rows)
    result = score(file, "--detectors", "loss", "--json")
    document = answered(result)
    [row] = document.pop("separation")
    assert (row["detector"], row["parameters"], row["n_members"], row["n_nonmembers"]) == ("loss", {}, 4, 4)
    assert 0 <= row["auroc_low"] <= row["auroc"] <= row["auroc_high"] <= 1
    assert document == {
        "claim_level": "screening only",
        "scores": 9,
        "out": str(out),
        "texts": {"all": 9, "from_cache": 0, "computed": 9},
        "skipped_rows": 0,
        "labels_not_understood": 1,
        "no_auroc": None,
    }
    unlabelled = answered(score(file, "--detectors", "loss", "--label-column", "text", "--json"))
    assert (unlabelled["separation"], unlabelled["labels_not_understood"]) == ([], 9)
    assert (
        unlabelled["no_auroc"]
        == "the AUROC is not computed, because it requires members and non-members, but the labels name no member and "
        "no non-member"
    )
    assert "1 label(s) have an unknown spelling (treated as unknown): 'maybe' (1). Valid labels are" in result.stderr


def test_answers_of_conversations_are_scored_and_evaluated_with_their_texts(
    workspace: Workspace, score: Score, out: Path, tmp_path: Path
) -> None:
    rows = []
    for number in range(200):
        messages = [
            {"role": "user", "content": "Write a line."},
            {"role": "assistant", "content": made_text(str(number), 9)},
        ]
        rows.append({"messages": messages, "label": number % 2, "group": f"g{number // 4}"})
    texts = write_rows(tmp_path / "c.jsonl", [*rows, {"messages": []}])
    result = score(texts, "--detectors", "loss")
    assert "• conversations in messages; scored: all answers" in result.stderr
    assert "tiny has no chat template, so the messages stand one below the other" in result.stderr
    assert "c.jsonl:201: column 'messages' has no message with the role assistant" in result.stderr
    assert f"corpus-audit evaluate --scores {out} --texts {texts} --calibration 0" in told(result)
    evaluated = workspace.run(
        "evaluate", "--scores", out, "--texts", texts, "--calibration", "0", "--out", tmp_path / "f"
    )
    assert evaluated.exit_code == 0, evaluated.output
    whole = score(texts, "--detectors", "loss", "--score", "all")
    assert "200 from the cache, 0 computed" in whole.stderr
    both = score(texts, "--score", "all", "--text-column", "messages")
    assert "Give one of the two options" in error_of(both)
    assert "the file contains no conversations" in error_of(score(texts_file(tmp_path, "a b"), "--score", "all"))

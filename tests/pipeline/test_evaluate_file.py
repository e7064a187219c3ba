"""`corpus-audit evaluate`: its conclusions, its refusals, and repeated evaluations."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from quick import empty_reports
from written import read_all

from audit_pipeline.cli import main
from audit_pipeline.scoring.external_scores import read_external_scores
from audit_pipeline.splits import blind_controls
from audit_pipeline.splits.blind_controls import BlindControl
from audit_pipeline.splits.evaluation_split import compute_assessed_split
from audit_pipeline.statistics.findings import compute_findings
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES, Pair
from audit_pipeline.warehouse.query import query_warehouse

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

NUMBERS = ("evaluations", "decisions", "group_tests", "contamination_rates", "corpus_tests", "calibration_checks")
WORDS = ("ash", "birch", "cedar", "elm", "fir", "oak", "pine", "yew", "larch", "maple")
Rows = list[dict[str, Any]]


def evaluate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["evaluate", "--scores", *map(str, arguments)], catch_exceptions=False)


def kept(file: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return file


def labelled(n: int = 100, *, sign: float = 1.0, detectors: Mapping[str, float] | None = None) -> Rows:
    """Return rows of n texts, alternately member and non-member, scored by detectors with these effects."""
    chance = np.random.default_rng(0)
    return [
        {
            "example_id": f"t{text}",
            "group": f"g{text}",
            "label": text % 2,
            "detector": detector,
            "score": float(sign * (chance.normal() + effect * (text % 2))),
        }
        for text in range(n)
        for detector, effect in (detectors or {"mine": 1.5}).items()
    ]


def shelf(*, read: int = 5, sign: float = 1.0) -> Rows:
    """Return rows of ten audited books, some of which were read, and 430 held-out books, 20 of them short."""
    chance = np.random.default_rng(1)
    books = [(f"book {book}", None, 4, 3.0 * (book < read)) for book in range(10)]
    books += [(f"held out {book}", 0, 4 if book < 410 else 1, 0.0) for book in range(430)]
    return [
        {
            "example_id": f"{name} {text}",
            "group": name,
            "label": label,
            "split": "evaluation" if label is None else "calibration",
            "score": float(sign * (chance.normal() / 2 + mean)),
        }
        for name, label, texts, mean in books
        for text in range(texts)
    ]


def report_of(folder: Path, model: str = "a model") -> dict[str, Any]:
    """Return the JSON copy of a model's page."""
    twin = DataPaths(folder).reports / f"model={model}.json"
    content: dict[str, Any] = json.loads(twin.read_text(encoding="utf-8"))
    return content


def first_screen(folder: Path, model: str = "a model") -> str:
    html = (DataPaths(folder).reports / f"model={model}.html").read_text(encoding="utf-8")
    return html[html.index("<header id=") : html.index("<details class=")]


def numbers_of(tables: Mapping[str, pa.Table]) -> dict[str, list[tuple[object, ...]]]:
    """Return every number of the tables of findings, without the names of model, benchmark and run."""
    called = {"model", "benchmark", "run_id"}
    found = {}
    for name in NUMBERS:
        rows = [{key: value for key, value in row.items() if key not in called} for row in tables[name].to_pylist()]
        # A rate of the whole benchmark has the benchmark's name.
        told = [{**row, "name": "whole"} if row.get("unit") == "benchmark" else row for row in rows]
        found[name] = sorted((tuple(row.values()) for row in told), key=str)
    assert all(found.values())
    return found


def numbers_in(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the numbers of the tables in a folder."""
    return numbers_of({name: read_all(DataPaths(folder).table(name), TABLES[name]) for name in NUMBERS})


def test_a_forgotten_sign_is_the_opposite_direction_and_never_a_finding(tmp_path: Path) -> None:
    """The scores are -1.2 x (normal + label), and the labels are stated to be random."""
    chance = np.random.default_rng(0)
    rows = [{"score": float(-1.2 * (chance.normal() + text % 2)), "label": text % 2} for text in range(400)]
    done = evaluate(kept(tmp_path / "raw.parquet", rows), "--design", "randomised")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "raw_findings"
    (test,) = query_warehouse(DataPaths(folder).warehouse, "FROM corpus_tests").to_pylist()
    assert (test["status"], test["p_value"], test["direction"]) == ("ok", 1.0, "opposite")
    assert test["statistic"] < 0
    assert "0 of 10 fitted halves run in the direction of training" in test["method"]
    report = report_of(folder)
    (answer,) = report["answers"]
    assert (answer["outcome"], report["corpus_tests"][0]["outcome"]) == ("reversed_difference", "opposite_direction")
    for told in (done.stdout, first_screen(folder)):
        assert "No conclusion: the scores point away from training." in told
        assert "Was the sign of the scores forgotten?" in told
        assert "(dataset inference): Together the held-out texts score higher than the audited texts." in told
        assert "multiplied by −1 first" in told
        assert "finds training" not in told
    with empty_reports():
        again = evaluate(kept(tmp_path / "right.parquet", [{**row, "score": -row["score"]} for row in rows]))
    assert "Members score higher: worth a closer look, and no evidence." in again.stdout


def test_a_stated_design_is_reported_with_who_stated_it_and_the_counts(tmp_path: Path) -> None:
    file = kept(tmp_path / "s.parquet", labelled(200))
    done = evaluate(file, "--design", "randomised")
    folder = tmp_path / "s_findings"
    (answer,) = report_of(folder)["answers"]
    assert (answer["claim_level"], answer["claim_stated_by"]) == ("sound test", "whoever ran this")
    known = (
        "Evaluated: 100 texts in 100 groups (50 members, 50 non-members); "
        "calibrating: 100 texts in 100 groups (50 members, 50 non-members)."
    )
    for told in (done.stdout, first_screen(folder)):
        assert "sound test, as stated by whoever ran this" in told
        assert "stated by whoever ran this" in told.lower().split("design: randomised, ")[1][:40]
        assert "abels: the column label of the table that was handed over" in told
        assert known in told
        assert "A sound test finds" not in told
        assert "The whole set differs: a sound test finds training, if what was stated is so." in told
        assert "; as stated by whoever ran this)" in told
    columns = "design, design_stated_by"
    for table in ("benchmarks", "leaderboard"):
        asked = columns if table == "benchmarks" else "'randomised' AS design, design_stated_by"
        (row,) = query_warehouse(DataPaths(folder).warehouse, f"SELECT {asked} FROM {table}").to_pylist()
        assert row == {"design": "randomised", "design_stated_by": "whoever ran this"}


def test_a_design_that_the_blind_control_could_have_contradicted_is_no_mere_word(tmp_path: Path) -> None:
    chance = np.random.default_rng(4)
    rows = [{**row, "text": " ".join(chance.choice(WORDS, size=30))} for row in labelled(200)]
    done = evaluate(kept(tmp_path / "s.parquet", rows), "--design", "randomised", "--calibration", "0")
    report = report_of(tmp_path / "s_findings")
    (answer,) = report["answers"]
    assert (answer["claim_level"], answer["claim_stated_by"]) == ("sound test", None)
    assert "as stated by" not in done.stdout
    assert "design: randomised, stated by whoever ran this" in done.stdout
    # The control's own rate stands in its row.
    blind = report["evidence"][0]["blind"]
    (row,) = query_warehouse(
        DataPaths(tmp_path / "s_findings").warehouse,
        "SELECT value, ci_low FROM evaluations WHERE detector = 'blind_control' AND metric = 'tpr_at_5_fpr'",
    ).to_pylist()
    assert blind["tpr_at_5_fpr"]["value"] == row["value"] == answer["blind_tpr_at_5_fpr"]["value"]
    page = (DataPaths(tmp_path / "s_findings").reports / "model=a model.html").read_text(encoding="utf-8")
    of_control = page[page.index('<tr class="blind">') :]
    assert f"{100 * row['value']:.1f}%" in of_control[: of_control.index("</tr>")]
    words = " ".join(re.sub(r"<[^>]+>", "", first_screen(tmp_path / "s_findings")).split())
    assert "TPR at 5% FPR of the blind control" in words
    assert re.search(r"blind control, which never sees the model: AUROC .*, TPR at 5% FPR \d", done.stdout)


def test_two_models_in_one_folder_keep_their_own_files_and_options(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for model, effect, options in (("one", 1.0, ()), ("two", 2.0, ("--headline", "b"))):
        file = kept(tmp_path / f"scores of {model}.parquet", labelled(80, detectors={"a": effect, "b": effect}))
        done = evaluate(file, "--out", out, "--benchmark", "same", "--model", model, *options)
        assert done.exit_code == 0, done.output
    reports = {model: report_of(out, model) for model in ("one", "two")}
    for model, other in (("one", "two"), ("two", "one")):
        (command,) = reports[model]["manifest"][0]["commands"]
        assert f"scores of {model}.parquet" in command
        assert f"scores of {other}" not in json.dumps(reports[model])
        assert reports[model]["answers"][0]["handed_over"].endswith(f"scores of {model}.parquet")
    assert "--headline" not in reports["one"]["manifest"][0]["commands"][0]
    assert [answer["detector"] for report in reports.values() for answer in report["answers"]] == [None, "b"]
    contrary = evaluate(
        *(tmp_path / "scores of one.parquet", "--out", out, "--benchmark", "same", "--model", "one"),
        *("--design", "randomised"),
    )
    assert contrary.exit_code == 2
    assert "already contains scores of two for the benchmark same" in " ".join(contrary.stderr.split())
    for model, other in (("three", "one"), ("one", "two")):
        refused = evaluate(
            *(tmp_path / "scores of one.parquet", "--out", out, "--benchmark", "same", "--model", model, "--seed", "3"),
        )
        assert refused.exit_code == 2
        assert f"already contains scores of {other} for the benchmark same" in refused.stderr
        assert "--design unstated --calibration 0.5 --seed 0" in refused.stderr
    statuses = query_warehouse(DataPaths(out).warehouse, "SELECT status, reason FROM coverage").to_pylist()
    assert statuses == [{"status": "done", "reason": None}] * 2, "what was handed over is as it was evaluated"


def test_the_printed_command_gives_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    chance = np.random.default_rng(4)
    texts = {f"t{text}": " ".join(chance.choice(WORDS, 30)) for text in range(240)}
    made = labelled(240, detectors={"a": 1.0, "it's b": 0.5})
    rows = [{**row, "text": texts[row["example_id"]]} for row in made]
    file = kept(here / "their scores $1.parquet", rows)
    monkeypatch.chdir(here)
    asked = {
        "--model": "m 2",
        "--benchmark": "a 'b'",
        "--out": "out of it",
        "--design": "exchangeable",
        "--headline": "it's b",
        "--language": "de",
        "--calibration": "0.25",
        "--seed": "3",
    }
    done = evaluate(file.name, *(word for pair in asked.items() for word in pair), "--no-text")
    assert done.exit_code == 0, done.output
    (command,) = report_of(here / "out of it", "m 2")["manifest"][0]["commands"]
    words = shlex.split(command)
    assert words[:4] == ["corpus-audit", "evaluate", "--scores", file.name]
    assert {name: words[words.index(name) + 1] for name in asked} == asked
    assert "--no-text" in words
    pages = [page.read_text(encoding="utf-8") for page in DataPaths(here / "out of it").reports.iterdir()]
    assert not any(word in page for page in pages for word in WORDS if len(word) > 4)
    shutil.copytree(here, there, ignore=shutil.ignore_patterns("out*"))
    monkeypatch.chdir(there)
    with empty_reports():
        again = CliRunner().invoke(main, words[1:], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert numbers_in(there / "out of it") == numbers_in(here / "out of it")


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_the_texts_are_read_once_whoever_scored_them_and_again_for_another_design(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    actual = blind_controls.compute_blind_control

    def counted(*texts: Any, **options: Any) -> BlindControl:
        read.append(len(texts[0]))
        return actual(*texts, **options)

    monkeypatch.setattr(blind_controls, "compute_blind_control", counted)
    chance = np.random.default_rng(5)
    texts = [" ".join(f"word{word}" for word in chance.integers(0, 99, 12)) for _ in range(240)]
    rows = [{**row, "text": text} for row, text in zip(labelled(240), texts, strict=True)]
    file, out = kept(tmp_path / "s.parquet", rows), ("--out", tmp_path / "out", "--calibration", "0")
    assert evaluate(file, *out, "--model", "one").exit_code == 0
    assert evaluate(file, *out, "--model", "two").exit_code == 0
    assert read == [240]
    warehouse = DataPaths(tmp_path / "out").warehouse
    of_control = "detector = 'blind_control' AND metric = 'auroc'"
    sql = f"SELECT DISTINCT value, ci_low, split_verdict FROM evaluations WHERE {of_control}"
    (blind,) = query_warehouse(warehouse, sql).to_pylist()
    (split,) = query_warehouse(
        warehouse, "SELECT words_auroc, words_auroc_low, split_verdict FROM split_summary"
    ).to_pylist()
    assert list(blind.values()) == list(split.values())
    assert query_warehouse(warehouse, "FROM lineage_gaps").num_rows == 0

    alone = ("--out", tmp_path / "alone", "--calibration", "0")
    for design, verdict in (("selected", blind["split_verdict"]), ("randomised", "randomised by design")):
        assert evaluate(file, *alone, "--design", design).exit_code == 0
        sql = "SELECT split_verdict FROM split_summary UNION SELECT split_verdict FROM current_evaluations"
        assert query_warehouse(DataPaths(tmp_path / "alone").warehouse, sql).to_pylist() == [{"split_verdict": verdict}]


def test_no_number_depends_on_what_anything_is_called(tmp_path: Path) -> None:
    rows = labelled(120)

    def numbers(file: Path, pair: Pair, seed: int = 0) -> object:
        given = read_external_scores(kept(file, rows), pair, "run", calibration=0.5, seed=seed, language="en")
        split = compute_assessed_split(relabel_for_comparison(given.examples), "randomised", "en")
        return numbers_of(compute_findings(given.scores, given.examples, pair, split, "run").tables)

    first = numbers(tmp_path / "one.parquet", Pair("one", "m"))
    for name in ("another name", "x.y", "2024"):
        assert numbers(tmp_path / name / f"{name}.parquet", Pair(name, f"model {name}")) == first
    assert numbers(tmp_path / "one.parquet", Pair("one", "m"), seed=1) != first


def test_evaluated_and_skipped_rows_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "mixed.csv"
    odd = "inf,1\n-inf,0\nnan,1\n,0\n1,yes\n2,yes\nhigh,1\n"
    file.write_text("score,label\n" + "".join(f"{text % 7},{text % 2}\n" for text in range(80)) + odd)
    done = evaluate(file)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mixed_findings").stat().st_mode & 0o777 == 0o700, "it may hold texts"
    for told in (
        "2 × label is neither 1, 0 nor empty",
        "1 × the score is not a number",
        "1 × the file has no score of the text",
        "1 × the score is NaN",
        "Evaluated: 40 texts in 40 groups (20 members, 20 non-members)",
        "calibrating: 42 texts in 42 groups",
        "Labelled texts without a score by score: 2",
    ):
        assert told in done.stdout
    assert "2 label(s) have an unknown spelling (so their rows are skipped): 'yes' (2)" in done.stderr
    assert "2 infinite score(s) were replaced by finite scores" in done.stderr
    scores = query_warehouse(
        DataPaths(tmp_path / "mixed_findings").warehouse, "FROM scores WHERE status = 'ok'"
    ).to_pylist()
    assert len(scores) == 82
    assert all(math.isfinite(row["score"]) for row in scores)
    (left_out,) = [
        fact["value"]
        for fact in report_of(tmp_path / "mixed_findings")["benchmarks"][0]["manifest"]
        if fact["name"] == "left_out › a model › reasons › the score is NaN"
    ]
    assert left_out == "1"


@pytest.mark.parametrize(
    "largest",
    [
        pytest.param(math.inf, id="infinite"),
        *(pytest.param(most, id=name, marks=pytest.mark.slow) for name, most in (("huge", 1e299), ("two values", 1.0))),
    ],
)
@pytest.mark.usefixtures("no_report")
def test_scores_without_a_scale_have_findings_and_no_p_value_of_nothing(tmp_path: Path, largest: float) -> None:
    rows = [{"score": largest if text % 2 else -largest, "label": text % 2} for text in range(200)]
    done = evaluate(kept(tmp_path / "s.parquet", rows), "--design", "randomised")
    assert done.exit_code == 0, done.output
    assert "Warning" not in done.stderr
    (test,) = query_warehouse(DataPaths(tmp_path / "s_findings").warehouse, "FROM corpus_tests").to_pylist()
    assert test["statistic"] is None
    assert 0 < test["p_value"] < 1e-9
    assert "; p = 0" not in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_sign_that_known_members_show_to_be_wrong_is_no_finding_of_the_whole_set(tmp_path: Path) -> None:
    """Unknown books score high, but books that the model has read score low."""
    chance = np.random.default_rng(2)
    books = [(f"read {n}", 1, -2.0) for n in range(60)] + [(f"new {n}", 0, 0.0) for n in range(60)]
    books += [(f"asked {n}", None, 2.0) for n in range(40)]
    rows = [
        {"example_id": name, "group": name, "label": label, "score": float(chance.normal() + mean)}
        for name, label, mean in books
    ]
    done = evaluate(kept(tmp_path / "s.parquet", rows), "--design", "randomised")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("was the sign of the scores forgotten?") + done.stdout.count("Was the sign of the") == 2
    assert "finds training" not in done.stdout
    (test,) = query_warehouse(DataPaths(tmp_path / "s_findings").warehouse, "FROM corpus_tests").to_pylist()
    assert (test["p_value"], test["direction"]) == (1.0, "opposite")


def test_one_of_two_detectors_that_runs_against_training_is_left_aside_and_named(tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    books = [(f"read {n}", 1, 2.0) for n in range(60)] + [(f"new {n}", 0, 0.0) for n in range(300)]
    books += [(f"asked {n}", None, 4.0) for n in range(40)]
    rows = [
        {"example_id": name, "group": name, "label": label, "detector": detector, "score": sign * score}
        for name, label, mean in books
        for score in [float(chance.normal() + mean)]
        for detector, sign in (("ppl", -1.0), ("fine", 1.0))
    ]
    done = evaluate(kept(tmp_path / "s.parquet", rows), "--design", "randomised")
    assert done.exit_code == 0, done.output
    assert "By ppl, known members score lower than non-members: such a detector finds nothing." in done.stdout
    assert "Was the sign of the scores forgotten?" in done.stdout
    documents = report_of(tmp_path / "s_findings")["answers"][0]["documents"]
    assert (documents["tested"], documents["tests"]) == (40, 80)
    # Half of the tests can reject: the smallest q is twice what it would be if all could.
    penalty = sum(1 / place for place in range(1, 81))
    assert documents["smallest_q"] == pytest.approx(2 * penalty / (documents["calibration_groups"] + 1))
    assert "No score is unusual" not in done.stdout


def on_both_sides(n: int, other: int = 0) -> Rows:
    """Return rows of n texts on both sides (in capitals as non-member), and of other texts on one side."""
    chance = np.random.default_rng(3)
    texts = [" ".join(chance.choice(WORDS, 30)) for _ in range(n + other)]
    sides = [(text, label) for text in texts[:n] for label in (1, 0)]
    sides += [(text, number % 2) for number, text in enumerate(texts[n:])]
    return [
        {"text": text if label else text.upper(), "label": label, "detector": "mine", "score": chance.normal() + label}
        for text, label in sides
    ]


PAIRED = on_both_sides(20, 40)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [{"score": 1.0, "label": 1}] * 5,
            "the 5 texts with a score are 5 members. Add texts that the model cannot have read",
        ),
        ([{"score": 1.0, "label": 0}] * 5, "the 5 texts with a score are 5 non-members. Add members (label 1)"),
        (
            [{"score": 1.0, "label": 1}, {"score": 1.0, "label": None}],
            "are 1 members and 1 texts of unknown label. Add texts that the model cannot have read",
        ),
        ([{"score": None, "label": 1}] * 3, "no row has a score and a label; 3 × the file has no score"),
        (
            [{"score": 1.0, "label": "yes"}, {"score": 1.0, "label": "no"}],
            "have an unknown spelling (so their rows are skipped)",
        ),
        (
            [{"score": float(n), "label": n % 2, "split": "calibration"} for n in range(4)],
            "By the file's column 'split', only one side is evaluated",
        ),
        (on_both_sides(240), "480 texts are both member and non-member"),
        (PAIRED[:40] + [{**row, "label": 0} for row in PAIRED[40:]], "the 40 texts with a score are 40 non-members"),
    ],
)
def test_nothing_to_compare_is_an_error_with_its_reason(tmp_path: Path, rows: Rows, told: str) -> None:
    done = evaluate(kept(tmp_path / "s.parquet", rows))
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.stderr.split())
    assert not (tmp_path / "s_findings").exists()


def test_few_texts_and_equal_scores_are_told_beside_the_number(tmp_path: Path) -> None:
    few = [{"score": float(text), "label": text // 3, "group": str(text)} for text in range(6)]
    done = evaluate(kept(tmp_path / "few.parquet", few), "--calibration", "0")
    warning = "only 3 + 3 texts: with fewer than 20 on a side an AUROC says little"
    assert warning in done.stdout
    assert warning in first_screen(tmp_path / "few_findings")
    equal = [{"score": 0.25, "label": text % 2} for text in range(80)]
    done = evaluate(kept(tmp_path / "equal.parquet", equal), "--out", tmp_path / "equal_findings")
    assert done.exit_code == 0
    (command,) = report_of(tmp_path / "equal_findings")["manifest"][0]["commands"]
    assert shlex.split(command)[4:] == [
        *("--model", "a model", "--benchmark", "equal", "--out", str(tmp_path / "equal_findings")),
    ], "what is at its default is left out"
    for told in (done.stdout, first_screen(tmp_path / "equal_findings")):
        assert "No conclusion: all scores are equal." in told
        assert "0.500 [" not in told
    assert re.search(r"(?m)^\w+ +0\.500 ", done.stdout), "without an interval"


def test_the_user_names_the_headline_of_several_external_detectors(tmp_path: Path) -> None:
    file = kept(tmp_path / "s.parquet", labelled(120, detectors={"alpha": 0.0, "omega": 2.0}))
    done = evaluate(file)
    folder = tmp_path / "s_findings"
    (answer,) = report_of(folder)["answers"]
    assert (answer["outcome"], answer["detector"]) == ("no_detector_named", None)
    assert [one["detector"] for one in answer["every_detector"]] == ["alpha", "omega"]
    assert "No conclusion: some of 2 detectors differ, and none was named beforehand." in done.stdout
    shown = first_screen(folder)
    assert shown.index(">alpha") < shown.index(">omega"), "by name, not by result"
    assert "chosen beforehand" not in shown

    assert evaluate(file, "--headline", "omega").exit_code == 0
    report = report_of(folder)
    (answer,) = report["answers"]
    assert (answer["detector"], answer["detector_chosen"]) == ("omega", "named")
    assert answer["outcome"] == "difference_to_look_at"
    assert "Detector: omega, named by whoever ran this." in first_screen(folder)
    (settings,) = query_warehouse(
        DataPaths(folder).warehouse,
        "SELECT settings ->> '$.headline' AS headline FROM lineage JOIN current_runs USING (\"table\", run_id)"
        " WHERE \"table\" = 'scores'",
    ).to_pylist()
    assert settings == {"headline": "omega"}

    wrong = evaluate(file, "--headline", "omego")
    assert wrong.exit_code == 2
    assert "has no score of 'omego'; did you mean omega?" in " ".join(wrong.stderr.split())


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_power_requires_a_detector_if_there_is_no_headline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kept(tmp_path / "s.parquet", labelled(120, detectors={"alpha": 0.0, "omega": 2.0}))
    folder = tmp_path / "s_findings"
    assert evaluate(file).exit_code == 0
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(folder))
    asked = ["power", "--model", "a model", "--benchmark", "s"]
    refused = CliRunner().invoke(main, asked)
    assert refused.exit_code == 2
    assert "Choose one with --detector: alpha, omega" in " ".join(refused.stderr.split())
    assert CliRunner().invoke(main, [*asked, "--detector", "alpha"]).exit_code == 0
    assert evaluate(file, "--headline", "omega").exit_code == 0
    assert "a model on s, omega" in CliRunner().invoke(main, asked).stdout


def test_documents_of_a_shelf_whose_scores_run_the_other_way_do_not_stand_out(tmp_path: Path) -> None:
    right = evaluate(kept(tmp_path / "right.parquet", shelf()))
    assert "right: 5 of 10 documents score high: worth a closer look." in right.stdout
    assert "Whether a high score is a sign of training cannot be checked" in right.stdout
    assert (
        "at least as many texts as the document. For each document, at least 410 of 430 calibration documents "
        "qualified. Thresholds" in right.stdout
    )
    section = report_of(tmp_path / "right_findings")["evidence"][0]
    assert (section["shelf"][0]["n_calibration_groups"], section["shelf"][0]["n_calibration_groups_in_all"]) == (
        410,
        430,
    )

    with empty_reports():
        wrong = evaluate(kept(tmp_path / "wrong.parquet", shelf(read=10, sign=-1.0)))
    assert "wrong: No conclusion: the scores point away from training." in wrong.stdout
    assert "Was the sign of the scores forgotten?" in wrong.stdout


@pytest.mark.slow
def test_with_known_members_it_is_known_by_detector_whose_sign_was_forgotten(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    members = [
        {
            **{"example_id": f"known {text}", "group": f"known {text}", "label": 1, "split": "calibration"},
            "score": float(3.0 + chance.normal()),
        }
        for text in range(30)
    ]
    both = [
        {**row, "detector": name, "score": sign * row["score"]}
        for row in [*shelf(), *members]
        for name, sign in (("right", 1.0), ("turned", -1.0))
    ]
    file = kept(tmp_path / "known.parquet", both)
    assert "5 of 10 documents score high" in evaluate(file, "--headline", "right").stdout
    turned = evaluate(file, "--headline", "turned")
    assert "Where it is known, members score lower than non-members" in turned.stdout
    shelf_of = report_of(tmp_path / "known_findings")["evidence"][0]["shelf"][0]
    assert shelf_of["direction"] == "opposite"
    assert not any(document["stands_out"] for document in shelf_of["documents"])
    found = query_warehouse(
        DataPaths(tmp_path / "known_findings").warehouse,
        "SELECT DISTINCT detector, direction, groups_found FROM book_contamination"
        " WHERE unit = 'benchmark' AND groups_tested IS NOT NULL ORDER BY detector",
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [("right", "training", 5), ("turned", "opposite", 0)]

    # Without a name every detector is allowed for, and the turned one tells nothing.
    assert "5 of 10 documents score high: worth a closer look." in evaluate(file).stdout
    report = report_of(tmp_path / "known_findings")
    assert (report["answers"][0]["documents"]["detectors"], report["answers"][0]["documents"]["tests"]) == (2, 20)
    standing_out = [one for one in report["evidence"][0]["shelf"][0]["documents"] if one["stands_out"]]
    assert {one["detector"] for one in standing_out} == {"right"}
    assert all(one["q_ledger"] <= 0.05 for one in standing_out)
    assert "all 2 detectors allowed for" in first_screen(tmp_path / "known_findings")


@pytest.mark.usefixtures("no_report")
def test_texts_on_both_sides_are_counted_named_and_left_out(tmp_path: Path) -> None:
    result = evaluate(kept(tmp_path / "both.parquet", on_both_sides(30, 300)), "--design", "randomised", "--json")
    assert result.exit_code == 0, result.output
    assert "60 texts are both member and non-member" in result.output
    assert re.search(r"both\.parquet.{1,9}1, ", result.output)
    warehouse = DataPaths(tmp_path / "both_findings").warehouse
    assert query_warehouse(warehouse, "SELECT count(*) AS n FROM examples").to_pylist() == [{"n": 300}]


def test_a_blind_control_that_learned_nothing_is_none(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    rows = [
        {"text": f"only{text} here{text}", "label": text % 2, "detector": "mine", "score": chance.normal() + text % 2}
        for text in range(400)
    ]
    result = evaluate(kept(tmp_path / "strange.parquet", rows), "--design", "randomised", "--calibration", "0")
    assert result.exit_code == 0, result.output
    assert "blind control, which never sees the model: not computed" in result.output
    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "strange_findings" / "reports").glob("*.html")]
    assert "the classifier learned nothing" in "".join(pages)
    warehouse = DataPaths(tmp_path / "strange_findings").warehouse
    found = query_warehouse(
        warehouse, "SELECT value FROM evaluations WHERE detector = 'blind_control' AND metric = 'auroc'"
    )
    assert [row["value"] for row in found.to_pylist()] in ([], [None])

"""The public functions of the package corpus_audit."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import duckdb
import huggingface_hub.utils
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace, made_documents, temporal
from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging as transformers_logging

import corpus_audit as ca
from audit_pipeline.cli import main
from audit_pipeline.models.conversion import cache_gguf_parsing
from audit_pipeline.scoring.file import SCHEMA
from audit_pipeline.tables import text_sha256
from corpus_audit.audits import without_library_bars

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")

TEXTS = ["the harbour was closed for the winter", "a tide gauge is read every hour", "the harbour was closed"]


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write_benchmarks(made=temporal([8]))
    workspace.hold(*made_documents(2, 30))
    return workspace


def test_scores_are_those_that_the_command_writes(workspace: Workspace, tmp_path: Path) -> None:
    table = ca.score(TEXTS, model="tiny", detectors=["loss", "min_k"], parameters={"min_k": {"k": 0.5}})
    assert table.schema.equals(SCHEMA)
    assert len(table) == 2 * len(TEXTS)
    file, out = tmp_path / "texts.jsonl", tmp_path / "scores.parquet"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    options = ("--detectors", "loss,min_k", "--set", "min_k.k=0.5")
    assert workspace.run("score", "--model", "tiny", "--texts", file, "--out", out, *options).exit_code == 0
    written = pq.read_table(out)
    assert table.equals(written)
    of_file = ca.score(file, model="tiny", detectors=["loss", "min_k"], parameters={"min_k": {"k": 0.5}})
    assert of_file.equals(written)
    assert set(table.column("parameters").to_pylist()) == {"{}", '{"k":0.5}'}


def test_only_verbose_prints(workspace: Workspace, capfd: pytest.CaptureFixture[str]) -> None:
    ca.score(TEXTS, model="tiny", detectors=["loss"])
    assert capfd.readouterr() == ("", "")
    ca.score([TEXTS[0] + " more"], model="tiny", detectors=["loss"], verbose=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "• loading tiny" in shown.err


def test_libraries_draw_no_bars_unless_progress_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    transformers_logging.enable_progress_bar()
    with without_library_bars():
        assert list(transformers_logging.tqdm([1, 2], desc="Writing model shards")) == [1, 2]
        assert huggingface_hub.utils.are_progress_bars_disabled()
    with cache_gguf_parsing():
        assert list(modeling_gguf_pytorch_utils.tqdm([1, 2], desc="Converting")) == [1, 2]
    assert capfd.readouterr() == ("", "")
    assert transformers_logging.is_progress_bar_enabled(), "the caller's own bars are back"
    assert list(modeling_gguf_pytorch_utils.tqdm([1, 2], desc="Converting")) == [1, 2]
    assert "Converting" in capfd.readouterr().err, "the bar that the block keeps away"


def test_texts_that_cannot_be_used_have_no_rows_and_are_named(workspace: Workspace) -> None:
    with pytest.warns(UserWarning, match=r"skipped texts\[1\]: ") as told:
        table = ca.score([TEXTS[0], None, TEXTS[1]], model="tiny", detectors=["loss"])  # type: ignore[list-item]
    assert table.column("example_index").to_pylist() == [0, 2]
    assert {Path(one.filename).name for one in told} == {Path(__file__).name}, "the warning points at the caller"


def test_errors_say_what_to_do(workspace: Workspace) -> None:
    for call, words in (
        (lambda: ca.score(TEXTS, model="tinny"), "did you mean tiny"),
        (lambda: ca.score(TEXTS, model="tiny", detectors=["los"]), "loss"),
        (lambda: ca.score(TEXTS, model="tiny", parameters={"min_k": {"k": 7}}), "min_k.k"),
        (lambda: ca.score([], model="tiny"), "no rows"),
        (lambda: ca.score(Path("nowhere.jsonl"), model="tiny"), "no such file"),
        (lambda: ca.score(TEXTS, model="tiny", workers=2), "Use --engine ray"),
        (lambda: ca.score(TEXTS, model="tiny", max_tokens=9), "runs on this machine, so no tokens are sent"),
        (lambda: ca.score(TEXTS, model="tiny", max_tokens=0), "max_tokens is 0. It must be at least 1."),
        (
            lambda: ca.audit(model="tiny", benchmark="made", kinds=["logit"]),
            "kinds is 'logit', but the only kinds are base, topk and logits. Give one or more of these kinds, "
            "separated by commas.",
        ),
        (lambda: ca.audit(model="tiny", benchmark="mode"), "made"),
        (ca.warehouse, "Audit a model first"),
    ):
        with pytest.raises(ca.AuditError, match=words):
            call()
    with pytest.raises(TypeError, match="pathlib"):
        ca.score("a text", model="tiny")


@pytest.mark.usefixtures("few_detectors", "no_report")
def test_an_audit_returns_findings_and_answers(workspace: Workspace, capfd: pytest.CaptureFixture[str]) -> None:
    found = ca.audit(model="tiny", benchmark="made")
    assert capfd.readouterr() == ("", "")
    assert (found.model, found.benchmarks) == ("tiny", ("made_8",))
    assert found.report == workspace.paths.report
    assert found.report.exists()
    assert [answer["benchmark"] for answer in found.answers] == ["made_8"]
    assert str(found) == f"made_8: {found.answers[0]['headline']}"
    told = json.loads(workspace.run("audit", "--model", "tiny", "--benchmark", "made", "--json").stdout)
    assert [row["detector"] for row in told["findings"]] == found.findings.column("detector").to_pylist()
    assert [row["auroc"] for row in told["findings"]] == found.findings.column("auroc").to_pylist()
    assert told["answers"] == list(found.answers)
    assert {row["benchmark"] for row in found.comparisons.to_pylist()} <= set(found.benchmarks)
    with ca.warehouse(workspace.paths.root) as connection:
        assert connection.sql("SELECT count(*) FROM leaderboard").fetchall() == [(len(found.findings),)]

    with ca.warehouse() as connection:
        [(count,)] = connection.sql("SELECT count(*) FROM leaderboard").fetchall()
        assert count == len(found.findings)
        with pytest.raises(duckdb.Error):
            connection.execute("CREATE TABLE mine (a INTEGER)")
        with pytest.raises(duckdb.Error):
            connection.execute("COPY (SELECT 1) TO 'out.csv'")
        before = workspace.paths.warehouse.stat().st_ino
        assert ca.report() == workspace.paths.report
        assert workspace.paths.warehouse.stat().st_ino != before, "it was rebuilt"
        assert connection.sql("SELECT count(*) FROM leaderboard").fetchall() == [(count,)], (
            "a reader keeps what it sees"
        )


@pytest.mark.usefixtures("no_report")
def test_a_table_of_scores_is_evaluated_with_its_texts(tmp_path: Path) -> None:
    texts, table = tmp_path / "texts.txt", tmp_path / "scores.parquet"
    lines = [f"text number {number} of {number % 7}" for number in range(200)]
    texts.write_text("\n".join(lines))
    rows = [
        {"score": n % 13 + n % 2, "label": n % 2, "example_index": n, "sha256": text_sha256(line)}
        for n, line in enumerate(lines)
    ]
    pq.write_table(pa.Table.from_pylist(rows), table)
    with pytest.warns(UserWarning, match="no column 'group'"):
        found = ca.evaluate(table, texts=texts, calibration=0, model="a model", benchmark="mine")
    assert (found.model, found.benchmarks, found.report.is_file()) == ("a model", ("mine",), True)
    [row] = found.findings.to_pylist()
    assert 0 < row["blind_auroc"] < 1
    assert str(found).startswith("mine: ")


@pytest.mark.usefixtures("no_report")
def test_a_table_in_memory_is_evaluated_like_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "id": f"t{n}",
            "group": f"g{n}",
            "detector": detector,
            "score": float(n % 13 + shift * (n % 2)),
            "label": n % 2,
        }
        for n in range(80)
        for detector, shift in (("first", 3), ("second", 1))
    ]
    table = pa.Table.from_pylist(rows)
    with pytest.warns(UserWarning, match="no column 'text'"):
        found = ca.evaluate(table, calibration=0, headline="first")
    assert found.benchmarks == ("scores",)
    folder = tmp_path / "scores_findings"
    assert found.report.is_relative_to(folder)
    [kept] = folder.glob("scores-*.parquet")
    assert pq.read_table(kept).equals(table)
    with pytest.warns(UserWarning, match="no column 'text'"):
        of_file = ca.evaluate(kept, calibration=0, headline="first", benchmark="scores", out=tmp_path / "of_file")
    columns = ["detector", "auroc", "auroc_low", "auroc_high"]
    assert of_file.findings.select(columns).equals(found.findings.select(columns))
    [compared] = found.comparisons.to_pylist()
    aurocs = {row["detector"]: row["auroc"] for row in found.findings.to_pylist()}
    assert (compared["model"], compared["benchmark"]) == ("a model", "scores")
    difference = aurocs[compared["detector"]] - aurocs[compared["other"]]
    assert compared["difference"] == pytest.approx(difference, abs=1e-12)
    with pytest.warns(UserWarning, match="no column 'text'"):
        of_frame = ca.evaluate(table.to_pandas(), calibration=0, headline="first")
    assert of_frame.findings.select(columns).equals(found.findings.select(columns))
    with ca.warehouse(folder) as connection:
        assert connection.sql("SELECT count(*) FROM leaderboard").fetchall() == [(2,)]
    with pytest.raises(ca.AuditError, match="not a folder"):
        ca.warehouse(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="scores is a list"):
        ca.evaluate([0.5])  # type: ignore[arg-type]
    with pytest.raises(ca.AuditError, match="cannot be the name of a model or a benchmark"):
        ca.evaluate(table, benchmark="a|b")
    with pytest.warns(UserWarning, match="no column 'text'"):
        ca.evaluate(table, calibration=0, headline="first", benchmark="../b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["..%2Fb_findings", "of_file", "scores_findings"]


def test_importing_it_is_light() -> None:
    code = "import sys, corpus_audit\nprint(sorted({'torch', 'dagster', 'duckdb', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# Options that only one of the two has. The Python functions return their results and print no tables.
ONLY_COMMAND = {"json", "format", "quiet", "fail_on", "details", "dry_run"}
ONLY_PYTHON = {"verbose"}
EXCEPTIONS = {
    # The result is a table in memory, and the parameters are a mapping.
    "score": ({"out", "set_parameters"}, {"parameters"}),
    "audit": (set[str](), set[str]()),
    "evaluate": (set[str](), set[str]()),
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_option_of_a_command_is_a_parameter_of_its_function_with_the_same_default(name: str) -> None:
    only_command, only_python = EXCEPTIONS[name]
    options = {str(option.name): option for option in main.commands[name].params}
    defaults = main.commands[name].make_context(name, [], resilient_parsing=True).params
    parameters = dict(inspect.signature(getattr(ca, name)).parameters)
    assert options.keys() - parameters.keys() == (ONLY_COMMAND & options.keys()) | only_command
    assert parameters.keys() - options.keys() == (ONLY_PYTHON & parameters.keys()) | only_python
    for shared in options.keys() & parameters.keys():
        option, parameter = options[shared], parameters[shared]
        assert option.required == (parameter.default is parameter.empty), shared
        if not option.required:
            # Names are separated by commas on the command line.
            expected = ",".join(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
            assert defaults[shared] == expected, shared


@pytest.mark.parametrize("name", [name for name in ca.__all__ if inspect.isfunction(getattr(ca, name))])
def test_every_parameter_is_documented(name: str) -> None:
    function = getattr(ca, name)
    documented = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function, eval_str=False).parameters:
        assert f"\n{parameter} : " in documented
    assert "\nReturns\n" in documented
    assert "\nRaises\n" in documented

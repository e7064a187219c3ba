"""The command line: lists, errors, JSON, completion, doctor and dev."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cli_results import answered, error_of, run_in_a_new_process, texts_file, told
from click.testing import CliRunner
from live_workspace import find_free_ports
from made_workspace import Workspace

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.cli import main
from audit_pipeline.detectors.registry import REGISTRY, format_as_text

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")


def test_help_lists_and_sql_load_no_heavy_package(audited: Workspace) -> None:
    done = run_in_a_new_process(["--help"], ["models"], ["sql", "SELECT count(*) FROM leaderboard"])
    assert done.stdout.splitlines()[-1] == "[]"


def test_detectors_are_listed_and_described(audited: Workspace) -> None:
    shown = told(audited.run("detectors", "--long"))
    for name, detector in REGISTRY.items():
        assert all(words in shown for words in (name, detector.passes, detector.source))
        assert all(need.summary in shown for need in detector.needs)
    assert "neighbour (on request)" in shown
    assert "k (0.2)" in shown
    assert told(audited.run("detectors", "combined")).splitlines() == format_as_text(REGISTRY["combined"]).splitlines()
    assert "did you mean min_k?" in error_of(audited.run("detectors", "mink"))
    rows = answered(audited.run("detectors", "--json"))["detectors"]
    assert [row["detector"] for row in rows] == list(REGISTRY)
    assert answered(audited.run("detectors", "loss", "--json"))["detector"] in rows
    assert set(rows[0]) >= {"equation", "reported", "also_reads"}
    [min_k] = [row for row in rows if row["detector"] == "min_k"]
    expected = ({"k": 0.2, "window": 1}, False, True)
    assert (min_k["parameters"], min_k["on_request"], min_k["own_logprobs_suffice"]) == expected


def test_models_and_benchmarks_are_listed(audited: Workspace) -> None:
    shown = told(audited.run("models", "--long"))
    assert "tiny" in shown
    assert "float32" in shown
    [tiny] = answered(audited.run("models", "--json"))["models"]
    assert (tiny["model"], tiny["dtype"], tiny["licence"]) == ("tiny", "float32", None)
    lines = {line.split()[0]: line.split() for line in told(audited.run("benchmarks", "--long")).splitlines()}
    members = sum(label == 1 for label in read_built(audited.paths, "made_8").examples.column("label").to_pylist())
    assert lines["made_8"][:7] == ["made_8", "8", "temporal", "dates", "yes", str(members), str(members)]
    assert lines["other_10"][4:7] == ["no", "-", "-"]
    rows = {row["benchmark"]: row for row in answered(audited.run("benchmarks", "--json"))["benchmarks"]}
    assert (rows["made_8"]["built"], rows["made_8"]["members"]) == (True, members)
    assert (rows["other_10"]["built"], rows["other_10"]["members"]) == (False, None)
    unbuilt = "the benchmark other_10 is configured, but not built. Build it: corpus-audit benchmarks --build other_10"
    assert error_of(audited.run("items", "--benchmark", "other_10")) == unbuilt
    assert "Give the name of one benchmark" in error_of(audited.run("items", "--benchmark", "made_8,other_10"))


@pytest.mark.parametrize("command", ["detectors", "models", "benchmarks"])
def test_lists_have_at_most_100_columns(command: str) -> None:
    """Use the shipped configuration."""
    lines = told(CliRunner().invoke(main, [command], catch_exceptions=False)).splitlines()
    [rows] = answered(CliRunner().invoke(main, [command, "--json"], catch_exceptions=False)).values()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[1:]] == [row[command.removesuffix("s")] for row in rows]


@pytest.mark.parametrize(
    ("file", "content", "command", "message"),
    [
        ("models", "models: [", ("models",), "is not valid YAML"),
        ("benchmarks", "benchmarks: {}", ("audit", "--model", "tiny", "--benchmark", "made"), "contains no family"),
        ("sources", "release_notes: 3", ("benchmarks", "--build", "made"), "section release_notes: must be a mapping"),
    ],
)
def test_unusable_configurations_are_refused_with_the_file(
    workspace: Workspace, file: str, content: str, command: tuple[str, ...], message: str
) -> None:
    workspace.write_config(file, content)
    error = error_of(workspace.run(*command))
    assert message in error
    assert f"{file}.yaml" in error


def test_unwritable_paths_are_an_error_in_one_line(workspace: Workspace, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "a text")
    result = workspace.run("score", "--model", "tiny", "--texts", texts, "--out", texts / "below" / "o.parquet")
    assert str(texts) in error_of(result)
    workspace.monkeypatch.setenv("CORPUS_AUDIT_DATA", str(texts))
    assert str(texts) in error_of(workspace.run("report"))
    assert str(texts) in error_of(workspace.run("audit", "--model", "tiny", "--benchmark", "made"))


def test_a_dry_run_of_forget_lists_the_files_as_json(audited: Workspace) -> None:
    plan = answered(audited.run("forget", "--benchmark", "made_8", "--dry-run", "--json"))["would_go"]
    assert {row["what"] for row in plan} >= {"partition in Dagster"}
    assert all(row["files"] is None or row["files"] > 0 for row in plan)


def test_commands_and_options_are_completed() -> None:
    def completed(words: str) -> list[str]:
        environment = {
            "_CORPUS_AUDIT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        result = CliRunner().invoke(main, [], prog_name="corpus-audit", env=environment)
        return [line.removeprefix("plain,") for line in result.stdout.splitlines()]

    assert completed("corpus-audit sc") == ["score"]
    assert "--json" in completed("corpus-audit score --")


def test_the_doctor_exits_with_one_if_it_finds_a_problem(audited_copy: Workspace) -> None:
    assert all(row["ok"] is True for row in answered(audited_copy.run("doctor", "--json"))["findings"])
    part, *_ = audited_copy.parts()
    part.write_bytes(part.read_bytes()[:100])
    audited_copy.write_models(gone={"path": "/nowhere/model"})
    result = audited_copy.run("doctor")
    assert result.exit_code == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("!!")]
    assert len(wrong) == 2
    assert "no model at /nowhere/model" in wrong[0]
    assert wrong[1].endswith(str(part)[-100:])


@pytest.mark.parametrize(
    ("chosen", "report_port"), [((), "4000"), (("--report-port", "4100"), "4100")], ids=["default", "chosen"]
)
def test_dev_starts_dagster_on_loopback_with_its_own_home(
    workspace: Workspace, chosen: Sequence[str], report_port: str
) -> None:
    started: list[list[str]] = []
    homes: list[str] = []

    def record(program: str, arguments: list[str]) -> None:
        started.append([str(program), *arguments[1:]])
        homes.append(os.environ["DAGSTER_HOME"])

    workspace.monkeypatch.setattr(os, "execv", record)
    result = workspace.run("dev", "--port", "3999", *chosen)
    assert result.exit_code == 0
    [[program, *arguments]] = started
    assert program == sys.executable
    assert arguments[:2] == ["-m", "audit_pipeline.pipeline.dagster.dev"]
    options: Mapping[str, str] = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    assert (options["-h"], options["-p"]) == ("127.0.0.1", "3999")
    assert options["--report-port"] == report_port
    assert Path(options["-w"]).name == "workspace.yaml"
    assert homes == [str(workspace.paths.dagster_home)]
    assert (workspace.paths.dagster_home / "dagster.yaml").exists()
    assert "http://127.0.0.1:3999" in result.stderr
    assert f"Report on http://127.0.0.1:{report_port}" in result.stderr


def test_dev_names_an_unusable_port_and_starts_nothing(workspace: Workspace) -> None:
    workspace.monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("it was started"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        [free] = find_free_ports(1)
        for options, problem in (
            (("--port", taken), f"The UI cannot listen on 127.0.0.1:{taken}"),
            (("--port", free, "--report-port", taken), f"The report cannot listen on 127.0.0.1:{taken}"),
            (("--port", free, "--report-port", free), f"The report cannot use port {free}"),
            (("--port", 65535), "The report cannot use port 65536"),
        ):
            result = workspace.run("dev", *map(str, options))
            assert result.exit_code == 2
            assert problem in result.stderr
    assert not workspace.paths.dagster_home.exists()


@pytest.mark.parametrize(
    ("function", "command", "last"),
    [
        (
            "audit",
            ("audit", "--model", "tiny", "--benchmark", "made"),
            "Finished steps and finished texts are kept. To continue, run the same command again.",
        ),
        ("publish", ("report",), "This command stores no partial results. Run it again."),
    ],
)
def test_an_interrupted_command_says_what_is_kept(
    workspace: Workspace, function: str, command: tuple[str, ...], last: str
) -> None:
    def interrupt(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    workspace.monkeypatch.setattr(f"audit_pipeline.pipeline.dagster.audit.{function}", interrupt)
    result = workspace.run(*command)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, f"stopped. {last}")

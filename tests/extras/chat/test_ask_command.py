"""The command `ask`, from files to the report, and its asset, which no audit starts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, make_text, recite
from made_workspace import (
    Workspace,
    made_documents,
    partitions_of_controls,
    temporal,
)

from audit_pipeline.definitions import defs
from audit_pipeline.extras.chat.prompt_styles import PASSAGE_WORDS
from audit_pipeline.pipeline.dagster import weekly
from audit_pipeline.pipeline.dagster.instance import open_instance
from audit_pipeline.pipeline.dagster.partitions import register_partitions

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
Servers = Callable[..., ChatServer]


def write_files(workspace: Workspace) -> tuple[Path, Path]:
    workspace.write_benchmarks()
    folders = workspace.root / "books", workspace.root / "new"
    for folder, names in zip(folders, (("known", "other"), ("one", "two", "three")), strict=True):
        folder.mkdir()
        for name in names:
            (folder / f"{name}.txt").write_text(make_text(name))
    (folders[0] / "short.txt").write_text("Only a few words.")
    (folders[0] / "zz-again.txt").write_text(make_text("other"))
    return folders


def write_entry(workspace: Workspace, server: ChatServer, **fields: Any) -> None:
    entry = {"model": "openai/made-1", "url": f"{server.url}/v1", "price_in": 1.0, "price_out": 2.0}
    workspace.write_config("chat_models", {"chat_models": {"talker": {**entry, **fields}}})


def test_from_files_to_the_report(workspace: Workspace, chat_server: Servers) -> None:
    server = chat_server(partial(recite, "known"))
    write_entry(workspace, server)
    books, new = write_files(workspace)
    options = ["--model", "talker", "--texts", books, "--held-out", new, "--draws", "0", "--json"]
    dry = json.loads(workspace.run("ask", *options, "--dry-run").stdout)
    assert (dry["requests"], dry["sent_to"]) == (5 * 2 * 4, f"127.0.0.1:{server.url.rpartition(':')[2]}")
    assert dry["cost"] > 0
    assert server.requests == []
    assert not workspace.paths.table("chat_answers").exists()

    shown = workspace.run("ask", *options)
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert (told["used"]["requests"], told["answered"]) == (40, 0)
    assert {row["title"]: row["claim"] for row in told["documents"]} == {
        "known": "reproduced",
        **dict.fromkeys(("other", "one", "two", "three"), "not reproduced"),
    }
    assert told["conclusions"]["talker"]["outcome"] == "asked_reproduced"
    assert len(server.requests) == 40
    [finding] = workspace.query("FROM current_chat_documents WHERE is_headline AND title = 'known'")
    assert (finding["benchmark"], finding["p_value"], finding["n_held_out"]) == ("asked", 0.25, 3)
    assert workspace.query("SELECT count(DISTINCT run_id) AS runs, count(*) AS n FROM chat_answers") == [
        {"runs": 1, "n": 40}
    ]
    assert workspace.query("FROM lineage_gaps") == []
    pages = "".join(page.read_text() for page in workspace.paths.reports.rglob("*.html"))
    assert re.search(r"known\d+ known\d+ known\d+", re.sub(r"<[^>]+>", "", pages))
    assert "<b>I would say</b>" not in pages


def test_a_limited_run_without_text_stores_no_text(workspace: Workspace, chat_server: Servers) -> None:
    write_entry(workspace, chat_server(partial(recite, "known")))
    books, _ = write_files(workspace)
    options = ("--model", "talker", "--texts", books, "--draws", "0", "--no-text")
    limited = workspace.run("ask", *options, "--max-requests", "10")
    assert limited.exit_code == 2, limited.output
    assert "the next request could exceed the limit of requests: 10 of 10" in limited.stderr
    assert workspace.paths.report.exists(), "the report shows the answers before the limit"
    assert workspace.query("SELECT DISTINCT prompt, output FROM chat_answers") == [{"prompt": None, "output": None}]
    pages = "".join(page.read_text() for page in workspace.paths.reports.rglob("*.html"))
    assert not re.search(r"known\d+", pages)


@pytest.mark.usefixtures("no_report")
def test_imported_outputs_are_measured_and_missing_numbers_have_a_reason(workspace: Workspace) -> None:
    books, _ = write_files(workspace)
    (books / "other.txt").write_text(make_text("other"))
    (books / "silent.txt").write_text(make_text("silent"))
    log = workspace.root / "log.jsonl"
    outputs = [
        {"document": "known.txt", "prompt": "Say it", "output": make_text("known")},
        {"document": "other.txt", "passage": " ".join(make_text("other").split()[:60]), "output": "Nothing of it"},
        {"document": "silent.txt", "prompt": "Say it", "output": ""},
    ]
    lines = [json.dumps({**row, "model": "theirs"}) for row in outputs]
    log.write_text("\n".join([*lines, "{broken"]))
    shown = workspace.run("ask", "--model", "unnamed", "--texts", books, "--outputs", log)
    assert shown.exit_code == 0, shown.output
    assert "log.jsonl" in shown.stderr
    claims = workspace.query("SELECT model, claim FROM current_chat_documents ORDER BY document_id")
    assert claims[0] == {"model": "theirs", "claim": "reproduced"}
    reasons = [line for line in shown.stdout.splitlines() if line.startswith("Missing for 1 of 3 documents: ")]
    assert [re.sub(r"( \(|:).*", "", line.partition(". Reason: ")[2]) for line in reasons] == [
        "the rows of --outputs have no text in the column prompt.",
        "no answer could be measured",
        "no row of --outputs contains the exact text of its passage in the column passage.",
        "no held-out document has a score to compare with; give held-out documents with --held-out, and get answers "
        "about them.",
    ]


def test_impossible_requests_are_refused_and_nothing_is_sent(workspace: Workspace, chat_server: Servers) -> None:
    server = chat_server(partial(recite, "known"))
    write_entry(workspace, server)
    books, _ = write_files(workspace)
    for arguments, message in (
        (["--model", "nobody", "--texts", books], "no chat model 'nobody' in config/chat_models.yaml"),
        (["--model", "talker"], "Give either --texts FILES or --benchmark NAME."),
        (["--model", "talker", "--texts", books, "--rungs", "ladder"], "Unknown prompt style 'ladder'"),
        (["--model", "talker", "--texts", books, "--outputs", "x.jsonl", "--dry-run"], "--outputs sends no prompts"),
        (["--model", "talker", "--texts", books, "--name", "a|b"], "cannot be the name of a benchmark"),
        (["--model", "talker", "--texts", books / "short.txt"], "All audited documents have fewer than 90 words"),
        (["--model", "talker", "--benchmark", "none"], "none"),
    ):
        shown = workspace.run("ask", *arguments)
        assert (shown.exit_code, message in shown.stderr) == (2, True), shown.stderr
    assert server.requests == []


@pytest.mark.usefixtures("no_report")
def test_the_asset_asks_and_the_weekly_audit_does_not(workspace: Workspace, chat_server: Servers) -> None:
    server, name = chat_server(partial(recite, "known")), f"made_{PASSAGE_WORDS}"
    workspace.write_benchmarks(made=temporal([PASSAGE_WORDS], windows_per_document=1))
    workspace.fetch(*made_documents(2, 2 * PASSAGE_WORDS))
    workspace.build(name)
    write_entry(workspace, server, max_requests=1000)
    with partitions_of_controls(), open_instance(workspace.paths) as instance:
        register_partitions(instance, benchmarks=[name])
        job = defs().resolve_job_def("ask")
        config = {"ops": {"ask_step": {"config": {"chat_answers": {"draws": 0, "passages": 1}}}}}
        result = job.execute_in_process(instance=instance, partition_key=f"{name}|talker", run_config=config)
        assert result.success
        asked = len(server.requests)
        assert asked > 0
        checks = {check.check_name: check.passed for check in result.get_asset_check_evaluations()}
        assert checks == {"every_request_measured": True, "every_pair_ran": True}
        jobs = defs().resolve_job_def
        weekly.run_weekly_audit(jobs, instance, workspace.paths, weekly.utc_today(), print, {})
        assert len(server.requests) == asked

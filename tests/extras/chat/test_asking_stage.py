"""The stage that asks a server on the loopback interface: models that know, repeat or refuse."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer, make_text, recite

from audit_pipeline.errors import BudgetError, ConfigError, DataError
from audit_pipeline.extras.chat.asking import (
    AskedTexts,
    AskPlan,
    AskReport,
    ask_pair,
    find_missing_requests,
    plan_asking,
    read_answers,
    write_outputs,
)
from audit_pipeline.extras.chat.chat_client import open_budget
from audit_pipeline.extras.chat.imported_outputs import read_outputs
from audit_pipeline.extras.chat.prompt_styles import AskOptions
from audit_pipeline.extras.chat.rows import AskJournal
from audit_pipeline.extras.extraction.documents import SearchedDocument
from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.store.files import HeldError
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CHAT_ANSWERS, Pair

Servers = Callable[..., ChatServer]
KNOWN = "a"
go_on = partial(recite, KNOWN)


DOCUMENTS = [
    *(SearchedDocument(name, make_text(name), f"Title {name}") for name in "abc"),
    *(
        SearchedDocument(f"h{number}", make_text(f"h{number}x"), f"Held {number}", side="held_out")
        for number in range(19)
    ),
]
TEXTS = AskedTexts("works", DOCUMENTS, {"files/works": "1"})
FEW = AskedTexts("works", [*DOCUMENTS[:2], *DOCUMENTS[3:5]], {"files/works": "1"})
OPTIONS = AskOptions(draws=1, passages=2)


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path / "data")


def ask(plan: AskPlan, server: ChatServer, paths: DataPaths, run_id: str = "run", **given: Any) -> AskReport:
    entry = server.entry(concurrency=4, **given.pop("entry", {}))
    budget = open_budget(entry, given.pop("limits", Limits()))
    return ask_pair(plan, entry, paths, run_id, budget, **{"keeps_text": True, "notify": print, **given})


def by_rung(report: AskReport, document: str) -> dict[str, Mapping[str, Any]]:
    return {row["rung"]: row for row in report.documents if row["document_id"] == document}


def test_only_the_known_text_is_reproduced(chat_server: Servers, paths: DataPaths) -> None:
    options = replace(OPTIONS, rungs=("instruction",), draws=0)
    report = ask(plan_asking(TEXTS, options), chat_server(go_on), paths)
    known = by_rung(report, KNOWN)["instruction"]
    assert (known["claim"], known["p_value"], known["score"], known["near_verbatim"]) == ("reproduced", 0.05, 1.0, 2)
    assert (known["words_in"], known["words_out"], known["longest_run"], known["near_span"]) == (50, 60, 60, 60)
    assert {row["claim"] for row in report.documents if row["document_id"] != KNOWN} == {"not reproduced"}
    assert all(row["p_value"] == 1.0 for row in report.documents if row["document_id"] in ("b", "c"))
    assert known["q_bh"] == pytest.approx(0.15)
    [entry] = read_ledger(paths).list_entries("chat_documents", "works|made")
    assert entry.settings["headline"] == "instruction"
    assert entry.upstream == {"files/works": "1"}


def test_refusals_give_the_claim_refused(chat_server: Servers, paths: DataPaths) -> None:
    refusing = chat_server(lambda prompt: "I'm sorry, but I can't reproduce copyrighted text.")
    report = ask(plan_asking(FEW, OPTIONS), refusing, paths)
    assert {row["claim"] for row in report.documents} == {"refused"}
    assert all(row["refused"] == row["requests"] == 4 and row["score"] is None for row in report.documents)
    assert report.unmeasured == 4 * 4 * 4


def test_no_request_is_sent_twice(chat_server: Servers, paths: DataPaths) -> None:
    server = chat_server(go_on)
    plan = plan_asking(FEW, OPTIONS)
    stopped = ask(plan, server, paths, "1", limits=Limits(max_requests=25))
    assert isinstance(stopped.fault, BudgetError)
    assert stopped.documents
    assert len(read_answers(Pair("works", "made"), paths)) == 25, "what came is kept"
    report = ask(plan, server, paths, "2")
    assert (len(server.asked), report.new_answer_count) == (len(plan.requests), len(plan.requests) - 25)
    again = ask(plan, server, paths, "3")
    assert (len(server.asked), again.new_answer_count, again.documents) == (len(plan.requests), 0, report.documents)
    asked = [(one.prompt, one.body["temperature"], one.body.get("seed")) for one in server.asked]
    assert len(set(asked)) == len(asked)
    fewer = ask(plan_asking(FEW, replace(OPTIONS, rungs=("instruction",))), server, paths, "4")
    assert fewer.documents == report.documents, "what was asked in the same way before counts as well"
    with pytest.raises(ConfigError, match="asked made about 'works' with the headline style 'instruction'"):
        ask(plan_asking(FEW, replace(OPTIONS, headline="title")), server, paths, "5")


def test_answers_belong_to_texts_and_not_to_names(chat_server: Servers, paths: DataPaths) -> None:
    server = chat_server(go_on)
    ask(plan_asking(FEW, OPTIONS), server, paths, "1")
    other = replace(DOCUMENTS[0], text=DOCUMENTS[0].text + " more")
    changed = replace(FEW, documents=[other, *FEW.documents[1:]], upstream={"files/works": "2"})
    report = ask(plan_asking(changed, OPTIONS), server, paths, "2")
    assert report.new_answer_count == 16
    assert by_rung(report, KNOWN)["instruction"]["requests"] == 4
    renamed = [replace(one, name=f"new-{one.name}", side="audited") for one in FEW.documents]
    moved = ask(plan_asking(replace(FEW, documents=renamed), OPTIONS), server, paths, "3")
    assert moved.new_answer_count == 0
    assert {(row["document_id"], row["side"]) for row in moved.documents} == {(one.name, "audited") for one in renamed}


KILLED = """
import sys
sys.path[:0] = {path!r}
from test_asking_stage import *
server = ChatServer(go_on)
from audit_pipeline.extras.chat.config import ChatModel
entry = ChatModel(name="made", model="openai/made-1", url={url!r}, concurrency=2)
plan, budget = plan_asking(FEW, OPTIONS), open_budget(entry, Limits())
ask_pair(plan, entry, DataPaths(Path({data!r})), "killed", budget, keeps_text=True, notify=print)
"""


def test_a_killed_run_is_continued_without_repeated_requests(chat_server: Servers, paths: DataPaths) -> None:
    server = chat_server(go_on)
    server.pause = 0.05
    code = KILLED.format(path=sys.path, url=f"{server.url}/v1", data=str(paths.root))
    child = subprocess.Popen([sys.executable, "-c", code])
    journal = paths.run_file("chat_answers", "works|made", "any").parent / ".asked.jsonl"
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 10):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    kept, server.pause = journal.read_bytes().count(b"\n"), 0.0
    plan = plan_asking(FEW, OPTIONS)
    entry = server.entry(concurrency=2)
    assert len(find_missing_requests(plan, entry, paths)) == len(plan.requests) - kept
    report = ask_pair(plan, entry, paths, "next", open_budget(entry, Limits()), keeps_text=True, notify=print)
    assert report.new_answer_count == len(plan.requests)
    # Only open requests of the killed process are repeated. The server may count them late.
    assert 0 <= len(server.asked) - len(plan.requests) <= 2
    assert not journal.exists()


def test_a_second_process_is_refused(chat_server: Servers, paths: DataPaths) -> None:
    server, plan = chat_server(go_on), plan_asking(FEW, OPTIONS)
    report = ask(plan, server, paths, on_answer=lambda answered: ask(plan, server, paths, "other") and None)
    assert isinstance(report.fault, HeldError)
    assert "another process has held" in str(report.fault)


def test_without_text_only_digests_and_measures_are_stored(chat_server: Servers, paths: DataPaths) -> None:
    report = ask(
        plan_asking(FEW, OPTIONS), chat_server(go_on), paths, entry={"system_prompt": "Be exact."}, keeps_text=False
    )
    assert by_rung(report, KNOWN)["instruction"]["claim"] == "reproduced"
    for row in read_answers(report.pair, paths):
        assert "Be exact" not in row["settings"]
        assert {row[column.name] for column in CHAT_ANSWERS.columns if column.quotes_text} <= {None, row["settings"]}
        assert len(row["prompt_sha256"]) == len(row["output_sha256"]) == 64
    plan, server = plan_asking(FEW, replace(OPTIONS, draws=2)), chat_server(go_on)
    # The journal of a killed run contains texts.
    left = read_answers(report.pair, paths)[0]
    journal = AskJournal(paths.run_file("chat_answers", "works|made", "any").parent / ".asked.jsonl")
    columns = {name: value for name, value in left.items() if name not in ("model", "benchmark", "run_id")}
    journal.append({**columns, "prompt": f"{KNOWN}60 a", "output": f"{KNOWN}60 b", "request_sha256": "left"})
    ask(plan, server, paths, "2", keeps_text=False)
    assert "left" in {row["request_sha256"] for row in read_answers(report.pair, paths)}
    whole = "".join(str(pq.read_table(file, partitioning=None).to_pylist()) for file in paths.root.rglob("*.parquet"))
    assert f"{KNOWN}60 " not in whole
    assert "Be exact" not in whole


def test_settings_and_origin_of_each_answer_are_stored(chat_server: Servers, paths: DataPaths) -> None:
    prices = {"price_in": 1.0, "price_out": 2.0, "temperature": 0.7, "system_prompt": "Be exact."}
    report = ask(plan_asking(FEW, OPTIONS), chat_server(go_on), paths, entry=prices)
    rows = read_answers(report.pair, paths)
    drawn = next(row for row in rows if row["draw"] == 1 and row["rung"] == "prefix")
    expected = {"temperature": 0.7, "max_tokens": 400, "seed": 1, "system_prompt": "Be exact."}
    assert json.loads(drawn["settings"]) == expected
    assert drawn["prompt"].startswith("Be exact.\n\n")
    assert drawn["answered_by"] == "made-1-2026"
    assert drawn["cost"] == (drawn["prompt_tokens"] + 2 * drawn["output_tokens"]) / 1e6
    assert drawn["provider_request_id"]
    assert drawn["asked_at"].tzinfo is not None
    assert {json.loads(row["settings"])["temperature"] for row in rows if row["draw"] == 0} == {0.0}


def test_imported_outputs_get_scores_and_claims(paths: DataPaths, tmp_path: Path) -> None:
    words = make_text(KNOWN).split()
    prompt = " ".join(words[:50])
    of_known = {"passage": " ".join(words[50:90]), "prompt": prompt}
    rows = [
        {"document": "Title a", **of_known, "output": " ".join(words[50:110])},
        {"document": "a", **of_known, "output": prompt},
        {"document": "b", "output": make_text("b")},
        {"document": "c", "prompt": "Say it.", "output": "I cannot help with that."},
        *(
            {"document": one.name, "passage": " ".join(one.text.split()[-5:]), "prompt": "Say it.", "output": "no"}
            for one in DOCUMENTS[3:]
        ),
        {"document": "nowhere", "output": "x"},
    ]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    read = read_outputs(file, DOCUMENTS)
    assert read.skipped.count == 1
    report = write_outputs(TEXTS, read.outputs, "their-model", paths, "run", keeps_text=True)
    found = {row["document_id"]: row for row in report.documents}
    assert {row["rung"] for row in report.documents} == {"handed over"}
    assert (found["a"]["claim"], found["a"]["longest_run"], found["a"]["words_in"]) == ("reproduced", 60, 50)
    assert (found["a"]["score"], found["a"]["coverage_mean"], found["a"]["p_value"]) == (1.0, 0.5, 0.05)
    assert (found["b"]["claim"], found["b"]["words_in"], found["b"]["p_value"]) == ("not graded", None, None)
    assert found["c"]["claim"] == "refused"
    twice = write_outputs(TEXTS, read.outputs, "their-model", paths, "again", keeps_text=True)
    assert (twice.new_answer_count, twice.documents) == (0, report.documents)
    shuffled = write_outputs(TEXTS, read.outputs[::-1], "their-model", paths, "shuffled", keeps_text=True)
    assert shuffled.new_answer_count == 0
    fewer = write_outputs(
        replace(TEXTS, documents=DOCUMENTS[1:]), read.outputs[2:], "their-model", paths, "4", keeps_text=True
    )
    assert KNOWN not in {row["document_id"] for row in fewer.documents}, "it is not asked about any more"


def test_invalid_names_and_mixed_answers_are_refused(chat_server: Servers, paths: DataPaths, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"document": "a", "output": "no"}))
    outputs = read_outputs(file, FEW.documents).outputs
    for name in ("a|b", "", "x" * 300):
        with pytest.raises(DataError, match="cannot be the name of a model"):
            write_outputs(FEW, outputs, name, paths, "run", keeps_text=True)
    write_outputs(FEW, outputs, "made", paths, "run", keeps_text=True)
    with pytest.raises(DataError, match="'works' already contains imported outputs of made"):
        ask(plan_asking(FEW, OPTIONS), chat_server(go_on), paths)
    ask(plan_asking(replace(FEW, name="others"), OPTIONS), chat_server(go_on), paths)
    with pytest.raises(DataError, match="'others' already contains answers that made gave to corpus-audit"):
        write_outputs(replace(FEW, name="others"), outputs, "made", paths, "run", keeps_text=True)

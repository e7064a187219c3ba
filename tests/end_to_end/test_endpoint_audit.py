"""Audits of a model on a server on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_results import answered
from click.testing import Result
from fake_endpoint import FakeEndpoint, save_counting_model
from ledger_lines import lineage_rows
from made_workspace import Workspace, made_documents, make_workspace, quick_folder, temporal
from tiny_models import forward_of, save_model, tokenized
from written import read_all

from audit_pipeline.definitions import defs
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.config import load_models
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.pipeline.dagster.resources import COMMAND_TAG, TOKENS_TAG
from audit_pipeline.scoring.backends import Endpoints, estimate_probe_tokens
from audit_pipeline.store.files import read_json
from audit_pipeline.tables import SCORES
from audit_pipeline.warehouse.query import open_read_only

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")
KEY = "sk-nobody-may-ever-read-this"
NAME = "served"
AUDIT = ("audit", "--model", NAME, "--benchmark", "made")


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_counting_model(tmp_path_factory.mktemp("counting") / "plain")


@pytest.fixture
def server(counting: Path, tmp_path: Path) -> Iterator[FakeEndpoint]:
    model = tokenized(counting, tmp_path / "of the server")
    with FakeEndpoint(model, forward_of(model)) as running:
        yield running


@pytest.fixture
def tokenizer_alone(counting: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((counting / name).read_bytes())
    return folder


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FakeEndpoint, tokenizer_alone: Path
) -> Iterator[Workspace]:
    monkeypatch.setenv("KEY_OF_THE_TEST", KEY)
    with quick_folder(tmp_path) as folder:
        made = make_workspace(folder / "made", monkeypatch)
        made.write_models(served=entry_of(server, tokenizer_alone))
        made.write_benchmarks(made=temporal([8]))
        made.hold(*made_documents(1, 30))
        yield made


def entry_of(server: FakeEndpoint, tokenizer: Path, **endpoint: Any) -> dict[str, Any]:
    given = {"url": server.url, "model": "tiny", "dialect": "vllm", "key_env": "KEY_OF_THE_TEST"}
    where = {"path": str(tokenizer), "window": 60, "reference_corpus": None}
    return {"backend": "openai", "endpoint": {**given, "price_per_million": 10, **endpoint}, **where}


def done(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return str(result.output)


def scores(workspace: Workspace) -> dict[str, set[tuple[str, str | None]]]:
    rows = read_all(workspace.paths.table("scores"), SCORES)
    found: dict[str, set[tuple[str, str | None]]] = {}
    for row in rows.filter(rows["is_default"]).to_pylist():
        found.setdefault(row["detector"], set()).add((row["status"], row["reason"]))
    return found


def heated(answer: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Change the response to that of another model: every log-probability is multiplied by 1.1."""
    for place in answer["choices"][0]["prompt_logprobs"]:
        for one in (place or {}).values():
            one["logprob"] *= 1.1
    return answer


def test_an_audit_of_a_model_behind_an_interface(workspace: Workspace, server: FakeEndpoint) -> None:
    told = done(workspace.run(*AUDIT))
    assert f"the texts are sent to {server.url.split('/')[2]}, and the operator of this server can read" in told
    by_detector = scores(workspace)
    for name in ("loss", "zlib", "min_k", "lowercase", "log_rank"):
        assert by_detector[name] == {("ok", None)}, name
    not_given = "the model's interface does not give: mean, std of each token"
    assert by_detector["min_k_plus_plus"] == {("not_applicable", not_given)}
    [card] = [read_json(path) for path in workspace.paths.model_card("any").parent.glob("*.json")]
    assert (card["weights_digest"], card["dtype"], card["backend"]) == (None, None, "openai")
    assert (card["endpoint_url"], card["server"], card["largest_n"]) == (server.url, "vllm-0.32.0-0", 20)
    assert state(workspace) == [("done", None)]
    with open_read_only(workspace.paths.warehouse) as connection:
        shown = connection.execute("SELECT name, weights_digest, dtype FROM models").fetchall()
    assert shown == [(NAME, None, None)]

    # What is done is not sent again: the probe alone is.
    first, rows = len(server.requests), len(lineage_rows(workspace.paths))
    again = done(workspace.run(*AUDIT))
    assert "everything is up to date" in again
    assert 0 < len(server.requests) - first < 30 < first
    assert len(lineage_rows(workspace.paths)) == rows

    assert all(request.headers["Authorization"] == f"Bearer {KEY}" for request in server.requests)
    files = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in told + again

    done(workspace.run("forget", "--model", NAME))
    assert not any(workspace.paths.endpoint("any").parent.glob("*.json"))
    assert not workspace.parts()


def state(workspace: Workspace) -> list[Any]:
    with open_read_only(workspace.paths.warehouse) as connection:
        return connection.execute("SELECT status, reason FROM coverage WHERE model = 'served'").fetchall()


@pytest.mark.slow
def test_another_model_behind_the_address_makes_the_pair_stale(workspace: Workspace, server: FakeEndpoint) -> None:
    done(workspace.run(*AUDIT))
    server.bend = heated
    why = "the model's entry, or the model at its endpoint, changed"
    # Whoever runs it next notices.
    file = workspace.root / "texts.csv"
    file.write_text("text\nsome words that nobody has read\n", encoding="utf-8")
    told = done(workspace.run("score", "--model", NAME, "--texts", file, "--out", workspace.root / "out.parquet"))
    assert "the model on the server of served has changed" in told
    done(workspace.run("report"))
    assert state(workspace) == [("stale", why)]
    plan = answered(workspace.run(*AUDIT, "--dry-run", "--json"))["plans"]
    assert [(one["because"], one["cached"]) for one in plan] == [(why, 0)]

    assert "made_8|served: 0 texts from the cache" in done(workspace.run(*AUDIT))
    assert state(workspace) == [("done", None)]
    [known] = workspace.paths.endpoint("any").parent.glob("*.json")
    assert len(read_json(known)["history"]["names"]) == 2


@pytest.mark.slow
def test_the_weekly_audit_asks_first(workspace: Workspace, server: FakeEndpoint) -> None:
    done(workspace.run(*AUDIT))
    server.bend = heated
    weekly = defs().resolve_job_def("weekly_audit")
    with workspace.instance() as instance:
        workspace.monkeypatch.setenv("DAGSTER_HOME", str(workspace.paths.dagster_home))
        assert weekly.execute_in_process(instance=instance).success
    [known] = workspace.paths.endpoint("any").parent.glob("*.json")
    assert len(read_json(known)["history"]["names"]) == 2
    assert state(workspace) == [("done", None)], "the model that is there now was audited"


@pytest.mark.slow
@pytest.mark.usefixtures("few_detectors")
def test_a_limit_stops_it_and_the_next_run_goes_on(workspace: Workspace, server: FakeEndpoint) -> None:
    workspace.write_benchmarks(made=temporal([24]))
    workspace.hold(*made_documents(3, 60))
    done(workspace.run("benchmarks", "--build", "made"))
    plan = answered(workspace.run(*AUDIT, "--dry-run", "--max-tokens", "1", "--json"))
    assert server.requests == [], "nobody is asked for a plan"
    sending = plan["sending"]
    assert sending["exceeds_limit"]
    assert sending["cost"] == pytest.approx(sending["tokens"] * 10 / 1e6)
    assert plan["plans"][0]["seconds"] is None

    endpoints = Endpoints()
    endpoints.probe_and_load(load_models()[NAME], workspace.paths, str)
    # The command asks once before it plans, its run once before it sends texts.
    assert sending["hosts"][0]["tokens"] == sending["tokens"]
    model = load_tokenized(load_models()[NAME], workspace.paths)
    assert estimate_probe_tokens(model) == pytest.approx(endpoints.shared.tokens, rel=0.2)
    limit = 2 * endpoints.shared.tokens + sending["tokens"] // 4
    stopped = workspace.run(*AUDIT, "--max-tokens", str(limit))
    assert stopped.exit_code == 2
    assert "the next request could exceed the limit of tokens" in stopped.output
    assert "raise --max-tokens" in stopped.output.replace("\n", " ")
    with workspace.instance() as instance:
        [sent] = [int(run.tags[TOKENS_TAG]) for run in instance.get_runs() if TOKENS_TAG in run.tags]
    assert endpoints.shared.tokens < sent <= limit - endpoints.shared.tokens
    left = answered(workspace.run(*AUDIT, "--dry-run", "--json"))["plans"][0]
    assert 0 < left["cached"] < left["texts"]
    told = done(workspace.run(*AUDIT))
    assert f"{left['cached']} texts from the cache, {left['to_run']} computed" in told


def test_nothing_is_scored_if_the_probe_fails(
    workspace: Workspace, server: FakeEndpoint, tokenizer_alone: Path
) -> None:
    workspace.write_models(served=entry_of(server, tokenizer_alone, top_logprobs=50))
    refused = workspace.run(*AUDIT)
    assert refused.exit_code == 2
    assert "Set top_logprobs in config/models.yaml" in refused.output
    assert not workspace.parts()
    assert not any(workspace.paths.endpoint("any").parent.glob("*.json"))


def test_statistics_that_the_interface_lacks_are_refused(workspace: Workspace, server: FakeEndpoint) -> None:
    for options in ((), ("--dry-run",)):
        refused = workspace.run(*AUDIT, "--kinds", "logits", *options)
        assert refused.exit_code == 2
        assert "the server of served cannot provide these kinds of statistics: logits" in refused.output.replace(
            "\n", " "
        )


def test_limits_go_with_models_behind_an_interface(
    workspace: Workspace, server: FakeEndpoint, counting: Path, tokenizer_alone: Path
) -> None:
    workspace.write_models(here={"path": counting}, served=entry_of(server, tokenizer_alone, price_per_million=None))
    for model, option, words in (
        ("here", "--max-tokens", "here runs on this machine, so no tokens are sent"),
        ("served", "--max-cost", "the price of served is unknown"),
    ):
        refused = workspace.run("audit", "--model", model, "--benchmark", "made", option, "5")
        assert refused.exit_code == 2
        assert words in refused.output.replace("\n", " ")


@pytest.fixture
def compared(workspace: Workspace, server: FakeEndpoint, tokenizer_alone: Path) -> Workspace:
    """Return a workspace with a local model whose reference model is on the server."""
    save_model(workspace.root / "other", max_position_embeddings=128)
    here = {"path": str(workspace.root / "other"), "window": 60, "reference_corpus": None, "reference_model": NAME}
    workspace.write_models(here=here, served=entry_of(server, tokenizer_alone))
    return workspace


AUDIT_HERE = ("audit", "--model", "here", "--benchmark", "made")


@pytest.mark.slow
def test_a_reference_model_behind_an_interface_is_named_and_limited(compared: Workspace, server: FakeEndpoint) -> None:
    done(compared.run("benchmarks", "--build", "made"))
    plan = compared.run(*AUDIT_HERE, "--dry-run", "--max-tokens", "10")
    assert f"served: the texts are sent to {server.url.split('/')[2]}" in done(plan)
    assert "The limit of 10 tokens does not suffice" in plan.output
    tokens = answered(compared.run(*AUDIT_HERE, "--dry-run", "--json"))["sending"]["tokens"]
    assert server.requests == []

    told = done(compared.run(*AUDIT_HERE, "--max-tokens", str(2 * tokens)))
    assert f"the texts are sent to {server.url.split('/')[2]}" in told
    assert scores(compared)["reference"] == {("ok", None)}
    with compared.instance() as instance:
        [sent] = [run.tags for run in instance.get_runs() if TOKENS_TAG in run.tags]
    assert COMMAND_TAG in sent
    assert 0 < int(sent[TOKENS_TAG]) < tokens


@pytest.mark.slow
def test_a_reference_model_that_cannot_be_asked_costs_its_detectors(compared: Workspace, server: FakeEndpoint) -> None:
    def refuse(answer: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        return {"choices": []}

    server.bend = refuse
    told = done(compared.run(*AUDIT_HERE)).replace("\n", " ")
    assert "served: the probe of the server failed" in told
    by_detector = scores(compared)
    assert by_detector["loss"] == {("ok", None)}
    [(status, reason)] = by_detector["reference"]
    assert status == "not_applicable"
    assert "has not been probed yet" in str(reason)


@pytest.mark.slow
def test_cached_texts_are_used_while_the_server_is_unreachable(
    workspace: Workspace, server: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(workspace.run(*AUDIT))
    monkeypatch.setitem(EndpointClient.__init__.__kwdefaults__, "patience", RetryPolicy(attempts=1, first_pause=0.0))
    server.stop()
    told = done(workspace.run(*AUDIT, "--again")).replace("\n", " ")
    assert "the probe of the server failed" in told
    assert "0 computed" in told
    assert scores(workspace)["loss"] == {("ok", None)}
    file = workspace.root / "texts.csv"
    file.write_text("text\nsome words that nobody has read\n", encoding="utf-8")
    refused = workspace.run("score", "--model", NAME, "--texts", file, "--out", workspace.root / "out.parquet")
    assert refused.exit_code == 2
    assert "the server cannot be reached" in refused.output.replace("\n", " ")


@pytest.mark.parametrize("what", ["--generate", "--near-verbatim", "--continue"])
def test_a_model_on_a_server_generates_no_text(workspace: Workspace, server: FakeEndpoint, what: str) -> None:
    file = workspace.root / "book.txt"
    file.write_text("Nobody had counted the lanterns. " * 20, encoding="utf-8")
    refused = workspace.run("extract", "--model", NAME, "--texts", file, what, "1")
    assert refused.exit_code == 2
    assert "runs on a server" in refused.output
    assert server.requests == []


def test_extraction_by_the_probabilities_that_are_given(workspace: Workspace, server: FakeEndpoint) -> None:
    file, out = workspace.root / "book.txt", workspace.root / "windows.parquet"
    file.write_text("Nobody had counted the lanterns. " * 20, encoding="utf-8")
    windows = ("--prefix", "8", "--suffix", "8", "--stride", "tiled")
    found = answered(workspace.run("extract", "--model", NAME, "--texts", file, *windows, "--out", out, "--json"))
    assert found["drawn_from"] == "whole distribution"
    rows = pq.read_table(out).to_pylist()
    assert rows
    assert {row["log_p_top_40"] for row in rows} == {None}
    assert all(row["log_p"] < 0 and row["first_choices"] is not None for row in rows)

"""Conversations of a benchmark as the model reads them: template, scored tokens, refusals, and their scores."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_rows import make_table
from made_workspace import Workspace, make_workspace
from tiny_models import forward_of, save_model, tokenized

from assets.scores import get_recorded_scores_inputs, get_scores_inputs
from assets.token_statistics import get_recorded_statistics_inputs, get_statistics_inputs
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.conversation_rows import build_conversation_fields
from audit_pipeline.benchmarks.model_inputs import build_benchmark_inputs, build_example_inputs
from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance.forgetting import RemovalTarget, execute_removal, find_removal
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.workspace_state import WorkspaceState
from audit_pipeline.readers.conversations import Message, ScoredPart
from audit_pipeline.scoring.pair_scores import run_passes, score_and_store_pair
from audit_pipeline.store.files import read_table
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import EXAMPLES, HIGHLIGHTS, SCORES, Pair, text_sha256
from audit_pipeline.token_statistics.cached_texts import read_statistics

CHATML = "{% for message in messages %}{{ '<' + message['role'] + '>' + message['content'] + '</>\n' }}{% endfor %}"
INST = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}"
    "{% elif message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% else %} {{ message['content'] }}</s>{% endif %}{% endfor %}"
)
CHAT = [
    Message("user", "was it"),
    Message("assistant", "it was quiet"),
    Message("user", "and then"),
    Message("assistant", "a b"),
]
SYSTEM = [Message("system", "the sea"), *CHAT[:2]]


def save_templated(folder: Path, template: str | None) -> Path:
    save_model(folder)
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def load(folder: Path, template: str | None) -> TokenizedModel:
    return tokenized(save_templated(folder / "model", template), folder / "data")


def build_example(name: str, messages: list[Message], part: ScoredPart) -> dict[str, Any]:
    return {"example_id": name, "benchmark": "b", **build_conversation_fields(messages, part)}


PLAIN = {"example_id": "plain", "benchmark": "b", "context": "the ", "text": "sea was calm"}
EXAMPLES_OF_ALL_KINDS = [
    build_example("both", CHAT, "response"),
    build_example("last", CHAT, "last_response"),
    build_example("whole", CHAT, "all"),
    build_example("system", SYSTEM, "response"),
    PLAIN,
]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CHATML, "<user>was it</>\n<assistant>it was quiet</>\n<user>and then</>\n<assistant>a b"),
        (INST, "[INST] was it [/INST] it was quiet</s>[INST] and then [/INST] a b"),
        (None, "was it\nit was quiet\nand then\na b"),
    ],
)
def test_each_model_reads_a_conversation_by_its_own_template(tmp_path: Path, template: str | None, text: str) -> None:
    inputs = build_example_inputs(make_table(EXAMPLES, EXAMPLES_OF_ALL_KINDS), load(tmp_path, template))
    assert list(inputs.texts[:3]) == [text] * 3
    scored = []
    for spans in inputs.spans[:3]:
        scored.append(spans and [text[start:end] for start, end in spans])
    assert scored == [["it was quiet", "a b"], ["a b"], None]
    # A plain text is not changed.
    assert (inputs.texts[4], inputs.spans[4]) == ("the sea was calm", [(4, 16)])


def test_a_refused_conversation_is_named_and_not_run(tmp_path: Path) -> None:
    examples = make_table(EXAMPLES, EXAMPLES_OF_ALL_KINDS)
    inputs = build_example_inputs(examples, load(tmp_path, INST))
    assert list(inputs.refusals) == ["system"]
    assert "no system role" in inputs.refusals["system"]
    assert "" not in inputs.distinct_texts
    assert len(inputs.distinct_texts) == 2
    assert str(inputs.describe_refusals()).startswith(
        "1 of 5 texts have no score. The first is system: the chat template"
    )
    refused_only: Any = SimpleNamespace(name="b", examples=examples.slice(3, 1))
    with pytest.raises(DataError, match=r"model cannot be audited on b: 1 of 1 texts have no score. .*no system role"):
        build_benchmark_inputs(refused_only, load(tmp_path, INST))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    made = make_workspace(tmp_path / "w", monkeypatch, tiny=save_templated(tmp_path / "tiny", INST))
    rows = []
    for number in range(8):
        talk = [Message("user", f"was it {number}"), Message("assistant", f"it was quiet {number} and then calm")]
        if number in (2, 3, 4):
            talk += [Message("user", "and then"), Message("assistant", "a b c d")]
        if number == 5:
            talk = [Message("system", "the sea"), *talk]
        rows.append({"messages": [message._asdict() for message in talk], "label": number % 2})
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    entry = {"builder": "labelled", "description": "made up", "path": str(tmp_path / "talks.jsonl"), "words": "any"}
    made.write_benchmarks(talks={**entry, "scored_part": "response", "design": "randomised"})
    made.build("talks")
    return made


@pytest.mark.usefixtures("one_thread")
def test_an_audit_scores_the_answers_as_the_command_score_does(workspace: Workspace, tmp_path: Path) -> None:
    model, paths, pair = workspace.model("tiny"), workspace.paths, Pair("talks", "tiny")
    tokens = LineageStep.now("tokens", "token_statistics", "1")
    run_passes(pair, model, paths, lambda: forward_of(model), tokens, kinds=["base"], logits_budget=0)
    score_and_store_pair(pair, model, paths, LineageStep.now("scored", "scores", "1"))
    rows = read_table(paths.run_file("scores", pair.partition, "scored"), SCORES, label="scores").to_pylist()
    refused = [row for row in rows if row["reason"] is not None and "no system role" in row["reason"]]
    assert len({row["example_id"] for row in refused}) == 1
    assert {row["status"] for row in refused} == {"not_applicable"}
    found = sorted(row["score"] for row in rows if row["detector"] == "loss" and row["status"] == "ok")

    out = tmp_path / "scores.parquet"
    texts = tmp_path / "talks.jsonl"
    result = workspace.run("score", "--texts", texts, "--model", "tiny", "--detectors", "loss", "--out", out)
    assert result.exit_code == 0, result.output
    table = pq.read_table(out).to_pylist()
    assert found == sorted(row["score"] for row in table)
    assert len(found) == 7
    assert {row["scored_part"] for row in table} == {"response"}

    path = paths.run_file("highlights", pair.partition, "scored")
    pieces = ["".join(row["pieces"]) for row in read_table(path, HIGHLIGHTS, label="highlights").to_pylist()]
    # The tokens of both answers follow each other, without the question between them.
    assert len(pieces) >= 3
    assert any(piece.endswith("then calma b c d") for piece in pieces), pieces
    assert all(piece.startswith("it was quiet") for piece in pieces)


@pytest.mark.usefixtures("one_thread")
def test_forgetting_a_benchmark_removes_the_statistics_of_rendered_conversations(workspace: Workspace) -> None:
    model, paths = workspace.model("tiny"), workspace.paths
    tokens = LineageStep.now("tokens", "token_statistics", "1")
    run_passes(Pair("talks", "tiny"), model, paths, lambda: forward_of(model), tokens, kinds=["base"], logits_budget=0)
    rendered = build_example_inputs(read_built(paths, "talks").examples, model).distinct_texts
    assert len(read_statistics(model, rendered, paths)) == 7
    removal = find_removal(RemovalTarget("benchmark", "talks"), paths)
    # A search of answers caches rows of the conversation up to each answer.
    up_to_first_answers = {text.split("</s>")[0] for text in rendered if "</s>" in text}
    assert len(up_to_first_answers) == 3
    assert removal.texts >= set(map(text_sha256, up_to_first_answers))
    execute_removal(removal, paths)
    assert len(read_statistics(model, rendered, paths)) == 0
    assert removal.retained_data[-1].startswith("the documents of the benchmark's sources")


def test_a_model_whose_template_is_gone_is_named_before_conversations_are_forgotten(workspace: Workspace) -> None:
    model, paths = workspace.model("tiny"), workspace.paths
    tokens = LineageStep.now("tokens", "token_statistics", "1")
    run_passes(Pair("talks", "tiny"), model, paths, lambda: forward_of(model), tokens, kinds=["base"], logits_budget=0)
    workspace.write_models()
    removal = find_removal(RemovalTarget("benchmark", "talks"), paths)
    assert any("token statistics of tiny on the conversations of talks" in line for line in removal.retained_data)


@pytest.mark.usefixtures("one_thread")
def test_passes_and_scores_are_due_again_if_the_template_of_the_model_changes(workspace: Workspace) -> None:
    workspace.audit("tiny", "talks")
    partition = Pair("talks", "tiny").partition

    def find_versions() -> list[str | None]:
        model = workspace.model("tiny")
        state = WorkspaceState(workspace.paths, dict(load_benchmarks()), {"tiny": model.entry}, {"tiny": model})
        versions = []
        for get_inputs in (get_statistics_inputs, get_scores_inputs):
            versions.append(get_inputs(partition, state)["chat template"])
        for get_recorded in (get_recorded_statistics_inputs, get_recorded_scores_inputs):
            recorded = get_recorded(partition, state)
            assert recorded is not None
            versions.append(recorded["chat template"])
        return versions

    assert len(set(find_versions())) == 1
    (workspace.root.parent / "tiny" / "chat_template.jinja").write_text(CHATML, encoding="utf-8")
    wanted, wanted_of_scores, recorded, recorded_of_scores = find_versions()
    assert (wanted, recorded) == (wanted_of_scores, recorded_of_scores)
    assert wanted != recorded

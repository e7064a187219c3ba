"""Extraction of answers: each scored answer of a conversation after everything before it."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_workspace import Workspace, copy_workspace, make_workspace, quick_folder
from taught import PASSAGE, Taught, filler
from test_extraction_rates import extracted
from tiny_models import CONTEXT, forward_of

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.corpora.item_verdicts import read_model_evidence
from audit_pipeline.extras.evidence_packs.pack import write_pack
from audit_pipeline.extras.evidence_packs.verify import PackRerun, verify_pack
from audit_pipeline.extras.extraction.documents import SearchedAnswer, SearchedDocument
from audit_pipeline.extras.extraction.pair_extraction import (
    EXTRACTION_VERSION,
    build_search_version,
    extract_pair,
    find_spec,
    read_searched_documents,
)
from audit_pipeline.extras.extraction.result_tables import compare_extractions_with_held_out, compute_extraction_rates
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.extras.extraction.window_exclusions import _cut_context, _is_other_context
from audit_pipeline.extras.extraction.window_probabilities import encode_answer_window
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.statistics import claims
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import Pair
from audit_pipeline.token_statistics.tokens import encode

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")

SUFFIX = 8
# The prefix is not used.
ASKED = ExtractionSettings(prefix=1000, suffix=SUFFIX)
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ message['role'][0] }}: {{ message['content'] }}\n{% endfor %}"
)
LONG_ANSWER = "Nobody had counted the lanterns, yet everyone agreed."


def answer_of(context: str, answer: str, name: str = "talk", number: int = 1, **changes: Any) -> SearchedDocument:
    """Return a conversation up to its answer."""
    text = context + answer
    position = SearchedAnswer(
        name, number, len(context), changes.pop("conversation", text), changes.pop("problem", None)
    )
    return SearchedDocument(f"{name}/{number}", text, answer=position, **changes)


def run(taught: Taught, documents: Sequence[SearchedDocument], folder: Path) -> list[Extraction]:
    return taught.search(folder, ASKED, documents).run(taught.load)


def sum_log_probabilities(taught: Taught, prefix: Sequence[int], suffix: Sequence[int]) -> float:
    """Return the log-probability of a suffix after a prefix, from the bare model."""
    ids = torch.tensor([[*prefix, *suffix]])
    with torch.inference_mode():
        logits = taught.forward.model(input_ids=ids).logits[0, len(prefix) - 1 : -1].double()
    log_p = torch.log_softmax(logits, 1)
    return sum(log_p[number, token].item() for number, token in enumerate(suffix))


@pytest.mark.parametrize(
    ("answer", "before"),
    [
        (PASSAGE, f"u: {filler(6, 1)}\na: "),
        # The blank before the answer belongs to the token of the first word.
        (f"the {PASSAGE}", f"u: {filler(6, 1)}\na:"),
    ],
)
def test_a_window_is_the_conversation_and_the_first_tokens_of_the_answer(
    taught: Taught, tmp_path: Path, answer: str, before: str
) -> None:
    context = f"u: {filler(6, 1)}\na: "
    document = answer_of(context, answer)
    search = taught.search(tmp_path, ASKED, [document])
    assert search.count_windows_and_tokens()[0] == 1
    [found] = search.run(taught.load)
    window = search.encode_window(found, 0)
    [whole] = encode(taught.model, [document.text])
    n_before = sum(end <= len(context) for end in whole.char_end.tolist())
    assert window.token_id.tolist() == whole.token_id[: n_before + SUFFIX].tolist()
    assert window.first_scored == n_before
    assert taught.model.tokenizer.decode(window.token_id[:n_before].tolist()) == before
    after = taught.model.tokenizer.decode(window.token_id[n_before:].tolist())
    assert document.text[len(before) :].startswith(after)
    assert len(found.windows) == 1
    assert found.windows.start.tolist() == [0]
    assert found.windows.begin.tolist() == [len(before)]
    assert found.windows.end.tolist() == [len(before) + len(after)]
    assert found.windows.tokens.tolist() == [SUFFIX]
    prefix = [taught.model.start_token_id, *whole.token_id[:n_before].tolist()]
    expected = sum_log_probabilities(taught, prefix, whole.token_id[n_before : n_before + SUFFIX].tolist())
    assert found.windows.log_p[0] == pytest.approx(expected, abs=1e-3)
    [quotes] = search.quote_strongest_passages([found])
    assert after.startswith("".join(quotes[0].pieces))


def test_answers_without_a_window_have_their_reason(taught: Taught, tmp_path: Path) -> None:
    documents = [
        answer_of("u: hi\na: ", "Yes.", "short"),
        answer_of("", PASSAGE, "alone"),
        answer_of(f"u: {filler(60, 2)}\na: ", PASSAGE, "long"),
        answer_of("", "", "refused", problem="the template refuses it"),
        answer_of("u: hi\na: ", PASSAGE, "good"),
    ]
    found = run(taught, documents, tmp_path)
    assert [one.problem for one in found] == [
        claims.ANSWER_TOO_SHORT,
        claims.ANSWER_WITHOUT_CONTEXT,
        claims.ANSWER_BEYOND_CONTEXT,
        "the template refuses it",
        None,
    ]
    assert [len(one.windows) for one in found] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("spare", [0, 1])
def test_the_context_must_hold_the_start_token_the_prefix_and_the_suffix(taught: Taught, spare: int) -> None:
    document = answer_of(f"u: {filler(10, 2)}\na: ", PASSAGE)
    window = encode_answer_window(taught.model, document, SUFFIX).window
    assert window is not None
    needed = len(window.token_id) + 1
    assert needed <= CONTEXT
    entry = taught.model.entry.model_copy(update={"window": needed - 1 + spare})
    model = replace(taught.model, located=replace(taught.model.located, entry=entry))
    result = encode_answer_window(model, document, SUFFIX)
    assert result.problem == (None if spare else claims.ANSWER_BEYOND_CONTEXT)


def test_characters_and_grid_do_not_apply_to_answers(taught: Taught, tmp_path: Path) -> None:
    asked = ASKED.override(characters=3, grid=True, stride="chars:1")
    search = taught.search(tmp_path, asked, [answer_of("u: hi\na: ", PASSAGE)])
    [found] = search.run(taught.load)
    assert len(found.windows) == 1
    assert search.run_grid(taught.load) is None
    assert search.count_grid_tokens() == 0


def split_passage() -> tuple[str, str]:
    """Return a beginning of the passage, after which the model knows how it goes on, and the rest."""
    cut = PASSAGE.index(" ", 70)
    return PASSAGE[:cut], PASSAGE[cut:]


def test_answers_of_one_conversation_count_as_one_document(taught: Taught, tmp_path: Path) -> None:
    question, answer = split_passage()
    apart = [answer_of(f"{filler(3, seed)} {question}", answer, f"talk{seed}") for seed in range(3)]
    found = run(taught, apart, tmp_path / "apart")
    assert [one.exclusions.reasons for one in found] == [("in several documents",)] * 3
    # The second and third document contain the first answer, because they continue its conversation.
    first = apart[0]
    conversation = f"{first.text}\nu: {filler(4, 8)}\na: {filler(12, 9)}"
    assert first.answer is not None
    together = [
        replace(first, answer=replace(first.answer, conversation=conversation)),
        *(
            answer_of(f"{first.text}\nu: ", f"{filler(12, number)}", "talk0", number, conversation=conversation)
            for number in (2, 3)
        ),
    ]
    found = run(taught, together, tmp_path / "together")
    assert found[0].windows.reproduced.tolist() == [True]
    assert found[0].exclusions.reasons == (None,)


def test_the_prior_is_the_mean_after_other_conversations(taught: Taught, tmp_path: Path) -> None:
    question, answer = split_passage()
    # All conversations begin with the same message, which is longer than a common run.
    system = f"s: {filler(8, 70)}\n"
    assert len(encode(taught.model, [system])[0].token_id) >= 20
    own = answer_of(f"{system}{question}", answer, "own")
    others = [
        answer_of(f"{system}u: {filler(3, number)}\na: ", filler(12, number + 40), f"other{number}", side="held_out")
        for number in range(5)
    ]
    same_question = answer_of(f"{system}{question}", filler(12, 60), "same")
    documents = [own, *others, same_question]
    found = run(taught, documents, tmp_path)
    assert found[0].windows.reproduced.tolist() == [True]
    window = encode_answer_window(taught.model, own, SUFFIX).window
    assert window is not None
    suffix = window.token_id[window.first_scored :].tolist()
    p = []
    for other in others:
        context = encode_answer_window(taught.model, other, 1).window
        assert context is not None
        prefix = [taught.model.start_token_id, *context.token_id[: context.first_scored].tolist()]
        p.append(math.exp(sum_log_probabilities(taught, prefix, suffix)))
    assert found[0].exclusions.prior_log_p[0] == pytest.approx(math.log(np.mean(p)), abs=1e-3)
    assert found[0].exclusions.reasons == (None,)
    # With one conversation less, there are too few. The one with the same question does not count.
    [first, *_] = run(taught, [own, *others[1:], same_question], tmp_path / "few")
    assert np.isnan(first.exclusions.prior_log_p[0])


def put_answer(found: Extraction, conversation: str, number: int) -> Extraction:
    answer = SearchedAnswer(conversation, number, 0, "")
    document = replace(found.document, name=f"{conversation}/{number}", answer=answer)
    return replace(found, document=document)


def test_contexts_that_share_only_their_beginning_and_end_are_other_contexts(taught: Taught) -> None:
    """Otherwise a fixed instruction before every answer would leave no other context."""
    begin = f"s: {filler(3, 50)}\nu: "
    end = f" {filler(3, 60)}\na: "
    question = filler(10, 1)
    window = encode_answer_window(taught.model, answer_of(begin + question + end, PASSAGE), SUFFIX).window
    assert window is not None

    def is_other(context: str) -> bool:
        prefix = _cut_context(taught.model, answer_of(context, PASSAGE))
        assert prefix is not None
        return _is_other_context(taught.model, prefix, window)

    assert is_other(begin + filler(4, 70) + end)
    assert not is_other(begin + end)
    assert not is_other(f"{begin}so {question} so{end}")


def test_an_answer_is_compared_with_one_answer_of_each_held_out_conversation() -> None:
    audited = [put_answer(extracted("a", [p]), "a", number) for number, p in ((1, 1e-4), (2, 1e-4))]
    held_out = [
        put_answer(extracted("h", [p], side="held_out"), name, number)
        for name, number, p in (("h", 1, 1e-5), ("h", 2, 1e-3), ("i", 1, 1e-5), ("j", 1, 1e-3), ("j", 3, 1e-9))
    ]
    first, second, *others = compare_extractions_with_held_out([*audited, *held_out])
    assert (first["n_held_out"], first["p_value"]) == (3, 2 / 4)
    assert (second["n_held_out"], second["p_value"]) == (1, 2 / 2)
    assert (first["q_bh"], second["q_bh"]) == (1.0, 1.0)
    assert {test["p_value"] for test in others} == {None}


def test_rates_count_conversations() -> None:
    found = [
        put_answer(extracted("a", [0.6], group="g"), "a", 1),
        put_answer(extracted("a", [0.7], group="g"), "a", 2),
        put_answer(extracted("b", [1e-6], group="g"), "b", 1),
    ]
    [rate] = [row for row in compute_extraction_rates(found, "x") if (row["unit"], row["threshold"]) == ("group", 0.5)]
    assert (rate["n_documents"], rate["n_reached"], rate["reached"]) == (2, 1, 0.5)
    assert rate["covered"] == pytest.approx(0.2 / 3)
    assert rate["median_log_p"] == pytest.approx((math.log(0.7) + math.log(1e-6)) / 2, abs=1e-6)


def write_conversations(file: Path) -> None:
    def build_row(label: int, *contents: str, role: str = "user") -> dict[str, Any]:
        roles = [role, "assistant"] * (len(contents) // 2)
        messages = [{"role": one, "content": text} for one, text in zip(roles, contents, strict=True)]
        return {"messages": messages, "label": label}

    rows = [
        build_row(1, "Red?", LONG_ANSWER, "Why?", "Le café était fermé, les élèves attendaient."),
        build_row(0, "Green?", "If the wind turns, we sail; if it does not turn, we wait."),
        build_row(1, "Blue?", "No."),
        build_row(0, "Tool?", "Numbers such as 12 and 6789 are written with digits.", role="tool"),
    ]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    shutil.copytree(tiny_folder("llama"), folder / "tiny")
    (folder / "tiny" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    write_conversations(folder / "talks.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(folder / "made", patch, tiny=folder / "tiny", plain=tiny_folder("llama"))
        entry = {
            **{"builder": "labelled", "description": "made up", "path": str(folder / "talks.jsonl"), "seed": 1},
            **{"design": "selected", "words": "any", "calibration_fraction": 0},
            "extraction": {"suffix": SUFFIX},
        }
        made.write_benchmarks(
            talks={**entry, "scored_part": "response"}, last={**entry, "scored_part": "last_response"}
        )
        made.build("talks")
        made.build("last")
        made.assess("talks")
    return made.root


@pytest.fixture
def workspace(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        yield copy_workspace(built_once, folder / "made", monkeypatch)


def test_each_scored_answer_is_a_document_in_the_words_of_the_template(workspace: Workspace) -> None:
    model = workspace.model("tiny")
    documents = {one.text: one for one in read_searched_documents("talks", model, workspace.paths)}
    first = f"u: Red?\na: {LONG_ANSWER}"
    second = f"{first}\nu: Why?\na: Le café était fermé, les élèves attendaient."
    single = "u: Green?\na: If the wind turns, we sail; if it does not turn, we wait."
    assert documents.keys() == {first, second, single, "u: Blue?\na: No.", ""}
    expected = {first: LONG_ANSWER, single: single.partition("a: ")[2], second: second.rpartition("a: ")[2]}
    for text, answer_text in expected.items():
        answer = documents[text].answer
        assert answer is not None
        assert text[answer.start :] == answer_text
        assert answer.conversation == (second if text == first else text)
    [conversation] = {documents[text].independent_name for text in (first, second)}
    assert [documents[text].name for text in (first, second)] == [f"{conversation}/1", f"{conversation}/2"]
    assert documents[single].name == documents[single].independent_name
    assert [documents[text].side for text in (first, single)] == ["audited", "held_out"]
    refused = documents[""].answer
    assert refused is not None
    assert refused.problem is not None
    assert "no tools" in refused.problem
    last = read_searched_documents("last", model, workspace.paths)
    assert {one.text for one in last} == {second, single, "u: Blue?\na: No.", ""}
    assert not any("/" in one.name for one in last)


def test_the_command_searches_answers_and_stores_the_results(workspace: Workspace) -> None:
    command = ("extract", "--model", "tiny", "--benchmark", "talks")
    result = workspace.run(*command, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["not_searched"].keys() == {claims.ANSWER_TOO_SHORT}
    documents = workspace.query("FROM current_document_memorisation")
    assert {(row["prefix_tokens"], row["suffix_tokens"], row["stride"]) for row in documents} == {
        (0, SUFFIX, "answers")
    }
    assert sorted((row["windows"], row["reason"]) for row in documents if row["windows"] == 0)[0] == (
        0,
        claims.ANSWER_TOO_SHORT,
    )
    assert sum("no tools" in (row["reason"] or "") for row in documents) == 1
    windows = workspace.query("FROM current_extraction_windows")
    assert len(windows) == sum(row["windows"] for row in documents) == 3
    assert {(row["start"], row["tokens"], row["place"]) for row in windows} == {(0, SUFFIX, None)}
    evidence = read_model_evidence(workspace.paths, Pair("talks", "tiny"))
    [example_id] = [name for name, rows in evidence.windows.items() if len(rows) == 2]
    assert example_id in {row["example_id"] for row in workspace.query("FROM examples WHERE benchmark = 'talks'")}
    assert evidence.documents[example_id]["document_id"].startswith(f"{example_id}/")
    for option in (("--grid",), ("--prefix", "5"), ("--stride", "tiled"), ("--continue", "5")):
        refused = workspace.run(*command, *option)
        assert (refused.exit_code, f"Remove {option[0]}." in refused.stderr) == (2, True), refused.stderr


def test_a_model_without_a_template_reads_plain_conversations_and_can_be_packed(
    workspace: Workspace, tmp_path: Path
) -> None:
    pair = Pair("talks", "plain")
    model = workspace.model("plain")
    documents = {one.text for one in read_searched_documents("talks", model, workspace.paths)}
    assert f"Red?\n{LONG_ANSWER}" in documents
    workspace.audit("plain", "talks")
    step = LineageStep.now("extracted", "extraction", EXTRACTION_VERSION)
    extract_pair(pair, model, workspace.paths, forward_of, step, ExtractionSettings(suffix=SUFFIX))
    out = tmp_path / "pack.zip"
    write_pack(out, [pair], model, load_configuration(), workspace.paths, on_step=lambda words: None)
    rerun = PackRerun(3, 11, model.entry)
    checks = list(verify_pack(out, rerun=rerun, certificates=None, on_step=lambda words: None))
    assert [check for check in checks if check.ok is False] == []
    assert {"extraction_windows of talks", "windows of talks run again"} <= {check.what for check in checks}


def test_the_version_names_only_settings_that_apply_to_answers(workspace: Workspace) -> None:
    spec = find_spec("talks")
    assert spec is not None
    assert build_search_version(ExtractionSettings(prefix=9, stride="tiled", characters=5), spec) == EXTRACTION_VERSION
    assert build_search_version(ExtractionSettings(prefix=9, suffix=8), spec).endswith(": first 8 tokens of answers")

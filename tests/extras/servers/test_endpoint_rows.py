"""Rows of a model at an endpoint equal the rows of the same model in this process, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_endpoint import FakeEndpoint, Json, save_counting_model
from tiny_models import SENTENCES, forward_of, tokenized

from audit_pipeline.detectors import registry
from audit_pipeline.errors import ModelError
from audit_pipeline.extras.servers.backend import EndpointBackend
from audit_pipeline.extras.servers.dialect_interface import build_prompt
from audit_pipeline.models.fingerprint import TEXTS as PROBE_TEXTS
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.backends import Endpoints, open_backend
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Kind, text_sha256
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_local_pass
from audit_pipeline.token_statistics.prefixed_texts import compute_prefixed, read_prefixed
from audit_pipeline.token_statistics.run import RunSummary, compute
from audit_pipeline.token_statistics.tokens import cut_windows, encode, encode_prefix, put_after

Entry = Callable[..., TokenizedModel]
InProcess = Callable[..., dict[str, Any]]
Loaded = tuple[TokenizedModel, ForwardPass]
Ready = Callable[..., EndpointBackend]

LONG = " ".join(SENTENCES)
TEXTS = (*SENTENCES, LONG, "a", "", "It says <|endoftext|> and </s> within.", "漢字 and 😀 too")
"""One of several windows, one of a token, one of none, special tokens, parts of characters."""
NUMBERS = ("logprob", "max_logprob", "mean", "std")
WHOLE_NUMBERS = ("token_id", "char_start", "char_end", "argmax_id", "rank")
GIVEN = {
    "vllm": {"max_logprob", "argmax_id", "rank"},
    "sglang": {"max_logprob", "argmax_id"},
    "completions": {"max_logprob"},
    "llama_cpp": {"max_logprob"},
}


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Loaded:
    """Return the model with a tokenizer that adds a start token itself."""
    model = tokenized(save_counting_model(tmp_path_factory.mktemp("starting") / "model", adds_bos=True), kept)
    return model, forward_of(model)


def run(
    opened: EndpointBackend, data: Path, texts: Sequence[str] = TEXTS, kinds: Sequence[Kind] = ("base",)
) -> RunSummary:
    return compute(opened.model, texts, DataPaths(data), lambda: opened, kinds=kinds)


def rows_of(model: TokenizedModel, data: Path, kind: Kind = "base", texts: Sequence[str] = TEXTS) -> dict[str, Any]:
    return {row["text_sha256"]: row for row in read_statistics(model, texts, DataPaths(data), kind).to_pylist()}


@pytest.fixture
def in_process(counting: Loaded, one_thread: None, kept: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that computes rows in this process, and keeps them."""

    def rows(
        kind: Kind = "base", texts: Sequence[str] = TEXTS, loaded: Loaded = counting, **entry: Any
    ) -> dict[str, Any]:
        model, forward = loaded
        local = tokenized(model.located.folder, kept, **{"window": 100, **entry})
        compute(local, texts, DataPaths(kept), lambda: forward, kinds=(kind,))
        return rows_of(local, kept, kind, texts)

    return rows


def assert_near(own: Sequence[float], expected: Sequence[float], name: str = "logprob") -> None:
    """Check that numbers are equal within 1e-5, the rounding of float32 in other batches. Ranks may differ by one."""
    near = {"atol": 1.0 if name == "rank" else 0.0} if name in WHOLE_NUMBERS else {"atol": 1e-5, "rtol": 1e-5}
    np.testing.assert_allclose(own, expected, err_msg=name, **{"rtol": 0.0, **near})


def assert_same(ours: dict[str, Any], theirs: dict[str, Any], given: set[str], skipped: int = 0) -> None:
    """Check the rows of an endpoint against rows of this process without their first ``skipped`` tokens."""
    assert ours.keys() == theirs.keys()
    assert len(ours) == len(TEXTS)
    for sha256, own in ours.items():
        for name in (*NUMBERS, *WHOLE_NUMBERS):
            if name in given | {"logprob", "token_id", "char_start", "char_end"}:
                assert_near(own[name], theirs[sha256][name][skipped:], name)
            else:
                assert own[name] == []


@pytest.mark.parametrize(
    ("dialect", "policy"),
    [
        ("vllm", "always"),
        ("sglang", "tokenizer"),
        ("completions", "always"),
        pytest.param("vllm", "tokenizer", marks=pytest.mark.slow),
        pytest.param("sglang", "always", marks=pytest.mark.slow),
        pytest.param("completions", "tokenizer", marks=pytest.mark.slow),
    ],
)
def test_rows_equal_those_in_process(
    dialect: str, policy: str, ready: Ready, in_process: InProcess, tmp_path: Path
) -> None:
    opened = ready(dialect, {"start_token_policy": policy})
    summary = run(opened, tmp_path / "remote")
    assert summary.texts_computed == len(TEXTS) - (1 if policy == "always" else 2)
    assert_same(rows_of(opened.model, tmp_path / "remote"), in_process(start_token_policy=policy), GIVEN[dialect])


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_best_tokens(dialect: str, ready: Ready, in_process: InProcess, tmp_path: Path) -> None:
    opened = ready(dialect)
    run(opened, tmp_path / "remote", kinds=("topk",))
    ours, theirs = rows_of(opened.model, tmp_path / "remote", "topk"), in_process("topk")
    assert len(ours) == len(TEXTS)
    for sha256, row in ours.items():
        assert row["k"] == 20
        assert_near(row["logprob"], theirs[sha256]["logprob"])
        np.testing.assert_array_equal(row["token_id"], theirs[sha256]["token_id"])


def test_the_mass_of_the_best_40(server: FakeEndpoint, ready: Ready, in_process: InProcess, tmp_path: Path) -> None:
    server.best = 40
    opened = ready(top_logprobs=40)
    run(opened, tmp_path, SENTENCES, ("extraction",))
    ours = rows_of(opened.model, tmp_path, "extraction", SENTENCES)
    assert len(ours) == len(SENTENCES)
    for sha256, row in in_process("extraction", SENTENCES).items():
        for name in ("logprob", "log_mass_40", "argmax_id", "rank"):
            assert_near(row[name], ours[sha256][name], name)


def test_means_and_deviations_of_the_plugin(
    server: FakeEndpoint, ready: Ready, in_process: InProcess, tmp_path: Path
) -> None:
    server.plugin, server.best = True, -1
    opened = ready(moments=True)
    run(opened, tmp_path / "remote", kinds=("base", "topk"))
    given = GIVEN["vllm"] | {"mean", "std"}
    assert_same(rows_of(opened.model, tmp_path / "remote"), in_process(), given)
    assert len(rows_of(opened.model, tmp_path / "remote", "topk")) == len(TEXTS)


def test_strings_are_sent_to_servers_without_ids(
    server: FakeEndpoint, ready: Ready, in_process: InProcess, tmp_path: Path
) -> None:
    server.takes = (str,)
    opened = ready("completions")
    run(opened, tmp_path / "remote")
    assert isinstance(server.bodies()[-1]["prompt"], str)
    assert_same(rows_of(opened.model, tmp_path / "remote"), in_process(), GIVEN["completions"])


def test_a_string_with_other_tokens_is_skipped_and_reported(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    server.takes, told, paths = (str,), list[str](), DataPaths(tmp_path)
    opened = ready("completions", notify=told.append)

    def cut_otherwise(answer: Json, body: Json) -> Json:
        """Move the begin of one token by a character."""
        if SENTENCES[1][:20] in body["prompt"]:
            answer["choices"][0]["logprobs"]["text_offset"][4] += 1
        return answer

    server.bend = cut_otherwise
    compute(opened.model, TEXTS, paths, lambda: opened)
    # The long text, of several windows, holds that sentence as well.
    left_out = {text_sha256(text) for text in (SENTENCES[1], LONG)}
    assert rows_of(opened.model, tmp_path).keys() == {text_sha256(text) for text in TEXTS} - left_out
    for sha256 in left_out:
        assert (
            sum(f"sha256 {sha256} is skipped. The server splits the text into other tokens" in one for one in told) == 1
        )
    assert told[-1].endswith("2 text(s) were skipped and have no row in the results.")
    session = Session(opened.model, registry.select_detectors(["loss"]), paths)
    scored = session.score(["0", "1"], SENTENCES[:2]).to_pylist()
    assert [one["status"] for one in scored] == ["ok", "failed"]
    assert "no token statistics for the text" in scored[1]["reason"]
    server.bend = lambda answer, body: answer
    assert compute(opened.model, TEXTS, paths, lambda: opened).texts_computed == 2
    assert len(rows_of(opened.model, tmp_path)) == len(TEXTS)


def test_a_server_that_splits_all_strings_differently_ends_the_run(
    server: FakeEndpoint, ready: Ready, tmp_path: Path
) -> None:
    server.takes = (str,)
    opened = ready("completions")

    def cut_otherwise(answer: Json, body: Json) -> Json:
        answer["choices"][0]["logprobs"]["text_offset"][4] += 1
        return answer

    server.bend = cut_otherwise
    with pytest.raises(ModelError, match="other tokens than the tokenizer of the entry"):
        compute(opened.model, [LONG], DataPaths(tmp_path), lambda: opened)


def test_llama_cpp_scores_from_the_second_token(
    server: FakeEndpoint, ready: Ready, in_process: InProcess, tmp_path: Path
) -> None:
    opened = ready("llama_cpp")
    texts = [text for text in TEXTS if text != LONG]
    run(opened, tmp_path / "remote", texts)
    ours, theirs = rows_of(opened.model, tmp_path / "remote", texts=texts), in_process(texts=texts, start_token="<s>")
    for sha256, row in ours.items():
        np.testing.assert_array_equal(row["token_id"], theirs[sha256]["token_id"][1:])
        assert_near(row["logprob"], theirs[sha256]["logprob"][1:])
        assert_near(row["max_logprob"], theirs[sha256]["max_logprob"][1:])


@pytest.mark.slow
def test_llama_cpp_with_a_tokenizer_that_adds_the_start_token(
    starting: Loaded, in_process: InProcess, ready: Ready, tmp_path: Path
) -> None:
    with FakeEndpoint(*starting) as server:
        opened = ready("llama_cpp", server=server)
        run(opened, tmp_path / "remote")
    ours = rows_of(opened.model, tmp_path / "remote")
    theirs = in_process(loaded=starting, start_token_policy="tokenizer")
    assert_same(ours, theirs, GIVEN["llama_cpp"], skipped=1)


@pytest.mark.parametrize("which", ["counting", "starting"])
def test_llama_cpp_gets_the_first_token_of_the_text(which: str, counting: Loaded, starting: Loaded, kept: Path) -> None:
    folder = {"counting": counting, "starting": starting}[which][0].located.folder
    endpoint = {"url": "http://host/v1", "model": "tiny", "dialect": "llama_cpp"}
    model = tokenized(folder, kept, start_token_policy="tokenizer", backend="openai", endpoint=endpoint, window=100)
    [own] = model.tokenizer.encode(["</s> begins it"], add_special_tokens=False)
    [text] = encode(model, ["</s> begins it"])
    window = cut_windows(0, text, 100, 50)[0]
    assert build_prompt(model, text, window).ids == tuple(own.ids)
    prefix = encode_prefix(model, "</s> begins it")
    both = build_prompt(model, put_after(prefix, text), replace(window, has_start_token=True), prefix.ids[:-1])
    assert both.ids == (*own.ids, *own.ids)
    # A prefix of one token replaces the start token.
    last = replace(text, start_token_id=own.ids[0], first_scored=0)
    alone = build_prompt(model, last, replace(window, has_start_token=True)).ids
    assert alone == ((own.ids[0], *own.ids) if which == "counting" else tuple(own.ids))


def test_texts_after_a_prefix(ready: Ready, counting: Loaded, kept: Path, tmp_path: Path) -> None:
    texts = SENTENCES[:3]
    here = tokenized(counting[0].located.folder, kept, window=200)
    rows = []
    for backend in (None, ready("vllm", {"window": 200}), ready("sglang", {"window": 200})):
        data = DataPaths(tmp_path / str(len(rows)))
        model = here if backend is None else backend.model
        prefix = encode_prefix(model, "One sentence stands before another. ")
        compute_prefixed(model, texts, prefix, data, lambda backend=backend: backend or counting[1])
        found = read_prefixed(model, texts, prefix, data).to_pylist()
        rows.append({row["text_sha256"]: row["logprob"] for row in found})
    assert len(rows[0]) == 3
    for other in rows[1:]:
        for sha256, own in rows[0].items():
            assert_near(own, other[sha256])


def test_concurrency_changes_no_row(ready: Ready, tmp_path: Path) -> None:
    found = []
    for at_a_time in (1, 7):
        opened = ready(concurrency=at_a_time)
        run(opened, tmp_path / str(at_a_time))
        rows = rows_of(opened.model, tmp_path / str(at_a_time))
        found.append({sha256: {**row, "key": None} for sha256, row in rows.items()})
    assert found[0] == found[1]


def test_only_the_needed_best_tokens_are_requested(server: FakeEndpoint, ready: Ready, tmp_path: Path) -> None:
    opened = ready()
    run(opened, tmp_path, SENTENCES[:1])
    assert server.bodies()[-1 - len(PROBE_TEXTS)]["prompt_logprobs"] == 1
    run(opened, tmp_path, SENTENCES[:1], ("topk",))
    assert server.bodies()[-1 - len(PROBE_TEXTS)]["prompt_logprobs"] == 20


def test_the_entry_decides_the_back_end(behind: Entry, tmp_path: Path) -> None:
    told: list[str] = []
    paths, endpoints = DataPaths(tmp_path), Endpoints()
    with pytest.raises(ModelError, match="NO_SUCH_KEY is not set"):
        endpoints.probe_and_load(behind(key_env="NO_SUCH_KEY").entry, paths, told.append)
    assert told == [], "nothing is sent"
    with pytest.raises(ModelError, match="has changed since the probe"):
        # Planned without asking: its rows would be of a model that nobody has seen.
        open_backend(behind(), paths)
    model = endpoints.probe_and_load(behind().entry, paths, told.append)
    ready = open_backend(model, paths, notify=told.append, endpoints=endpoints)
    assert isinstance(ready, EndpointBackend)
    assert told.count(told[0]) == 1
    with pytest.raises(ModelError, match=r"the weights of .* on this machine"):
        load_local_pass(model, lambda _: ready)

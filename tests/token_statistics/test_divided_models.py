"""A model divided over processes gives what it gives whole, and no failure of one of them leaves anything waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from tiny_models import save_model, tokenized
from whole_and_divided import TEXTS, assert_alike, assert_extracts_alike, assert_same, run

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import ModelError
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer
from audit_pipeline.models.weights import load_weights
from audit_pipeline.token_statistics import forward, ranked_pass
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.loading import load_forward_pass
from audit_pipeline.token_statistics.local_pass import LoadCheck
from audit_pipeline.token_statistics.rank_process import Call
from audit_pipeline.token_statistics.tokens import encode, window_and_stride, windows_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SLOW_TO_END = 20.0


def passes_of(folder: Path, data: Path, ranks: int) -> tuple[TokenizedModel, ForwardPass, ForwardPass]:
    """The model, whole and divided, its products made alike."""
    model = tokenized(folder, data)
    divided = load_forward_pass(tokenized(folder, data, tensor_parallel=ranks), DataPaths(data), "cpu")
    checked = replace(divided.checked, onednn=False)
    return model, ForwardPass(load_weights(model, "cpu"), model.vocab_size, checked), divided


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TokenizedModel, ForwardPass, ForwardPass]]:
    folder = tmp_path_factory.mktemp("divided")
    found = passes_of(save_model(folder / "model"), folder / "data", 2)
    yield found
    found[2].close()


def ranks_of_this_process() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if "import serve" in " ".join(process.cmdline())
    ]


def test_a_divided_model_gives_what_it_gives_whole(passes: tuple[TokenizedModel, ForwardPass, ForwardPass]) -> None:
    assert passes[2].shared_prefix
    assert passes[2].packed
    assert_alike(*passes, tolerance=1e-3)
    assert_extracts_alike(*passes)


# Biases that are divided; soft caps, and layers that look back a few tokens; one matrix for queries, keys and values.
@pytest.mark.parametrize("family", ["qwen2", "gemma2", "gpt_neox"])
def test_other_families_divided_give_what_they_give_whole(tmp_path: Path, family: str) -> None:
    model, whole, divided = passes_of(save_model(tmp_path / "model", family), tmp_path / "data", 2)
    try:
        assert_alike(model, whole, divided, tolerance=1e-3)
        assert_extracts_alike(model, whole, divided)
    finally:
        divided.close()


def test_a_rank_that_is_killed_ends_the_run_at_once_with_its_name(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass],
) -> None:
    model, _, divided = passes
    encoded = encode(model, TEXTS)
    batch = windows_of(0, encoded[0], *window_and_stride(model))
    run(divided, encoded, batch)
    running = ranks_of_this_process()
    assert len(running) == 2
    running[1].kill()
    with pytest.raises(ModelError, match=r"divided over 2 processes, and rank 1 was ended by SIGKILL.*run it again"):
        run(divided, encoded, batch)
    assert not ranks_of_this_process()


def test_a_rank_that_is_stopped_ends_the_run_before_long(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _, divided = passes
    encoded = encode(model, TEXTS)
    batch = windows_of(0, encoded[0], *window_and_stride(model))
    run(divided, encoded, batch)
    monkeypatch.setattr(ranked_pass, "_LOOK_SECONDS", 0.3)
    monkeypatch.setattr(ranked_pass, "_IDLE_LOOKS", 6)
    divided.apply(work_on, 3.0)
    ranks_of_this_process()[1].suspend()
    with pytest.raises(
        ModelError, match=r"divided over 2 processes, and rank 1 was stopped by a signal: no work.*again"
    ):
        run(divided, encoded, batch)
    assert not ranks_of_this_process()


def test_the_answer_to_a_question_that_was_broken_off_is_not_taken_for_anothers(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, whole, divided = passes
    encoded = encode(model, TEXTS)
    one, other = (windows_of(number, encoded[number], *window_and_stride(model)) for number in (0, 1))
    run(divided, encoded, one)
    send, sent = ranked_pass._send, list[object]()

    def broken_off(to: ranked_pass.Process, message: object) -> None:
        send(to, message)
        sent.append(message)
        if len(sent) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ranked_pass, "_send", broken_off)
    with pytest.raises(KeyboardInterrupt):
        run(divided, encoded, one)
    monkeypatch.undo()
    assert not ranks_of_this_process()
    assert_same(run(whole, encoded, other), run(divided, encoded, other), 1e-3)
    # And if an old answer should ever be left, it is known by its number.
    for process in divided._started:
        process.connection.send(Call(-1, work_on, (0.0,), {}))
    with pytest.raises(RuntimeError, match=r"answered question -1 where \d+ was asked"):
        run(divided, encoded, other)
    assert not ranks_of_this_process()


def test_all_ranks_go_by_what_the_first_finds_at_loading(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass],
) -> None:
    found = passes[2].apply(checked_where_ranks_differ)
    assert len(found) == 2
    assert found[0] == found[1]
    assert not found[0].onednn
    assert found[0].packed


def test_a_question_that_a_rank_cannot_read_is_an_error(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass],
) -> None:
    with pytest.raises(RuntimeError, match=r"rank \d of model failed:(?s:.*)KeyError: 'cannot be read'"):
        passes[2].apply(work_on, Unreadable())
    assert not ranks_of_this_process()


def test_a_rank_that_dies_while_the_others_wait_for_it_ends_them(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass],
) -> None:
    with pytest.raises(ModelError, match="rank 1 ended with exit code 7"):
        passes[2].apply(die_in_step, 1)
    assert not ranks_of_this_process()


def test_a_batch_too_large_for_one_rank_is_too_large_for_all(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, whole, divided = passes
    encoded = encode(model, TEXTS[:4])
    batch = [
        window for number, text in enumerate(encoded) for window in windows_of(number, text, *window_and_stride(model))
    ]
    monkeypatch.setattr(ForwardPass, "run_batch", crowded)
    with pytest.raises(torch.OutOfMemoryError, match="rank 1"):
        run(divided, encoded, batch)
    monkeypatch.undo()
    assert not ranks_of_this_process()
    # Known by now: nothing is started for it.
    with pytest.raises(torch.OutOfMemoryError, match="too large before"):
        run(divided, encoded, batch)
    assert not ranks_of_this_process()
    assert_same(run(whole, encoded, batch[:2]), run(divided, encoded, batch[:2]), 1e-3)


def test_an_error_of_one_rank_is_told_with_where_it_was(
    passes: tuple[TokenizedModel, ForwardPass, ForwardPass],
) -> None:
    with pytest.raises(RuntimeError, match=r"rank \d of model failed:(?s:.*)KeyError: 'nothing of that name'"):
        passes[2].apply(raise_key_error)
    assert not ranks_of_this_process()


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    code = (
        "import sys, time; from pathlib import Path; from test_divided_models import passes_of\n"
        "if __name__ == '__main__':\n"
        f"    found = passes_of(Path({str(folder)!r}), Path({str(tmp_path / 'data')!r}), 2)\n"
        "    print('ready', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        ranks = psutil.Process(started.pid).children()
        assert len(ranks) == 2
        started.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(ranks, timeout=SLOW_TO_END)
    assert len(gone) == 2
    assert not alive


def test_the_embedded_model_divided_by_three(
    real_model: tuple[TokenizedModel, ForwardPass], real_data: DataPaths
) -> None:
    model, loaded = real_model
    entry = model.entry.model_copy(update={"tensor_parallel": 3})
    messages = list[str]()
    divided = load_forward_pass(load_tokenizer(entry, real_data), real_data, "cpu", messages.append)
    assert sum("divided over 3" in words for words in (*messages, divided.described)) == 1
    # Their products made alike.
    whole = ForwardPass(loaded.model, model.vocab_size, replace(divided.checked, onednn=False))
    assert_alike(model, whole, divided, tolerance=1e-3)
    assert_extracts_alike(model, whole, divided)
    divided.close()


def die_in_step(forward: ForwardPass, rank: int) -> None:
    """One rank ends, the others wait for it in a sum over all of them."""
    if torch.distributed.get_rank() == rank:
        os._exit(7)
    torch.distributed.all_reduce(torch.ones(1))


def work_on(forward: ForwardPass, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def checked_where_ranks_differ(forward_of_rank: ForwardPass) -> list[LoadCheck]:
    """What each rank goes by where the second finds otherwise: another library faster, no packed pass."""
    rank = torch.distributed.get_rank()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "is_model_faster_with_onednn", lambda layers: rank == 1)
        packed = ForwardPass._check_packed
        patch.setattr(ForwardPass, "_check_packed", lambda self: packed(self) and rank == 0)
        own = ForwardPass(forward_of_rank.model, forward_of_rank.vocab_size, in_step=True)
    found: list[LoadCheck] = [own.checked] * 2
    torch.distributed.all_gather_object(found, own.checked)
    return found


class Unreadable:
    """Can be sent, and cannot be read."""

    def __reduce__(self) -> tuple[object, ...]:
        return _unread, ()


def _unread() -> None:
    raise KeyError("cannot be read")


def crowded(forward: ForwardPass, *given: object, **named: object) -> None:
    """One rank has no room, the others wait for it."""
    if torch.distributed.get_rank() == 1:
        raise torch.OutOfMemoryError("no room")
    torch.distributed.all_reduce(torch.ones(1))


# As what it stands for.
crowded.__name__ = "run_batch"


def raise_key_error(forward: ForwardPass) -> None:
    raise KeyError("nothing of that name")

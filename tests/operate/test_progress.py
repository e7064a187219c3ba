"""Progress in words and as a bar."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from audit_pipeline.operate import console, progress
from audit_pipeline.operate.dagster import resources
from audit_pipeline.operate.dagster.resources import ProgressReporter
from audit_pipeline.operate.progress import describe, describe_file, file_bar, terminal_bar
from audit_pipeline.scoring.file_progress import FileProgress
from audit_pipeline.token_statistics.run import Phase, Progress

HALF = Progress(texts_done=5, texts_total=10, tokens_done=1500, tokens_total=3000, seconds=3.0)
WHOLE = Progress(texts_done=10, texts_total=10, tokens_done=3000, tokens_total=3000, seconds=6.0)


def test_a_line_of_a_log() -> None:
    assert describe(HALF) == "5 of 10 texts, 500 tokens/s, 3 s left"
    assert describe(WHOLE) == "10 of 10 texts, 500 tokens/s, done"
    start = Progress(texts_done=0, texts_total=10, tokens_done=0, tokens_total=3000, seconds=0.0)
    assert describe(start) == "0 of 10 texts, 0 tokens/s, starting"


LOWERCASE = Phase(step=2, steps=4, name="lowercase pass", later=2.0)


def test_a_phase_is_named_and_the_time_left_is_that_of_all_phases() -> None:
    now = Progress(40, 184, 400, 1840, seconds=28.0, phase=LOWERCASE)
    assert now.seconds_left == pytest.approx(28.0 * (1440 / 400 + 1840 / 400 * 2))
    assert describe(now) == "step 2 of 4, lowercase pass: 40 of 184 texts, 14 tokens/s, 6 min left in all"
    whole = replace(now, texts_done=184, tokens_done=1840)
    assert describe(whole).endswith("left in all"), "two more are to come"
    assert describe(replace(whole, phase=replace(LOWERCASE, step=4, later=0.0))).endswith("done")


def test_a_bar_names_its_phase_and_fits_a_terminal(terminal: io.StringIO) -> None:
    with terminal_bar("model on benchmark") as tell:
        tell(Progress(40, 184, 400, 1840, seconds=28.0, phase=replace(LOWERCASE, name="nonmember prefix pass")))
    lines = [line.strip() for line in Text.from_ansi(terminal.getvalue()).plain.splitlines() if line.strip()]
    assert lines[-1].startswith("step 2 of 4, nonmember prefix pass ")
    assert lines[-1].endswith(" 40 of 184, 6 min left in all")


FILE = FileProgress(1200, 200_000, True, 24_000, 4_000_000, 4000.0, 994.0)


def test_a_line_of_a_file() -> None:
    assert describe_file(FILE) == (
        "1,200 of about 200,000 texts, 24,000 of about 4,000,000 tokens, 4,000 tokens/s, about 17 min left"
    )
    exact = replace(FILE, texts_total=1200, estimated=False, tokens_total=24_000)
    assert describe_file(exact) == "1,200 of 1,200 texts, 24,000 of 24,000 tokens, 4,000 tokens/s, done"
    cached = FileProgress(8192, 20_000, False, 0, 0, 0.0, None)
    assert describe_file(cached) == "8,192 of 20,000 texts, from the cache, starting"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns in the place of standard error."""
    screen = io.StringIO()
    console_of_80 = Console(file=screen, force_terminal=True, width=80, emoji=False)
    for module in (progress, console):
        monkeypatch.setattr(module, "TELL", console_of_80)
    return screen


def test_a_bar_is_drawn_only_once_there_is_progress(terminal: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_bar("cached [bold]model"):
        pass
    assert terminal.getvalue() == ""
    with terminal_bar("[bold]model") as tell:
        tell(HALF)
        tell(WHOLE)
    shown = Text.from_ansi(terminal.getvalue()).plain
    assert "[bold]model" in shown
    assert "10 of 10, done" in shown
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_taken_down_after_an_error(terminal: io.StringIO) -> None:
    def fail() -> None:
        with terminal_bar("model") as tell:
            tell(HALF)
            raise RuntimeError("in mid run")

    with pytest.raises(RuntimeError, match="in mid run"):
        fail()
    assert "5 of 10, 3 s left" in Text.from_ansi(terminal.getvalue()).plain


def test_a_bar_of_a_file_fits_a_terminal_and_the_first_batch_is_told_in_full(terminal: io.StringIO) -> None:
    with file_bar("[bold]smollm2-135m") as tell:
        tell(FILE)
        tell(replace(FILE, texts_done=2400))
    lines = Text.from_ansi(terminal.getvalue()).plain.splitlines()
    assert f"[bold]smollm2-135m: {describe_file(FILE)}" in "".join(line.rstrip("\n") for line in lines)
    assert not any(line.startswith("[bold]smollm2-135m ━") and " texts" not in line for line in lines), "no empty bar"
    last = next(line for line in reversed(lines) if line.strip())
    assert "2,400 of about 200,000 texts, 4,000 tokens/s, " in last
    assert last.rstrip().endswith("left")


@pytest.mark.parametrize("bar", [terminal_bar, file_bar])
def test_without_a_terminal_lines_come_at_once_now_and_then_and_at_the_end(
    bar: Callable[[str], AbstractContextManager[Callable[[object], None]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    first, last = (HALF, WHOLE) if bar is terminal_bar else (FILE, replace(FILE, texts_done=200_000))
    words = [describe(one) if isinstance(one, Progress) else describe_file(one) for one in (first, last)]
    with bar("[bold]m") as tell:
        tell(first)
        tell(first)
        now += 16
        tell(first)
        tell(last)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"[bold]m: {words[0]}", f"[bold]m: {words[0]}", f"[bold]m: {words[1]}"]
    with bar("m") as tell:
        tell(last)
        tell(last)
    assert capsys.readouterr().err.splitlines() == [f"m: {words[1]}"], "what is told at the end is not told twice"
    with bar("m"):
        pass
    assert capsys.readouterr().err == "", "nothing to tell"


def test_log_lines_come_now_and_then_and_at_the_end(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(resources.time, "monotonic", lambda: now)
    log = logging.getLogger("made for a test")
    caplog.set_level(logging.INFO, log.name)
    with ProgressReporter().report_progress("m on b", log) as tell:
        tell(HALF)
        assert not caplog.messages, "too early"
        now += 16
        tell(HALF)
        tell(HALF)
        assert caplog.messages == [f"m on b: {describe(HALF)}"]
        tell(WHOLE)
    assert caplog.messages == [f"m on b: {describe(HALF)}", f"m on b: {describe(WHOLE)}"]
    assert capsys.readouterr().err == "", "no bar unless asked for"

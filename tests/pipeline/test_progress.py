"""Progress as lines and as a bar."""

from __future__ import annotations

import io
import logging
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from audit_pipeline.pipeline import console, progress
from audit_pipeline.pipeline.dagster import resources
from audit_pipeline.pipeline.dagster.resources import ProgressReporter
from audit_pipeline.pipeline.progress import AnyProgress, format_progress, progress_bar
from audit_pipeline.scoring.file import FileProgress
from audit_pipeline.token_statistics.run import Phase, Progress

HALF = Progress(texts_done=5, texts_total=10, tokens_done=1500, tokens_total=3000, seconds=3.0)
WHOLE = Progress(texts_done=10, texts_total=10, tokens_done=3000, tokens_total=3000, seconds=6.0)


LOWERCASE = Phase(step=2, steps=4, name="lowercase pass")
FILE = FileProgress(1200, 200_000, estimated=True)


def test_a_line_of_a_log() -> None:
    assert format_progress(HALF) == "5 of 10 texts, 500 tokens/s"
    assert format_progress(replace(HALF, phase=LOWERCASE)) == "step 2 of 4, lowercase pass: 5 of 10 texts, 500 tokens/s"
    assert format_progress(FILE) == "1,200 of about 200,000 texts"
    assert format_progress(replace(FILE, texts_total=1200, estimated=False)) == "1,200 of 1,200 texts"


def test_a_bar_names_its_phase_and_fits_a_terminal(terminal: io.StringIO) -> None:
    with progress_bar("model on benchmark") as report:
        report(Progress(40, 184, 400, 1840, seconds=28.0, phase=replace(LOWERCASE, name="nonmember prefix pass")))
    lines = [line.strip() for line in Text.from_ansi(terminal.getvalue()).plain.splitlines() if line.strip()]
    assert lines[-1].startswith("step 2 of 4, nonmember prefix pass ")
    assert " 40 of 184 texts " in lines[-1]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Replace standard error by a terminal of 80 columns."""
    screen = io.StringIO()
    console_of_80 = Console(file=screen, force_terminal=True, width=80, emoji=False)
    for module in (progress, console):
        monkeypatch.setattr(module, "STDERR", console_of_80)
    return screen


def test_a_bar_is_drawn_only_once_there_is_progress(terminal: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("cached [bold]model"):
        pass
    assert terminal.getvalue() == ""
    with progress_bar("[bold]model") as notify:
        notify(HALF)
        notify(WHOLE)
    shown = Text.from_ansi(terminal.getvalue()).plain
    assert "[bold]model" in shown
    assert "10 of 10 texts" in shown
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_taken_down_after_an_error(terminal: io.StringIO) -> None:
    def fail() -> None:
        with progress_bar("model") as notify:
            notify(HALF)
            raise RuntimeError("in mid run")

    with pytest.raises(RuntimeError, match="in mid run"):
        fail()
    assert "5 of 10 texts" in Text.from_ansi(terminal.getvalue()).plain


@pytest.mark.parametrize(("first", "last"), [(HALF, WHOLE), (FILE, replace(FILE, texts_done=200_000))])
def test_without_a_terminal_lines_come_at_once_now_and_then_and_at_the_end(
    first: AnyProgress, last: AnyProgress, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress_bar("[bold]m") as report:
        report(first)
        report(first)
        now += 16
        report(first)
        report(last)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"[bold]m: {format_progress(each)}" for each in (first, first, last)]
    with progress_bar("m") as report:
        report(last)
        report(last)
    assert capsys.readouterr().err.splitlines() == [f"m: {format_progress(last)}"], "the last line comes once"
    with progress_bar("m"):
        pass
    assert capsys.readouterr().err == "", "nothing to tell"


def test_log_lines_come_now_and_then_and_at_the_end(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(resources.time, "monotonic", lambda: now)
    log = logging.getLogger("made for a test")
    caplog.set_level(logging.INFO, log.name)
    with ProgressReporter().report_progress("m on b", log) as notify:
        notify(HALF)
        assert not caplog.messages, "too early"
        now += 16
        notify(HALF)
        notify(HALF)
        assert caplog.messages == [f"m on b: {format_progress(HALF)}"]
        notify(WHOLE)
    assert caplog.messages == [f"m on b: {format_progress(HALF)}", f"m on b: {format_progress(WHOLE)}"]
    assert capsys.readouterr().err == "", "no bar unless asked for"

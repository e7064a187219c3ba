"""Progress in words and as a bar."""

from __future__ import annotations

import logging

import pytest

from audit_pipeline.orchestration import resources
from audit_pipeline.orchestration.resources import ProgressTeller
from audit_pipeline.progress import describe, terminal_bar
from audit_pipeline.token_statistics.run import Progress

HALF = Progress(texts_done=5, texts_total=10, tokens_done=1500, tokens_total=3000, seconds=3.0)
WHOLE = Progress(texts_done=10, texts_total=10, tokens_done=3000, tokens_total=3000, seconds=6.0)


def test_a_line_of_a_log() -> None:
    assert describe(HALF) == "5/10 texts, 1,500/3,000 tokens, 500 tokens/s, 3 s left"
    assert describe(WHOLE) == "10/10 texts, 3,000/3,000 tokens, 500 tokens/s, done"
    start = Progress(texts_done=0, texts_total=10, tokens_done=0, tokens_total=3000, seconds=0.0)
    assert describe(start) == "0/10 texts, 0/3,000 tokens, 0 tokens/s, starting"


def test_a_bar_is_drawn_only_once_there_is_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_bar("cached [bold]model"):
        pass
    assert capsys.readouterr() == ("", "")
    with terminal_bar("[bold]model") as tell:
        tell(HALF)
        tell(WHOLE)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "[bold]model" in shown.err
    assert "3000/3000 tokens, 500/s" in shown.err


def test_a_bar_is_taken_down_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with terminal_bar("model") as tell:
            tell(HALF)
            raise RuntimeError("in mid run")

    with pytest.raises(RuntimeError, match="in mid run"):
        fail()
    assert "1500/3000" in capsys.readouterr().err


def test_log_lines_come_now_and_then_and_at_the_end(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(resources.time, "monotonic", lambda: now)
    log = logging.getLogger("made for a test")
    caplog.set_level(logging.INFO, log.name)
    with ProgressTeller().telling("m on b", log) as tell:
        tell(HALF)
        assert not caplog.messages, "too early"
        now += 16
        tell(HALF)
        tell(HALF)
        assert caplog.messages == [f"m on b: {describe(HALF)}"]
        tell(WHOLE)
    assert caplog.messages == [f"m on b: {describe(HALF)}", f"m on b: {describe(WHOLE)}"]
    assert capsys.readouterr().err == "", "no bar unless asked for"

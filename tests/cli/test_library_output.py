"""What libraries print on standard error while a command runs: given out behind it, or kept where a disk is full."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from audit_pipeline.cli.command_group import main
from audit_pipeline.cli.library_output import defer_stderr, release_deferred_stderr
from audit_pipeline.errors import AuditError, MadeAgainWarning
from audit_pipeline.operate.console import TELL, tell


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[BaseException]:
    """A command that tells a step, lets a library print fifty lines, and raises what it is given."""
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "data"))
    raised: list[BaseException] = []

    @click.command("fails")
    def fails() -> None:
        TELL.print("• a step")
        for number in range(50):
            logging.getLogger("a library").error("line %d of a library", number)
        if raised:
            raise raised[0]

    handler = logging.StreamHandler()
    monkeypatch.setitem(main.commands, "fails", fails)
    # A library takes the stream that is standard error when it begins to log.
    monkeypatch.setattr(handler, "emit", lambda record: print(record.getMessage(), file=sys.stderr))
    logger = logging.getLogger("a library")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    return raised


def run() -> Result:
    return CliRunner().invoke(main, ["fails"])


def test_on_a_full_disk_it_goes_to_a_log_and_one_line_is_told(failing: list[BaseException], tmp_path: Path) -> None:
    failing.append(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    result = run()
    assert result.exit_code == 2
    [step, told] = result.stderr.splitlines()
    assert step == "• a step"
    assert told.startswith(f"Error: the disk of {tmp_path / 'data'} is full")
    log = Path(told.rpartition("what libraries printed of it: ")[2])
    assert log.parent == tmp_path / "data" / "logs"
    assert log.read_text(encoding="utf-8").splitlines() == [f"line {number} of a library" for number in range(50)]
    assert log.parent.parent.stat().st_mode & 0o777 == 0o700


def test_where_the_disk_takes_no_log_either_it_lies_in_the_temporary_folder(
    failing: list[BaseException], tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file where the folder would be")
    failing.append(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    log = Path(run().stderr.splitlines()[-1].rpartition("what libraries printed of it: ")[2])
    try:
        assert len(log.read_text(encoding="utf-8").splitlines()) == 50
        assert not log.is_relative_to(tmp_path / "data")
    finally:
        log.unlink()


@pytest.mark.parametrize("error", [AuditError("something else"), None], ids=["another error", "no error"])
def test_else_it_is_given_out(failing: list[BaseException], error: BaseException | None) -> None:
    failing.extend([error] if error is not None else [])
    result = run()
    assert result.exit_code == (0 if error is None else 2)
    lines = result.stderr.splitlines()
    assert [line for line in lines if "of a library" in line] == [f"line {number} of a library" for number in range(50)]
    assert (lines[-1] == "Error: something else") == (error is not None)


def test_what_click_prints_goes_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Click tells streams of text from those of bytes by what they take."""

    @click.command("speaks")
    def speaks() -> None:
        click.echo("by click", err=True)
        print("by a library", file=sys.stderr)

    monkeypatch.setitem(main.commands, "speaks", speaks)
    result = CliRunner().invoke(main, ["speaks"])
    assert result.exit_code == 0, result.output
    assert result.stderr == "by click\nby a library\n"


def test_before_another_program_takes_over_it_is_given_out(capsys: pytest.CaptureFixture[str]) -> None:
    with defer_stderr():
        print("before", file=sys.stderr)
        release_deferred_stderr()
        assert capsys.readouterr().err == "before\n"
    release_deferred_stderr()


def test_damage_is_told_at_once_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("mends")
    def mends() -> None:
        warnings.warn(MadeAgainWarning("a file is damaged; it is made again"), stacklevel=1)
        tell("the next step")

    monkeypatch.setitem(main.commands, "mends", mends)
    assert CliRunner().invoke(main, ["mends"]).stderr == "a file is damaged; it is made again\nthe next step\n"


def test_after_its_release_nothing_is_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    with defer_stderr() as libraries:
        print("before", file=sys.stderr)
        assert capsys.readouterr().err == ""
        libraries.release()
        assert capsys.readouterr().err == "before\n"
        print("after", file=sys.stderr)
        assert capsys.readouterr().err == "after\n"
    assert capsys.readouterr().err == ""

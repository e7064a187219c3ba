"""Output on a terminal, in a pipe, with --quiet, and without a command.

Tests of a terminal use a pseudo-terminal of 80 columns in a new process.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli_results import remove_padding
from click.testing import CliRunner
from rich.console import Console
from rich.text import Text

from audit_pipeline.cli import main
from audit_pipeline.cli.audit_output import show_findings
from audit_pipeline.cli.main_command import _EXIT_CODES
from audit_pipeline.cli.output import format_latex, format_markdown, format_setting_with_title
from audit_pipeline.detectors.registry import ORIGINS, REGISTRY
from audit_pipeline.pipeline import console, progress
from audit_pipeline.pipeline.console import (
    collect_output,
    end_step,
    print_message,
    print_result,
    print_step,
    report_slow_work,
    show_progress,
    suppress_progress,
)
from audit_pipeline.pipeline.progress import progress_bar
from audit_pipeline.token_statistics.run import Progress

COMMANDS = Path(__file__).parents[2] / "docs" / "commands.md"
HALF = Progress(texts_done=5, texts_total=10, tokens_done=1500, tokens_total=3000, seconds=3.0)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Replace both streams by a terminal of 80 columns."""
    shown = io.StringIO()
    of_80 = Console(file=shown, force_terminal=True, width=80, emoji=False)
    for module, name in ((progress, "STDERR"), (console, "STDERR"), (console, "STDOUT")):
        monkeypatch.setattr(module, name, of_80)
    return shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Replace the clock of steps, and end the current step after the test."""
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    yield now
    end_step()


def plain(shown: io.StringIO) -> str:
    return Text.from_ansi(shown.getvalue()).plain


def test_a_step_shows_how_far_it_is_in_one_line_of_the_terminal(screen: io.StringIO) -> None:
    print_step("training [bold]")
    show_progress("step 50 of 200\x1b[31m, " + "loss " * 40)
    [step] = console._current
    step.display.refresh()
    print_result("Result")
    lines = [line.rstrip() for line in plain(screen).splitlines() if line.strip()]
    assert lines[0] == "• training [bold]"
    assert any("step 50 of 200\\x1b[31m" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "Result"


def test_a_bar_is_shown_below_the_step(screen: io.StringIO) -> None:
    print_step("auditing")
    with progress_bar("model") as show:
        show(HALF)
        show_progress("neighbours of 3 of 20 texts")
        show(HALF)
        print_step("loading another model")
        show(HALF)
    end_step()
    assert "model ━" in plain(screen)
    assert "5 of 10 texts" in plain(screen)


def test_a_pipe_gets_plain_lines_now_and_then(capsys: pytest.CaptureFixture[str], clock: list[float]) -> None:
    print_step("counting")
    show_progress("1 document")
    for seconds in (2, 14, 1, 3, 14):
        clock[0] += seconds
        show_progress(f"at {clock[0]:.0f}")
    print_step("next")
    end_step()
    show_progress("nobody is waiting")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["• counting", "  at 116", "  at 134", "• next"]


def test_quiet_leaves_out_steps_and_progress_and_nothing_else(
    capsys: pytest.CaptureFixture[str], clock: list[float]
) -> None:
    with suppress_progress(), collect_output(as_json=False):
        print_step("counting")
        clock[0] += 20
        show_progress("half")
        with report_slow_work("looking at") as look:
            clock[0] += 20
            look("files")
        with progress_bar("model") as show:
            show(HALF)
        print_message("1 row(s) skipped:")
        print_result("Result")
    assert not console.is_quiet()
    assert capsys.readouterr() == ("Result\n", "1 row(s) skipped:\n")


def test_quiet_draws_nothing_on_a_terminal(screen: io.StringIO, clock: list[float]) -> None:
    with suppress_progress():
        print_step("counting")
        with progress_bar("model") as show:
            show(HALF)
        end_step()
    assert screen.getvalue() == ""


def test_a_json_document_is_not_drawn_over(
    screen: io.StringIO, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with collect_output(as_json=True):
        print_step("counting")
        print_result("", count=1)
    assert console._current == []
    assert capsys.readouterr().out == '{\n  "count": 1\n}\n'


FINDING = {
    "model": "m",
    "n_members": 100,
    "n_nonmembers": 100,
    **{
        f"{metric}{end}": 1.0
        for metric in ("auroc", "tpr_at_5_fpr", "tpr_at_1_fpr", "fpr_at_95_tpr")
        for end in ("", "_low", "_high")
    },
}
FINDINGS = [
    {**FINDING, "detector": detector, "parameters": parameters}
    for detector, parameters in (
        ("combined", {"of": "zlib,min_k,min_k_plus_plus,gap_k"}),
        ("con_recall", {"gamma": 0.5, "shots": 7}),
        ("loss", {}),
    )
] + [{**FINDING, "detector": "lowercase", "parameters": {}, "tpr_at_5_fpr": None, "auroc": 0.5}]
ANSWER = {
    "detector": "loss",
    "detector_chosen": "named",
    "sides": "labelled",
    "split_verdict": "mild shift",
    "claim_level": "statistical evidence",
    "claim_stated_by": None,
}
UNLABELLED = {**ANSWER, "sides": "audited against held-out"}


def test_the_table_of_findings_fits_80_columns(screen: io.StringIO) -> None:
    fewer = {**FINDINGS[2], "detector": "dc_pdd", "n_members": 98}
    show_findings("long_name_of_a_benchmark_128", [*FINDINGS, fewer], ANSWER)
    shown = plain(screen)
    assert max(map(len, shown.splitlines())) <= 80
    lines = [line.rstrip() for line in shown.splitlines()]
    assert "long_name_of_a_benchmark_128: 100 members, 100 non-members" in lines
    assert "dc_pdd scored only 98 of the members and 100 of the non-members" in lines
    [loss] = [line for line in lines if line.startswith("loss")]
    assert loss.split() == ["loss", "1.000", "[1.000,", "1.000]", "100%", "[100,", "100]", "100%", "[100,", "100]"]
    [lowercase] = [line for line in lines if line.startswith("lowercase")]
    assert "not defined" in lowercase


def test_the_headline_stands_first_and_the_others_are_sorted_by_auroc(screen: io.StringIO) -> None:
    better = {**FINDINGS[2], "detector": "zlib", "auroc": 1.5}
    unknown = {**FINDINGS[2], "detector": "surp", "auroc": None}
    show_findings("made", [unknown, *FINDINGS, better], ANSWER)
    order = ["Headline", "loss", "Also", "zlib", "combined", "con_recall", "lowercase", "surp"]
    assert [word for line in plain(screen).splitlines() for word in line.split()[:1] if word in order] == order


@pytest.mark.parametrize("answer", [None, {**ANSWER, "detector": None}, {**ANSWER, "detector": "dc_pdd"}])
def test_without_a_headline_the_table_has_one_part(screen: io.StringIO, answer: dict[str, Any] | None) -> None:
    show_findings("made", FINDINGS, answer)
    shown = plain(screen)
    assert "Headline" not in shown
    assert "Also tried" not in shown
    assert shown.index("loss") < shown.index("lowercase")


def test_without_known_members_the_detectors_are_only_details(screen: io.StringIO) -> None:
    show_findings("made", FINDINGS, UNLABELLED)
    assert plain(screen) == "\n4 detectors were run. To compare loss with the other detectors, add --details.\n"
    show_findings("made", FINDINGS, UNLABELLED, details=True)
    shown = plain(screen)
    assert "member" not in shown
    assert "made: 100 audited texts, 100 held-out texts" in shown


PAPER = r"""% The document needs \usepackage{booktabs}.
\begin{table}
\centering
\small
\begin{tabular}{lrrrr}
\toprule
detector & AUROC {[}95\% interval] & TPR at 5\% & TPR at 1\% & n \\
\midrule
Headline &  &  &  &  \\
Loss & 1.000 {[}1.000, 1.000] & 100.0\% & 100.0\% & 100 + 100 \\
Also tried &  &  &  &  \\
Combined ranks (of = Zlib, Min-K\%, Min-K\%++, Gap-K\%) & 1.000 {[}1.000, 1.000] & 100.0\% & 100.0\% & 100 + 100 \\
Con-ReCall (gamma = 0.5, shots = 7) & 1.000 {[}1.000, 1.000] & 100.0\% & 100.0\% & 100 + 100 \\
Lowercase & 0.500 {[}1.000, 1.000] & -- & 100.0\% & 100 + 100 \\
\bottomrule
\end{tabular}
\caption{CAPTION}
\end{table}

"""
CAPTION = (
    r"m on made\_8: 100 members, 100 non-members (n: texts that the detector scored). Split: mild shift. Claim level: "
    r"statistical evidence. Intervals are computed over groups of texts. TPR is measured at a false-positive rate of "
    r"5\% and 1\%. The headline detector was named beforehand; the others are sorted by AUROC. --: not defined, or too "
    r"few groups of non-members to measure the rate."
)


def test_a_table_for_a_paper_is_wide_and_has_printable_names_and_a_caption(capsys: pytest.CaptureFixture[str]) -> None:
    with collect_output(as_json=False, layout=format_latex):
        show_findings("made_8", FINDINGS, ANSWER)
    assert remove_padding(capsys.readouterr().out) == remove_padding(PAPER).replace("CAPTION", CAPTION)
    with collect_output(as_json=False, layout=format_markdown):
        show_findings("made_8", FINDINGS, ANSWER)
    caption, empty, heads, *_ = remove_padding(capsys.readouterr().out).splitlines()
    assert caption.startswith("m on made_8: 100 members, 100 non-members")
    assert empty == ""
    assert heads == "| detector | AUROC [95% interval] | TPR at 5% | TPR at 1% | n |"
    with collect_output(as_json=False, layout=format_markdown):
        show_findings("made_8", FINDINGS, {**ANSWER, "detector_chosen": "default"})
    assert "The headline detector is the default one; the others are" in capsys.readouterr().out


def test_every_detector_of_this_package_has_a_printable_name() -> None:
    titles = [detector.title for name, detector in REGISTRY.items() if name not in ORIGINS]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    row = {"detector": "score_of_mine", "parameters": {}}
    assert format_setting_with_title(row) == "score_of_mine"


# The command itself.


@pytest.mark.parametrize(
    ("there", "said", "command"),
    [
        (None, "There are no results yet in data", "demo"),
        ("dagster_home/storage", "An audit was started in data", "demo"),
        ("audit.duckdb", "cannot be read", "doctor --deep"),
    ],
)
def test_without_a_command_the_state_and_the_next_command_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str | None, said: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{Path(sys.argv[0]).resolve().parent}")
    data = tmp_path / "data"
    if there is not None:
        (data / there).parent.mkdir(parents=True)
        (data / there).write_bytes(b"damaged")
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(data))
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0, result.output
    shown = result.stdout
    # The error of DuckDB for a damaged file contains its path.
    assert not [line for line in shown.splitlines() if len(line) > 80 and "cannot be read" not in line]
    assert said in shown
    assert shown.count(f"corpus-audit {command}") == 1
    assert data.exists() == (there is not None), "nothing is made"


def test_help_lists_every_command_once_and_the_exit_codes() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["--help"]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    for name in main.commands:
        assert len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1
    assert "..." not in shown.partition("Exit codes")[0].partition("Begin:")[2], "no description is cut short"
    page = COMMANDS.read_text(encoding="utf-8")
    for code, meaning in _EXIT_CODES:
        assert f"  {code} " in shown
        assert f"| {code} | {meaning} |" in page


SCRIPT = """\
import sys, time
from audit_pipeline.pipeline.console import end_step, print_result, print_message, show_progress, print_step
print_step("building")
show_progress("part 3 of 4")
time.sleep(float(sys.argv[1]))
print_message("1 row(s) skipped", style="yellow")
print_result("Result")
"""


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def test_a_real_terminal_shows_the_seconds_and_colours() -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "80"}
    command = [sys.executable, "-c", SCRIPT, "1.5"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        # Reading fails with an error after the process has closed the terminal.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                written += part
    os.close(ours)
    assert process.returncode == 0, written
    shown = written.decode()
    assert re.search(r"part 3 of 4 .*0:00:01", shown)
    assert COLOUR.search(shown)
    assert shown.rstrip().endswith("Result")

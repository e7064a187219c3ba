"""The command class, shared options, and tables to paste: Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from cli_results import remove_padding
from click.testing import CliRunner, Result

from audit_pipeline.cli.output import format_latex, format_markdown
from audit_pipeline.cli.shared_options import (
    PATH,
    ListedCommand,
    device_option,
    fail_on_option,
    limit_options,
    record_exit_state,
    table_output_options,
)
from audit_pipeline.pipeline.console import print_message, print_result, show_table

HEADS = ["detector", "AUROC [95% interval]", "p", "what"]
ROWS = [
    ["min_k k=0.2", "0.512 [0.41, 0.62]", "1.2×10⁻⁵", "50% & more_\nof [it] | a"],
    ["_loss_ *x*", "not defined", "<0.001", "≥ 3\\"],
]
MARKDOWN = """\
| detector | AUROC [95% interval] | p | what |
|:--|--:|--:|:--|
| min_k k=0.2 | 0.512 [0.41, 0.62] | 1.2×10⁻⁵ | 50% & more\\_ of [it] \\| a |
| \\_loss\\_ \\*x\\* | not defined | \\<0.001 | ≥ 3\\\\ |"""
LATEX = r"""% The document needs \usepackage{booktabs}.
\begin{tabular}{lrrl}
\toprule
detector & AUROC {[}95\% interval] & p & what \\
\midrule
min\_k k=0.2 & 0.512 {[}0.41, 0.62] & 1.2$\times$10$^{-5}$ & 50\% \& more\_ of {[}it] \textbar{} a \\
\_loss\_ {*}x{*} & not defined & $<$0.001 & $\geq$ 3\textbackslash{} \\
\bottomrule
\end{tabular}"""


def test_a_table_to_be_pasted_is_escaped_and_its_numbers_are_aligned_right() -> None:
    assert remove_padding(format_markdown(HEADS, ROWS)) == MARKDOWN
    assert remove_padding(format_latex(HEADS, ROWS)) == LATEX
    assert remove_padding(format_markdown(["n"], [])) == "| n |\n|--|"


@pytest.mark.parametrize(
    ("cell", "is_number"),
    [
        *(
            (number, True)
            for number in ("1,200", "1\u202f020", "−0.12", "1e-05", "5%", "10^-7", "10⁸", "3 of 20", "1 + 1")
        ),
        *((words, False) for words in ("2024-05-31", "16 tokens", "release_64", "", "–")),
    ],
)
def test_which_columns_hold_numbers(cell: str, is_number: bool) -> None:
    assert ("-:|" in format_markdown(["x"], [[cell], ["–"]])) == is_number


@click.command(cls=ListedCommand, keeps="Nothing.")
@click.argument("name")
@click.option("--style", type=click.Choice(["a", "b"]), required=True, help="A style.")
@click.option("--files", type=PATH, multiple=True, metavar="FILES…", help="Files.")
@click.option("--again", is_flag=True, help="Once more.")
@device_option
@limit_options
@fail_on_option("found")
@table_output_options
def work(name: str, style: str, files: tuple[Path, ...], again: bool, **options: Any) -> None:
    """Print a table."""
    print_message("working")
    show_table("rows", [{"n": 1}], [("n", "n")])
    print_result(f"{name} {style} {len(files)} {again} {sorted(options.items())}", style=style)
    if again:
        record_exit_state("found")


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(work, words, env=environment, auto_envvar_prefix="APP_WORK")


def test_a_command_has_its_own_and_shared_options() -> None:
    shown = run("--help").stdout
    for words in ("--style [a|b]", "[required]", "--device", "[x>=1]", "FILES…", "--format", "--quiet"):
        assert words in shown
    assert "If it is stopped: Nothing." in shown
    done = run("x", "--style", "a", "--files", "one", "two", "--max-tokens", "5", APP_WORK_DEVICE="cpu")
    assert "x a 2 False [('device', 'cpu'), ('max_cost', None), ('max_tokens', 5)]" in done.stdout
    for words, problem in (
        (("x",), "Missing option '--style'"),
        (("--style", "a"), "Missing argument"),
        (("x", "--style", "a", "--files"), "--files requires a file or a folder"),
        (("x", "--style", "a", "--max-tokens", "0"), "0 is not in the range"),
    ):
        assert (run(*words).exit_code, problem in run(*words).stderr) == (2, True)
    assert run("x", "--style", "a", "--fail-on", "found").exit_code == 0


def test_tables_alone_are_on_standard_output_and_all_else_on_standard_error() -> None:
    done = run("x", "--style", "a", "--format", "markdown")
    assert remove_padding(done.stdout) == "| n |\n|--:|\n| 1 |\n\n"
    assert done.stderr.startswith("working\nx a 0 False")
    assert "\\begin{tabular}{r}" in run("x", "--style", "a", "--format", "latex").stdout
    assert run("x", "--style", "a", APP_WORK_JSON="1").stdout.startswith("{")
    assert "Give either --json or --format" in run("x", "--style", "a", "--format", "latex", "--json").stderr

"""Output that several commands share: tables to paste, cells of findings, and the resources of a dry run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.pipeline.console import Layout, Row, print_result, prints_tables_to_paste
from audit_pipeline.report.number_format import DASH, format_estimate, format_waiting_time
from audit_pipeline.store.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.options import RunOptions

_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SUPERSCRIPT_RUN = re.compile("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_NUMBER = re.compile(
    r"([<≥~+−-] ?)?\d[\d.,\u202f]*(e[+-]?\d+|(×10)?[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|\^-?\d+)?%?( \[.*\])?( (of|to|\+) [\d.,]+%?)?"
)
_MISSING_VALUES = frozenset({"", DASH, "-", "none", "not defined", "not known", "unknown"})
_LATEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        "<": "$<$",
        ">": "$>$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "×": r"$\times$",
        "−": "$-$",
        "→": r"$\to$",
        # At the start of a row, LaTeX would read these as an optional argument of the row before.
        "[": "{[}",
        "*": "{*}",
        "–": "--",
        "…": r"\ldots{}",
        "\u202f": r"\,",
    }
)
BOOKTABS_NEEDED = r"% The document needs \usepackage{booktabs}."
_MARKDOWN = re.compile(r"[\\|*`<]|(?<!\w)_|_(?!\w)")


def format_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> str:
    """Format a Markdown table, as GitHub reads it, below its caption. Columns of numbers are aligned right."""
    # Shell completion and help do not need this package, so it is imported here.
    from tabulate import tabulate

    table = tabulate(
        [list(map(_escape_markdown, row)) for row in rows],
        list(map(_escape_markdown, heads)),
        tablefmt="pipe",
        colalign=_choose_alignments(heads, rows),
        disable_numparse=True,
    )
    return table if caption is None else f"{_escape_markdown(caption)}\n\n{table}"


def format_latex(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> str:
    """Format a tabular with the rules of the package booktabs. Columns of numbers are aligned right.

    With a caption, the tabular stands in a table environment. The format ``latex_booktabs`` of tabulate would escape
    the cells itself, but not their mathematical characters.
    """
    from tabulate import DataRow, Line, TableFormat, tabulate

    alignments = _choose_alignments(heads, rows)
    columns = "".join(alignment[0] for alignment in alignments)
    row_format = DataRow("", " & ", r" \\")
    table_format = TableFormat(
        lineabove=Line(rf"\begin{{tabular}}{{{columns}}}" + "\n" + r"\toprule", "", "", ""),
        linebelowheader=Line(r"\midrule", "", "", ""),
        linebetweenrows=None,
        linebelow=Line(r"\bottomrule" + "\n" + r"\end{tabular}", "", "", ""),
        headerrow=row_format,
        datarow=row_format,
        padding=0,
        with_header_hide=None,
    )
    tabular = tabulate(
        [list(map(_escape_latex, row)) for row in rows],
        list(map(_escape_latex, heads)),
        tablefmt=table_format,
        colalign=alignments,
        disable_numparse=True,
    )
    lines = [BOOKTABS_NEEDED, tabular]
    if caption is not None:
        # The caption stands below the table, since most classes leave no space between a caption and what follows it.
        environment = [r"\begin{table}", r"\centering", r"\small", tabular]
        lines = [BOOKTABS_NEEDED, *environment, rf"\caption{{{_escape_latex(caption)}}}", r"\end{table}"]
    return "\n".join(lines)


def _choose_alignments(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the alignment of each column: right if all its cells are numbers or missing values."""
    alignments: list[str] = []
    for index in range(len(heads)):
        cells = [row[index] for row in rows if row[index] not in _MISSING_VALUES]
        is_numeric = bool(cells) and all(map(_NUMBER.fullmatch, cells))
        alignments.append("right" if is_numeric else "left")
    return alignments


def _escape_markdown(cell: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", _join_lines(cell))


def _escape_latex(cell: str) -> str:
    line = _join_lines(cell)
    escaped: list[str] = []
    end = 0
    for match in _SUPERSCRIPT_RUN.finditer(line):
        escaped += [line[end : match.start()].translate(_LATEX), f"$^{{{match[0].translate(_SUPERSCRIPTS)}}}$"]
        end = match.end()
    escaped.append(line[end:].translate(_LATEX))
    return "".join(escaped)


def _join_lines(cell: str) -> str:
    # Narrow blanks within a number are not separators, so \s would match too much.
    return re.sub(r"[ \t\r\n]+", " ", cell).strip(" ")


LAYOUTS: dict[str, Layout] = {"markdown": format_markdown, "latex": format_latex}


def format_detector_setting(row: Row) -> str:
    """Format a detector with its parameters as a user types them: *con_recall gamma=0.5*."""
    settings = [f"{name}={value}" for name, value in row["parameters"].items()]
    return " ".join([row["detector"], *settings])


def format_detector_cell(row: Row) -> str:
    """Format a detector with its parameters: as a user types them, or with its title in a table to paste."""
    return format_setting_with_title(row) if prints_tables_to_paste() else format_detector_setting(row)


def format_setting_with_title(row: Row) -> str:
    """Format a detector by its title, with its parameters: *Con-ReCall (gamma = 0.5, shots = 1)*.

    An unknown detector, such as the name of a user's own scores, keeps its name.
    """
    parameters = [f"{name.replace('_', ' ')} = {_format_parameter(value)}" for name, value in row["parameters"].items()]
    title = _get_title(row["detector"])
    return f"{title} ({', '.join(parameters)})" if parameters else title


def _format_parameter(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        # The value may be a list of detectors.
        return ", ".join(map(_get_title, value.split(",")))
    return str(value)


def _get_title(name: str) -> str:
    from audit_pipeline.detectors.registry import REGISTRY

    detector = REGISTRY.get(name)
    return name if detector is None else detector.title or name


def format_side_counts(row: Row) -> str:
    """Format the numbers of members and non-members of a row."""
    return f"{row['n_members']} + {row['n_nonmembers']}"


def build_estimate_formatter(metric: str, format_spec: str = ".3f") -> Callable[[Row], str]:
    """Return a function that formats a metric of a row with its interval."""
    return partial(_format_row_estimate, metric, format_spec)


def _format_row_estimate(metric: str, format_spec: str, row: Row) -> str:
    return format_estimate(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], format_spec)


def print_run_resources(model: TokenizedModel, options: RunOptions) -> None:
    """Print whether the weights fit into the memory of this machine, or the workers that a Ray cluster would run.

    Nothing is printed for a model on a server.
    """
    if not model.entry.host.is_here:
        return
    engine = options.chosen_engine
    if engine.name == "ray":
        count = "as many workers as the cluster can run" if engine.workers is None else f"{engine.workers} workers"
        print_result(
            f"The model would run on a Ray cluster, with {count}. It is not known how long this takes, and whether the "
            "weights fit into the memory of the cluster's machines.",
            cluster={"workers": engine.workers},
        )
        return
    from audit_pipeline.models.weights import check_memory_fit, choose_default_device

    fit = check_memory_fit(model, options.device or choose_default_device())
    print_result(fit.sentences, weights={"bytes": fit.bytes, "fit": fit.now, "words": fit.sentences})


def estimate_seconds(model: TokenizedModel, tokens: int, options: RunOptions) -> float | None:
    """Estimate the seconds of a run. None for a server or a Ray cluster, whose speed is unknown."""
    if not model.entry.host.is_here or options.chosen_engine.name == "ray":
        return None
    from audit_pipeline.models.weights import choose_default_device
    from audit_pipeline.token_statistics.calibration import estimate_pass_seconds

    return estimate_pass_seconds(model, DataPaths.from_environment(), tokens, options.device or choose_default_device())


def format_estimated_time(seconds: float | None) -> str:
    """Format the result of :func:`estimate_seconds` in words."""
    return "not known" if seconds is None else f"about {format_waiting_time(seconds)}"


def print_sending_plan(to_send: Sequence[tuple[TokenizedModel, int]], limits: Limits) -> None:
    """Print the recipients of texts, the number of tokens, their cost, and whether the limits suffice.

    The numbers include the tokens of the requests that check which model a server has. Each check is sent twice: when
    the command starts, and when Dagster runs the audit.

    Args:
        to_send: The model and its reference model, each with the tokens of its texts. Models on this machine are
            skipped.
        limits: The limits of the command.
    """
    from audit_pipeline.scoring.backends import estimate_sending

    estimates = [estimate_sending(model, tokens) for model, tokens in to_send]
    sendings = [estimate for estimate in estimates if estimate is not None]
    if not sendings:
        return
    for sending in sendings:
        cost = "The cost is not known, because the model's entry has no price"
        if sending.cost is not None:
            cost = f"They cost about {sending.cost:,.4g}, by the price in the model's entry"
        print_result(
            f"{sending.model}: {sending.sent_to}. About {sending.tokens:,} tokens would be sent, {sending.probes:,} of "
            f"them to check which model the server has. {cost}."
        )
    tokens = sum(sending.tokens for sending in sendings)
    costs = [sending.cost for sending in sendings if sending.cost is not None]
    limits_set = _describe_limits(limits)
    exceeds_limit = _exceeds_limits(limits, tokens, sum(costs))
    for sending in sendings:
        limits_set += [f"{limit} (the entry of {sending.model})" for limit in _describe_limits(sending.limits)]
        exceeds_limit = exceeds_limit or _exceeds_limits(sending.limits, sending.tokens, sending.cost)
    message = (
        "No limit is set. To set a limit, add --max-tokens or --max-cost, or set max_tokens or max_cost in the model's "
        "entry."
    )
    if limits_set and exceeds_limit:
        message = (
            f"The limit of {' and '.join(limits_set)} does not suffice. The run would stop at the limit and keep "
            "finished work. To continue, run the same command again with a higher limit."
        )
    elif limits_set:
        message = f"The limit of {' and '.join(limits_set)} suffices."
    hosts = [
        {"model": sending.model, "url": sending.url, "tokens": sending.tokens, "cost": sending.cost}
        for sending in sendings
    ]
    print_result(
        message,
        sending={
            "url": sendings[0].url,
            "tokens": tokens,
            "cost": sum(costs) if len(costs) == len(sendings) else None,
            "exceeds_limit": exceeds_limit,
            "max_tokens": limits.max_tokens,
            "max_cost": limits.max_cost,
            "hosts": hosts,
        },
    )


def _describe_limits(limits: Limits) -> list[str]:
    descriptions: list[str] = []
    if limits.max_tokens is not None:
        descriptions.append(f"{limits.max_tokens:,} tokens")
    if limits.max_cost is not None:
        descriptions.append(f"a cost of {limits.max_cost:,.4g}")
    return descriptions


def _exceeds_limits(limits: Limits, tokens: int, cost: float | None) -> bool:
    if limits.max_tokens is not None and tokens > limits.max_tokens:
        return True
    return limits.max_cost is not None and cost is not None and cost > limits.max_cost


def print_next_commands(commands: Mapping[str, str]) -> None:
    """Print commands to try, each above its description. Two columns would not fit into a terminal."""
    print_result("\nNext:")
    for command, description in commands.items():
        print_result(f"  corpus-audit {command}\n      {description}")

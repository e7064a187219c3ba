"""What several commands print: tables to be pasted, cells of findings, and what a dry run says of a pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from audit_pipeline.models.usage_budget import Limits
from audit_pipeline.pipeline.console import Layout, Row, is_layout_output, print_result
from audit_pipeline.report.number_format import DASH, format_estimate, format_waiting_time
from audit_pipeline.store.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.models.tokenized_model import TokenizedModel
    from audit_pipeline.pipeline.options import RunOptions

_RAISED = dict(zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True))
_NUMBER = re.compile(
    r"([<≥~+−-] ?)?\d[\d.,\u202f]*(e[+-]?\d+|(×10)?[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|\^-?\d+)?%?( \[.*\])?( (of|to|\+) [\d.,]+%?)?"
)
_NO_NUMBER = frozenset({"", DASH, "-", "none", "not defined", "not known", "unknown"})
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
        **{"<": "$<$", ">": "$>$", "≥": r"$\geq$", "≤": r"$\leq$", "×": r"$\times$", "−": "$-$", "→": r"$\to$"},
        # In the place of an optional argument they would be taken for one.
        **{"[": "{[}", "*": "{*}", "–": "--", "…": r"\ldots{}", "\u202f": r"\,"},
    }
)
BOOKTABS_NEEDED = r"% The document needs \usepackage{booktabs}."
_SENT = ("model", "url", "tokens", "cost")
_MARKDOWN = re.compile(r"[\\|*`<]|(?<!\w)_|_(?!\w)")


def format_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> str:
    """Format a table as GitHub and most editors read it, its caption above it; columns of numbers are aligned right."""
    escaped = [[_MARKDOWN.sub(r"\\\g<0>", _join_lines(cell)) for cell in cells] for cells in (heads, *rows)]
    rules = ["---:" if is_number else "---" for is_number in _find_number_columns(heads, rows)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (escaped[0], rules, *escaped[1:]))
    if caption is None:
        return table
    words = _MARKDOWN.sub(r"\\\g<0>", _join_lines(caption))
    return f"{words}\n\n{table}"


def format_latex(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None) -> str:
    """Format a tabular with the rules of the package booktabs; columns of numbers are aligned right.

    With a caption, the tabular stands in a table environment.
    """
    first, *others = (" & ".join(map(_escape_latex, cells)) + r" \\" for cells in (heads, *rows))
    alignment = "".join("r" if is_number else "l" for is_number in _find_number_columns(heads, rows))
    begin, end = rf"\begin{{tabular}}{{{alignment}}}", r"\end{tabular}"
    tabular = [begin, r"\toprule", first, r"\midrule", *others, r"\bottomrule", end]
    if caption is not None:
        opening = [r"\begin{table}", r"\centering", r"\small"]
        # Below the table: most classes leave no room between a caption and what follows it.
        tabular = [*opening, *tabular, rf"\caption{{{_escape_latex(caption)}}}", r"\end{table}"]
    return "\n".join([BOOKTABS_NEEDED, *tabular])


def _find_number_columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """List of each column whether it holds numbers, and nothing else but marks of missing values."""
    columns = ([row[place] for row in rows if row[place] not in _NO_NUMBER] for place in range(len(heads)))
    return [bool(cells) and all(map(_NUMBER.fullmatch, cells)) for cells in columns]


def _escape_latex(cell: str) -> str:
    raised = f"[{''.join(_RAISED)}]+"
    return "".join(
        f"$^{{{''.join(map(_RAISED.__getitem__, part))}}}$" if re.fullmatch(raised, part) else part.translate(_LATEX)
        for part in re.split(f"({raised})", _join_lines(cell))
    )


def _join_lines(cell: str) -> str:
    # Narrow blanks within a number stay.
    return re.sub(r"[ \t\r\n]+", " ", cell).strip(" ")


LAYOUTS: dict[str, Layout] = {"markdown": format_markdown, "latex": format_latex}


def format_detector_setting(row: Row) -> str:
    """Format a row's detector with its parameters, which are a mapping."""
    return " ".join([row["detector"], *(f"{name}={value}" for name, value in row["parameters"].items())])


def format_detector_cell(row: Row) -> str:
    """Format a row's detector with its parameters: as a user types them, or printable in a table to be pasted."""
    return format_printable_setting(row) if is_layout_output() else format_detector_setting(row)


def format_printable_setting(row: Row) -> str:
    """Format a row's detector by its title, with its parameters: *Con-ReCall (gamma = 0.5, shots = 1)*.

    A detector that is not known here, such as the name of a user's own scores, stays as it is.
    """
    parameters = [f"{name.replace('_', ' ')} = {_format_parameter(value)}" for name, value in row["parameters"].items()]
    words = f" ({', '.join(parameters)})" if parameters else ""
    return f"{_find_title(row['detector'])}{words}"


def _format_parameter(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A parameter may be a list of detectors.
    return ", ".join(map(_find_title, value.split(","))) if isinstance(value, str) else f"{value}"


def _find_title(detector: str) -> str:
    from audit_pipeline.detectors.registry import REGISTRY

    known = REGISTRY.get(detector)
    return detector if known is None else known.title or detector


def format_side_counts(row: Row) -> str:
    """Format how many members and non-members a row rests on."""
    return f"{row['n_members']} + {row['n_nonmembers']}"


def build_estimate_formatter(metric: str, format_spec: str = ".3f") -> Callable[[Row], str]:
    """Build a function that shows a metric of a row with its interval, in a ``format_spec`` of Python's."""
    return lambda row: format_estimate(row[metric], row[f"{metric}_low"], row[f"{metric}_high"], format_spec)


def say_run_resources(model: TokenizedModel, options: RunOptions) -> None:
    """Say whether the weights fit this machine, and what a Ray cluster is asked for, which a dry run does not reach;
    nothing of a model on a server."""
    engine = options.chosen_engine
    if not model.entry.host.is_here:
        return
    if engine.name != "ray":
        from audit_pipeline.models.weights import check_memory_fit, choose_default_device

        fit = check_memory_fit(model, options.device or choose_default_device())
        print_result(fit.words, weights={"bytes": fit.bytes, "fit": fit.now, "words": fit.words})
        return
    count = "as many workers as it has room for" if engine.workers is None else f"{engine.workers} workers"
    print_result(
        f"The model would be run by a Ray cluster, which is asked for {count}. How long it takes, and whether the "
        "weights fit its machines, is not known here.",
        cluster={"workers": engine.workers},
    )


def estimate_seconds(model: TokenizedModel, tokens: int, options: RunOptions) -> float | None:
    """Estimate how long ``tokens`` tokens take; None for a server or a Ray cluster, whose speed is not known."""
    if not model.entry.host.is_here or options.chosen_engine.name == "ray":
        return None
    from audit_pipeline.models.weights import choose_default_device
    from audit_pipeline.token_statistics.calibration import estimate_pass_seconds

    return estimate_pass_seconds(model, DataPaths.from_environment(), tokens, options.device or choose_default_device())


def format_estimated_time(seconds: float | None) -> str:
    """Format the time of a pass in words."""
    return "not known" if seconds is None else f"about {format_waiting_time(seconds)}"


def say_sending(to_send: Sequence[tuple[TokenizedModel, int]], limits: Limits) -> None:
    """Say where the texts would be sent, how many tokens, what they cost, and whether the limits let them.

    ``to_send``: the model and its reference model, each with the tokens of its texts; nothing is said of those that run
    here. Asking each server which model it is comes on top, once for the command and once for its run. ``limits`` are
    the command's.
    """
    from audit_pipeline.scoring.used_endpoints import estimate_sending

    sendings = [sending for model, tokens in to_send if (sending := estimate_sending(model, tokens)) is not None]
    if not sendings:
        return
    for sending in sendings:
        cost = sending.cost
        money = "no price is given" if cost is None else f"about {cost:,.4g} by the price in its entry"
        print_result(
            f"{sending.model}: {sending.sent_to}. About {sending.tokens:,} tokens would be sent, {sending.probes:,} of "
            f"them to ask the server which model it is; {money}."
        )
    tokens = sum(sending.tokens for sending in sendings)
    costs = [sending.cost for sending in sendings if sending.cost is not None]
    words, is_over = _check_limits(limits, tokens, sum(costs))
    for sending in sendings:
        of_entry, exceeds_entry = _check_limits(sending.limits, sending.tokens, sending.cost)
        words += [f"{limit} (the entry of {sending.model})" for limit in of_entry]
        is_over |= exceeds_entry
    suffices = "does not suffice: the run stops there, and the next run goes on" if is_over else "suffices"
    print_result(
        f"The limit of {' and '.join(words)} {suffices}."
        if words
        else "No limit is set: --max-tokens and --max-cost set a limit, and so does the model's entry.",
        sending={
            **{"url": sendings[0].url, "tokens": tokens, "cost": sum(costs) if len(costs) == len(sendings) else None},
            **{"exceeds_limit": is_over, "max_tokens": limits.max_tokens, "max_cost": limits.max_cost},
            "hosts": [{name: getattr(sending, name) for name in _SENT} for sending in sendings],
        },
    )


def _check_limits(limits: Limits, tokens: int, cost: float | None) -> tuple[list[str], bool]:
    """Return the limits in words, and whether so much would exceed one."""
    words = [] if limits.max_tokens is None else [f"{limits.max_tokens:,} tokens"]
    words += [] if limits.max_cost is None else [f"a cost of {limits.max_cost:,.4g}"]
    over_tokens = limits.max_tokens is not None and tokens > limits.max_tokens
    return words, over_tokens or (limits.max_cost is not None and cost is not None and cost > limits.max_cost)


def say_commands(commands: Mapping[str, str]) -> None:
    """Commands to try, each in a line of its own with what it does below it: two columns would not fit a terminal."""
    print_result("\nNext:")
    for command, what in commands.items():
        print_result(f"  corpus-audit {command}\n      {what}")

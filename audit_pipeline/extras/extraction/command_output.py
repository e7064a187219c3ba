"""Output of the command extract, and the options for texts that the model generates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report import number_format
from audit_pipeline.statistics import claims

if TYPE_CHECKING:
    from audit_pipeline.benchmarks.settings import ExtractionSettings
    from audit_pipeline.extras.extraction.search import Extraction, Search
    from audit_pipeline.extras.extraction.settings_grid import GridFindings
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.token_statistics.backend import BackendOf

_SHOWN_DOCUMENTS = 20
_SHOWN_PASSAGES = 3


@dataclass(frozen=True)
class GenerationOptions:
    """The options for texts that the model generates for passages and documents. An option of None is off.

    Attributes:
        generate: Number of suffixes to sample per passage.
        seed: Seed of the sampled suffixes.
        near_verbatim: Maximum number of tokens in which a continuation may differ from the suffix.
        beams: Number of beams of the beam search for ``near_verbatim``.
        continued: Number of tokens to generate after the first tokens of a document.
    """

    generate: int | None
    seed: int
    near_verbatim: int | None
    beams: int
    continued: int | None

    def require_consistent(self, suffix: int, model: ModelEntry) -> None:
        """Check the options against the number of suffix tokens and the model.

        Raises:
            click.UsageError: If ``near_verbatim`` lets every token differ, or if a model on a server would generate.
        """
        if self.near_verbatim is not None and self.near_verbatim >= suffix:
            raise click.UsageError(
                f"--near-verbatim {self.near_verbatim} must be smaller than the suffix of {suffix} tokens. Choose a "
                "smaller --near-verbatim or a larger --suffix."
            )
        if not model.host.is_here and (self.generate, self.near_verbatim, self.continued) != (None, None, None):
            raise click.UsageError(
                f"{model.name} runs on a server. --generate, --near-verbatim and --continue require the model's "
                "weights on this machine."
            )

    def generate_for_passage(
        self, search: Search, backend_of: BackendOf, result: Extraction, number: int, *, quoted: bool
    ) -> Row:
        """Compute the columns that need generation: the near-verbatim bound, the hits and the greedy suffix.

        Args:
            search: The search.
            backend_of: Loads the model.
            result: The results of the document.
            number: The number of the window in the document.
            quoted: Include the greedily generated text.

        Returns:
            Columns for a table of passages. The columns of options that are off are None.
        """
        from audit_pipeline.extras.extraction.continuations import count_hits, generate_suffix
        from audit_pipeline.extras.extraction.documents import cut_excerpt

        near = None
        hits = None
        greedy = None
        if self.near_verbatim is not None:
            near = search.bound_near_verbatim(result, number, backend_of, self.near_verbatim, self.beams)
        if self.generate is not None:
            forward = search.load_local_pass(backend_of)
            window = search.encode_window(result, number)
            hits = count_hits(forward, window, self.generate, self.seed)
            if quoted:
                greedy = cut_excerpt(generate_suffix(search.model, forward, window))
        near = None if near == -math.inf else near
        return {"log_p_near_verbatim": near, "draws": self.generate, "hits": hits, "greedy": greedy}

    def list_columns(self) -> Columns:
        """Return the columns of generated texts in a table of passages."""
        differ = f"p with up to {self.near_verbatim} different tokens"
        near: Columns = [
            ("p word for word", "log_p_top_40", _format_probability),
            (differ, "log_p_near_verbatim", lambda log_p: f"≥ {_format_probability(log_p)}"),
        ]
        hits: Columns = [
            ("draws equal to the passage", _format_hits),
            ("greedy continuation", "greedy", lambda words: words or number_format.DASH),
        ]
        columns: list[Any] = []
        if self.near_verbatim is not None:
            columns += near
        if self.generate is not None:
            columns += hits
        return columns


def format_draws_needed(log_p: float | None) -> str:
    """Format how many continuations must be sampled to get the passage at least once with a probability of 50%."""
    from audit_pipeline.statistics.power import compute_log_draws

    return number_format.DASH if log_p is None else number_format.format_draws(compute_log_draws(log_p) / math.log(10))


def _format_probability(log_p: float | None) -> str:
    if log_p is None:
        return "0"
    return f"{math.exp(log_p):.2g}" if log_p > -15 else f"10^{log_p / math.log(10):,.0f}"


def _format_hits(row: Row) -> str:
    """Format the observed and the expected number of draws that equal the passage."""
    log_p = row["log_p_top_40"]
    expected = "0" if log_p is None else f"{row['draws'] * math.exp(log_p):.1f}"
    return f"{row['hits']} of {row['draws']}, expected {expected}"


def _format_matches(row: Row) -> str:
    return "not known" if row["matches"] is None else f"{row['matches']} of {row['tokens']}"


def _format_setting(row: Row) -> str:
    before = f"{row['prefix_tokens']} tokens" if row["prefix_tokens"] else "all from the beginning"
    drawn = f"temperature {row['temperature']}, {row['drawn_from']}" if row["temperature"] else "first choices"
    return f"{row['suffix_tokens']} tokens after {before}, {drawn}"


_DRAWS = ("draws for an even chance", "log_p", format_draws_needed)
_PASSAGES: Columns = (
    ("document", "document"),
    ("place", "place"),
    ("characters", lambda row: f"{row['begin']:,} to {row['end']:,}"),
    _DRAWS,
    ("tokens that are the model's first choice", _format_matches),
    ("words before", "prefix", lambda words: words or number_format.DASH),
    ("passage", "suffix", lambda words: words or number_format.DASH),
)
_COST: Columns = (
    ("cost of these draws", "log_cost", lambda log_cost: number_format.format_money(log_cost / math.log(10))),
)
_GRID: Columns = (
    ("document", "document"),
    ("settings", "settings"),
    ("with a suffix of p ≥ 0.001", "settings_reached"),
    ("likeliest setting", _format_setting),
    ("p at this setting", "log_p", _format_probability),
    (
        "p at the requested setting",
        lambda row: _format_probability(row["named_log_p"]) if row["named"] else number_format.DASH,
    ),
    ("p-value over all settings", "p_value", number_format.format_probability),
)
_HELD_OUT: Columns = (
    ("a window with", "threshold", lambda least: "first choices" if least is None else f"p ≥ {least}"),
    ("held-out documents with such a window", lambda row: f"{row['reached']} of {row['documents']}"),
    ("95% interval", lambda row: f"{row['low']:.1%} to {row['high']:.1%}"),
)
_TESTS: Columns = (
    ("windows compared", lambda row: f"{row['windows_compared']} of {row['windows']:,}"),
    ("p-value", "p_value", number_format.format_probability),
    ("q-value", "q_value", number_format.format_probability),
)


def show_continuations(search: Search, backend_of: BackendOf, extractions: Sequence[Extraction], tokens: int) -> None:
    """Print how much of each document the model reproduces from its beginning."""
    from audit_pipeline.extras.extraction.continuations import BLOCK_WORDS, continue_document

    rows: list[Row] = []
    with console.report_slow_work("continuing from the beginning of") as show_status:
        for result in extractions:
            show_status(result.document.name)
            forward = search.load_local_pass(backend_of)
            continuation = continue_document(search.model, forward, result.document.text, search.options.prefix, tokens)
            rows.append({"document": result.document.name, **asdict(continuation)})
    columns: Columns = (
        ("document", "document"),
        ("requested characters", lambda row: f"{row['begin']:,} to {row['end']:,}"),
        (f"words in blocks of {BLOCK_WORDS} or more", lambda row: f"{row['recalled']:,} of {row['words']:,}"),
        ("recall", "recall", number_format.format_percent),
        ("first deviation at character", "left_at", number_format.format_thousands),
    )
    console.show_table("long_runs", rows, columns)


def select_strongest_documents(extractions: Sequence[Extraction]) -> Sequence[Extraction]:
    """Return up to ``_SHOWN_DOCUMENTS`` audited documents with the most likely passages, the most likely first.

    If not all documents are shown, print a note.
    """
    by_strength = sorted(
        (result for result in _filter_by_side(extractions, "audited") if result.memorisation.strongest),
        key=lambda result: result.strongest_log_p or 0.0,
        reverse=True,
    )
    if len(by_strength) > _SHOWN_DOCUMENTS:
        console.print_result(
            f"The tables show passages of the {_SHOWN_DOCUMENTS} documents with the most likely passages, out of "
            f"{len(by_strength)} documents. Use --out FILE to write every window to a file."
        )
    return by_strength[:_SHOWN_DOCUMENTS]


def show_passages(
    search: Search,
    backend_of: BackendOf,
    extractions: Sequence[Extraction],
    generation: GenerationOptions,
    *,
    quoted: bool,
) -> None:
    """Print the strongest passages of the documents, with the texts that the model generates for them."""
    from audit_pipeline.statistics.power import compute_log_cost_of_draws

    passages: list[Row] = []
    price = search.options.price_per_million
    with console.report_slow_work("generating continuations of passages in") as report:
        for result in extractions:
            report(result.document.name)
            for number in result.memorisation.strongest[:_SHOWN_PASSAGES]:
                passage = _build_passage_row(result, number, quoted=quoted)
                generated = generation.generate_for_passage(search, backend_of, result, number, quoted=quoted)
                log_cost = None
                if price:
                    # The windows of answers differ in length.
                    length = len(search.encode_window(result, number).token_id)
                    log_cost = compute_log_cost_of_draws(float(result.windows.log_p[number]), length, price)
                passages.append({**passage, **generated, "log_cost": log_cost})
    console.show_table("passages", passages, [*_PASSAGES, *(_COST if price else ()), *generation.list_columns()])


def show_grid(extractions: Sequence[Extraction], shown: Sequence[Extraction], findings: GridFindings) -> None:
    """Print the results of the grid for the documents ``shown``. The JSON output has all documents and settings."""
    from audit_pipeline.extras.extraction.result_tables import build_grid_rows, summarise_grid

    rows = build_grid_rows(extractions, findings)
    if console.is_json_output():
        console.print_result("", grid=rows)
    names = [result.document.name for result in extractions]
    summaries = dict(zip(names, summarise_grid(extractions, findings), strict=True))
    documents: list[Row] = []
    for result in shown:
        name = result.document.name
        settings = [row for row in rows if row["document_id"] == name]
        if settings:
            documents.append(_build_grid_row(name, settings, summaries[name]))
    console.show_table("grid_documents", documents, _GRID)


def _build_grid_row(name: str, settings: Sequence[Row], summary: Row) -> dict[str, Any]:
    best = max(settings, key=lambda row: -math.inf if row["log_p"] is None else row["log_p"])
    named = [row["log_p"] for row in settings if row["is_named"]]
    n_reached = sum(row["reached"] > 0 for row in settings)
    return {
        "document": name,
        "settings": summary["grid_settings"],
        "settings_reached": n_reached,
        "prefix_tokens": best["prefix_tokens"],
        "suffix_tokens": best["suffix_tokens"],
        "temperature": best["temperature"],
        "drawn_from": best["drawn_from"],
        "log_p": best["log_p"],
        "named": bool(named),
        "named_log_p": named[0] if named else None,
        "p_value": summary["grid_p_value"],
        "q_value": summary["grid_q_bh"],
    }


def show_claims(extractions: Sequence[Extraction]) -> None:
    """Print the claim on the audited documents, and how many held-out documents have reproduced passages."""
    searched = [result for result in extractions if len(result.windows)]
    audited = _filter_by_side(searched, "audited")
    held_out = _filter_by_side(searched, "held_out")
    if not audited:
        console.print_result(
            "No audited document was searched, so there is no conclusion.", claim_level=None, calibrated=False
        )
        return
    apart = sum(result.memorisation.set_apart for result in audited)
    if apart:
        console.print_result(f"{apart:,} window(s) are set apart. {claims.SET_APART_IN_WORDS}", set_apart=apart)
    claim = claims.find_extraction_claim(sum(result.memorisation.reproduced for result in audited))
    console.print_result(claims.EXTRACTION_IN_WORDS[claim], claim_level=claim, claim=claims.EXTRACTION_IN_WORDS[claim])
    if not all(result.windows.top_is_known for result in audited):
        console.print_result(claims.LIKELIEST_UNKNOWN_IN_WORDS, drawn_from="whole distribution")
    if any(result.memorisation.greedy is None for result in audited):
        console.print_result(claims.FIRST_CHOICES_UNKNOWN_IN_WORDS, first_choices_known=False)
    if held_out:
        from audit_pipeline.statistics.conformal import MIN_COMPARED

        _show_held_out_rates(held_out)
        # An answer is compared with one answer of each held-out conversation.
        n_compared = len({result.document.independent_name for result in held_out})
        if n_compared < MIN_COMPARED:
            unit = "conversations" if held_out[0].document.answer is not None else "documents"
            least = f"With {n_compared} held-out {unit} no p-value can be below {1 / (n_compared + 1):.2f}."
            console.print_result(least, least_p_value=1 / (n_compared + 1))
    calibration = claims.NOT_CALIBRATED_IN_WORDS
    if held_out:
        calibration = claims.CALIBRATED_IN_WORDS
        if held_out[0].document.answer is not None:
            calibration = claims.CALIBRATED_ANSWERS_IN_WORDS
    console.print_result(calibration, calibrated=bool(held_out), calibration=calibration)


def _filter_by_side(extractions: Sequence[Extraction], side: str) -> list[Extraction]:
    return [result for result in extractions if result.document.side == side]


def _show_held_out_rates(held_out: Sequence[Extraction]) -> None:
    from audit_pipeline.extras.extraction.result_tables import compute_extraction_rates

    rows = [
        {
            "threshold": rate["threshold"],
            "reached": rate["n_reached"],
            "documents": rate["n_documents"],
            "low": rate["reached_low"],
            "high": rate["reached_high"],
        }
        for rate in compute_extraction_rates(held_out, "")
        if rate["unit"] == "benchmark"
    ]
    console.show_table("held_out", rows, _HELD_OUT)


# Keys of a document in the JSON output, and their columns of the table DOCUMENT_MEMORISATION.
_DOCUMENT_COLUMNS = {
    "document": "document_id",
    "greedy": "covered_by_first_choices",
    "characters": "characters",
    "windows": "windows",
    "reproduced": "reproduced",
    "set_apart": "set_apart",
    "covered_set_apart": "covered_set_apart",
    "longest_run": "longest_run",
    "log_p": "log_p",
    "p_value": "p_value",
    "windows_compared": "windows_compared",
    "q_value": "q_bh",
    "held_out_compared": "n_held_out",
}


def show_documents(extractions: Sequence[Extraction], settings: ExtractionSettings) -> None:
    """Print how much of each audited document the model reproduces, the strongest first."""
    from audit_pipeline.extras.extraction.memorisation import THRESHOLDS
    from audit_pipeline.extras.extraction.result_tables import COVERED_COLUMNS, build_document_rows

    audited = [row for row in build_document_rows(extractions, settings, "") if row["side"] == "audited"]
    covered = {f"covered_{threshold}": column for threshold, column in zip(THRESHOLDS, COVERED_COLUMNS, strict=True)}
    names = {**_DOCUMENT_COLUMNS, **covered}
    rows: list[dict[str, Any]] = []
    for row in audited:
        if row["windows"]:
            rows.append({name: row[column] for name, column in names.items()})
    rows.sort(key=lambda row: -math.inf if row["log_p"] is None else row["log_p"], reverse=True)
    # The reason is empty if a document is shorter than a window. An answer has a reason of its own.
    short = [row["document_id"] for row in audited if row["reason"] == ""]
    if short:
        named = ", ".join([*short[:5], "…"] if len(short) > 5 else short)
        words = f"{len(short)} document(s) are shorter than a window, so they were not searched: {named}"
        console.print_result(words, shorter_than_a_window=short)
    _show_answers_without_window(audited)
    columns: list[Any] = [
        ("document", "document"),
        ("characters", "characters", number_format.format_thousands),
        ("windows", "windows", number_format.format_thousands),
    ]
    columns += [(f"p ≥ {threshold}", f"covered_{threshold}", number_format.format_share) for threshold in THRESHOLDS]
    columns.append(("first choices alone", "greedy", number_format.format_share))
    if any(row["set_apart"] for row in rows):
        columns.append(("set apart", "covered_set_apart", number_format.format_share))
    columns += [("longest run", "longest_run", number_format.format_thousands), _DRAWS]
    if any(row["p_value"] is not None for row in rows):
        columns += _TESTS
    console.show_table("documents", rows, columns)


def _show_answers_without_window(rows: Sequence[Row]) -> None:
    """Print the number of answers that were not searched for each reason."""
    names_by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            names_by_reason.setdefault(row["reason"], []).append(row["document_id"])
    if not names_by_reason:
        return
    reasons = [f"{len(names)} ({reason})" for reason, names in names_by_reason.items()]
    console.print_result(f"Answers that were not searched: {'; '.join(reasons)}", not_searched=names_by_reason)


def _build_passage_row(result: Extraction, number: int, *, quoted: bool) -> Row:
    from audit_pipeline.extras.extraction.documents import cut_excerpt
    from audit_pipeline.readers.whole_files.document import describe_place

    windows = result.windows
    text = result.document.text
    start = int(windows.start[number])
    begin = int(windows.begin[number])
    end = int(windows.end[number])
    log_p_top: float | None = None
    if windows.top_is_known and math.isfinite(windows.log_p_top[number]):
        log_p_top = float(windows.log_p_top[number])
    place = None
    if result.document.answer is None:
        place = describe_place(text, begin, result.document.places)
    prefix = None
    suffix = None
    if quoted:
        prefix = cut_excerpt(text[start:begin], last=True)
        suffix = cut_excerpt(text[begin:end])
    return {
        "document": result.document.name,
        "start": start,
        "begin": begin,
        "end": end,
        "place": place,
        "log_p": float(windows.log_p[number]),
        "log_p_top_40": log_p_top,
        "matches": None if windows.matches is None else int(windows.matches[number]),
        "tokens": int(windows.tokens[number]),
        "prefix": prefix,
        "suffix": suffix,
    }

"""What the command extract prints of documents, and what it lets a model generate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.pipeline.console import Columns, Row, is_json_output, print_result, report_slow_work, show_table
from audit_pipeline.report.number_format import (
    DASH,
    format_draws,
    format_money,
    format_percent,
    format_probability,
    format_share,
    format_thousands,
)
from audit_pipeline.statistics.claims import (
    CALIBRATED_IN_WORDS,
    EXTRACTION_IN_WORDS,
    FIRST_CHOICES_UNKNOWN_IN_WORDS,
    LIKELIEST_UNKNOWN_IN_WORDS,
    NOT_CALIBRATED_IN_WORDS,
    SET_APART_IN_WORDS,
    find_extraction_claim,
)

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
    """What the model is asked to generate; None: not asked for."""

    generate: int | None
    seed: int
    near_verbatim: int | None
    beams: int
    continued: int | None

    def require_consistent(self, suffix: int, model: ModelEntry) -> None:
        """Raise UsageError where options do not go together, where any continuation would be near a ``suffix`` of so
        many tokens, and where a model behind an interface is to generate.
        """
        if self.near_verbatim is not None and self.near_verbatim >= suffix:
            raise click.UsageError("--near-verbatim has to be smaller than --suffix")
        if not model.host.is_here and (self.generate, self.near_verbatim, self.continued) != (None, None, None):
            raise click.UsageError(
                f"{model.name} runs on a server: to go on (--generate, --near-verbatim, --continue) a model's "
                "weights have to be on this machine"
            )

    def generate_for_passage(
        self, search: Search, backend_of: BackendOf, result: Extraction, number: int, *, quoted: bool
    ) -> Row:
        """Return what came of a document's window ``number``, None where it was not asked for."""
        from audit_pipeline.extras.extraction.continuations import count_hits, generate_suffix
        from audit_pipeline.extras.extraction.documents import cut_excerpt

        near, hits, greedy = None, None, None
        if self.near_verbatim is not None:
            near = search.bound_near_verbatim(result, number, backend_of, self.near_verbatim, self.beams)
        if self.generate is not None:
            forward, window = search.load_local_pass(backend_of), search.encode_window(result, number)
            hits = count_hits(forward, window, self.generate, self.seed)
            greedy = cut_excerpt(generate_suffix(search.model, forward, window)) if quoted else None
        near = None if near == -math.inf else near
        return {"log_p_near_verbatim": near, "draws": self.generate, "hits": hits, "greedy": greedy}

    def list_columns(self) -> Columns:
        """List the columns of a table of passages that hold it."""
        differ = f"p where up to {self.near_verbatim} tokens differ"
        near: Columns = [
            ("p word for word", "log_p_top_40", _format_probability),
            (differ, "log_p_near_verbatim", lambda log_p: f"≥ {_format_probability(log_p)}"),
        ]
        hits: Columns = [
            ("drawn", _format_hits),
            ("by its first choices the model gives", "greedy", lambda words: words or DASH),
        ]
        return [*(near if self.near_verbatim is not None else []), *(hits if self.generate is not None else [])]


def format_draws_needed(log_p: float | None) -> str:
    """Format how many draws from the whole distribution give the passage at least once with an even chance."""
    from audit_pipeline.statistics.draw_cost import compute_log_draws

    return DASH if log_p is None else format_draws(compute_log_draws(log_p) / math.log(10))


def _format_probability(log_p: float | None) -> str:
    if log_p is None:
        return "0"
    return f"{math.exp(log_p):.2g}" if log_p > -15 else f"10^{log_p / math.log(10):,.0f}"


def _format_hits(row: Row) -> str:
    """Format how many draws, which are among the likeliest tokens, are the passage, and how many are expected to be."""
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
    ("tokens that are its first choice", _format_matches),
    ("words before", "prefix", lambda words: words or DASH),
    ("passage", "suffix", lambda words: words or DASH),
)
_COST: Columns = (("cost of these draws", "log_cost", lambda log_cost: format_money(log_cost / math.log(10))),)
_GRID: Columns = (
    ("document", "document"),
    ("settings", "settings"),
    ("with a suffix of p ≥ 0.001", "settings_reached"),
    ("likeliest setting", _format_setting),
    ("p there", "log_p", _format_probability),
    ("p at the named setting", lambda row: _format_probability(row["named_log_p"]) if row["named"] else DASH),
    ("p-value over all settings", "p_value", format_probability),
)
_HELD_OUT: Columns = (
    ("a window of", "threshold", lambda least: "first choices" if least is None else f"p ≥ {least}"),
    ("held-out documents with one", lambda row: f"{row['reached']} of {row['documents']}"),
    ("95% interval", lambda row: f"{row['low']:.1%} to {row['high']:.1%}"),
)
_TESTS: Columns = (
    ("windows compared", lambda row: f"{row['windows_compared']} of {row['windows']:,}"),
    ("p-value", "p_value", format_probability),
    ("q-value", "q_value", format_probability),
)


def show_continuations(search: Search, backend_of: BackendOf, extractions: Sequence[Extraction], tokens: int) -> None:
    """Show a row for each of the ``extractions``: how much of its document the model gives from the beginning on."""
    from audit_pipeline.extras.extraction.continuations import BLOCK_WORDS, continue_document

    rows: list[Row] = []
    with report_slow_work("continuing from the beginning of") as show_status:
        for result in extractions:
            show_status(result.document.name)
            forward, text = search.load_local_pass(backend_of), result.document.text
            found = continue_document(search.model, forward, text, search.options.prefix, tokens)
            rows.append({"document": result.document.name, **asdict(found)})
    columns: Columns = (
        ("document", "document"),
        ("characters that were asked for", lambda row: f"{row['begin']:,} to {row['end']:,}"),
        (f"words in blocks of {BLOCK_WORDS} or more", lambda row: f"{row['recalled']:,} of {row['words']:,}"),
        ("recall", "recall", format_percent),
        ("leaves the text at character", "left_at", format_thousands),
    )
    show_table("long_runs", rows, columns)


def select_strongest_documents(extractions: Sequence[Extraction]) -> Sequence[Extraction]:
    """Select the audited documents that are shown one by one, the strongest first."""
    by_strength = sorted(
        (result for result in _filter_by_side(extractions, "audited") if result.memorisation.strongest),
        key=lambda result: result.strongest_log_p or 0.0,
        reverse=True,
    )
    if len(by_strength) > _SHOWN_DOCUMENTS:
        print_result(
            f"Passages of the {_SHOWN_DOCUMENTS} strongest documents of {len(by_strength)}; --out has every window."
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
    """Show the strongest passages of the ``extractions``, with what the model generates in their place."""
    from audit_pipeline.statistics.draw_cost import compute_log_cost_of_draws

    passages: list[Row] = []
    price, length = search.options.price_per_million, search.options.lengths.window
    with report_slow_work("generating continuations of passages in") as report:
        for result in extractions:
            report(result.document.name)
            passages += [
                {
                    **_build_passage_row(result, number, quoted=quoted),
                    **generation.generate_for_passage(search, backend_of, result, number, quoted=quoted),
                    "log_cost": price and compute_log_cost_of_draws(float(result.windows.log_p[number]), length, price),
                }
                for number in result.memorisation.strongest[:_SHOWN_PASSAGES]
            ]
    show_table("passages", passages, [*_PASSAGES, *(_COST if price else ()), *generation.list_columns()])


def show_grid(extractions: Sequence[Extraction], shown: Sequence[Extraction], findings: GridFindings) -> None:
    """Show what the grid shows of the documents that are ``shown``; as JSON, each setting of every document, too."""
    from audit_pipeline.extras.extraction.result_tables import build_grid_rows, summarise_grid

    rows = build_grid_rows(extractions, findings)
    if is_json_output():
        print_result("", grid=rows)
    of_whole = dict(
        zip((result.document.name for result in extractions), summarise_grid(extractions, findings), strict=True)
    )
    settings = {
        result.document.name: [row for row in rows if row["document_id"] == result.document.name] for result in shown
    }
    found = [_build_grid_row(name, rows, of_whole[name]) for name, rows in settings.items() if rows]
    show_table("grid_documents", found, _GRID)


def _build_grid_row(name: str, settings: Sequence[Row], of_whole: Row) -> dict[str, Any]:
    best = max(settings, key=lambda row: -math.inf if row["log_p"] is None else row["log_p"])
    named = [row["log_p"] for row in settings if row["is_named"]]
    return {
        "document": name,
        "settings": of_whole["grid_settings"],
        "settings_reached": sum(row["reached"] > 0 for row in settings),
        **{key: best[key] for key in ("prefix_tokens", "suffix_tokens", "temperature", "drawn_from", "log_p")},
        "named": bool(named),
        "named_log_p": named[0] if named else None,
        "p_value": of_whole["grid_p_value"],
        "q_value": of_whole["grid_q_bh"],
    }


def show_claims(extractions: Sequence[Extraction]) -> None:
    """Show what may be said of the audited documents, and what the held-out ones say of that."""
    searched = [result for result in extractions if len(result.windows)]
    audited, held_out = _filter_by_side(searched, "audited"), _filter_by_side(searched, "held_out")
    if not audited:
        print_result("No document was searched, so nothing is claimed.", claim_level=None, calibrated=False)
        return
    apart = sum(result.memorisation.set_apart for result in audited)
    if apart:
        print_result(f"{apart:,} window(s) are set apart. {SET_APART_IN_WORDS}", set_apart=apart)
    claim = find_extraction_claim(sum(result.memorisation.reproduced for result in audited))
    print_result(EXTRACTION_IN_WORDS[claim], claim_level=claim, claim=EXTRACTION_IN_WORDS[claim])
    if not all(result.windows.top_is_known for result in audited):
        print_result(LIKELIEST_UNKNOWN_IN_WORDS, drawn_from="whole distribution")
    if any(result.memorisation.greedy is None for result in audited):
        print_result(FIRST_CHOICES_UNKNOWN_IN_WORDS, first_choices_known=False)
    if held_out:
        from audit_pipeline.statistics.conformal import MIN_COMPARED

        _show_held_out_rates(held_out)
        if len(held_out) < MIN_COMPARED:
            least = f"With {len(held_out)} held-out documents no p-value can be below {1 / (len(held_out) + 1):.2f}."
            print_result(least, least_p_value=1 / (len(held_out) + 1))
    calibration = CALIBRATED_IN_WORDS if held_out else NOT_CALIBRATED_IN_WORDS
    print_result(calibration, calibrated=bool(held_out), calibration=calibration)


def _filter_by_side(extractions: Sequence[Extraction], side: str) -> list[Extraction]:
    return [result for result in extractions if result.document.side == side]


def _show_held_out_rates(held_out: Sequence[Extraction]) -> None:
    from audit_pipeline.extras.extraction.result_tables import compute_extraction_rates

    rows = [
        {
            **{"threshold": rate["threshold"], "reached": rate["n_reached"], "documents": rate["n_documents"]},
            **{"low": rate["reached_low"], "high": rate["reached_high"]},
        }
        for rate in compute_extraction_rates(held_out, "")
        if rate["unit"] == "benchmark"
    ]
    show_table("held_out", rows, _HELD_OUT)


_DOCUMENT_COLUMNS = {
    **{"document": "document_id", "greedy": "covered_by_first_choices"},
    **{name: name for name in ("characters", "windows", "reproduced", "set_apart", "covered_set_apart", "longest_run")},
    **{name: name for name in ("log_p", "p_value", "windows_compared")},
    **{"q_value": "q_bh", "held_out_compared": "n_held_out"},
}
"""What is shown of a document, and the column of DOCUMENT_MEMORISATION that it is."""


def show_documents(extractions: Sequence[Extraction], settings: ExtractionSettings) -> None:
    """Show how much of each audited document the model gives, the strongest first."""
    from audit_pipeline.extras.extraction.memorisation import THRESHOLDS
    from audit_pipeline.extras.extraction.result_tables import COVERED_COLUMNS, build_document_rows

    audited = [row for row in build_document_rows(extractions, settings, "") if row["side"] == "audited"]
    covered = {f"covered_{threshold}": column for threshold, column in zip(THRESHOLDS, COVERED_COLUMNS, strict=True)}
    names = {**_DOCUMENT_COLUMNS, **covered}
    rows = [{name: row[column] for name, column in names.items()} for row in audited if row["windows"]]
    rows.sort(key=lambda row: -math.inf if row["log_p"] is None else row["log_p"], reverse=True)
    short = [row["document_id"] for row in audited if not row["windows"]]
    if short:
        named = f"{', '.join(short[:5])}{', …' if len(short) > 5 else ''}"
        words = f"{len(short)} document(s) are shorter than a window, so nothing is known of them: {named}"
        print_result(words, shorter_than_a_window=short)
    set_apart = (("set apart", "covered_set_apart", format_share),) if any(row["set_apart"] for row in rows) else ()
    columns: Columns = [
        ("document", "document"),
        ("characters", "characters", format_thousands),
        ("windows", "windows", format_thousands),
        *((f"p ≥ {threshold}", f"covered_{threshold}", format_share) for threshold in THRESHOLDS),
        ("first choices alone", "greedy", format_share),
        *set_apart,
        ("longest run", "longest_run", format_thousands),
        _DRAWS,
        *(_TESTS if any(row["p_value"] is not None for row in rows) else ()),
    ]
    show_table("documents", rows, columns)


def _build_passage_row(result: Extraction, number: int, *, quoted: bool) -> Row:
    from audit_pipeline.extras.extraction.documents import cut_excerpt
    from audit_pipeline.readers.whole_files.document import describe_place

    windows, text = result.windows, result.document.text
    start, begin, end = (int(places[number]) for places in (windows.start, windows.begin, windows.end))
    log_p_top = float(windows.log_p_top[number])
    return {
        "document": result.document.name,
        "start": start,
        "begin": begin,
        "end": end,
        "place": describe_place(text, begin, result.document.places),
        "log_p": float(windows.log_p[number]),
        "log_p_top_40": log_p_top if windows.top_is_known and math.isfinite(log_p_top) else None,
        "matches": None if windows.matches is None else int(windows.matches[number]),
        "tokens": int(windows.tokens[number]),
        "prefix": cut_excerpt(text[start:begin], last=True) if quoted else None,
        "suffix": cut_excerpt(text[begin:end]) if quoted else None,
    }

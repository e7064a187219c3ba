"""The part of the command extract that lets a model generate: its options, and what is shown of it.

What belongs here: options of generation, columns and tables of what is generated. What does not: generating
(extraction/), what is shown of probabilities alone (cli/extraction_shown.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import click

from audit_pipeline.extraction.defaults import BEAMS
from audit_pipeline.operate.console import Columns, Row, report_slow_work, show_table
from audit_pipeline.operate.options import Option
from audit_pipeline.report.numbers import DASH, percent, thousands

if TYPE_CHECKING:
    from audit_pipeline.extraction.search import Extracted, Search
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.token_statistics.backend import BackendOf

_NOT_KEPT = "Loads the model, and is not kept in the cache."


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What the model is asked to generate; None: not asked for."""

    generate: Annotated[
        int | None,
        Option(
            "Let the model go on behind the prefixes of the strongest passages: by its first choices, and N times "
            f"drawn. {_NOT_KEPT}",
            click.IntRange(min=1),
            metavar="N",
        ),
    ] = None
    seed: Annotated[int, Option("Seed of the draws.", shows_default=True)] = 0
    near_verbatim: Annotated[
        int | None,
        Option(
            "For the strongest passages: how likely the model, drawing among its 40 likeliest tokens, gives the suffix "
            f"with at most D other tokens: a lower bound, by beam search. {_NOT_KEPT}",
            click.IntRange(min=1),
            metavar="D",
        ),
    ] = None
    beams: Annotated[
        int,
        Option(
            "Continuations that --near-verbatim follows at a time. More take longer, and can raise the bound.",
            click.IntRange(min=1),
            shows_default=True,
        ),
    ] = BEAMS
    edits: Annotated[
        bool,
        Option("With --near-verbatim: count tokens that are replaced, put in or left out (Levenshtein), not places."),
    ] = False
    continued: Annotated[
        int | None,
        Option(
            "Give the model the first --prefix tokens of the strongest documents, let it go on by its first choices "
            f"for TOKENS tokens, and say how much of the document came. {_NOT_KEPT}",
            click.IntRange(min=1),
            flag="--continue",
            metavar="TOKENS",
        ),
    ] = None

    def require_sense(self, suffix: int) -> None:
        """Raise UsageError where options do not go together, or any continuation would be near a ``suffix`` of so many
        tokens."""
        if self.edits and self.near_verbatim is None:
            raise click.UsageError("--edits goes with --near-verbatim")
        if self.near_verbatim is not None and self.near_verbatim >= suffix:
            raise click.UsageError("--near-verbatim has to be smaller than --suffix")

    def require_weights(self, entry: ModelEntry) -> None:
        """Raise UsageError where a model that is behind an interface is to go on."""
        asked = self.generate is not None or self.near_verbatim is not None or self.continued is not None
        if asked and not entry.host.is_here:
            raise click.UsageError(
                f"{entry.name} is behind an interface: to go on (--generate, --near-verbatim, --continue) a model's "
                "weights have to be on this machine"
            )

    def of_passage(self, search: Search, backend_of: BackendOf, one: Extracted, number: int, *, quoted: bool) -> Row:
        """What came of a document's window ``number``: facts by name, None where they were not asked for."""
        from audit_pipeline.extraction.documents import excerpt

        near, drawn = None, None
        if self.near_verbatim is not None:
            from audit_pipeline.extraction.near_verbatim import Nearness

            near = search.near_verbatim(one, number, backend_of, Nearness(self.near_verbatim, self.beams, self.edits))
        if self.generate is not None:
            drawn = search.generated(one, number, backend_of, self.generate, self.seed)
        return {
            "log_p_near_verbatim": None if near == -math.inf else near,
            "draws": drawn and drawn.draws,
            "hits": drawn and drawn.hits,
            "greedy": excerpt(drawn.greedy) if drawn is not None and quoted else None,
        }

    def columns(self) -> Columns:
        """The columns of a table of passages that hold it."""
        near: Columns = [
            ("p word for word", "log_p_top_40", _probability),
            (self._near_in_words(), "log_p_near_verbatim", lambda log_p: f"≥ {_probability(log_p)}"),
        ]
        hits: Columns = [
            ("drawn", lambda row: f"{row['hits']} of {row['draws']}, expected {_expected(row)}"),
            ("by its first choices the model gives", "greedy", lambda words: words or DASH),
        ]
        return [*(near if self.near_verbatim is not None else []), *(hits if self.generate is not None else [])]

    def _near_in_words(self) -> str:
        return (
            f"p within {self.near_verbatim} edits"
            if self.edits
            else f"p where up to {self.near_verbatim} tokens differ"
        )


def show_long_runs(search: Search, backend_of: BackendOf, shown: Sequence[Extracted], tokens: int) -> None:
    """A row for each of the documents ``shown``: how much of it the model gives from its beginning on."""
    from audit_pipeline.extraction.long_runs import BLOCK_WORDS

    rows: list[Row] = []
    with report_slow_work("continuing from the beginning of") as tell_what:
        for one in shown:
            tell_what(one.document.name)
            found = search.long_run(one.document, backend_of, tokens)
            rows.append(
                {
                    "document": one.document.name,
                    "tokens": found.tokens,
                    "begin": found.begin,
                    "end": found.end,
                    "words": found.recall.words,
                    "recalled": found.recall.recalled,
                    "recall": found.recall.share,
                    "left_at": found.left_at,
                }
            )
    show_table(
        "long_runs",
        rows,
        [
            ("document", "document"),
            ("characters that were asked for", lambda row: f"{row['begin']:,} to {row['end']:,}"),
            (f"words in blocks of {BLOCK_WORDS} or more", lambda row: f"{row['recalled']:,} of {row['words']:,}"),
            ("recall", "recall", percent),
            ("leaves the text at character", "left_at", thousands),
        ],
    )


def draws_needed(log_p: float) -> str:
    """How many draws from the whole distribution give the passage at least once with an even chance."""
    from audit_pipeline.extraction.conclude import log_draws

    needed = log_draws(log_p)
    # Rounded up: one draw less gives it less often.
    return f"{math.ceil(math.exp(needed) - 1e-9):,}" if needed < 15 else f"10^{needed / math.log(10):,.0f}"


def _probability(log_p: float | None) -> str:
    if log_p is None:
        return "0"
    return f"{math.exp(log_p):.2g}" if log_p > -15 else f"10^{log_p / math.log(10):,.0f}"


def _expected(row: Row) -> str:
    """How many of the draws would be the passage on average: they are among the likeliest tokens."""
    return "0" if row["log_p_top_40"] is None else f"{row['draws'] * math.exp(row['log_p_top_40']):.1f}"

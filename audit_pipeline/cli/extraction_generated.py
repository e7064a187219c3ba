"""The part of the command extract that lets a model go on: its options, and what is shown of it.

What belongs here: options of going on, columns and tables of what came of it. What does not: letting the model go on
(extraction/), what is shown of probabilities alone (cli/extraction_shown.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.contracts import BEAMS
from audit_pipeline.operate.console import Columns, Row, show_table, telling_what_takes_long

if TYPE_CHECKING:
    from audit_pipeline.extraction.search import Extracted, Search
    from audit_pipeline.models.config import ModelEntry
    from audit_pipeline.token_statistics.backend import BackendOf

_NOT_KEPT = "Loads the model, and is not kept in the cache."


@dataclass(frozen=True)
class GoingOn:
    """How the model is asked to go on: ``draws`` with a ``seed`` behind the strongest passages; near-verbatim, with up
    to ``differing`` other tokens (``edits``: edits), by so many ``beams``; for ``tokens`` from the beginning of
    a document. None: not asked for."""

    draws: int | None
    seed: int
    differing: int | None
    beams: int
    edits: bool
    tokens: int | None

    def require_sense(self, suffix: int) -> None:
        """Raise UsageError where options do not go together, or any continuation would be near a ``suffix`` of so many
        tokens."""
        if self.edits and self.differing is None:
            raise click.UsageError("--edits goes with --near-verbatim")
        if self.differing is not None and self.differing >= suffix:
            raise click.UsageError("--near-verbatim has to be smaller than --suffix")

    def require_weights(self, entry: ModelEntry) -> None:
        """Raise UsageError where a model that is behind an interface is to go on."""
        asked = self.draws is not None or self.differing is not None or self.tokens is not None
        if asked and not entry.host.is_here:
            raise click.UsageError(
                f"{entry.name} is behind an interface: to go on (--generate, --near-verbatim, --continue) a model's "
                "weights have to be on this machine"
            )

    def of_passage(self, search: Search, backend_of: BackendOf, one: Extracted, number: int, *, quoted: bool) -> Row:
        """What came of a document's window ``number``: facts by name, None where they were not asked for."""
        from audit_pipeline.extraction.documents import excerpt

        near, drawn = None, None
        if self.differing is not None:
            from audit_pipeline.extraction.near_verbatim import Nearness

            near = search.near_verbatim(one, number, backend_of, Nearness(self.differing, self.beams, self.edits))
        if self.draws is not None:
            drawn = search.generated(one, number, backend_of, self.draws, self.seed)
        return {
            "log_p_near_verbatim": None if near == -math.inf else near,
            "draws": drawn and drawn.draws,
            "hits": drawn and drawn.hits,
            "greedy": excerpt(drawn.greedy) if drawn is not None and quoted else None,
        }

    def columns(self) -> Columns:
        """The columns of a table of passages that hold it."""
        near: Columns = [
            ("p word for word", lambda row: _probability(row["log_p_top_40"])),
            (self._near_in_words(), lambda row: f"≥ {_probability(row['log_p_near_verbatim'])}"),
        ]
        hits: Columns = [
            ("drawn", lambda row: f"{row['hits']} of {row['draws']}, expected {_expected(row)}"),
            ("by its first choices the model gives", lambda row: row["greedy"] or "-"),
        ]
        return [*(near if self.differing is not None else []), *(hits if self.draws is not None else [])]

    def _near_in_words(self) -> str:
        return f"p within {self.differing} edits" if self.edits else f"p where up to {self.differing} tokens differ"


def going_on_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of letting the model go on, given to ``command`` as one :class:`GoingOn`, ``going_on``."""

    @click.option(
        "--generate",
        "draws",
        type=click.IntRange(min=1),
        metavar="N",
        help="Let the model go on behind the prefixes of the strongest passages: by its first choices, and N times "
        f"drawn. {_NOT_KEPT}",
    )
    @click.option("--seed", default=0, show_default=True, help="Seed of the draws.")
    @click.option(
        "--near-verbatim",
        "differing",
        type=click.IntRange(min=1),
        metavar="D",
        help="For the strongest passages: how likely the model, drawing among its 40 likeliest tokens, gives the "
        f"suffix with at most D other tokens: a lower bound, by beam search. {_NOT_KEPT}",
    )
    @click.option(
        "--beams",
        default=BEAMS,
        show_default=True,
        type=click.IntRange(min=1),
        help="Continuations that --near-verbatim follows at a time. More take longer, and can raise the bound.",
    )
    @click.option(
        "--edits",
        is_flag=True,
        help="With --near-verbatim: count tokens that are replaced, put in or left out (Levenshtein), not places.",
    )
    @click.option(
        "--continue",
        "tokens",
        type=click.IntRange(min=1),
        metavar="TOKENS",
        help="Give the model the first --prefix tokens of the strongest documents, let it go on by its first choices "
        f"for TOKENS tokens, and say how much of the document came. {_NOT_KEPT}",
    )
    @functools.wraps(command)
    def run(
        *arguments: Any,
        draws: int | None,
        seed: int,
        differing: int | None,
        beams: int,
        edits: bool,
        tokens: int | None,
        **options: Any,
    ) -> None:
        command(*arguments, going_on=GoingOn(draws, seed, differing, beams, edits, tokens), **options)

    return run


def show_long_runs(search: Search, backend_of: BackendOf, shown: Sequence[Extracted], tokens: int) -> None:
    """A row for each of the documents ``shown``: how much of it the model gives from its beginning on."""
    from audit_pipeline.extraction.long_runs import BLOCK_WORDS

    rows: list[Row] = []
    with telling_what_takes_long("going on from the beginning of") as tell_what:
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
            ("recall", _recall),
            ("leaves the text at character", lambda row: f"{row['left_at']:,}"),
        ],
    )


def draws_needed(log_p: float) -> str:
    """How many draws from the whole distribution give the passage at least once with an even chance."""
    from audit_pipeline.extraction.conclude import log_draws

    needed = log_draws(log_p)
    # Rounded up: one draw less gives it less often.
    return f"{math.ceil(math.exp(needed) - 1e-9):,}" if needed < 15 else f"10^{needed / math.log(10):,.0f}"


def _recall(row: Row) -> str:
    """The share of the words; none is known of a text without room for a block."""
    return "-" if row["recall"] is None else f"{row['recall']:.1%}"


def _probability(log_p: float | None) -> str:
    if log_p is None:
        return "0"
    return f"{math.exp(log_p):.2g}" if log_p > -15 else f"10^{log_p / math.log(10):,.0f}"


def _expected(row: Row) -> str:
    """How many of the draws would be the passage on average: they are among the likeliest tokens."""
    return "0" if row["log_p_top_40"] is None else f"{row['draws'] * math.exp(row['log_p_top_40']):.1f}"

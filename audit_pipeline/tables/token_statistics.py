"""What a forward pass leaves per token, by kind of cache, and how often a corpus holds each token.

The cache keeps a kind's rows in parts of its own, by text and model; the warehouse has one row per text of the base
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables.table import (
    Column,
    ColumnType,
    Table,
    boolean,
    count,
    double,
    int32,
    int64,
    list_type_of,
    string,
)

_token_floats = ColumnType(list_type_of(pa.float32()), file_only=True)
_token_ints = ColumnType(list_type_of(pa.int32()), file_only=True)
"""One value a scored token, which stays in Parquet."""


MEASURED = (
    _token_floats("logprob", "log p(x_t | x_<t), natural logarithm"),
    _token_floats("mean", "mu_t: the expectation of log p(z | x_<t) over z drawn from p"),
    _token_floats("std", "sigma_t: the standard deviation of log p(z | x_<t) over z drawn from p, not clamped"),
    _token_floats("max_logprob", "the largest log-probability at the position"),
    _token_ints("argmax_id", "the token that has it"),
    _token_ints("rank", "how many tokens of the vocabulary have a strictly larger logit (0: the argmax)"),
)
"""The per-token statistics: what is kept of the model's distribution at every scored token.

A further one is a kind of its own, as RENYI is: the rows of this kind that are in users' caches would lack it, and all
their texts would have to be run again.
"""

SIGMA_FLOOR = 1e-6
"""A standard deviation is at least this much where something is divided by it (the papers' published code)."""

P_FLOOR = 1e-10
"""A probability is at least this much under the root of ``log_sum_sqrt_p`` (Li et al. 2024, published code)."""

_BETA_STEPS = (-25, -20, -11, -10, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 9, 10, 11, 20, 25)
BETAS = tuple(round(2.0 ** (step / 10), 12) for step in _BETA_STEPS)
"""The inverse temperatures of the kind ``temperatures``: 2^(j/10), for some of the j from -25 to 25 that Zare Zade et
al. 2025 go through. 1 is the kind ``base``, and at 0 every token has the same probability. Another list is another
version of the kind."""

TOPK_ENTRIES = 20
"""Tokens a place in the kind ``topk``."""

SHARE_WITH_BRANCH = 0.6
"""About so many of a text's tokens are not the model's first choice; only an estimate before a run rests on it."""

TOKEN_STATISTICS = Table(
    "token_statistics",
    "the texts that a model has been run on, one row per cached text; the values of the tokens stay in Parquet",
    key=("model_fingerprint", "key"),
    partitioned_by="pair",
    storage="cache",
    made_from=("examples",),
    columns=(
        string("key", "cache key: text, model, tokenizer, start-token policy and token, window, stride, kind version"),
        string("text_sha256", "sha256 of the UTF-8 text"),
        _token_ints("token_id", "the scored tokens, in order"),
        _token_ints("char_start", "first character of the token in the text"),
        _token_ints("char_end", "one past the last character of the token"),
        *MEASURED,
        string(
            "model_fingerprint",
            "weights, config, dtype and attention back end; joins to models.fingerprint",
            sql="regexp_extract(filename, '[/\\\\]model=([^/\\\\]*)[/\\\\]', 1)",
        ),
        int32("tokens", "scored tokens", sql="len(logprob)"),
        double(
            "mean_logprob", "mean log-probability of the scored tokens", null=True, sql="list_avg(logprob::DOUBLE[])"
        ),
    ),
)

_KEYS = (TOKEN_STATISTICS.column("key"), TOKEN_STATISTICS.column("text_sha256"))


def _build_cache_table(
    name: str, comment: str, *, columns: tuple[Column, ...], made_from: tuple[str, ...] = ("examples",)
) -> Table:
    """The table of a kind that stays in the cache."""
    return Table(
        name,
        comment,
        columns,
        ("key",),
        partitioned_by="pair",
        storage="cache",
        made_from=made_from,
        in_warehouse=False,
    )


TOPK = _build_cache_table(
    "topk",
    "the most likely tokens at every position, of the texts that a model has been run on",
    columns=(
        *_KEYS,
        int32("k", "entries per token"),
        _token_ints("token_id", "flat, k a scored token, best first"),
        _token_floats("logprob", "flat, k a scored token, best first"),
    ),
)

LOGITS = _build_cache_table(
    "logits",
    "the whole vocabulary's logits at every position, of the texts that a model has been run on",
    columns=(
        *_KEYS,
        int32("vocab_size", "entries per token"),
        Column("logits", pa.large_binary(), "float16, little endian, row-major: scored tokens x vocabulary"),
    ),
)

_FROM_LOGITS = boolean(
    "from_logits", "whether the row was made from cached logits, which are rounded to float16, and not in a pass"
)

RENYI = _build_cache_table(
    "renyi",
    "sums over powers of the probabilities at every position, of the texts that a model has been run on",
    columns=(
        *_KEYS,
        _token_floats("log_sum_p2", "log of the sum of p^2 over the vocabulary"),
        _token_floats("log_sum_sqrt_p", "log of the sum of sqrt(max(p, 1e-10)) over the vocabulary"),
        _FROM_LOGITS,
    ),
)

TEMPERATURES = _build_cache_table(
    "temperatures",
    "the distribution at every position at other temperatures, of the texts that a model has been run on",
    columns=(
        *_KEYS,
        int32("k", "entries per token: one for each inverse temperature beta"),
        _token_floats("log_sum_p_beta", "flat, k a scored token: log of the sum of p^beta"),
        _token_floats("mean_at_beta", "flat: the mean of log q under q, which is proportional to p^beta"),
        _token_floats("std_at_beta", "flat: the standard deviation of log q under q, not clamped"),
        _FROM_LOGITS,
    ),
)

BRANCHES = _build_cache_table(
    "branches",
    "what follows where a token is replaced by the likeliest one, of the texts that a model has been run on",
    made_from=("token_statistics",),
    columns=(
        *_KEYS,
        int32("m", "tokens that a branch has at most"),
        _token_ints(
            "offsets",
            "scored tokens + 1: where each token's branch begins in the flat lists; empty where it is the argmax",
        ),
        _token_floats(
            "logprob", "flat: log-probability of the tokens that follow, with the argmax in the token's place"
        ),
        _token_floats("z", "flat: the same, standardised by the branch's own mean and deviation"),
    ),
)

BEST_TOKENS = 40
"""How many of the likeliest tokens a model is taken to draw from, where it does not draw from all (top-k sampling)."""

EXTRACTION = _build_cache_table(
    "extraction",
    "how likely a model goes on as a document does, of the windows of documents that it has been run on",
    made_from=("documents",),
    columns=(
        string(
            "key",
            "cache key: document, place and lengths of the window, model, tokenizer, start-token policy, kind version",
        ),
        string("text_sha256", "sha256 of the document's UTF-8 text"),
        int32("start", "first character of the window in the document"),
        int32("prefix_tokens", "tokens that the model was given; those after them are its suffix"),
        _token_ints("token_id", "the tokens of the suffix, in order"),
        _token_ints("char_start", "first character of the token in the document"),
        _token_ints("char_end", "one past the last character of the token"),
        *(column for column in MEASURED if column.name in ("logprob", "argmax_id", "rank")),
        _token_floats("log_mass_40", "the log of the probability that the 40 best tokens have together"),
    ),
)

GRID_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
DRAWN_FROM = ("all", "top-k 40", "top-p 0.9")
"""Which tokens each token is drawn from: all, the ``BEST_TOKENS`` likeliest, or the fewest of the likeliest that have
at least 0.9 of the probability together, at the temperature (nucleus sampling)."""
DECODINGS = tuple((temperature, drawn_from) for temperature in GRID_TEMPERATURES for drawn_from in DRAWN_FROM)
"""The ways of drawing of the kind ``grid``, in the order of its lists. Other ways are another version of the kind."""

GRID = _build_cache_table(
    "grid",
    "how likely a model goes on as a document does when it draws in different ways, of windows that it has been run on",
    made_from=("documents",),
    columns=(
        *(EXTRACTION.column(name) for name in ("key", "text_sha256", "start", "prefix_tokens")),
        *(EXTRACTION.column(name) for name in ("token_id", "char_start", "char_end", "rank")),
        int32("k", "entries per token: one for each way of drawing"),
        _token_floats(
            "log_p_drawn",
            "flat, k a token of the suffix: its log-probability when it is drawn that way; minus infinity where it "
            "cannot be",
        ),
    ),
)

PREFIXED = _build_cache_table(
    "prefixed",
    "how likely texts are after a prefix of other texts, of the texts that a model has been run on after it",
    columns=(
        string("key", "cache key: text, prefix, model, tokenizer, start-token policy, kind version"),
        TOKEN_STATISTICS.column("text_sha256"),
        string("prefix_sha256", "sha256 of the UTF-8 text of the prefix, what joins its texts included"),
        _token_floats("logprob", "log p(x_t | prefix, x_<t) of every token, the text's first one included"),
    ),
)

_OF_TEXT = ("token_id", "char_start", "char_end")


@dataclass(frozen=True)
class CachedKind:
    """A kind of rows that running a model leaves: all that is known of it, but how an unusual row is made
    (token_statistics/rows.py).

    ``version`` is part of the rows' keys. ``swept`` is what a back end is asked for; None: the lists of ``table`` that
    are not of the text itself. ``enough`` is what a back end has to give for there to be rows; None: all that is
    swept. ``entries``: how many values of each list there are a scored token. ``size``: about how many bytes a scored
    token takes, of the size of the vocabulary and the steps of the branches; None: as the lists of ``table`` say.
    ``of_audits``: audits read it, so that a pair is to be run again where its version is another. ``on_request``: an
    audit caches it where the user names it (``--kinds``); the words say what it is, None: it is not for that.
    """

    name: str
    version: int
    table: Table
    swept: tuple[str, ...] | None = None
    enough: tuple[str, ...] | None = None
    entries: int = 1
    size: Callable[[int, int], int] | None = None
    of_audits: bool = False
    on_request: str | None = None

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """What a back end is asked for, for the rows (in this process: of the sweep, reductions.py)."""
        return tuple(name for name in self._lists if name not in _OF_TEXT) if self.swept is None else self.swept

    @cached_property
    def is_from_logits(self) -> bool:
        """Whether rows are made of a text's cached logits where these are there, without a pass (cached_logits.py)."""
        return "from_logits" in self.table.schema.names

    def is_available_from(self, has_statistic: Callable[[str], bool]) -> bool:
        """Whether a back end that ``gives`` some statistics gives enough for rows; what else they hold may be missing
        (empty)."""
        return all(map(has_statistic, self.statistics if self.enough is None else self.enough))

    def estimate_bytes_per_token(self, vocab_size: int, steps: int) -> int:
        """About how many bytes a row takes for a scored token, uncompressed; ``steps``: of the branches."""
        if self.size is not None:
            return self.size(vocab_size, steps)
        return self.entries * sum(int(type_.bit_width) // 8 for type_ in self._lists.values())

    @property
    def _lists(self) -> Mapping[str, pa.DataType]:
        return {field.name: field.type.value_type for field in self.table.schema if pa.types.is_list(field.type)}


KINDS: Mapping[str, CachedKind] = {
    kind.name: kind
    for kind in (
        CachedKind("base", 2, TOKEN_STATISTICS, enough=("logprob",), of_audits=True),
        CachedKind(
            "topk", 2, TOPK, swept=("topk",), entries=TOPK_ENTRIES, on_request="the 20 best tokens of every position"
        ),
        CachedKind(
            "logits",
            2,
            LOGITS,
            swept=("logits",),
            size=lambda vocab_size, _: 2 * vocab_size,
            on_request="the logits of every position, whole vocabulary, float16",
        ),
        CachedKind(
            "branches",
            2,
            BRANCHES,
            swept=(),
            enough=("branches",),
            size=lambda _, steps: 4 + round(8 * steps * SHARE_WITH_BRANCH),
            of_audits=True,
        ),
        CachedKind("renyi", 2, RENYI, of_audits=True),
        CachedKind("temperatures", 2, TEMPERATURES, entries=len(BETAS)),
        CachedKind("extraction", 3, EXTRACTION, enough=("logprob",)),
        CachedKind("prefixed", 2, PREFIXED, of_audits=True),
        CachedKind("grid", 2, GRID, swept=("rank", "log_p_drawn"), entries=len(DECODINGS)),
    )
}
"""Every kind of cached statistics, by its name. The data versions of audited pairs hang on their order: a further one
stands at the end."""

Kind = str
"""The name of one of ``KINDS``."""

OPTIONAL_KINDS: tuple[Kind, ...] = tuple(kind.name for kind in KINDS.values() if kind.on_request is not None)
"""Those that an audit caches where the user names them."""

TOKEN_FREQUENCIES = Table(
    "token_frequencies",
    "how often a corpus holds each token of one tokenizer",
    key=("token_id",),
    partitioned_by="corpus",
    storage="rewritten",
    in_warehouse=False,
    made_from=("documents",),
    file=DataPaths.token_frequencies_of,
    columns=(
        count("token_id", "the token's id"),
        string("token", "the token as the tokenizer writes it; null for an unused id", null=True),
        int64("count", "occurrences in the corpus, special tokens left out", ge=0),
    ),
)

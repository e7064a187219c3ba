"""What a forward pass leaves behind per token, by kind of cache, and how often a corpus holds each token.

What belongs here: the declarations of these tables and of the kinds of cached statistics. What does not: computing them
(token_statistics/, references/). The cache keeps a kind's rows in parts of its own, by text and model; the warehouse
has one row per text of the base kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Column, Table, list_type_of


def build_per_token_column(name: str, type_: pa.DataType, description: str) -> Column:
    """One value a scored token, which stays in Parquet."""
    return Column(name, list_type_of(type_), description, file_only=True)


MEASURED = (
    build_per_token_column("logprob", pa.float32(), "log p(x_t | x_<t), natural logarithm"),
    build_per_token_column("mean", pa.float32(), "mu_t: the expectation of log p(z | x_<t) over z drawn from p"),
    build_per_token_column(
        "std",
        pa.float32(),
        "sigma_t: the standard deviation of log p(z | x_<t) over z drawn from p, not clamped",
    ),
    build_per_token_column("max_logprob", pa.float32(), "the largest log-probability at the position"),
    build_per_token_column("argmax_id", pa.int32(), "the token that has it"),
    build_per_token_column(
        "rank", pa.int32(), "how many tokens of the vocabulary have a strictly larger logit (0: the argmax)"
    ),
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
    per="pair",
    kept="cache",
    made_from=("examples",),
    columns=(
        Column(
            "key",
            pa.string(),
            "cache key: text, model, tokenizer, start-token policy and token, window, stride, kind version",
        ),
        Column("text_sha256", pa.string(), "sha256 of the UTF-8 text"),
        build_per_token_column("token_id", pa.int32(), "the scored tokens, in order"),
        build_per_token_column("char_start", pa.int32(), "first character of the token in the text"),
        build_per_token_column("char_end", pa.int32(), "one past the last character of the token"),
        *MEASURED,
        Column(
            "model_fingerprint",
            pa.string(),
            "weights, config, dtype and attention back end; joins to models.fingerprint",
            sql="regexp_extract(filename, '[/\\\\]model=([^/\\\\]*)[/\\\\]', 1)",
        ),
        Column("tokens", pa.int32(), "scored tokens", sql="len(logprob)"),
        Column(
            "mean_logprob",
            pa.float64(),
            "mean log-probability of the scored tokens",
            null=True,
            sql="list_avg(logprob::DOUBLE[])",
        ),
    ),
)

TOPK = Table(
    "topk",
    "the most likely tokens at every position, of the texts that a model has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        TOKEN_STATISTICS.column("key"),
        TOKEN_STATISTICS.column("text_sha256"),
        Column("k", pa.int32(), "entries per token"),
        build_per_token_column("token_id", pa.int32(), "flat, k a scored token, best first"),
        build_per_token_column("logprob", pa.float32(), "flat, k a scored token, best first"),
    ),
)

LOGITS = Table(
    "logits",
    "the whole vocabulary's logits at every position, of the texts that a model has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        TOKEN_STATISTICS.column("key"),
        TOKEN_STATISTICS.column("text_sha256"),
        Column("vocab_size", pa.int32(), "entries per token"),
        Column("logits", pa.large_binary(), "float16, little endian, row-major: scored tokens x vocabulary"),
    ),
)

_FROM_LOGITS = Column(
    "from_logits",
    pa.bool_(),
    "whether the row was made from cached logits, which are rounded to float16, and not in a pass",
)

RENYI = Table(
    "renyi",
    "sums over powers of the probabilities at every position, of the texts that a model has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        TOKEN_STATISTICS.column("key"),
        TOKEN_STATISTICS.column("text_sha256"),
        build_per_token_column("log_sum_p2", pa.float32(), "log of the sum of p^2 over the vocabulary"),
        build_per_token_column(
            "log_sum_sqrt_p", pa.float32(), "log of the sum of sqrt(max(p, 1e-10)) over the vocabulary"
        ),
        _FROM_LOGITS,
    ),
)

TEMPERATURES = Table(
    "temperatures",
    "the distribution at every position at other temperatures, of the texts that a model has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        TOKEN_STATISTICS.column("key"),
        TOKEN_STATISTICS.column("text_sha256"),
        Column("k", pa.int32(), "entries per token: one for each inverse temperature beta"),
        build_per_token_column("log_sum_p_beta", pa.float32(), "flat, k a scored token: log of the sum of p^beta"),
        build_per_token_column(
            "mean_at_beta", pa.float32(), "flat: the mean of log q under q, which is proportional to p^beta"
        ),
        build_per_token_column(
            "std_at_beta", pa.float32(), "flat: the standard deviation of log q under q, not clamped"
        ),
        _FROM_LOGITS,
    ),
)

BRANCHES = Table(
    "branches",
    "what follows where a token is replaced by the likeliest one, of the texts that a model has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("token_statistics",),
    columns=(
        TOKEN_STATISTICS.column("key"),
        TOKEN_STATISTICS.column("text_sha256"),
        Column("m", pa.int32(), "tokens that a branch has at most"),
        build_per_token_column(
            "offsets",
            pa.int32(),
            "scored tokens + 1: where each token's branch begins in the flat lists; empty where it is the argmax",
        ),
        build_per_token_column(
            "logprob",
            pa.float32(),
            "flat: log-probability of the tokens behind, the argmax standing in the token's place",
        ),
        build_per_token_column(
            "z", pa.float32(), "flat: the same, standardised by the branch's own mean and deviation"
        ),
    ),
)

BEST_TOKENS = 40
"""How many of the likeliest tokens a model is taken to draw from, where it does not draw from all (top-k sampling)."""

EXTRACTION = Table(
    "extraction",
    "how likely a model goes on as a document does, of the windows of documents that it has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("documents",),
    columns=(
        Column(
            "key",
            pa.string(),
            "cache key: document, place and lengths of the window, model, tokenizer, start-token policy, kind version",
        ),
        Column("text_sha256", pa.string(), "sha256 of the document's UTF-8 text"),
        Column("start", pa.int32(), "first character of the window in the document"),
        Column("prefix_tokens", pa.int32(), "tokens that the model was given; those behind them are its suffix"),
        build_per_token_column("token_id", pa.int32(), "the tokens of the suffix, in order"),
        build_per_token_column("char_start", pa.int32(), "first character of the token in the document"),
        build_per_token_column("char_end", pa.int32(), "one past the last character of the token"),
        *(one for one in MEASURED if one.name in ("logprob", "argmax_id", "rank")),
        build_per_token_column(
            "log_mass_40", pa.float32(), "the log of the probability that the 40 best tokens have together"
        ),
    ),
)

GRID_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
DRAWN_FROM = ("all", "top-k 40", "top-p 0.9")
"""Which tokens each token is drawn from: all, the ``BEST_TOKENS`` likeliest, or the fewest of the likeliest that have
at least 0.9 of the probability together, at the temperature (nucleus sampling)."""
DECODINGS = tuple((temperature, drawn_from) for temperature in GRID_TEMPERATURES for drawn_from in DRAWN_FROM)
"""The ways of drawing of the kind ``grid``, in the order of its lists. Other ways are another version of the kind."""

GRID = Table(
    "grid",
    "how likely a model goes on as a document does when it draws in different ways, of windows that it has been run on",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("documents",),
    columns=(
        *(EXTRACTION.column(name) for name in ("key", "text_sha256", "start", "prefix_tokens")),
        *(EXTRACTION.column(name) for name in ("token_id", "char_start", "char_end", "rank")),
        Column("k", pa.int32(), "entries per token: one for each way of drawing"),
        build_per_token_column(
            "log_p_drawn",
            pa.float32(),
            "flat, k a token of the suffix: its log-probability when it is drawn that way; minus infinity where it "
            "cannot be",
        ),
    ),
)

PREFIXED = Table(
    "prefixed",
    "how likely texts are behind a prefix of other texts, of the texts that a model has been run on behind it",
    key=("key",),
    per="pair",
    kept="cache",
    in_warehouse=False,
    made_from=("examples",),
    columns=(
        Column("key", pa.string(), "cache key: text, prefix, model, tokenizer, start-token policy, kind version"),
        TOKEN_STATISTICS.column("text_sha256"),
        Column("prefix_sha256", pa.string(), "sha256 of the UTF-8 text of the prefix, what joins its texts included"),
        build_per_token_column(
            "logprob", pa.float32(), "log p(x_t | prefix, x_<t) of every token, the text's first one included"
        ),
    ),
)

_OF_TEXT = ("token_id", "char_start", "char_end")


@dataclass(frozen=True)
class CachedKind:
    """A kind of rows that running a model leaves behind: all that is known of it, but how an unusual row is made
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

    def is_available_from(self, gives: Callable[[str], bool]) -> bool:
        """Whether a back end that ``gives`` some statistics gives enough for rows; what else they hold may be missing
        (empty)."""
        return all(map(gives, self.statistics if self.enough is None else self.enough))

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
    per="corpus",
    kept="rewritten",
    in_warehouse=False,
    made_from=("documents",),
    file=DataPaths.token_frequencies_of,
    columns=(
        Column("token_id", pa.int32(), "the token's id", ge=0),
        Column("token", pa.string(), "the token as the tokenizer writes it; null for an unused id", null=True),
        Column("count", pa.int64(), "occurrences in the corpus, special tokens left out", ge=0),
    ),
)

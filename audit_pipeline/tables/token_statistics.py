"""Tables of cached token statistics, one per kind, and of the token frequencies of a corpus.

The cache stores the rows of each kind in separate part files, per model. The warehouse has one row per text of the base
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
"""Types of columns whose values are lists with one value per scored token. The warehouse does not contain them."""


MEASURED = (
    _token_floats("logprob", "log p(x_t | x_<t), natural logarithm"),
    _token_floats("mean", "mu_t: the expectation of log p(z | x_<t) over tokens z drawn from p"),
    _token_floats("std", "sigma_t: the standard deviation of log p(z | x_<t) over tokens z drawn from p, not clamped"),
    _token_floats("max_logprob", "the largest log-probability at the position"),
    _token_ints("argmax_id", "the token with the largest log-probability"),
    _token_ints("rank", "number of tokens in the vocabulary with a strictly larger logit (0 for the argmax)"),
)
"""The statistics of the model's distribution at every scored token.

Add a new statistic as a separate kind, like RENYI. A new column in this list would be missing in users' caches, so the
model would have to run on all cached texts again.
"""

SIGMA_FLOOR = 1e-6
"""The minimum of a standard deviation before a division (as in the published code of the papers)."""

P_FLOOR = 1e-10
"""The minimum of a probability under the root of ``log_sum_sqrt_p`` (Li et al. 2024, published code)."""

_BETA_STEPS = (-25, -20, -11, -10, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 9, 10, 11, 20, 25)
BETAS = tuple(round(2.0 ** (step / 10), 12) for step in _BETA_STEPS)
"""The inverse temperatures of the kind ``temperatures``: 2^(j/10) for the j of ``_BETA_STEPS`` (Zare Zade et al. 2025).

The list does not contain 1, because the kind ``base`` has these statistics, nor 0, because every token then has the
same probability. If you change the list, raise the version of the kind.
"""

TOPK_ENTRIES = 20
"""The number of tokens per position in the kind ``topk``."""

SHARE_WITH_BRANCH = 0.6
"""The approximate share of a text's tokens that are not the model's argmax. Only size estimates use it."""

TOKEN_STATISTICS = Table(
    "token_statistics",
    "the texts that a model was run on, one row per cached text; the values per token stay in Parquet",
    key=("model_fingerprint", "key"),
    partitioned_by="pair",
    storage="cache",
    made_from=("examples",),
    columns=(
        string(
            "key",
            "cache key: digest of the text, the model, the tokenizer, the start token, the window, the stride, and the "
            "kind of statistics with its version",
        ),
        string("text_sha256", "sha256 of the UTF-8 text"),
        _token_ints("token_id", "ids of the scored tokens, in order"),
        _token_ints("char_start", "first character of the token in the text"),
        _token_ints("char_end", "end of the token in the text (exclusive)"),
        *MEASURED,
        string(
            "model_fingerprint",
            "digest of weights, config, dtype and attention back end; joins to models.fingerprint",
            sql="regexp_extract(filename, '[/\\\\]model=([^/\\\\]*)[/\\\\]', 1)",
        ),
        int32("tokens", "number of scored tokens", sql="len(logprob)"),
        double(
            "mean_logprob", "mean log-probability of the scored tokens", null=True, sql="list_avg(logprob::DOUBLE[])"
        ),
    ),
)

_KEYS = (TOKEN_STATISTICS.column("key"), TOKEN_STATISTICS.column("text_sha256"))


def _build_cache_table(
    name: str, comment: str, *, columns: tuple[Column, ...], made_from: tuple[str, ...] = ("examples",)
) -> Table:
    """Build the declaration of a table of cached statistics that is not in the warehouse."""
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
    "the most likely tokens at every position of the texts that a model was run on",
    columns=(
        *_KEYS,
        int32("k", "entries per token"),
        _token_ints("token_id", "flat list with k values per scored token, most likely first"),
        _token_floats("logprob", "flat list with k values per scored token, most likely first"),
    ),
)

LOGITS = _build_cache_table(
    "logits",
    "the logits of the whole vocabulary at every position of the texts that a model was run on",
    columns=(
        *_KEYS,
        int32("vocab_size", "entries per token"),
        Column("logits", pa.large_binary(), "float16, little endian, row-major: scored tokens x vocabulary"),
    ),
)

_FROM_LOGITS = boolean(
    "from_logits",
    "whether the row was computed from cached logits, which are rounded to float16, instead of a forward pass",
)

RENYI = _build_cache_table(
    "renyi",
    "sums over powers of the probabilities at every position of the texts that a model was run on",
    columns=(
        *_KEYS,
        _token_floats("log_sum_p2", "log of the sum of p^2 over the vocabulary"),
        _token_floats("log_sum_sqrt_p", "log of the sum of sqrt(max(p, 1e-10)) over the vocabulary"),
        _FROM_LOGITS,
    ),
)

TEMPERATURES = _build_cache_table(
    "temperatures",
    "the distribution at other temperatures at every position of the texts that a model was run on",
    columns=(
        *_KEYS,
        int32("k", "entries per token, one for each inverse temperature beta"),
        _token_floats("log_sum_p_beta", "flat list with k values per scored token: log of the sum of p^beta"),
        _token_floats(
            "mean_at_beta",
            "flat list with k values per scored token: mean of log q under q, which is proportional to p^beta",
        ),
        _token_floats(
            "std_at_beta", "flat list with k values per scored token: standard deviation of log q under q, not clamped"
        ),
        _FROM_LOGITS,
    ),
)

BRANCHES = _build_cache_table(
    "branches",
    "the continuation of a text after a token is replaced by the argmax, for the texts that a model was run on",
    made_from=("token_statistics",),
    columns=(
        *_KEYS,
        int32("m", "maximum number of tokens of a branch"),
        _token_ints(
            "offsets",
            "scored tokens + 1 offsets: start of each token's branch in the flat lists; the branch of an argmax is "
            "empty",
        ),
        _token_floats("logprob", "flat list: log-probabilities of the following tokens after the replacement"),
        _token_floats(
            "z", "flat list: the values of logprob, standardised by the mean and standard deviation of their branch"
        ),
    ),
)

BEST_TOKENS = 40
"""The number of most likely tokens that top-k sampling draws from."""

EXTRACTION = _build_cache_table(
    "extraction",
    "how likely a model continues a document word for word, for the windows that it was run on",
    made_from=("documents",),
    columns=(
        string(
            "key",
            "cache key: digest of document, start and lengths of the window, model, tokenizer, start-token policy, "
            "kind version",
        ),
        string("text_sha256", "sha256 of the document's UTF-8 text"),
        int32("start", "first character of the window in the document"),
        int32("prefix_tokens", "number of tokens of the prefix; the suffix follows"),
        _token_ints("token_id", "ids of the suffix tokens, in order"),
        _token_ints("char_start", "first character of the token in the document"),
        _token_ints("char_end", "end of the token in the text (exclusive)"),
        *(column for column in MEASURED if column.name in ("logprob", "argmax_id", "rank")),
        _token_floats("log_mass_40", "log of the total probability of the 40 most likely tokens"),
    ),
)

GRID_TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
DRAWN_FROM = ("all", "top-k 40", "top-p 0.9")
"""The tokens that are sampled from: all, the ``BEST_TOKENS`` most likely, or the nucleus.

The nucleus is the smallest set of most likely tokens with a total probability of at least 0.9 at the temperature.
"""
DECODINGS = tuple((temperature, drawn_from) for temperature in GRID_TEMPERATURES for drawn_from in DRAWN_FROM)
"""The sampling settings of the kind ``grid``, in the order of its lists. If you change them, raise its version."""

GRID = _build_cache_table(
    "grid",
    "how likely a model continues a document word for word at several sampling settings, for windows that it was run "
    "on",
    made_from=("documents",),
    columns=(
        *map(EXTRACTION.column, ("key", "text_sha256", "start", "prefix_tokens")),
        *map(EXTRACTION.column, ("token_id", "char_start", "char_end", "rank")),
        int32("k", "entries per token, one for each sampling setting"),
        _token_floats(
            "log_p_drawn",
            "flat list with k values per suffix token: log-probability at the sampling setting; minus infinity if the "
            "token cannot be sampled",
        ),
    ),
)

PREFIXED = _build_cache_table(
    "prefixed",
    "how likely texts are after a prefix of other texts, for the texts that a model was run on",
    columns=(
        string("key", "cache key: digest of text, prefix, model, tokenizer, start-token policy, kind version"),
        TOKEN_STATISTICS.column("text_sha256"),
        string("prefix_sha256", "sha256 of the UTF-8 text of the prefix, including the separators of its texts"),
        _token_floats("logprob", "log p(x_t | prefix, x_<t) of every token, including the text's first token"),
    ),
)

_TEXT_LISTS = ("token_id", "char_start", "char_end")


@dataclass(frozen=True)
class CachedKind:
    """The declaration of a kind of cached statistics. The module token_statistics/rows.py builds the cached rows.

    Attributes:
        name: The name of the kind.
        version: The version of the rows, which is part of their keys.
        table: The table.
        requested: The statistics that are requested from a back end. None requests all lists of ``table``, except token
            ids and positions.
        required: The statistics that a back end must return. If one is missing, no rows are stored. None requires all
            requested statistics.
        entries: The number of values per scored token in each list.
        size: A function that estimates the bytes per scored token from the vocabulary size and the number of branch
            steps. None estimates the size from the types of the lists of ``table``.
        is_read_by_audits: True if audits read the kind. Pairs with rows of another version are then run again.
        on_request: The description for the option ``--kinds``, or None if users cannot request the kind by that option.
    """

    name: str
    version: int
    table: Table
    requested: tuple[str, ...] | None = None
    required: tuple[str, ...] | None = None
    entries: int = 1
    size: Callable[[int, int], int] | None = None
    is_read_by_audits: bool = False
    on_request: str | None = None

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """Return the statistics that are requested from a back end."""
        if self.requested is not None:
            return self.requested
        return tuple(name for name in self._lists if name not in _TEXT_LISTS)

    @cached_property
    def is_from_logits(self) -> bool:
        """Return True if rows can be computed from cached logits without a forward pass (cached_logits.py)."""
        return "from_logits" in self.table.schema.names

    def is_available_from(self, has_statistic: Callable[[str], bool]) -> bool:
        """Return True if a back end returns the required statistics. Lists of other missing statistics stay empty."""
        required = self.statistics if self.required is None else self.required
        return all(map(has_statistic, required))

    def estimate_bytes_per_token(self, vocab_size: int, steps: int) -> int:
        """Estimate the uncompressed bytes of a row per scored token.

        Args:
            vocab_size: The size of the vocabulary.
            steps: The maximum number of tokens of a branch.
        """
        if self.size is not None:
            return self.size(vocab_size, steps)
        return self.entries * sum(int(type_.bit_width) // 8 for type_ in self._lists.values())

    @property
    def _lists(self) -> Mapping[str, pa.DataType]:
        return {field.name: field.type.value_type for field in self.table.schema if pa.types.is_list(field.type)}


KINDS: Mapping[str, CachedKind] = {
    kind.name: kind
    for kind in (
        CachedKind("base", 2, TOKEN_STATISTICS, required=("logprob",), is_read_by_audits=True),
        CachedKind(
            "topk",
            2,
            TOPK,
            requested=("topk",),
            entries=TOPK_ENTRIES,
            on_request="the 20 most likely tokens at every position",
        ),
        CachedKind(
            "logits",
            2,
            LOGITS,
            requested=("logits",),
            size=lambda vocab_size, _: 2 * vocab_size,
            on_request="the logits of the whole vocabulary at every position, as float16",
        ),
        CachedKind(
            "branches",
            2,
            BRANCHES,
            requested=(),
            required=("branches",),
            size=lambda _, steps: 4 + round(8 * steps * SHARE_WITH_BRANCH),
            is_read_by_audits=True,
        ),
        CachedKind("renyi", 2, RENYI, is_read_by_audits=True),
        CachedKind("temperatures", 2, TEMPERATURES, entries=len(BETAS)),
        CachedKind("extraction", 3, EXTRACTION, required=("logprob",)),
        CachedKind("prefixed", 2, PREFIXED, is_read_by_audits=True),
        CachedKind("grid", 2, GRID, requested=("rank", "log_p_drawn"), entries=len(DECODINGS)),
    )
}
"""The kinds of cached statistics, by name. Add new kinds at the end: the data versions of pairs depend on the order."""

Kind = str
"""The name of one of ``KINDS``."""

OPTIONAL_KINDS: tuple[Kind, ...] = tuple(kind.name for kind in KINDS.values() if kind.on_request is not None)
"""The kinds that users can request by the option ``--kinds``."""

TOKEN_FREQUENCIES = Table(
    "token_frequencies",
    "how often each token of a tokenizer occurs in a corpus",
    key=("token_id",),
    partitioned_by="corpus",
    storage="rewritten",
    in_warehouse=False,
    made_from=("documents",),
    file=DataPaths.token_frequencies_of,
    columns=(
        count("token_id", "id of the token"),
        string("token", "the token as the tokenizer writes it; null for an unused id", null=True),
        int64("count", "number of occurrences in the corpus; special tokens are not counted", ge=0),
    ),
)

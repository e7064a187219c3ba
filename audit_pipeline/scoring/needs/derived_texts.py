"""Providers of statistics of derived texts: the text in lower case, and copies with swapped words.

The audited model runs over the derived texts in extra passes. Neighbours have a module of their own (neighbours.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.loss import LOWERCASED
from audit_pipeline.detectors.perturbed import COPIES, PAC, STREAM, CopySettings
from audit_pipeline.scoring.needs import provider
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import plan
from audit_pipeline.token_statistics.run import RunSummary

_NO_FILE = (
    "with seeds=stream, the copies depend on the order of the rows of a file, so only `corpus-audit score` supports "
    "this setting"
)
_MAX_DRAWS = 4
_STREAM_SEED = 0


class LowercaseProvider(provider.DerivedTextsProvider[TextStatistics]):
    """The provider of the statistics of the text in lower case."""

    need = LOWERCASED
    not_run = "the model has not been run on the text in lower case. Run the model again."
    passes = 1

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        """Return the texts in lower case, except texts that are in lower case already."""
        return [text.lower() for text in texts if text.lower() != text]

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[TextStatistics]:
        """Return the lookup of the statistics of each text's lowercased copy.

        If a text is already in lower case, its own statistics are returned.
        """
        index = self._read_index(self._flatten_derived_texts(texts))

        def look_up(scored: provider.TextWithStatistics) -> TextStatistics | None:
            text = scored.statistics.text
            if text.lower() == text:
                return scored.statistics
            return index.find(text.lower())

        return look_up


def draw_word_orders(n_words: int, alpha: float, n: int, generator: random.Random) -> list[list[int]]:
    """Draw the word orders of n copies of a text, as the authors of PAC do.

    A copy results from max(1, int(alpha * n_words)) consecutive swaps. A swap draws a position, and then up to four
    times another position until the two differ. If all four are equal to the first, the swap has no effect. Finally the
    copies are shuffled.

    Args:
        n_words: Number of words of the text, at least 1.
        alpha: Number of swaps as a share of the words.
        n: Number of copies.
        generator: The source of random numbers.

    Returns:
        For each copy the index of the word at each position: [n][n_words].
    """
    orders = []
    for _ in range(n):
        order = list(range(n_words))
        for _ in range(max(1, int(alpha * n_words))):
            position = generator.randrange(n_words)
            for _ in range(_MAX_DRAWS):
                other = generator.randrange(n_words)
                if other != position:
                    order[position], order[other] = order[other], order[position]
                    break
        orders.append(order)
    generator.shuffle(orders)
    return orders


def make_shuffled_copies(text: str, copying: CopySettings, stream: random.Random | None = None) -> list[str]:
    """Return ``copying.n`` copies of a text with swapped words. Words are the parts between single blanks.

    Args:
        text: The text.
        copying: The number of copies and the share of swaps.
        stream: The source of random numbers. By default the text itself is the seed.
    """
    words = text.split(" ")
    generator = stream or random.Random(int(text_sha256(text)[:16], 16))  # noqa: S311 - repeatable
    orders = draw_word_orders(len(words), copying.alpha, copying.n, generator)
    copies: list[str] = []
    for order in orders:
        copies.append(" ".join(words[index] for index in order))
    return copies


class CopiesProvider(provider.DerivedTextsProvider[Mapping[CopySettings, Sequence[TextStatistics]]]):
    """The provider of the statistics of copies with swapped words.

    With a single stream of random numbers the texts must be the rows of a file in file order, chunk by chunk. A
    repeated text then has different copies at each occurrence.
    """

    need = COPIES
    not_run = "the model has not been run on every copy of the text. Run the model again."

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Start a stream of random numbers for each setting that uses one."""
        super().__init__(scope, settings)
        self._streams: dict[CopySettings, random.Random | None] = {}
        for copying in map(CopySettings.from_setting, settings):
            # The numbers must be repeatable. They protect no secret.
            self._streams[copying] = random.Random(_STREAM_SEED) if copying.seeds == STREAM else None  # noqa: S311
        self.passes = sum(copying.n for copying in self._streams)
        self._is_run = False

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        """Return the copies of the default setting. Other copies do not follow from the text alone."""
        default = CopySettings.from_setting(PAC.default)
        copies: list[str] = []
        for text in texts:
            copies += make_shuffled_copies(text, default)
        return copies

    def explain_unmet(self) -> str | None:
        """Return the reason if texts follow a context, or if an audit asks for a stream over the rows of a file."""
        reason = super().explain_unmet()
        if reason is not None:
            return reason
        uses_stream = any(self._streams.values())
        return _NO_FILE if uses_stream and self._scope.user_inputs is None else None

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        """Return the number of copies and tokens, or None if all copies are cached."""
        tokens = plan(self._model, self._flatten_derived_texts(texts), self._location).tokens_to_run
        return f"pac: {self.passes} copies of each text, {tokens:,} tokens in total" if tokens else None

    def compute(
        self, texts: Sequence[str], backend_of: BackendOf, on_progress: provider.OnProgress | None
    ) -> RunSummary:
        """Run the audited model over the copies."""
        if self._is_run:
            # These are the next rows of the file, even if they repeat the last rows.
            self._derived = None
        self.derive_texts_once(texts)
        self._is_run = True
        return super().compute(texts, backend_of, on_progress)

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the copies of each text, setting by setting."""
        self._is_run = False
        copies_of_texts: list[list[str]] = []
        for text in texts:
            copies: list[str] = []
            for copying, stream in self._streams.items():
                copies += make_shuffled_copies(text, copying, stream)
            copies_of_texts.append(copies)
        return copies_of_texts

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[Mapping[CopySettings, Sequence[TextStatistics]]]:
        """Return the lookup of a text's copies. It finds nothing if the cache lacks a copy."""
        index = self._read_index(self._flatten_derived_texts(texts))
        occurrences: dict[str, list[Sequence[str]]] = {}
        for text, copies in zip(texts, self.derive_texts_once(texts), strict=True):
            occurrences.setdefault(text, []).append(copies)
        # A repeated text is looked up once per occurrence, in the same order.
        next_copies: dict[str, Iterator[Sequence[str]]] = {}
        for text, copies_in_order in occurrences.items():
            next_copies[text] = itertools.cycle(copies_in_order)

        def look_up(scored: provider.TextWithStatistics) -> Mapping[CopySettings, Sequence[TextStatistics]] | None:
            copies = next(next_copies[scored.model_input]) if scored.model_input in next_copies else ()
            statistics = map(index.find, copies)
            by_copying: dict[CopySettings, Sequence[TextStatistics]] = {}
            for copying in self._streams:
                cached = [copy for copy in itertools.islice(statistics, copying.n) if copy is not None]
                if len(cached) != copying.n:
                    return None
                by_copying[copying] = cached
            return by_copying

        return look_up

"""Copies of the text with words swapped."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.pac import COPIES, PAC, STREAM, Copying
from audit_pipeline.scoring.needs.provider import (
    DerivedTextsProvider,
    Lookup,
    OnProgress,
    ScoringScope,
    TextWithStatistics,
)
from audit_pipeline.tables import text_sha256
from audit_pipeline.token_statistics.backend import BackendOf
from audit_pipeline.token_statistics.cached_texts import plan
from audit_pipeline.token_statistics.run import RunSummary

_NO_FILE = "one stream of random numbers over the rows of a file is there for a file that is scored, not for an audit"
_MOST_DRAWS = 4
_STREAM_SEED = 0


def draw_word_orders(words: int, alpha: float, n: int, generator: random.Random) -> list[list[int]]:
    """Which of ``words`` >= 1 words is at each place of each of ``n`` copies: [n][words], as the authors make them.

    A copy is made by max(1, int(alpha * words)) swaps, in order. A swap draws a place, then another until
    it differs, four times at most; else it is lost. The copies are shuffled in the end.
    """
    made = []
    for _ in range(n):
        order = list(range(words))
        for _ in range(max(1, int(alpha * words))):
            place = generator.randrange(words)
            for _ in range(_MOST_DRAWS):
                other = generator.randrange(words)
                if other != place:
                    order[place], order[other] = order[other], order[place]
                    break
        made.append(order)
    generator.shuffle(made)
    return made


def make_shuffled_copies(text: str, way: Copying, stream: random.Random | None = None) -> list[str]:
    """The ``way.n`` copies of ``text``, whose words are what is between single blanks.

    Random numbers are the next ones of ``stream``; without one, the text itself is their seed.
    """
    words = text.split(" ")
    draw = stream or random.Random(int(text_sha256(text)[:16], 16))  # noqa: S311 - repeatable
    return [" ".join(words[word] for word in order) for order in draw_word_orders(len(words), way.alpha, way.n, draw)]


class CopiesProvider(DerivedTextsProvider[Mapping[Copying, Sequence[TextStatistics]]]):
    """The statistics of the copies that the settings ask for.

    With one stream of random numbers the texts are the rows of a file, chunk by chunk in its order, each with what the
    rows before it have left of the stream: a text that is there twice has other copies the second time.
    """

    need = COPIES
    not_run = "the model has not been run on every copy of the text: run it again"

    def __init__(self, scope: ScoringScope, settings: Sequence[Settings]) -> None:
        super().__init__(scope, settings)
        ways = dict.fromkeys(map(Copying.from_setting, settings))
        # Random numbers that anybody can repeat are wanted: no secret hangs on them.
        self._streams = {way: random.Random(_STREAM_SEED) if way.seeds == STREAM else None for way in ways}  # noqa: S311
        self.passes = sum(way.n for way in ways)
        self._is_run = False

    @staticmethod
    def list_derived(texts: Sequence[str]) -> Sequence[str]:
        # Those of the default setting: others, and a stream's, are not known from the text alone.
        return [copy for text in texts for copy in make_shuffled_copies(text, Copying.from_setting(PAC.default))]

    def explain_missing(self) -> str | None:
        in_file = self._scope.user_inputs is not None or not any(self._streams.values())
        return super().explain_missing() or (None if in_file else _NO_FILE)

    def describe_cost(self, texts: Sequence[str]) -> str | None:
        tokens = plan(self._model, self._flatten_derived_texts(texts), self._where).tokens_to_run
        return f"pac: {self.passes} copies of each text, {tokens:,} tokens in all" if tokens else None

    def compute(self, texts: Sequence[str], backend_of: BackendOf, on_progress: OnProgress | None) -> RunSummary:
        if self._is_run:
            # These are the next rows of the file, even where they repeat the last ones.
            self._made = None
        self.derive_texts_once(texts)
        self._is_run = True
        return super().compute(texts, backend_of, on_progress)

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        self._is_run = False
        return [
            [copy for way, stream in self._streams.items() for copy in make_shuffled_copies(text, way, stream)]
            for text in texts
        ]

    def build_lookup(self, texts: Sequence[str]) -> Lookup[Mapping[Copying, Sequence[TextStatistics]]]:
        index, rows = self._read_index(self._flatten_derived_texts(texts)), dict[str, list[Sequence[str]]]()
        for text, copies in zip(texts, self.derive_texts_once(texts), strict=True):
            rows.setdefault(text, []).append(copies)
        in_order = {text: itertools.cycle(found) for text, found in rows.items()}

        def find(scored: TextWithStatistics) -> Mapping[Copying, Sequence[TextStatistics]] | None:
            # A text that is there more than once is asked for as often, in the same order.
            own = map(index.find, next(in_order[scored.whole]) if scored.whole in in_order else ())
            found = {way: [copy for copy in itertools.islice(own, way.n) if copy is not None] for way in self._streams}
            return found if all(len(copies) == way.n for way, copies in found.items()) else None

        return find

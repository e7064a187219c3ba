"""The provider of the statistics of neighbours: texts that differ from the text in one token.

Neighbours are made from the most likely tokens of the audited model, so no second model is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.detector_inputs import TextStatistics
from audit_pipeline.detectors.perturbed import NEIGHBOURS
from audit_pipeline.errors import DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs import provider
from audit_pipeline.tables import Kind, digest, text_sha256
from audit_pipeline.token_statistics.cached_texts import CacheLocation, collect_lists_by_sha256, plan, read_statistics

_KINDS: tuple[Kind, ...] = ("base", "topk")
_LISTS = ("token_id", "char_start", "char_end"), ("token_id", "logprob")
_Lists = Mapping[str, npt.NDArray[Any]]
_REPLACEMENT_CHARACTER = "\ufffd"


class NeighboursProvider(provider.DerivedTextsProvider[Sequence[TextStatistics]]):
    """The provider of the statistics of neighbours: texts that differ from the text in one token.

    Each text has as many neighbours as the largest ``n`` of the settings, in the order of the proposer.
    """

    need = NEIGHBOURS
    not_run = "the model has not been run on any neighbour of the text. Only `corpus-audit score` makes neighbours."
    kinds = _KINDS

    def __init__(self, scope: provider.ScoringScope, settings: Sequence[Settings]) -> None:
        """Read the number of neighbours from the settings."""
        super().__init__(scope, settings)
        self._seed = (scope.user_inputs or provider.UserInputs()).seed
        self._proposer = NeighbourProposer(self._model, self._location)
        self.passes = max(int(setting["n"]) for setting in settings)

    def explain_unmet(self) -> str | None:
        """Return the reason why there are no neighbours, in an audit or if texts follow a context, or else None."""
        if self._scope.user_inputs is None:
            return super().explain_unmet() or self.not_run
        return super().explain_unmet()

    def plan(self, texts: Sequence[str]) -> None:
        """Return None: neighbours are unknown before the text pass."""

    def describe_cost(self, texts: Sequence[str]) -> str:
        """Return the cost of making and running the neighbours."""
        return f"neighbour: {self._proposer.describe_cost(texts, self.passes)}"

    def derive_texts(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the neighbours of each text."""
        return self._proposer.propose(texts, self.passes, self._seed)

    def build_lookup(self, texts: Sequence[str]) -> provider.Lookup[Sequence[TextStatistics]]:
        """Return the lookup of a text's cached neighbours."""
        index = self._read_index(self._flatten_derived_texts(texts))
        neighbours_by_text = dict(zip(texts, self.derive_texts_once(texts), strict=True))

        def look_up(scored: provider.TextWithStatistics) -> Sequence[TextStatistics] | None:
            neighbours = neighbours_by_text.get(scored.model_input, ())
            cached = [statistics for statistics in map(index.find, neighbours) if statistics is not None]
            return cached or None

        return look_up


class NeighbourProposer:
    """A proposer that replaces one token per neighbour by a top-k token of the audited model at the same position.

    Positions are drawn in random order, and all positions are used once before any is used again. At a position, tokens
    other than the text's token are drawn from the top k without replacement, at temperature 1. The characters of the
    new token replace those of the old token. All other characters are unchanged. Such a neighbour is likely given the
    words before the position, but not given the words after it. Mattern et al. (Findings of ACL 2023) take neighbours
    from a masked language model instead.

    The cache must hold the kinds ``base`` and ``topk`` of the texts (run.compute).
    """

    def __init__(self, model: TokenizedModel, location: CacheLocation) -> None:
        """Store the audited model and the location of its cache."""
        self._model = model
        self._location = location
        self._pieces: dict[int, str] = {}

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """Return a sentence about the cost of making and scoring up to n neighbours per text. No model runs.

        Making neighbours costs a pass over each text without cached top-k tokens. Repeated texts count once.
        """
        planned = plan(self._model, texts, self._location, kinds=_KINDS)
        making = "no tokens"
        if planned.passes:
            making = f"{planned.tokens_to_run:,} tokens in {planned.passes:,} passes"
        distinct_texts = dict.fromkeys(texts)
        n_words = n * sum(len(text.split()) for text in distinct_texts)
        return (
            f"the model reads {making} to make neighbours, and {n_words:,} words to score up to "
            f"{n * len(distinct_texts):,} neighbours"
        )

    def propose(self, texts: Sequence[str], n: int, seed: int) -> list[list[str]]:
        """Return up to n distinct neighbours per text, in the order of the texts.

        A text is never its own neighbour. A short text may have fewer neighbours. The neighbours depend only on the
        text and the seed. A smaller n yields the first neighbours of a larger n.

        Raises:
            DataError: If the cache lacks a text.
        """
        sha256 = {text: text_sha256(text) for text in texts}
        base, topk = (
            collect_lists_by_sha256(read_statistics(self._model, list(sha256), self._location, kind=kind), names)
            for kind, names in zip(_KINDS, _LISTS, strict=True)
        )
        missing = sum(key not in base or key not in topk for key in sha256.values())
        if missing:
            raise DataError(
                f"{missing} texts have no cached top-k tokens of {self._model.entry.name}. "
                "Run the model over them with the kinds base and topk first."
            )
        return [
            select_distinct(text, self._generate_neighbours(text, base[sha256[text]], topk[sha256[text]], seed), n)
            for text in texts
        ]

    def _generate_neighbours(self, text: str, base: _Lists, topk: _Lists, seed: int) -> Iterator[str]:
        token_ids = base["token_id"]
        if not len(token_ids):
            return
        candidates = topk["token_id"].reshape(len(token_ids), -1)
        logprobs = topk["logprob"].reshape(len(token_ids), -1)
        generator = np.random.default_rng(int(digest(text_sha256(text), seed), 16))
        spans = self._find_spans(text, token_ids, base["char_start"], base["char_end"])
        positions = generator.permutation(np.array(sorted(spans), dtype=np.int64)).tolist()
        drawn: dict[int, list[str]] = {}
        for turn in range(candidates.shape[1]):
            for i in positions:
                if i not in drawn:
                    order = _draw_gumbel_order(logprobs[i], generator)
                    drawn[i] = self._list_replacements(spans[i], int(token_ids[i]), candidates[i][order])
                if turn < len(drawn[i]):
                    yield text[: spans[i].begin] + drawn[i][turn] + text[spans[i].end :]

    def _find_spans(
        self, text: str, token_ids: npt.NDArray[Any], starts: npt.NDArray[Any], ends: npt.NDArray[Any]
    ) -> Mapping[int, _Span]:
        """Return the spans of the tokens that can be replaced, by position.

        The characters of such a token are exactly those of its span, and no other token shares them.
        """
        spans: dict[int, _Span] = {}
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            is_shared = (i > 0 and ends[i - 1] > start) or (i + 1 < len(starts) and starts[i + 1] < end)
            token = int(token_ids[i])
            if is_shared or start >= end or token in self._model.tokenizer.special_ids:
                continue
            span = _find_span(text, start, end, self._decode_piece(token))
            if span is not None:
                spans[i] = span
        return spans

    def _list_replacements(self, span: _Span, text_token: int, candidates: npt.NDArray[Any]) -> list[str]:
        pieces: list[str] = []
        tokenizer = self._model.tokenizer
        for token in candidates.tolist():
            if token == text_token or token in tokenizer.special_ids or not 0 <= token < len(tokenizer):
                continue
            piece = self._decode_piece(token)
            if span.drops_space:
                piece = piece.removeprefix(" ")
            if piece and _REPLACEMENT_CHARACTER not in piece:
                pieces.append(piece)
        return pieces

    def _decode_piece(self, token: int) -> str:
        """Return the characters that a token adds to a text."""
        if token not in self._pieces:
            # Some decoders drop the space of the first token, so the token is decoded after an anchor.
            anchor_text = self._model.tokenizer.decode(self._anchor)
            decoded = self._model.tokenizer.decode([*self._anchor, token])
            self._pieces[token] = decoded[len(anchor_text) :] if decoded.startswith(anchor_text) else ""
        return self._pieces[token]

    @cached_property
    def _anchor(self) -> list[int]:
        return list(self._model.tokenizer.encode(["a"], add_special_tokens=False)[0].ids)


@dataclass(frozen=True)
class _Span:
    """The characters of a token in the text.

    Attributes:
        begin: Start of the span.
        end: End of the span, exclusive.
        drops_space: True if the token starts with a space that the text does not contain.
    """

    begin: int
    end: int
    drops_space: bool


def _find_span(text: str, start: int, end: int, piece: str) -> _Span | None:
    """Return the span of a token's characters in the text, or None if the text has other characters.

    Tokenizers differ: the span of a word may include the space before it. Some add a space before the text.
    """
    if piece == text[start:end]:
        return _Span(start, end, drops_space=False)
    if piece != " " + text[start:end]:
        return None
    if start == 0:
        return _Span(start, end, drops_space=True)
    return _Span(start - 1, end, drops_space=False) if text[start - 1] == " " else None


def _draw_gumbel_order(logprobs: npt.NDArray[Any], generator: np.random.Generator) -> list[int]:
    """Draw the entries without replacement by their probability, and return them in the order of the draw.

    Sorting log p plus Gumbel noise yields this order (Gumbel-top-k trick; Kool et al., ICML 2019). The probabilities
    need not sum to 1.
    """
    noisy = logprobs.astype(np.float64) + generator.gumbel(size=len(logprobs))
    order: list[int] = np.argsort(-noisy, kind="stable").tolist()
    return order


def select_distinct(original: str, candidates: Iterable[str], n: int) -> list[str]:
    """Return the first n distinct candidates that differ from the original. No further candidates are computed."""
    selected: dict[str, None] = {}
    if n > 0:
        for text in candidates:
            if text != original:
                selected[text] = None
            if len(selected) == n:
                break
    return list(selected)

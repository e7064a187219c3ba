"""Neighbours from the audited model's own most likely tokens: no second model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import DataError
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.neighbours.proposer import create_random_generator, format_cost, select_distinct
from audit_pipeline.tables import Kind, text_sha256
from audit_pipeline.token_statistics.cached_texts import CacheLocation, collect_lists_by_text, plan, read_statistics

NAME = "own-topk"
_KINDS: tuple[Kind, ...] = ("base", "topk")
_LISTS = ("token_id", "char_start", "char_end"), ("token_id", "logprob")
_Lists = Mapping[str, npt.NDArray[Any]]
_REPLACEMENT_CHARACTER = "\ufffd"


class OwnTopkProposer:
    """Replaces one token per neighbour by one of the audited model's own top-k tokens there, drawn by its probability.

    Positions come in random order, each once before any comes again; at each, tokens other than the text's own are
    drawn without replacement from the top k, at temperature 1. The new token's characters take the place of the old
    token's: no other character of the text moves. Such a neighbour is likely given the words before the position, not
    those after it.

    The kinds ``base`` and ``topk`` of the texts must be in the cache ``where`` says (run.compute).
    """

    kinds = _KINDS

    def __init__(self, model: TokenizedModel, where: CacheLocation) -> None:
        self._model = model
        self._where = where
        self._pieces: dict[int, str] = {}

    def describe_cost(self, texts: Sequence[str], n: int) -> str:
        """The audited model's passes over the texts that have no cached top-k tokens yet."""
        planned = plan(self._model, texts, self._where, kinds=_KINDS)
        return format_cost(self._model.entry.name, planned.passes, planned.tokens_to_run, texts, n)

    def propose(self, texts: Sequence[str], n: int, seed: int) -> list[list[str]]:
        """As Proposer.propose; raises DataError where a text's rows are not in the cache."""
        sha256 = {text: text_sha256(text) for text in texts}
        base, topk = (
            collect_lists_by_text(read_statistics(self._model, list(sha256), self._where, kind=kind), names)
            for kind, names in zip(_KINDS, _LISTS, strict=True)
        )
        missing = sum(key not in base or key not in topk for key in sha256.values())
        if missing:
            raise DataError(
                f"{missing} texts have no cached top-k tokens of {self._model.entry.name}: "
                "run the model over them with the kinds base and topk first"
            )
        return [
            select_distinct(text, self._neighbours(text, base[sha256[text]], topk[sha256[text]], seed), n)
            for text in texts
        ]

    def _neighbours(self, text: str, base: _Lists, topk: _Lists, seed: int) -> Iterator[str]:
        own = base["token_id"]
        if not len(own):
            return
        candidates = topk["token_id"].reshape(len(own), -1)
        logprobs = topk["logprob"].reshape(len(own), -1)
        generator = create_random_generator(text, seed)
        spans = self._spans(text, own, base["char_start"], base["char_end"])
        positions = generator.permutation(np.array(sorted(spans), dtype=np.int64)).tolist()
        drawn: dict[int, list[str]] = {}
        for turn in range(candidates.shape[1]):
            for i in positions:
                if i not in drawn:
                    order = _draw_gumbel_order(logprobs[i], generator)
                    drawn[i] = self._list_replacements(spans[i], int(own[i]), candidates[i][order])
                if turn < len(drawn[i]):
                    yield text[: spans[i].begin] + drawn[i][turn] + text[spans[i].end :]

    def _spans(
        self, text: str, own: npt.NDArray[Any], starts: npt.NDArray[Any], ends: npt.NDArray[Any]
    ) -> Mapping[int, _Span]:
        """The positions whose token is all of the characters that it covers, and no token shares them."""
        spans = {}
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            shared = (i > 0 and ends[i - 1] > start) or (i + 1 < len(starts) and starts[i + 1] < end)
            span = None if shared or start >= end else _find_span(text, start, end, self._piece(int(own[i])))
            if span is not None and int(own[i]) not in self._model.tokenizer.special_ids:
                spans[i] = span
        return spans

    def _list_replacements(self, span: _Span, own_token: int, candidates: npt.NDArray[Any]) -> list[str]:
        pieces, tokenizer = [], self._model.tokenizer
        for token in candidates.tolist():
            if token == own_token or token in tokenizer.special_ids or not 0 <= token < len(tokenizer):
                continue
            piece = self._piece(token)
            if span.drops_space:
                piece = piece.removeprefix(" ")
            if piece and _REPLACEMENT_CHARACTER not in piece:
                pieces.append(piece)
        return pieces

    def _piece(self, token: int) -> str:
        """The characters that the token adds to a text; some decoders drop a first token's space, so not alone."""
        if token not in self._pieces:
            decode = self._model.tokenizer.decode
            before, decoded = decode(self._anchor), decode([*self._anchor, token])
            self._pieces[token] = decoded[len(before) :] if decoded.startswith(before) else ""
        return self._pieces[token]

    @cached_property
    def _anchor(self) -> list[int]:
        return list(self._model.tokenizer.encode(["a"], add_special_tokens=False)[0].ids)


@dataclass(frozen=True)
class _Span:
    """The characters ``begin:end`` that a token means; ``drops_space``: its leading space is not in the text."""

    begin: int
    end: int
    drops_space: bool


def _find_span(text: str, start: int, end: int, piece: str) -> _Span | None:
    """Where ``piece``, a token's characters, are in the text; None where they are not those of the text.

    Tokenizers differ in whether a word's span takes in the space before it, and some put a space before the text.
    """
    if piece == text[start:end]:
        return _Span(start, end, drops_space=False)
    if piece != " " + text[start:end]:
        return None
    if start == 0:
        return _Span(start, end, drops_space=True)
    return _Span(start - 1, end, drops_space=False) if text[start - 1] == " " else None


def _draw_gumbel_order(logprobs: npt.NDArray[Any], generator: np.random.Generator) -> list[int]:
    """The entries in the order in which they are drawn without replacement, each by its probability.

    Sorting log p plus Gumbel noise draws so (the Gumbel-top-k trick; Kool et al., ICML 2019), whatever p sums up to.
    """
    noisy = logprobs.astype(np.float64) + generator.gumbel(size=len(logprobs))
    order: list[int] = np.argsort(-noisy, kind="stable").tolist()
    return order

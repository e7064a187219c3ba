"""What a model has to be run on: the texts that miss a row of some kind, encoded, and what that would cost.

What belongs here: what is missing and how much work it is; needs the tokenizer only. What does not: running the model
(run.py), what is kept (kept.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from audit_pipeline.catalogue.contracts import KINDS, SHARE_WITH_BRANCH, Kind, text_sha256
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.encode import EncodedText, Prefix, cache_key, encode, window_and_stride
from audit_pipeline.token_statistics.kept import TextsWithBranches, Where, caches_of
from audit_pipeline.token_statistics.windows import Window, windows_of

_FROM_LOGITS = frozenset(kind.name for kind in KINDS.values() if kind.is_from_logits)


@dataclass(frozen=True)
class Plan:
    """What a run would do, found out without the model's weights."""

    texts: int
    cached_texts: int
    texts_to_run: int
    tokens_to_run: int
    passes: int
    bytes_to_write: Mapping[Kind, int]
    branch_tokens: int = 0
    """Tokens of the branches, about: how many tokens have one shows in the pass."""


@dataclass
class Prepared:
    """The texts that miss a row of some kind, encoded, of ``distinct`` ones in all.

    ``keys``, ``encoded`` and ``missing`` have one entry each per text that misses something. ``prefix`` is what all of
    them stand behind, where something does.
    """

    distinct: int
    keys: list[Mapping[Kind, str]]
    encoded: list[EncodedText]
    missing: list[frozenset[Kind]]
    windows: list[Window] = field(default_factory=list)
    prefix: Prefix | None = None

    def wants_pass(self, text: int) -> bool:
        """Whether the text's own statistics are missing, in whatever form."""
        return bool(self.missing[text] - {"branches"})

    def wants_branches(self, text: int) -> bool:
        return "branches" in self.missing[text]

    def without_sums(self, texts: Collection[int]) -> Prepared:
        """What is left to be run where the rows of ``texts`` that cached logits give are there."""
        missing = [lacking - _FROM_LOGITS if text in texts else lacking for text, lacking in enumerate(self.missing)]
        left = [text for text, lacking in enumerate(missing) if lacking]
        place = {text: number for number, text in enumerate(left)}
        return Prepared(
            self.distinct,
            [self.keys[text] for text in left],
            [self.encoded[text] for text in left],
            [missing[text] for text in left],
            [replace(window, text=place[window.text]) for window in self.windows if window.text in place],
        )


def plan(
    model: TokenizedModel,
    texts: Sequence[str],
    where: Where,
    kinds: Sequence[Kind] = ("base",),
    branch_steps: int = 0,
) -> Plan:
    """What :func:`audit_pipeline.token_statistics.run.compute` would run for ``texts``; needs the tokenizer only."""
    whole = prepare(model, texts, caches_of(model, where, kinds_of(kinds, branch_steps)), branch_steps)
    prepared = whole.without_sums(with_logits(model, whole, caches_of(model, where, ("logits",))["logits"]).values())
    branched = sum(text.n_scored for number, text in enumerate(prepared.encoded) if prepared.wants_branches(number))
    return Plan(
        texts=len(texts),
        cached_texts=prepared.distinct - len(prepared.encoded),
        texts_to_run=len(prepared.encoded),
        tokens_to_run=sum(window.length for window in prepared.windows),
        passes=len(prepared.windows),
        bytes_to_write=bytes_to_write(model, whole, branch_steps),
        branch_tokens=round(SHARE_WITH_BRANCH * branch_steps * branched),
    )


def kinds_of(kinds: Sequence[Kind], steps: int) -> tuple[Kind, ...]:
    """``kinds``, and the branches where some of ``steps`` tokens are wanted."""
    return (*kinds, "branches") if steps else tuple(kinds)


def prepare(
    model: TokenizedModel,
    texts: Sequence[str],
    caches: Mapping[Kind, PartCache],
    steps: int,
    along: Collection[Kind] = (),
) -> Prepared:
    """The distinct ``texts`` that a cache lacks, or whose branches are shorter than ``steps``, and their windows.

    Kinds of ``along`` are brought to a text whose own pass is run for others, and to no other text.
    """
    distinct = {text_sha256(text): text for text in texts}
    keys: dict[str, Mapping[Kind, str]] = {
        sha256: {kind: cache_key(model, sha256, kind, steps) for kind in caches} for sha256 in distinct
    }
    on_disk = {
        kind: cache.known(by_kind[kind] for by_kind in keys.values())
        for kind, cache in caches.items()
        if kind != "branches"
    }
    branched = TextsWithBranches(model, caches["branches"], steps, distinct) if "branches" in caches else None
    to_encode: list[str] = []
    own: list[Mapping[Kind, str]] = []
    missing: list[frozenset[Kind]] = []
    for sha256, text in distinct.items():
        lacking: set[Kind] = {kind for kind, known in on_disk.items() if keys[sha256][kind] not in known}
        if branched is not None and branched.best(sha256) is None:
            lacking.add("branches")
        if not lacking.difference(along, ("branches",)):
            lacking.difference_update(along)
        if lacking:
            to_encode.append(text)
            own.append(keys[sha256])
            missing.append(frozenset(lacking))
    encoded = encode(model, to_encode)
    window, stride = window_and_stride(model)
    windows = [part for number, text in enumerate(encoded) for part in windows_of(number, text, window, stride)]
    return Prepared(len(distinct), own, encoded, missing, windows)


def with_logits(model: TokenizedModel, prepared: Prepared, logits: PartCache) -> dict[str, int]:
    """The texts whose pass is only wanted for what logits tell as well, and whose ``logits`` are cached.

    Their numbers by the keys of their logits.
    """
    could = [
        number
        for number, lacking in enumerate(prepared.missing)
        if prepared.encoded[number].n_scored and _FROM_LOGITS & lacking and lacking <= _FROM_LOGITS | {"branches"}
    ]
    keys = {cache_key(model, prepared.encoded[number].text_sha256, "logits"): number for number in could}
    there = logits.known(keys) if keys else set()
    return {key: number for key, number in keys.items() if key in there}


def bytes_to_write(model: TokenizedModel, prepared: Prepared, steps: int) -> dict[Kind, int]:
    """About how many bytes the missing rows take, uncompressed, by kind."""
    totals: dict[Kind, int] = {}
    for text, lacking in zip(prepared.encoded, prepared.missing, strict=True):
        for kind in lacking:
            totals[kind] = totals.get(kind, 0) + KINDS[kind].bytes_a_token(model.vocab_size, steps) * text.n_scored
    return totals

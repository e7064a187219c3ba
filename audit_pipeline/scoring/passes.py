"""What detectors need besides a text's own pass: running it, and handing it to them with the text's statistics.

What belongs here: from the needs of a selection of detectors to passes of models, and from the cache to statistics
with their extras. What does not: the passes themselves (token_statistics/), which detectors an audit takes and where
scores are written (operate/stages/, scoring/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import text_sha256
from audit_pipeline.detectors.detector import Detector, Settings
from audit_pipeline.detectors.needs import Need
from audit_pipeline.detectors.statistics import Branches, Extras, StatisticsIndex, TextStatistics, TokenFrequencies
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.scoring.neighbours.proposer import Proposer
from audit_pipeline.token_statistics.run import (
    KINDS,
    Kind,
    Plan,
    Progress,
    RunSummary,
    Where,
    compute,
    joined,
    plan,
    read_branches,
    read_statistics,
)

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass

Selection = Sequence[tuple[Detector, Sequence[Settings]]]
Forward = Callable[[], "ForwardPass"]
Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Passes:
    """The extras of a selection: branches of ``branch_steps`` tokens, the texts in lower case, ``n_neighbours`` each
    from ``proposer``, the same texts by the model ``reference``, the table ``frequencies``.

    ``absent`` says of a need that is not met why, for the scores that are not given; ``upstream`` are the data versions
    of tables that the scores come from, for their lineage.
    """

    branch_steps: int = 0
    lowercased: bool = False
    proposer: Proposer | None = None
    n_neighbours: int = 0
    seed: int = 0
    reference: TokenizedModel | None = None
    frequencies: TokenFrequencies | None = None
    absent: Mapping[Need, str] = field(default_factory=dict)
    upstream: Mapping[str, str] = field(default_factory=dict)


_NEEDS_THE_TEXT_ALONE = dict.fromkeys(
    (Need.LOWERCASED, Need.NEIGHBOURS), "the text is scored in the context of an input: it has no pass of its own"
)


def in_context(passes: Passes, contexts: Iterable[str | None]) -> Passes:
    """``passes`` as they are for texts that are scored behind a context, where any of them has one.

    Detectors that compare a text with a changed one need the text by itself (paper 001, appendix C).
    """
    if not any(contexts):
        return passes
    absent = {**passes.absent, **_NEEDS_THE_TEXT_ALONE}
    return replace(passes, lowercased=False, proposer=None, n_neighbours=0, absent=absent)


def needs_of(selection: Selection) -> frozenset[Need]:
    """All that the chosen detectors need."""
    return frozenset[Need]().union(*(detector.needs for detector, _ in selection))


def passes_for(
    selection: Selection,
    *,
    reference: TokenizedModel | None = None,
    frequencies: TokenFrequencies | None = None,
    absent: Mapping[Need, str] | None = None,
) -> Passes:
    """What ``selection`` needs of what there is; a pass that no chosen detector needs is left out."""
    needs = needs_of(selection)

    def largest(need: Need, parameter: str) -> int:
        return max(
            (
                int(setting[parameter])
                for detector, settings in selection
                if need in detector.needs
                for setting in settings
            ),
            default=0,
        )

    return Passes(
        # Even m = 0 has its row: that it was run is then known.
        branch_steps=max(1, largest(Need.BRANCHES, "m")) if Need.BRANCHES in needs else 0,
        lowercased=Need.LOWERCASED in needs,
        n_neighbours=largest(Need.NEIGHBOURS, "n"),
        reference=reference if Need.REFERENCE_MODEL in needs else None,
        frequencies=frequencies if Need.FREQUENCY_TABLE in needs else None,
        absent=absent or {},
    )


@dataclass(frozen=True)
class PassesSummary:
    """What the texts' own pass came to, and the extra ones by what they were for."""

    own: RunSummary
    extra: Mapping[str, RunSummary]

    @property
    def all(self) -> list[RunSummary]:
        return [self.own, *self.extra.values()]

    @property
    def unreadable_parts(self) -> tuple[str, ...]:
        """Parts of any of the caches that were damaged and set aside."""
        return tuple(dict.fromkeys(part for summary in self.all for part in summary.unreadable_parts))

    @property
    def tokens(self) -> int:
        """Tokens that went through a model, those of branches included."""
        return sum(summary.tokens_computed + summary.branch_tokens for summary in self.all)


def together(summaries: Sequence[PassesSummary]) -> PassesSummary:
    """What several runs over different texts came to together."""
    names = dict.fromkeys(name for one in summaries for name in one.extra)
    extra = {name: joined([one.extra[name] for one in summaries if name in one.extra]) for name in names}
    return PassesSummary(joined([one.own for one in summaries]), extra)


def run_passes(
    model: TokenizedModel,
    texts: Sequence[str],
    where: Where,
    forward: Forward,
    passes: Passes,
    *,
    forward_reference: Forward | None = None,
    kinds: Sequence[Kind] = ("base",),
    logits_budget: int = 0,
    on_progress: Tell | None = None,
) -> PassesSummary:
    """Bring the caches up to ``texts`` for ``passes``; a model is loaded only where something of it is missing."""
    extra: dict[str, RunSummary] = {}
    if passes.reference is not None and forward_reference is not None:
        # First: one model at a time is in memory, and the audited one has more to do.
        extra["reference"] = compute(passes.reference, texts, where, forward_reference, on_progress=on_progress)
    if passes.proposer is not None:
        kinds = list(dict.fromkeys([*kinds, *passes.proposer.kinds]))
    own = compute(
        model,
        texts,
        where,
        forward,
        kinds=kinds,
        branch_steps=passes.branch_steps,
        logits_budget=logits_budget,
        on_progress=on_progress,
    )
    if passes.lowercased:
        extra["lowercase"] = compute(model, lowercased(texts), where, forward, on_progress=on_progress)
    if passes.proposer is not None:
        proposed = passes.proposer.propose(texts, passes.n_neighbours, passes.seed)
        flat = [neighbour for neighbours in proposed for neighbour in neighbours]
        extra["neighbours"] = compute(model, flat, where, forward, on_progress=on_progress)
    return PassesSummary(own, extra)


def plan_passes(
    model: TokenizedModel, texts: Sequence[str], where: Where, passes: Passes, kinds: Sequence[Kind] = ("base",)
) -> Plan:
    """What :func:`run_passes` would run of the audited model: the texts' own pass, their branches, lower case.

    Texts are counted once; the tokens are those of all. A reference model's passes are not among them.
    """
    own = plan(model, texts, where, kinds, passes.branch_steps)
    if not passes.lowercased:
        return own
    lower = plan(model, lowercased(texts), where)
    sizes = {kind: own.bytes_to_write.get(kind, 0) + lower.bytes_to_write.get(kind, 0) for kind in KINDS}
    return replace(
        own,
        tokens_to_run=own.tokens_to_run + lower.tokens_to_run,
        passes=own.passes + lower.passes,
        bytes_to_write={kind: size for kind, size in sizes.items() if size},
    )


def costs(model: TokenizedModel, texts: Sequence[str], where: Where, passes: Passes) -> list[str]:
    """What more than a pass over the texts will be run, a line each; nothing where that is little or cached."""
    words = []
    if passes.branch_steps > 1:
        tokens = plan(model, texts, where, branch_steps=passes.branch_steps).branch_tokens
        if tokens:
            words.append(f"infilling: branches of {passes.branch_steps} tokens, about {tokens:,} tokens in all")
    if passes.proposer is not None:
        words.append(f"neighbour: {passes.proposer.cost(texts, passes.n_neighbours).summary}")
    return words


def lowercased(texts: Iterable[str]) -> list[str]:
    """The texts in lower case, of those that lower case changes."""
    return [text.lower() for text in texts if text.lower() != text]


_NOT_RUN = {
    Need.BRANCHES: "no branches of the text that are long enough are cached: run the model on it again",
    Need.LOWERCASED: "the model has not been run on the text in lower case: run it again",
    Need.REFERENCE_MODEL: "the reference model has not been run on the text: run the audit again",
    Need.NEIGHBOURS: "the text has no neighbours that the model was run on",
}


class Statistics:
    """The cached statistics of ``texts`` with the extras of ``passes``, found by text."""

    def __init__(self, model: TokenizedModel, texts: Sequence[str], where: Where, passes: Passes) -> None:
        self._passes = passes
        self._absent = {**_NOT_RUN, **passes.absent}
        self._own = StatisticsIndex(read_statistics(model, texts, where))
        self._branches = (
            _branches_by_text(read_branches(model, texts, where, passes.branch_steps)) if passes.branch_steps else {}
        )
        self._lowercased = (
            StatisticsIndex(read_statistics(model, lowercased(texts), where)) if passes.lowercased else None
        )
        self._reference = (
            StatisticsIndex(read_statistics(passes.reference, texts, where)) if passes.reference is not None else None
        )
        self._proposed: dict[str, Sequence[str]] = {}
        if passes.proposer is not None:
            proposed = passes.proposer.propose(texts, passes.n_neighbours, passes.seed)
            self._proposed = dict(zip(texts, proposed, strict=True))
        flat = [neighbour for neighbours in self._proposed.values() for neighbour in neighbours]
        self._neighbours = StatisticsIndex(read_statistics(model, flat, where))

    def __len__(self) -> int:
        return len(self._own)

    def find(self, text: str, context: str | None = None) -> TextStatistics | None:
        """The statistics of ``text`` with their extras; None where the model has not been run on it.

        With a ``context`` they are those of ``text`` as the model read it behind the context (paper 001, appendix C);
        the model then has to have been run on both as one text.
        """
        before = context or ""
        whole = before + text
        own = self._own.find(whole, len(before))
        if own is None:
            return None
        extras = Extras(
            branches=self._branches_of(whole, own),
            lowercased=None if before else self._lower(own),
            reference=self._reference.find(whole, len(before)) if self._reference is not None else None,
            neighbours=[one for each in self._proposed.get(text, ()) if (one := self._neighbours.find(each))],
            frequencies=self._passes.frequencies,
            absent=self._absent,
        )
        return replace(own, extras=extras)

    def _branches_of(self, whole: str, own: TextStatistics) -> Branches | None:
        """The branches of the scored part of ``whole``; None where they start from other modes than it has.

        That is where a part of the cache was lost and the text run again: near-ties may then turn out otherwise.
        """
        branches, all_tokens = self._branches.get(text_sha256(whole)), self._own.find(whole)
        if branches is None or all_tokens is None or len(branches.offsets) != len(all_tokens) + 1:
            return None
        branches = branches.behind(len(all_tokens) - len(own))
        begun = np.diff(branches.offsets) > 0
        return None if (begun & (own.argmax_id == own.token_id)).any() else branches

    def _lower(self, own: TextStatistics) -> TextStatistics | None:
        if self._lowercased is None:
            return None
        lower = own.text.lower()
        return own if lower == own.text else self._lowercased.find(lower)

    def of_examples(self, examples: Iterable[tuple[str, str]]) -> Iterator[tuple[str, TextStatistics | None]]:
        """For each (example_id, text) its id and statistics, None where there are none, in the given order."""
        for example_id, text in examples:
            yield example_id, self.find(text)

    def of_examples_in_context(
        self, examples: Iterable[tuple[str, str, str | None]]
    ) -> Iterator[tuple[str, TextStatistics | None]]:
        """For each (example_id, text, context) its id and statistics, as :meth:`of_examples`."""
        for example_id, text, context in examples:
            yield example_id, self.find(text, context)


def _branches_by_text(table: pa.Table) -> dict[str, Branches]:
    """The rows of the kind ``branches``, by their text's sha256."""
    found = {}
    for batch in table.to_batches():
        lists = {name: batch.column(name) for name in ("offsets", "logprob", "z")}
        values = {name: column.values.to_numpy(zero_copy_only=True) for name, column in lists.items()}
        ends = {name: column.offsets.to_numpy() for name, column in lists.items()}
        for row, (sha256, m) in enumerate(
            zip(batch.column("text_sha256").to_pylist(), batch.column("m").to_pylist(), strict=True)
        ):
            own = {name: values[name][ends[name][row] : ends[name][row + 1]] for name in lists}
            found[sha256] = Branches(m=m, **{name: np.asarray(one) for name, one in own.items()})
    return found

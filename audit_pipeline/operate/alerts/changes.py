"""Which findings changed since they were last looked at, in words that claim no more than the findings do.

What belongs here: findings as the leaderboard has them, comparing two states of it, and the state as text for whoever
remembers it (a sensor). What does not: sending an alert (deliver.py), and what a claim level means
(metrics/claims.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from audit_pipeline.errors import DataError
from audit_pipeline.metrics.claims import find_claim_source, level_in_words
from audit_pipeline.warehouse.query import open_read_only

SMALLEST_MOVE = 0.02
"""An AUROC that moved by no more than this is the same, however narrow its interval was."""

ChangeKind = Literal["first", "gone", "stale", "claim_level", "split_verdict", "auroc"]

_DECIMALS = 4
_STATE = 1
_ROWS = """
SELECT model, benchmark, detector, parameters, auroc, auroc_low, auroc_high, claim_level, split_verdict, is_current,
    design_stated_by, blind_auroc
FROM leaderboard ORDER BY model, benchmark, detector, parameters
"""


class FindingKey(NamedTuple):
    """What one finding is about."""

    model: str
    benchmark: str
    detector: str
    parameters: str


@dataclass(frozen=True)
class WatchedFinding:
    """One row of the leaderboard: an AUROC with its 95% interval (None where it was not computed), and its context.

    ``is_current`` is false where the benchmark has been rebuilt since. ``claim_level`` says whose word it rests on,
    where it is somebody's word alone. Numbers have four decimals.
    """

    model: str
    benchmark: str
    detector: str
    parameters: str
    auroc: float | None
    low: float | None
    high: float | None
    claim_level: str
    split_verdict: str
    is_current: bool

    @property
    def key(self) -> FindingKey:
        return FindingKey(self.model, self.benchmark, self.detector, self.parameters)

    @property
    def setting(self) -> str:
        """The detector, with its parameters where it has any."""
        return self.detector if self.parameters == "{}" else f"{self.detector} {self.parameters}"


State = Mapping[FindingKey, WatchedFinding]


@dataclass(frozen=True)
class FindingChange:
    """What changed about one model on one benchmark, in one line of words."""

    model: str
    benchmark: str
    kinds: tuple[ChangeKind, ...]
    words: str


def read_findings(warehouse: Path) -> dict[FindingKey, WatchedFinding]:
    """The findings on the leaderboard; raises DataError where there is no warehouse or it cannot be read."""
    with open_read_only(warehouse) as connection:
        rows = connection.execute(_ROWS).fetchall()
    found = (_from_row(row) for row in rows)
    return {finding.key: finding for finding in found}


def changes(old: State, new: State) -> list[FindingChange]:
    """One change per pair that differs, by model and benchmark.

    A pair differs by a first finding, one that is gone or became stale, another claim level or split verdict, or an
    AUROC outside of its old interval by which it moved more than ``SMALLEST_MOVE``. That an audit was repeated with
    nearly the same result is no change, nor is that a stale finding is current again.
    """
    found: list[FindingChange] = []
    for (model, benchmark), keys in groupby(sorted(old.keys() | new.keys()), key=lambda key: key[:2]):
        both = list(keys)
        before = [old[key] for key in both if key in old]
        after = [new[key] for key in both if key in new]
        parts = _parts(before, after)
        if parts:
            words = _one_line(f"{model} on {benchmark}: " + "; ".join(part for _, part in parts))
            found.append(FindingChange(model, benchmark, tuple(dict.fromkeys(kind for kind, _ in parts)), words))
    return found


def to_text(state: State) -> str:
    """The state as compact JSON, about 30 bytes a finding; :func:`from_text` reads it."""
    names: dict[object, int] = {}

    def number(value: object) -> int:
        return names.setdefault(value, len(names))

    pairs = []
    for (model, benchmark), keys in groupby(sorted(state), key=lambda key: key[:2]):
        pair: list[object] = [number(model), number(benchmark)]
        for finding in (state[key] for key in keys):
            pair += [
                number((finding.detector, finding.parameters)),
                number((finding.claim_level, finding.split_verdict, finding.is_current)),
                finding.auroc,
                finding.low,
                finding.high,
            ]
        pairs.append(pair)
    return json.dumps(
        {"state": _STATE, "names": list(names), "pairs": pairs}, separators=(",", ":"), ensure_ascii=False
    )


def from_text(text: str) -> dict[FindingKey, WatchedFinding]:
    """The state that :func:`to_text` wrote; raises DataError for anything else."""
    try:
        content = json.loads(text)
        if content["state"] != _STATE:
            raise ValueError(f"written in form {content['state']!r}, not {_STATE}")
        found = [finding for pair in content["pairs"] for finding in _of_pair(pair, content["names"])]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(
            f"the findings that were last seen cannot be read ({_one_line(str(error))}): reset the sensor's cursor, "
            "and comparing starts again"
        ) from error
    return {finding.key: finding for finding in found}


def _of_pair(pair: list[Any], names: list[Any]) -> Iterable[WatchedFinding]:
    model, benchmark = names[pair[0]], names[pair[1]]
    for start in range(2, len(pair), 5):
        setting, context, auroc, low, high = pair[start : start + 5]
        detector, parameters = names[setting]
        claim_level, split_verdict, is_current = names[context]
        yield WatchedFinding(
            model, benchmark, detector, parameters, auroc, low, high, claim_level, split_verdict, bool(is_current)
        )


def _from_row(row: tuple[Any, ...]) -> WatchedFinding:
    model, benchmark, detector, parameters, auroc, low, high, claim_level, split_verdict, is_current, *word = row
    stated_by, blind_auroc = word
    return WatchedFinding(
        model=model,
        benchmark=benchmark,
        detector=detector,
        parameters=parameters,
        auroc=_rounded(auroc),
        low=_rounded(low),
        high=_rounded(high),
        claim_level=level_in_words(claim_level, find_claim_source(claim_level, stated_by, blind_auroc)),
        split_verdict=split_verdict,
        is_current=is_current,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)


def _parts(before: list[WatchedFinding], after: list[WatchedFinding]) -> list[tuple[ChangeKind, str]]:
    """What changed about one pair, by kind."""
    if not after:
        return [("gone", "its findings are gone")]
    context = f"split: {after[0].split_verdict}; claim: {after[0].claim_level}"
    if not before:
        return [("first", f"first findings: {', '.join(_number(finding) for finding in after)}; {context}")]
    was, now = {one.key: one for one in before}, {one.key: one for one in after}
    parts: list[tuple[ChangeKind, str]] = []
    if any(was[key].is_current and not now[key].is_current for key in was.keys() & now.keys()):
        parts.append(("stale", "became stale: its benchmark has been rebuilt since"))
    parts += _differing("claim_level", "claim level", before, after)
    parts += _differing("split_verdict", "split verdict", before, after)
    for key, finding in now.items():
        if key not in was:
            parts.append(("first", f"first finding of {_number(finding)}"))
        elif _moved(was[key], finding):
            parts.append(("auroc", f"{_number(finding)}, was {_value(was[key])}"))
    parts += [("gone", f"no finding of {finding.setting} any more") for key, finding in was.items() if key not in now]
    return parts


def _differing(
    kind: Literal["claim_level", "split_verdict"], name: str, before: list[WatchedFinding], after: list[WatchedFinding]
) -> list[tuple[ChangeKind, str]]:
    """One part where the values of ``kind`` differ; a pair has one, unless detectors came and went."""
    old, new = ([getattr(one, kind) for one in findings] for findings in (before, after))
    if set(old) == set(new):
        return []
    return [(kind, f"{name} is {' and '.join(dict.fromkeys(new))}, was {' and '.join(dict.fromkeys(old))}")]


def _moved(was: WatchedFinding, now: WatchedFinding) -> bool:
    if was.auroc is None or now.auroc is None:
        return was.auroc is not now.auroc
    low = was.auroc if was.low is None else was.low
    high = was.auroc if was.high is None else was.high
    return not low <= now.auroc <= high and round(abs(now.auroc - was.auroc), _DECIMALS) > SMALLEST_MOVE


def _number(finding: WatchedFinding) -> str:
    return f"{finding.setting} AUROC {_value(finding)}"


def _value(finding: WatchedFinding) -> str:
    if finding.auroc is None:
        return "not computed"
    if finding.low is None or finding.high is None:
        return f"{finding.auroc:.3f} (no interval)"
    return f"{finding.auroc:.3f} (95% interval {finding.low:.3f} to {finding.high:.3f})"


def _one_line(text: str) -> str:
    return " ".join(text.split())

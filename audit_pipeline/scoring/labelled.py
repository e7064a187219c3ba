"""What the labels in a scored file show: how well each detector separates the two sides.

What belongs here: the few numbers that are kept of a file of any length, and the AUROC from them. What does not: how
labels are spelt (fetch/labels.py), metrics and intervals (metrics/, evidence/).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.detectors.registry import Overrides, is_default
from audit_pipeline.fetch.labels import LabelReader
from audit_pipeline.fetch.rows import TextRow
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.delong import auroc_with_interval
from audit_pipeline.metrics.intervals import Interval, metric_intervals
from audit_pipeline.metrics.metrics import metrics, undefined

FEW_ENOUGH_TO_RESAMPLE = 20_000
"""Texts with a label. Of more the interval is DeLong's: the bootstrap's 2,000 draws of them would take minutes."""

Setting = tuple[str, str]

GROUP = "group"
"""The column of the book, patent or article that a text is of."""


def group_of(row: TextRow) -> str | None:
    """The group that a row names."""
    given = row.values.get(GROUP)
    return None if given is None or given == "" else str(given)


@dataclass(frozen=True)
class Separation:
    """How well one detector setting separates a file's labelled texts; its interval is resampled by group."""

    detector: str
    parameters: str
    auroc: float
    interval: Interval
    n_members: int
    n_nonmembers: int


@dataclass
class LabelledScores:
    """Of every text whose label is known its group, its label, and the score of each detector's default.

    ``settings`` are detector and parameters of the table's rows of one text, in order; ``overrides`` the parameters
    that the user has set, which are the default then.
    """

    settings: Sequence[Setting]
    label_column: str
    overrides: Overrides | None = None
    labels: LabelReader = field(default_factory=LabelReader)
    has_column: bool = False

    def __post_init__(self) -> None:
        defaults = [place for place, one in enumerate(self.settings) if is_default(*one, self.overrides)]
        self._scores = {place: array("d") for place in defaults}
        self._labels = array("b")
        # By number: names of every text would take more room than all else that is kept of it.
        self._groups, self._group_names = array("q"), dict[str, int]()

    def add(self, texts: Sequence[TextRow], scores: Floats) -> list[int | None]:
        """Take texts with their scores [texts, settings], NaN where there is none; returns their labels."""
        labels: list[int | None] = []
        for text, row in zip(texts, scores, strict=True):
            labels.append(None)
            if self.label_column not in text.values:
                continue
            self.has_column = True
            label = labels[-1] = self.labels.read(text.values[self.label_column])
            if label is not None:
                self._labels.append(label)
                self._groups.append(self._group_number(text))
                for place, column in self._scores.items():
                    column.append(row[place])
        return labels

    def _group_number(self, text: TextRow) -> int:
        """The place of the text's group among their names; below 0 the text's own place where it names none."""
        name = group_of(text)
        return -1 - text.index if name is None else self._group_names.setdefault(name, len(self._group_names))

    def _groups_of(self, places: Sequence[int]) -> list[str]:
        names, numbers = list(self._group_names), (self._groups[place] for place in places)
        return [names[number] if number >= 0 else f"text {-1 - number:09d}" for number in numbers]

    @property
    def problem(self) -> str | None:
        """Why there is no AUROC of anything, where the file has labels; None where there is one."""
        counted = {"member": self.labels.known[MEMBER], "non-member": self.labels.known[NON_MEMBER]}
        if not self.has_column or all(counted.values()):
            return None
        named = [f"{count:,} {side}{'' if count == 1 else 's'}" for side, count in counted.items() if count]
        return f"no AUROC: it takes texts of both sides, and the labels name {named[0] if named else 'neither side'}"

    def separations(self) -> list[Separation]:
        """AUROC of every detector's default setting; nothing for one that has scored no text of a side."""
        found = (self._separation(place) for place in self._scores)
        return [one for one in found if one is not None]

    def _separation(self, place: int) -> Separation | None:
        scores, labels = np.asarray(self._scores[place]), np.asarray(self._labels)
        scored = ~np.isnan(scores)
        scores, labels = scores[scored], labels[scored]
        if undefined(labels) is not None:
            return None
        members = int(labels.sum())
        if len(labels) > FEW_ENOUGH_TO_RESAMPLE:
            auroc, interval = auroc_with_interval(scores, labels)
        else:
            auroc = metrics(scores, labels)["auroc"]
            groups = self._groups_of(np.flatnonzero(scored).tolist())
            interval = metric_intervals(scores, labels, groups)["auroc"]
        return Separation(*self.settings[place], auroc, interval, members, len(labels) - members)

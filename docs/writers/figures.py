"""The figures of docs/statistics-explained.md, and their numbers in the page.

What belongs here: invented scores of known truth, what our own functions find in them, and drawing it. What does not:
any statistic (audit_pipeline/statistics, evidence, separability), the words of the page (a test holds that its numbers
are these).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from audit_pipeline.report.plots import PALETTE, QUIET, STYLE, to_png
from audit_pipeline.splits.blind_controls import compute_blind_control
from audit_pipeline.statistics.conformal import compute_conformal_p_values, compute_q_values
from audit_pipeline.statistics.intervals import GroupedSides, Interval, measure_auroc_of_scores
from audit_pipeline.statistics.power import compute_mann_whitney_power, find_mean_score_sample_size
from audit_pipeline.statistics.roc import METRICS, compute_metrics, compute_roc_points, find_threshold_at_fpr
from audit_pipeline.statistics.share_bounds import measure_share

Floats = npt.NDArray[np.float64]

FPR, ALPHA = 0.05, 0.05
MEMBERS_AHEAD = 0.6
PER_SIDE = 400
SIZES = (20, 50, 200, 1000)
WINDOWS = 10
UNREAD, READ, HELD_OUT, SHOWN = 180, 20, 999, 40
EFFECTS = (0.52, 0.55, 0.6, 0.7)
POWER = 0.8
# The sides of a split that words alone can separate: how likely a word is of the newer vocabulary.
OLD_SHARE, NEW_SHARE = 0.02, 0.1


@dataclass(frozen=True)
class Sides:
    """Scores of members and non-members, labels 1 and 0, and the group of each text: [n] each."""

    scores: Floats
    labels: npt.NDArray[np.int64]
    groups: tuple[str, ...]

    @property
    def auroc(self) -> float:
        """Return the AUROC of the scores."""
        return compute_metrics(self.scores, self.labels)["auroc"]

    @property
    def interval(self) -> Interval:
        """Return the 95% interval of the AUROC."""
        return measure_auroc_of_scores(self.scores, self.labels, self.groups).interval

    def of(self, label: int) -> Floats:
        """Return the scores of one side."""
        return np.asarray(self.scores[self.labels == label])


def drawn(per_side: int, *, texts_per_group: int = 1, ahead: float = MEMBERS_AHEAD, seed: int = 1) -> Sides:
    """Draw normal scores, with members ``ahead`` by this number of standard deviations.

    Half of the variance is the group's, if a group has several texts.
    """
    draw = np.random.default_rng(seed)
    n_groups = 2 * per_side // texts_per_group
    places = np.repeat(np.arange(n_groups), texts_per_group)
    labels = (places < n_groups // 2).astype(np.int64)
    shared = 0.5 if texts_per_group > 1 else 0.0
    noise = np.sqrt(shared) * draw.normal(size=n_groups)[places] + np.sqrt(1 - shared) * draw.normal(size=len(places))
    return Sides(noise + ahead * labels, labels, tuple(f"book {place}" for place in places))


@dataclass(frozen=True)
class Separable:
    """A split that words alone separate: what a model that read neither side makes of it, and the blind control."""

    model: Sides
    blind: Sides


@cache
def separable() -> Separable:
    """Draw texts of 40 words out of 400. Newer texts have more of the 10 newer words. The model counted older texts.

    Neither side was among the texts that it counted. Its score is the mean log-probability of a text's words.
    """
    draw = np.random.default_rng(3)
    vocabulary = np.array([f"word{number}" for number in range(400)])

    def texts(number: int, share: float) -> list[list[str]]:
        newer = draw.random((number, 40)) < share
        return vocabulary[
            np.where(newer, draw.integers(390, 400, newer.shape), draw.integers(0, 390, newer.shape))
        ].tolist()

    counted = [word for text in texts(2000, OLD_SHARE) for word in text]
    counts = dict(zip(*np.unique(counted, return_counts=True), strict=True))
    chosen = texts(PER_SIDE, OLD_SHARE) + texts(PER_SIDE, NEW_SHARE)
    scores = np.array([np.mean([np.log((counts.get(word, 0) + 1) / len(counted)) for word in text]) for text in chosen])
    labels = np.repeat([1, 0], PER_SIDE)
    names = tuple(f"text {place}" for place in range(len(chosen)))
    blind = compute_blind_control(names, [" ".join(text) for text in chosen], labels, names, language="en")
    return Separable(Sides(scores, labels, names), Sides(np.asarray(blind.scores, dtype=np.float64), labels, names))


@dataclass(frozen=True)
class Shelf:
    """P-values and q-values of a shelf of books, each of shape (UNREAD + READ,). The last READ books were read."""

    p: Floats
    q: Floats


@cache
def shelf() -> Shelf:
    """Compute conformal p-values against HELD_OUT books, and Benjamini-Hochberg q-values. Read books score higher."""
    draw = np.random.default_rng(5)
    statistics = np.concatenate([draw.normal(size=UNREAD), draw.normal(3.0, size=READ)])
    p = compute_conformal_p_values(statistics, draw.normal(size=HELD_OUT))
    return Shelf(p, compute_q_values(p, "bh"))


def facts() -> Mapping[str, str]:
    """Return the numbers in the page by name, in the form of the page."""
    sides, books, split = drawn(PER_SIDE), shelf(), separable()
    curve, of_groups = compute_roc_points(sides.scores, sides.labels), GroupedSides(sides.groups, sides.labels)
    tpr = measure_share(METRICS["tpr_at_5_fpr"], curve, of_groups)
    by_size = {size: drawn(size).interval for size in SIZES}
    many, few = drawn(PER_SIDE, seed=2), drawn(PER_SIDE, texts_per_group=WINDOWS, seed=2)
    return {
        "auroc": f"AUROC {_told(sides.auroc, sides.interval)}",
        "tpr": f"TPR {_percent(tpr.value)} [{_percent(tpr.interval.low)}, {_percent(tpr.interval.high)}]",
        **{f"interval of {size}": f"{size:,} texts per side: {_ends(one)}" for size, one in by_size.items()},
        "independent": f"{PER_SIDE} books with one text each: {_ends(many.interval)}",
        "windows": f"{PER_SIDE // WINDOWS} books with {WINDOWS} texts each: {_ends(few.interval)}",
        "unread, p": f"{int((books.p[:UNREAD] <= ALPHA).sum())} of the {UNREAD} unread books have p ≤ 0.05",
        "read, p": f"{int((books.p[UNREAD:] <= ALPHA).sum())} of the {READ} read ones",
        "unread, q": f"{int((books.q[:UNREAD] <= ALPHA).sum())} of the unread books have q ≤ 0.05",
        "read, q": f"{int((books.q[UNREAD:] <= ALPHA).sum())} of the read ones have q ≤ 0.05",
        "model": f"model that read neither side: AUROC {_told(split.model.auroc, split.model.interval)}",
        "blind": f"blind control: AUROC {_told(split.blind.auroc, split.blind.interval)}",
        **{f"power at {effect}": f"AUROC {effect}: {_texts(effect)}" for effect in EFFECTS},
    }


def figures() -> Mapping[str, bytes]:
    """Return every figure as a PNG, by file name."""
    return {f"{name}.png": to_png(figure, dpi=130) for name, figure in _drawn_figures()}


def _drawn_figures() -> Iterator[tuple[str, Figure]]:
    yield "roc", _roc()
    yield "intervals", _intervals()
    yield "separable", _separable()
    yield "p-and-q", _p_and_q()
    yield "power", _power()


@contextmanager
def _panels(columns: int, width: float = 7.2, height: float = 2.9) -> Iterator[tuple[Figure, list[Axes]]]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, [figure.add_subplot(1, columns, place + 1) for place in range(columns)]


def _histograms(axes: Axes, sides: Sides, member: str, other: str) -> None:
    edges = np.linspace(sides.scores.min(), sides.scores.max(), 33).tolist()
    for label, name, colour in ((0, other, PALETTE[0]), (1, member, PALETTE[1])):
        axes.hist(sides.of(label), bins=edges, color=colour, alpha=0.55, label=name)
    axes.set_xlabel("score")
    axes.set_ylabel("texts")
    axes.legend()


def _roc() -> Figure:
    sides = drawn(PER_SIDE)
    curve = compute_roc_points(sides.scores, sides.labels)
    threshold = find_threshold_at_fpr(curve, FPR)
    tpr = measure_share(METRICS["tpr_at_5_fpr"], curve, GroupedSides(sides.groups, sides.labels))
    with _panels(2) as (figure, [left, right]):
        _histograms(left, sides, "members", "non-members")
        left.axvline(threshold, color=QUIET, linestyle="--")
        left.annotate(
            "threshold", (threshold, left.get_ylim()[1] * 0.6), ha="left", xytext=(4, 0), textcoords="offset points"
        )
        left.set_title("Scores overlap")
        right.plot([0, 1], [0, 1], color=QUIET, linestyle=":", linewidth=1)
        right.plot(curve.fpr, curve.tpr, color=PALETTE[1])
        right.axvline(FPR, color=QUIET, linestyle="--", linewidth=1)
        low, high = _both(tpr.interval)
        value = tpr.value if tpr.value is not None else np.nan
        right.errorbar([FPR], [value], yerr=[[value - low], [high - value]], fmt="o", color=PALETTE[2], capsize=3)
        right.annotate(f"TPR at 5% FPR: {_percent(value)}", (FPR, value), xytext=(9, -3), textcoords="offset points")
        right.set(
            xlabel="false-positive rate (FPR)",
            ylabel="true-positive rate (TPR)",
            title=f"ROC curve, area {sides.auroc:.2f}",
        )
    return figure


def _intervals() -> Figure:
    rows = [(f"{size:,} texts per side", drawn(size)) for size in SIZES]
    rows += [
        (f"{PER_SIDE} books, 1 text each", drawn(PER_SIDE, seed=2)),
        (f"{PER_SIDE // WINDOWS} books, {WINDOWS} texts each", drawn(PER_SIDE, texts_per_group=WINDOWS, seed=2)),
    ]
    with _panels(1, width=6.4) as (figure, [axes]):
        for place, (_, sides) in enumerate(rows):
            low, high = _both(sides.interval)
            colour = PALETTE[0] if place < len(SIZES) else PALETTE[1]
            axes.plot([low, high], [place, place], color=colour, linewidth=2)
            axes.plot([sides.auroc], [place], "o", color=colour)
        axes.axvline(0.5, color=QUIET, linestyle=":")
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.set(xlabel="AUROC with its 95% interval", title="The same detector, more or fewer independent texts")
    return figure


def _separable() -> Figure:
    split = separable()
    with _panels(2) as (figure, [left, right]):
        _histograms(left, split.model, "older texts", "newer texts")
        left.set_title("Scores of a model that read neither")
        right.plot([0, 1], [0, 1], color=QUIET, linestyle=":", linewidth=1)
        for sides, name, colour in ((split.model, "model", PALETTE[1]), (split.blind, "blind control", PALETTE[0])):
            curve = compute_roc_points(sides.scores, sides.labels)
            right.plot(curve.fpr, curve.tpr, color=colour, label=f"{name}, area {sides.auroc:.2f}")
        right.set(xlabel="FPR", ylabel="TPR", title="It “finds” the older ones all the same")
        right.legend(loc="lower right")
    return figure


def _p_and_q() -> Figure:
    books = shelf()
    with _panels(2) as (figure, [left, right]):
        edges = np.linspace(0, 1, 21).tolist()
        left.hist(
            [books.p[:UNREAD], books.p[UNREAD:]], bins=edges, stacked=True, color=PALETTE[:2], label=["unread", "read"]
        )
        left.axvline(ALPHA, color=QUIET, linestyle="--")
        left.set(xlabel="p-value", ylabel="books", title=f"{UNREAD} unread books, {READ} read ones")
        left.legend()
        order = np.argsort(books.p)[:SHOWN]
        colours = [PALETTE[1] if place >= UNREAD else PALETTE[0] for place in order]
        places = np.arange(1, len(order) + 1)
        right.scatter(places, books.p[order], s=9, c=colours)
        right.plot(places, ALPHA * places / len(books.p), color=PALETTE[2], label="line of Benjamini and Hochberg")
        right.axhline(ALPHA, color=QUIET, linestyle="--", label="p = 0.05")
        right.set(xlabel="books by p-value", ylabel="p-value", ylim=(0, 0.12), title=f"The smallest {SHOWN}")
        right.legend(loc="upper left")
    return figure


def _power() -> Figure:
    sizes = np.unique(np.geomspace(5, 5000, 120).astype(int))
    with _panels(1, width=6.4) as (figure, [axes]):
        for effect, colour in zip(EFFECTS, PALETTE, strict=False):
            power = [compute_mann_whitney_power(effect, int(size), int(size), ALPHA) for size in sizes]
            axes.plot(sizes, power, color=colour, label=f"AUROC {effect}")
        axes.axhline(POWER, color=QUIET, linestyle="--")
        axes.set_xscale("log")
        axes.set_xticks([5, 10, 50, 100, 500, 1000, 5000], ["5", "10", "50", "100", "500", "1,000", "5,000"])
        axes.set(
            xlabel="independent texts per side", ylabel="chance to find it", title="Power of a one-sided test at 5%"
        )
        axes.legend()
    return figure


def _both(interval: Interval) -> tuple[float, float]:
    if interval.low is None or interval.high is None:
        raise ValueError("there are too few invented scores for an interval. Draw more scores.")
    return interval.low, interval.high


def _ends(interval: Interval) -> str:
    low, high = _both(interval)
    return f"{low:.2f} to {high:.2f}"


def _told(value: float, interval: Interval) -> str:
    low, high = _both(interval)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _percent(share: float | None) -> str:
    if share is None:
        raise ValueError("there are too few invented scores for a rate. Draw more scores.")
    return f"{share:.0%}"


def _texts(auroc: float) -> str:
    found = find_mean_score_sample_size(auroc, ALPHA, POWER)
    if found is None:
        raise ValueError(f"no number of texts shows an AUROC of {auroc}")
    return f"{found:,} texts"

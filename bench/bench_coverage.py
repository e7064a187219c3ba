"""Simulations of the coverage of intervals, and of how often equal detectors are called different.

Run by hand: ``OMP_NUM_THREADS=1 python bench/bench_coverage.py [aurocs|shares|thresholds|sizes …]``. By default all
parts run. Seeds are fixed. On two cores with other load, ``aurocs --repeats 300`` took 39 minutes, ``shares --repeats
1000`` 41 minutes, and ``thresholds --repeats 1000`` 10 seconds.

Scores are normal with unit variance. A part of the variance (the group effect: 0, .5 or .9) is common to the texts of a
group. Members are shifted to reach a given AUROC. The true value of a cell is the mean over all its data sets, because
groups with both sides have pairs within a group. Groups have 6 to 34 texts (*alike*), or 2 to some hundred texts
(*unequal*: lognormal around 20, with deviation 1). ``thresholds`` has one text per group.

The script prints PASS under these conditions, each with a tolerance of three standard errors:

- AUROC up to .8 of normal or rounded scores, and share of .3 to .7: at least 90 of 100 intervals contain the true
  value. Other shares: at least 80 of 100.
- TPR at 5% FPR: at least 90 of 100 intervals contain the TPR of the chosen threshold.
- Comparisons: equal detectors are called different at 5% in at most 8 of 100 data sets.

Results that are computed by hand or by brute force are in tests/statistics/.
"""

from __future__ import annotations

import argparse
import math
import operator
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from audit_pipeline.statistics.evaluation import compare_aurocs
from audit_pipeline.statistics.intervals import GroupedSides, Interval, measure_auroc
from audit_pipeline.statistics.roc import METRICS, compute_roc_points, find_index_at_fpr
from audit_pipeline.statistics.share_bounds import estimate_grouped_rate, measure_share

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

GROUPS = (2, 3, 5, 8, 12, 20)
EFFECTS = (0.0, 0.5, 0.9)
SHARE_GROUPS = (2, 3, 5, 8, 12, 20, 30, 50, 100)
SHARES = {"0.3, 0.5 and 0.7": (0.3, 0.5, 0.7), "0.02, 0.1, 0.95 and 0.98": (0.02, 0.1, 0.95, 0.98)}
THRESHOLD_TEXTS = (20, 50, 100, 200, 500)
LEAST, LEAST_OF_OUTER_SHARES, MOST = 0.9, 0.8, 0.08
"""The minimum coverage of intervals, that of outer shares, and the maximum share of equal detectors that are called
different."""
SHAPES = (
    ("normal", (0.5, 0.8)),
    ("rounded", (0.8,)),
    ("exponential", (0.8,)),
    ("normal", (0.9,)),
    ("exponential", (0.9,)),
    ("normal", (0.95,)),
)
"""Shapes of scores, and their AUROCs. The coverage is judged for AUROCs up to .8, except for exponential scores, which
are skewed."""
LAYOUTS = 10
"""Number of draws of the group sizes per cell."""
SHARE_LAYOUTS = 100
"""Number of draws of the group sizes per cell for shares, whose coverage depends more on the sizes."""
SEED = 20250101


def draw_sizes(generator: np.random.Generator, n: int, unequal: bool) -> Labels:
    """Draw the number of texts of each of n groups."""
    if unequal:
        return np.maximum(2, 20 * generator.lognormal(0, 1, n)).astype(np.int64)
    return generator.integers(6, 35, n)


def draw_labels_and_groups(
    generator: np.random.Generator, composition: str, k: int, unequal: bool
) -> tuple[Labels, Labels]:
    """Draw the labels and groups of a data set with k groups per side, or with k groups that have both sides."""
    if composition == "both sides a group":
        sizes = draw_sizes(generator, k, unequal)
        return np.concatenate([np.arange(size) % 2 for size in sizes]), np.repeat(np.arange(k), sizes)
    if composition == "a third of both sides":
        sizes = draw_sizes(generator, 2 * k, unequal)
        kinds = [np.ones(0, dtype=np.int64)]
        for place, size in enumerate(sizes):
            kinds.append(np.arange(size) % 2 if place % 3 == 2 else np.full(size, place % 3))
        return np.concatenate(kinds), np.repeat(np.arange(2 * k), sizes)
    others = k if composition == "one side a group" else 3 * k
    sizes = draw_sizes(generator, k + others, unequal)
    groups = np.repeat(np.arange(k + others), sizes)
    return (groups < k).astype(np.int64), groups


def draw_noise(generator: np.random.Generator, groups: Labels, effect: float) -> Floats:
    together = generator.normal(size=groups.max() + 1)[groups]
    return np.asarray(math.sqrt(effect) * together + math.sqrt(1 - effect) * generator.normal(size=len(groups)))


def contains(interval: Interval, value: float) -> bool:
    """Return True if an interval contains a value. A missing interval makes no claim, so it counts as True."""
    return interval.low is None or interval.high is None or interval.low <= value <= interval.high


def measure_coverage(
    composition: str, k: int, unequal: bool, effect: float, auroc: float, repeats: int, shape: str = "normal"
) -> float:
    """Return the share of intervals that contain the AUROC of scores of a ``shape``: normal, rounded or exponential."""
    generator = np.random.default_rng([SEED, k, unequal, round(10 * effect), round(100 * auroc), len(composition)])
    values, intervals = [], []
    for _ in range(LAYOUTS):
        labels, groups = draw_labels_and_groups(generator, composition, k, unequal)
        sides = GroupedSides(groups, labels)
        for _ in range(repeats // LAYOUTS):
            noise = draw_noise(generator, groups, effect)
            scores = noise + math.sqrt(2) * norm.ppf(auroc) * labels
            if shape == "rounded":
                scores = np.round(scores)
            elif shape == "exponential":
                # An exponential score exceeds another with the probability mean / (sum of both means).
                scores = -norm.logsf(noise) * np.where(labels == 1, auroc / (1 - auroc), 1.0)
            measured = measure_auroc(compute_roc_points(scores, labels), sides)
            values.append(measured.value)
            intervals.append(measured.interval)
    truth = float(np.mean(values))
    return float(np.mean([contains(interval, truth) for interval in intervals]))


def measure_share_coverage(k: int, unequal: bool, effect: float, share: float, repeats: int) -> float:
    generator = np.random.default_rng([SEED, k, unequal, round(10 * effect), round(100 * share)])
    held = 0
    layouts = min(SHARE_LAYOUTS, repeats)
    for _ in range(layouts):
        groups = np.repeat(np.arange(k), draw_sizes(generator, k, unequal))
        for _ in range(repeats // layouts):
            flags = draw_noise(generator, groups, effect) > norm.isf(share)
            held += contains(estimate_grouped_rate(flags, groups).interval, share)
    return held / (repeats // layouts * layouts)


def measure_threshold_coverage(n: int, auroc: float, repeats: int) -> tuple[float, float]:
    """Return how often the interval of the TPR at 5% FPR contains two rates of the population, with n texts per side.

    The first rate is the TPR of the threshold that was chosen on the n texts. The second rate is the TPR at an FPR of
    exactly 5%.
    """
    generator = np.random.default_rng([SEED, n, round(100 * auroc), 2])
    shift, metric, labels = math.sqrt(2) * norm.ppf(auroc), METRICS["tpr_at_5_fpr"], np.repeat([1, 0], n)
    assert metric.at_fpr is not None
    sides, population = GroupedSides(np.arange(2 * n), labels), float(norm.sf(norm.isf(metric.at_fpr) - shift))
    held = np.zeros(2)
    for _ in range(repeats):
        curve = compute_roc_points(generator.normal(size=2 * n) + shift * labels, labels)
        interval = measure_share(metric, curve, sides).interval
        met = float(norm.sf(curve.threshold[find_index_at_fpr(curve, metric.at_fpr)] - shift))
        held += contains(interval, met), contains(interval, population)
    return float(held[0] / repeats), float(held[1] / repeats)


def measure_size(composition: str, k: int, unequal: bool, effect: float, auroc: float, repeats: int) -> float:
    """Return how often two detectors of equal AUROC are called different at 5%. Half of their variance is common."""
    generator = np.random.default_rng([SEED, k, unequal, round(10 * effect), round(100 * auroc), len(composition), 1])
    different = 0
    for _ in range(LAYOUTS):
        labels, groups = draw_labels_and_groups(generator, composition, k, unequal)
        sides = GroupedSides(groups, labels)
        for _ in range(repeats // LAYOUTS):
            noise = [draw_noise(generator, groups, effect) for _ in range(3)]
            shift = math.sqrt(2) * norm.ppf(auroc) * labels
            both = [(noise[0] + own) / math.sqrt(2) + shift for own in noise[1:]]
            first, second = (measure_auroc(compute_roc_points(scores, labels), sides) for scores in both)
            p_value = compare_aurocs(first, second, sides).p_value
            different += p_value is not None and p_value < 0.05
    return different / (repeats // LAYOUTS * LAYOUTS)


def format_row(name: str, cells: list[list[float]], passes: Callable[[float], bool] | None = None) -> str:
    """Format a row with one range per number of groups. With ``passes``, the row ends with PASS or FAIL."""
    ends = [(format_share(min(cell)), format_share(max(cell))) for cell in cells]
    ranges = [low if low == high else f"{low} to {high}" for low, high in ends]
    verdict = (
        "" if passes is None else " PASS |" if all(passes(share) for cell in cells for share in cell) else " FAIL |"
    )
    return f"| {name} | {' | '.join(ranges)} |{verdict}"


def format_share(share: float) -> str:
    return f"{share:.2f}".lstrip("0") if share < 0.995 else "1"


def format_head(name: str, groups: tuple[int, ...] = GROUPS) -> str:
    return f"| {name} | {' | '.join(map(str, groups))} |\n|---|{'---|' * len(groups)}"


def measure_aurocs(repeats: int) -> Iterator[str]:
    yield format_head("AUROC, groups")
    least = LEAST - 3 * math.sqrt(LEAST * (1 - LEAST) / repeats)
    for composition, unequal in product(
        ("both sides a group", "one side a group", "one side, one to three", "a third of both sides"), (False, True)
    ):
        sizes = "unequal" if unequal else "alike"
        for shape, aurocs in SHAPES:
            if shape == "rounded" and composition != "one side a group":
                continue
            cells = [
                [
                    measure_coverage(composition, k, unequal, effect, auroc, repeats, shape)
                    for effect, auroc in product(EFFECTS, aurocs)
                ]
                for k in GROUPS
            ]
            shown = "" if shape == "normal" else f", {shape}"
            name = f"{composition}, {sizes}, {' and '.join(map(str, aurocs))}{shown}"
            is_promised = max(aurocs) <= 0.8 and shape != "exponential"
            yield format_row(name, cells, (lambda held: held >= least) if is_promised else None)


def measure_shares(repeats: int) -> Iterator[str]:
    yield format_head("share, groups", SHARE_GROUPS)
    for unequal, (name, shares) in product((False, True), SHARES.items()):
        promised = LEAST if 0.5 in shares else LEAST_OF_OUTER_SHARES
        least = promised - 3 * math.sqrt(promised * (1 - promised) / repeats)
        for effect in EFFECTS:
            cells = [
                [measure_share_coverage(k, unequal, effect, share, repeats) for share in shares] for k in SHARE_GROUPS
            ]
            label = f"{'unequal' if unequal else 'alike'}, {name}, effect {effect:g}"
            yield format_row(label, cells, partial(operator.le, least))


def measure_thresholds(repeats: int) -> Iterator[str]:
    yield format_head("TPR at 5% FPR, texts a side", THRESHOLD_TEXTS)
    least = LEAST - 3 * math.sqrt(LEAST * (1 - LEAST) / repeats)
    aurocs = (0.6, 0.7, 0.8, 0.9)
    held = [[measure_threshold_coverage(n, auroc, repeats) for auroc in aurocs] for n in THRESHOLD_TEXTS]
    met = [[of_met for of_met, _ in cell] for cell in held]
    population = [[of_population for _, of_population in cell] for cell in held]
    yield format_row("of the met threshold", met, lambda share: share >= least)
    yield format_row("of the population at an FPR of 5%", population)


def measure_sizes(repeats: int) -> Iterator[str]:
    yield format_head("difference, groups")
    most = MOST + 3 * math.sqrt(MOST * (1 - MOST) / repeats)
    for composition, unequal in product(
        ("both sides a group", "one side a group", "one side, one to three"), (False, True)
    ):
        cells = [
            [measure_size(composition, k, unequal, *case, repeats) for case in product(EFFECTS, (0.5, 0.8))]
            for k in GROUPS
        ]
        yield format_row(f"{composition}, {'unequal' if unequal else 'alike'}", cells, lambda size: size <= most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {
        "aurocs": ("AUROC: group effects 0, .5 and .9", measure_aurocs),
        "shares": ("Share of texts: .02 to .98, group effects 0, .5 and .9", measure_shares),
        "thresholds": ("TPR at 5% FPR: AUROC .6, .7, .8 and .9", measure_thresholds),
        "sizes": ("Equal detectors called different at 5%: AUROC .5 and .8, group effects 0, .5, .9", measure_sizes),
    }
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"Parts to run: {', '.join(parts)}. Default: all parts."
    )
    parser.add_argument("--repeats", type=int, default=500, help="Number of data sets per cell, a multiple of 100.")
    options = parser.parse_args()
    repeats, failed = options.repeats, 0
    if unknown := [name for name in options.parts if name not in parts]:
        parser.error(f"there is no part '{unknown[0]}'. The parts are: {', '.join(parts)}.")
    for title, measure in (parts[name] for name in options.parts or parts):
        lines = measure(repeats)
        started = time.perf_counter()
        print(f"\n{title} ({repeats} data sets per cell)\n", flush=True)
        for line in lines:
            failed += "FAIL" in line
            print(line, flush=True)
        print(f"\n{time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{'FAIL' if failed else 'PASS'}: {failed} rows violate a limit")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

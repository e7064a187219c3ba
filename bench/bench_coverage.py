"""How often the intervals hold what they are of, and how often equal detectors are told apart: long simulations.

Run by hand: ``python bench/bench_coverage.py [--repeats 2000] [--resamples 400]``. Seeds are fixed.

Scores are normal with equal spread, members shifted so that the AUROC is the one wanted; with five texts per group half
of the variance is the group's. The resamples inside are fewer than in an audit (2,000; comparisons 1,000).

PASS is said where
- AUROC: 93 to 97 of 100 intervals hold it, wherever there are at least 100 texts per class and the AUROC is at most .9
  (other cells are printed only);
- TPR at a fixed threshold: with one text per group at least 95 of 100 bounds hold it, less three standard errors
  (groups of five are printed only: the effective size is an estimate);
- comparisons: with at least 100 texts per class equal detectors are called different at 5% in 5 of 100 data sets, give
  or take three standard errors (fewer texts are printed only).

What belongs here: measured coverage and size. What does not: correctness by hand and by brute force (tests/metrics/,
tests/evidence/).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from audit_pipeline.evidence.evaluation import compute_comparison
from audit_pipeline.metrics.intervals import GroupBootstrap, percentile_interval
from audit_pipeline.metrics.rates import clopper_pearson_bounds, grouped_rate
from audit_pipeline.metrics.roc import rank, weighted_metrics

Floats = npt.NDArray[np.float64]

AUROCS = (0.5, 0.6, 0.75, 0.9, 0.97)
TEXTS = (50, 100, 300)
SIZES = (1, 5)
TPRS = (0.02, 0.1, 0.3, 0.7, 0.95)
GROUP_VARIANCE = 0.5
SEED = 20250101


def drawn(generator: np.random.Generator, n: int, size: int) -> Floats:
    """Scores of n texts in groups of ``size``, of unit variance: [n]."""
    alone = generator.normal(size=n)
    if size == 1:
        return alone
    together = generator.normal(size=n // size).repeat(size)
    return math.sqrt(GROUP_VARIANCE) * together + math.sqrt(1 - GROUP_VARIANCE) * alone


def shift(auroc: float) -> float:
    return float(np.sqrt(2) * norm.ppf(auroc))


def sides(n: int, size: int) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Labels and groups of n members, then n non-members."""
    return np.repeat([1, 0], n), [f"{index // size:05d}" for index in range(2 * n)]


class FastAurocs:
    """AUROCs on a bootstrap's resamples, from the pairs won between groups: one matrix product a data set.

    The resamples are GroupBootstrap's own, and the same for every data set, as in an audit with the same groups.
    """

    def __init__(self, bootstrap: GroupBootstrap, n: int, size: int) -> None:
        counts = np.concatenate(list(bootstrap.counts())).astype(np.float32)
        self.n, self.size, groups = n, size, n // size
        self.members, self.nonmembers = counts[:, :groups], counts[:, groups:]

    def pairs(self, members: Floats, nonmembers: Floats) -> npt.NDArray[np.float32]:
        """How many pairs the members of each group win against the non-members of each: [groups, groups]."""
        won = (members[:, None] > nonmembers[None, :]).astype(np.float32)
        groups = self.n // self.size
        return won if self.size == 1 else won.reshape(groups, self.size, groups, self.size).sum(axis=(1, 3))

    def resampled(self, pairs: npt.NDArray[np.float32]) -> Floats:
        won: Floats = np.einsum("bi,bi->b", self.members @ pairs, self.nonmembers, dtype=np.float64)
        return won / self.n**2


def check_fast(generator: np.random.Generator) -> None:
    """The shortcut gives what the audit's own code gives."""
    for size in SIZES:
        labels, groups = sides(50, size)
        bootstrap = GroupBootstrap(groups, labels, resamples=20)
        fast = FastAurocs(bootstrap, 50, size)
        members, nonmembers = drawn(generator, 50, size) + 0.5, drawn(generator, 50, size)
        others = drawn(generator, 100, size)
        scores = np.concatenate([members, nonmembers])
        both = [rank(one, labels) for one in (scores, others)]
        aurocs, (slow, of_others) = [weighted_metrics(one)[0, 0] for one in both], bootstrap.metrics(both)[:, :, 0]
        pairs = [fast.pairs(members, nonmembers), fast.pairs(others[:50], others[50:])]
        won = pairs[0] - pairs[1]
        short = compute_comparison(float(won.sum(dtype=np.float64)) / 50**2, fast.resampled(won), bootstrap)
        long = compute_comparison(float(aurocs[0] - aurocs[1]), slow - of_others, bootstrap)
        quick, audits = ([one.difference, one.standard_error or 0.0] for one in (short, long))
        alike = np.allclose(quick, audits)
        if not np.allclose(fast.resampled(pairs[0]), slow) or not alike or short.p_value != long.p_value:
            sys.exit("the shortcuts of this script do not agree with the audit's own code")


def _holds(value: float, low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low <= value <= high


def auroc_coverage(repeats: int, resamples: int) -> Iterator[str]:
    yield "| texts per class | texts per group | AUROC | logit interval | percentiles | |\n|--:|--:|--:|--:|--:|---|"
    for n in TEXTS:
        for size in SIZES:
            generator = np.random.default_rng([SEED, n, size])
            labels, groups = sides(n, size)
            bootstrap = GroupBootstrap(groups, labels, resamples=resamples)
            fast = FastAurocs(bootstrap, n, size)
            held = {auroc: np.zeros(2, dtype=int) for auroc in AUROCS}
            for _ in range(repeats):
                members, nonmembers = drawn(generator, n, size), drawn(generator, n, size)
                for auroc in AUROCS:
                    pairs = fast.pairs(members + shift(auroc), nonmembers)
                    resampled = fast.resampled(pairs)
                    value = float(pairs.sum(dtype=np.float64)) / n**2
                    found = (bootstrap.auroc_interval(value, resampled), percentile_interval(resampled))
                    held[auroc] += [_holds(auroc, one.low, one.high) for one in found]
            for auroc, counts in held.items():
                logit, percentiles = counts / repeats
                verdict = said(0.93 <= logit <= 0.97) if n >= 100 and auroc <= 0.9 else ""
                yield f"| {n} | {size} | {auroc} | {logit:.1%} | {percentiles:.1%} | {verdict} |"


def tpr_coverage(repeats: int) -> Iterator[str]:
    yield "| members | texts per group | TPR | Clopper-Pearson | groups left aside | |\n|--:|--:|--:|--:|--:|---|"
    for n in TEXTS:
        for size in SIZES:
            generator = np.random.default_rng([SEED, n, size, 1])
            groups = sides(n, size)[1][:n]
            for tpr in TPRS:
                held = np.zeros(2, dtype=int)
                for _ in range(repeats):
                    hits = drawn(generator, n, size) > norm.isf(tpr)
                    of_groups, of_texts = grouped_rate(hits, groups), clopper_pearson_bounds(hits.sum(), n)
                    of_all = [float(end) for end in of_texts]
                    held += [_holds(tpr, of_groups.low, of_groups.high), _holds(tpr, *of_all)]
                grouped, plain = held / repeats
                verdict = said(grouped >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / repeats)) if size == 1 else ""
                yield f"| {n} | {size} | {tpr} | {grouped:.1%} | {plain:.1%} | {verdict} |"


def comparison_size(repeats: int, resamples: int) -> Iterator[str]:
    yield (
        "| texts per class | per group | AUROC of both | correlation | different at 5% | twice the lesser tail | |\n"
        "|--:|--:|--:|--:|--:|--:|---|"
    )
    for n, size, auroc, correlation in (
        (50, 1, 0.75, 0.5),
        (50, 5, 0.75, 0.8),
        (100, 1, 0.6, 0.5),
        (100, 1, 0.9, 0.8),
        (100, 5, 0.6, 0.5),
        (100, 5, 0.75, 0.8),
        (300, 1, 0.75, 0.8),
        (300, 5, 0.75, 0.5),
    ):
        generator = np.random.default_rng([SEED, n, size, 2])
        labels, groups = sides(n, size)
        bootstrap = GroupBootstrap(groups, labels, resamples=resamples)
        fast = FastAurocs(bootstrap, n, size)
        rejected = np.zeros(2, dtype=int)
        for _ in range(repeats):
            members, nonmembers = (two(generator, n, size, correlation) for _ in range(2))
            won = [fast.pairs(members[one] + shift(auroc), nonmembers[one]) for one in (0, 1)]
            differences = fast.resampled(won[0] - won[1])
            observed = float((won[0] - won[1]).sum(dtype=np.float64)) / n**2
            found = compute_comparison(observed, differences, bootstrap)
            tail = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
            rejected += [found.p_value is not None and found.p_value <= 0.05, 2 * (1 + tail) / (resamples + 1) <= 0.05]
        centred, tails = rejected / repeats
        verdict = said(abs(centred - 0.05) <= 3 * np.sqrt(0.05 * 0.95 / repeats)) if n >= 100 else ""
        yield f"| {n} | {size} | {auroc} | {correlation} | {centred:.1%} | {tails:.1%} | {verdict} |"


def two(generator: np.random.Generator, n: int, size: int, correlation: float) -> list[Floats]:
    common = drawn(generator, n, size)
    return [
        np.sqrt(correlation) * common + np.sqrt(1 - correlation) * drawn(generator, n, size) for _ in range(2)
    ]  # fmt: skip


def said(holds: bool) -> str:
    return "PASS" if holds else "FAIL"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000, help="data sets a cell")
    parser.add_argument("--resamples", type=int, default=400)
    given = parser.parse_args()
    check_fast(np.random.default_rng(SEED))
    failed = 0
    for title, lines in (
        ("AUROC: share of 95% intervals that hold it", auroc_coverage(given.repeats, given.resamples)),
        ("TPR at a fixed threshold: share of 95% bounds that hold it", tpr_coverage(given.repeats)),
        ("Two detectors of equal AUROC: share told apart", comparison_size(given.repeats, given.resamples)),
    ):
        started = time.perf_counter()
        print(f"\n{title} ({given.repeats} data sets a cell, {given.resamples} resamples)\n", flush=True)
        for line in lines:
            failed += "FAIL" in line
            print(line, flush=True)
        print(f"\n{time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{said(not failed)}: {failed} cells fall outside of what is stated")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

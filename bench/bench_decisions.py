"""Simulations of the error rates of thresholds, p-values, q-values and corrected rates, on thousands of data sets.

Run by hand: ``python bench/bench_decisions.py [--sets 2000] [--only NAME]``. This takes about a quarter of an hour on a
slow core. Seeds are fixed, so the figures can be repeated.

Every line has the measured figure, and PASS or FAIL by these rules. SE is the standard error over data sets.

- marginal: the mean FPR, which is known exactly for normal scores, is at most alpha + 3 SE.
- certified: the FPR is at most alpha in at least 95% - 3 SE of the calibrations.
- conformal: the share of p-values up to a of unread groups is at most a + 3 SE, for a = 1, 5, 10 and 50%. Groups of
  equal and of unequal size are simulated.
- combined: the same for the mean of a text's ranks by four detectors, which share three quarters of their variance. All
  texts are ranked together: 39 calibration texts, the unread text, and 60 others, of which none or half were read. Two
  further figures are printed and not judged: ranks among the calibration texts only, and the best of the four
  detectors.
- fdr: the mean share of unread groups among the discoveries at q <= 0.1 is at most 0.1 + 3 SE. BH is simulated with
  independent p-values, and with audited groups that share their calibration groups. BY is simulated with the latter,
  and with groups that share an effect.
- interval: at least 95% - 3 SE of the intervals contain the share of grouped texts.
- rates, books: at least 93% of the 95% intervals of the corrected rate contain the share of members. This is simulated
  for 0, 10, 50 and 100% members. TPR is .6 and FPR is .05, except for the rule of the largest accuracy. There are data
  sets with one text per group, with groups of ten that share half of their variance, and with one book of 100 windows.
  Mixtures with a refused rate are counted and omitted. The four shares of a data set use the same calibration.

Values that are computed by hand are in tests/.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from audit_pipeline.scoring.needs.unchanged_text import compute_mid_ranks
from audit_pipeline.statistics.conformal import compute_conformal_p_values, compute_q_values, run_group_tests
from audit_pipeline.statistics.contamination_rate import compute_unit_rates, measure_threshold
from audit_pipeline.statistics.share_bounds import estimate_grouped_rate
from audit_pipeline.statistics.thresholds import (
    ScoredTexts,
    Threshold,
    choose_largest_accuracy,
    choose_order_statistic,
)

SHIFT = float(norm.ppf(0.95) + norm.ppf(0.6))  # TPR .6 at FPR .05
Verdict = tuple[str, bool]
"""A sentence about a figure, and True if the figure passes."""
Floats = npt.NDArray[np.float64]


def draw_texts(
    generator: np.random.Generator, labels: npt.ArrayLike, sizes: npt.ArrayLike, icc: float, shift: float = SHIFT
) -> ScoredTexts:
    """Draw groups of texts with standard normal scores.

    Args:
        generator: Source of random numbers.
        labels: The label of each group [g].
        sizes: The number of texts of each group [g].
        icc: The share of the variance that is common to the texts of a group.
        shift: Number that is added to the scores of members.
    """
    sizes = np.asarray(sizes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    effects = generator.normal(size=len(sizes))[groups]
    labels = np.asarray(labels)[groups]
    scores = np.sqrt(icc) * effects + np.sqrt(1 - icc) * generator.normal(size=len(groups)) + shift * labels
    keys = generator.integers(0, 2**63, len(groups), dtype=np.uint64)
    return ScoredTexts(scores, labels, groups, keys)


def measure_marginal_fpr(sets: int) -> Iterator[Verdict]:
    for number, (n, size, alpha) in enumerate([(19, 1, 0.05), (60, 1, 0.05), (60, 8, 0.05), (100, 1, 0.01)]):
        generator = np.random.default_rng(100 + number)
        rates = np.empty(sets)
        for index in range(sets):
            calibration = draw_texts(generator, np.zeros(n, int), np.full(n, size), 0.5)
            found = choose_order_statistic("marginal", calibration, alpha)
            rates[index] = norm.sf(found.threshold)
        error = rates.std(ddof=1) / np.sqrt(sets)
        says = f"{n} groups of {size}, alpha {alpha:g}: mean FPR {rates.mean():.5f} (SE {error:.5f})"
        yield says, rates.mean() <= alpha + 3 * error


def measure_certified_fpr(sets: int) -> Iterator[Verdict]:
    for number, (n, size, alpha) in enumerate([(59, 1, 0.05), (100, 1, 0.05), (100, 8, 0.05), (299, 1, 0.01)]):
        generator = np.random.default_rng(200 + number)
        kept = np.empty(sets)
        for index in range(sets):
            calibration = draw_texts(generator, np.zeros(n, int), np.full(n, size), 0.5)
            found = choose_order_statistic("certified", calibration, alpha)
            kept[index] = norm.sf(found.threshold) <= alpha
        says = f"{n} groups of {size}, alpha {alpha:g}: FPR <= alpha in {kept.mean():.2%} of calibrations"
        yield says, kept.mean() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / sets)


def measure_conformal_levels(sets: int) -> Iterator[Verdict]:
    designs: dict[str, Callable[[np.random.Generator, int], npt.NDArray[np.int64]]] = {
        "groups of 10": lambda generator, n: np.full(n, 10),
        "groups of 1 to 30": lambda generator, n: generator.integers(1, 31, n),
        "half of 2, half of 40": lambda generator, n: generator.permutation(np.resize([2, 40], n)),
    }
    for number, (name, sizes) in enumerate(designs.items()):
        generator = np.random.default_rng(300 + number)
        # Each calibration yields one p-value. The p-values are then independent, and their standard error is known.
        p_values = np.empty(sets)
        for index in range(sets):
            known = draw_texts(generator, np.zeros(149, int), sizes(generator, 149), 0.3)
            audited = draw_texts(generator, np.zeros(1, int), sizes(generator, 2)[:1], 0.3)
            p_values[index] = run_group_tests(audited, known).p_value[0]
        levels = (0.01, 0.05, 0.1, 0.5)
        shares = [float((p_values <= level + 1e-12).mean()) for level in levels]
        says = ", ".join(f"P(p <= {level:g}) = {share:.4f}" for level, share in zip(levels, shares, strict=True))
        allowed = [level + 3 * np.sqrt(level * (1 - level) / sets) for level in levels]
        yield f"{name}: {says}", all(share <= most for share, most in zip(shares, allowed, strict=True))


def measure_combined_levels(sets: int) -> Iterator[Verdict]:
    """Measure the p-values of combined ranks. Row 39 is the tested text, after 39 calibration texts."""
    levels = (0.05, 0.1, 0.5)

    def shares(p_values: Floats) -> str:
        found = ((level, float((p_values <= level + 1e-12).mean())) for level in levels)
        return ", ".join(f"P(p <= {level:g}) = {share:.4f}" for level, share in found)

    for number, read in enumerate((0, 30)):
        generator = np.random.default_rng(350 + number)
        pooled, alone, best = np.empty(sets), np.empty(sets), np.empty(sets)
        for index in range(sets):
            scores = 0.75**0.5 * generator.normal(size=(100, 1)) + 0.5 * generator.normal(size=(100, 4))
            scores[100 - read :] += SHIFT
            by_each = [float(compute_conformal_p_values(one[39], one[:39])) for one in scores.T]
            below = (scores[:39, None] < scores).mean(axis=0).mean(axis=1)
            together = compute_mid_ranks(scores).mean(axis=1)
            pooled[index], alone[index] = (compute_conformal_p_values(one[39], one[:39]) for one in (together, below))
            best[index] = min(by_each)
        allowed = [level + 3 * np.sqrt(level * (1 - level) / sets) for level in levels]
        holds = all((pooled <= level + 1e-12).mean() <= most for level, most in zip(levels, allowed, strict=True))
        yield f"{read} of 60 others read: {shares(pooled)}", holds
        yield (
            f"{read} of 60 others read, not judged: calibration ranks only {shares(alone)}; best of 4 {shares(best)}",
            True,
        )


def measure_false_discoveries(sets: int) -> Iterator[Verdict]:
    unread, read, level = 80, 20, 0.1
    truth = np.repeat([0, 1], [unread, read])

    def independent(generator: np.random.Generator) -> Floats:
        return np.asarray(norm.sf(generator.normal(size=100) + 3 * truth))

    def shared_calibration(generator: np.random.Generator) -> Floats:
        return compute_conformal_p_values(generator.normal(size=100) + 4 * truth, generator.normal(size=999))

    def shared_effect(generator: np.random.Generator) -> Floats:
        effect = np.sqrt(0.5) * generator.normal() * np.where(np.arange(100) % 2, 1, -1)
        return np.asarray(norm.sf(effect + np.sqrt(0.5) * generator.normal(size=100) + 3 * truth))

    cases = (
        ("BH, independent", "bh", independent),
        ("BH, conformal with shared calibration groups", "bh", shared_calibration),
        ("BY, conformal with shared calibration groups", "by", shared_calibration),
        ("BY, an effect that raises half and lowers half", "by", shared_effect),
    )
    for number, (name, method, draw) in enumerate(cases):
        generator = np.random.default_rng(400 + number)
        false, power = np.empty(sets), np.empty(sets)
        for index in range(sets):
            found = compute_q_values(draw(generator), method) <= level  # type: ignore[arg-type]
            false[index] = found[truth == 0].sum() / max(1, found.sum())
            power[index] = found[truth == 1].mean()
        error = false.std(ddof=1) / np.sqrt(sets)
        says = f"{name}: FDR {false.mean():.4f} (SE {error:.4f}) at q <= {level:g}, power {power.mean():.2f}"
        yield says, false.mean() <= level + 3 * error


Design = tuple[str, int, int, int, int, float]
"""A simulated design: its name, the number of calibration groups per side and of texts per group, the number of audited
groups and of texts per group, and the share of the variance that is common to a group."""
CORPORA: tuple[Design, ...] = (
    ("one text per group", 100, 1, 100, 1, 0.0),
    ("60 per side, 400 audited", 60, 1, 400, 1, 0.0),
    ("groups of ten, half shared", 60, 10, 40, 10, 0.5),
)
BOOKS: tuple[Design, ...] = (
    ("one book, a tenth shared", 60, 10, 1, 100, 0.1),
    ("one book, 30% shared", 60, 10, 1, 100, 0.3),
)


def measure_corrected_rates(sets: int, designs: tuple[Design, ...], seed: int) -> Iterator[Verdict]:
    rules: dict[str, Callable[[ScoredTexts], Threshold]] = {
        "largest accuracy": choose_largest_accuracy,
        "marginal 5%": lambda calibration: choose_order_statistic("marginal", calibration, 0.05),
        "certified 5%": lambda calibration: choose_order_statistic("certified", calibration, 0.05),
    }
    shares = (0.0, 0.1, 0.5, 1.0)
    for number, (design, per_side, size, n_audited, audited_size, icc) in enumerate(designs):
        generator = np.random.default_rng(seed + number)
        held: dict[tuple[float, str], list[bool]] = {(share, rule): [] for share in shares for rule in rules}
        widths: dict[tuple[float, str], list[float]] = {case: [] for case in held}
        for _ in range(sets):
            calibration = draw_texts(generator, np.repeat([0, 1], per_side), np.full(2 * per_side, size), icc)
            found = {rule: measure_threshold(choose(calibration), calibration) for rule, choose in rules.items()}
            for share in shares:
                audited = draw_mixture(generator, share, n_audited, audited_size, icc)
                for rule, one in found.items():
                    if one is None or one.reason is not None:
                        continue
                    rates = compute_unit_rates(audited, np.zeros(len(audited), dtype=np.intp), one)
                    low, high = rates.corrected_low[0], rates.corrected_high[0]
                    if np.isnan(low):
                        continue
                    held[share, rule].append(bool(low <= share <= high))
                    widths[share, rule].append(float(high - low))
        for (share, rule), kept in held.items():
            if not kept:
                yield f"{design}, {share:.0%} members, {rule}: refused in all {sets}", True
                continue
            coverage = float(np.mean(kept))
            yield (
                f"{design}, {share:.0%} members, {rule}: coverage {coverage:.4f}, "
                f"mean width {np.mean(widths[share, rule]):.3f}, refused {sets - len(kept)} of {sets}",
                coverage >= 0.93,
            )


def draw_mixture(generator: np.random.Generator, share: float, n_groups: int, size: int, icc: float) -> ScoredTexts:
    """Draw groups, of which a share are members. A single group has this share of members among its texts."""
    n_members = round(share * (n_groups if n_groups > 1 else size))
    if n_groups > 1:
        return draw_texts(generator, np.repeat([1, 0], [n_members, n_groups - n_members]), np.full(n_groups, size), icc)
    book = draw_texts(generator, np.zeros(1, int), np.array([size]), icc)
    labels = np.repeat([1, 0], [n_members, size - n_members])
    return ScoredTexts(book.scores + SHIFT * labels, labels, book.groups, book.keys)


def measure_grouped_intervals(sets: int) -> Iterator[Verdict]:
    for number, (n_groups, icc, level) in enumerate(
        [(10, 0.5, 0.3), (30, 0.5, 0.3), (30, 0.1, 0.05), (60, 0.5, 0.05), (60, 0.0, 0.6)]
    ):
        generator = np.random.default_rng(600 + number)
        limit = norm.isf(level)
        held, widths = np.empty(sets), np.empty(sets)
        for index in range(sets):
            drawn = draw_texts(generator, np.zeros(n_groups, int), generator.integers(5, 16, n_groups), icc)
            rate = estimate_grouped_rate(drawn.scores >= limit, drawn.groups)
            assert rate.low is not None
            assert rate.high is not None
            held[index], widths[index] = rate.low <= level <= rate.high, rate.high - rate.low
        says = f"{n_groups} groups, {icc:g} of the variance shared, share {level:g}: coverage {held.mean():.4f}"
        kept = held.mean() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / sets)
        yield f"{says}, mean width {widths.mean():.3f}", bool(kept)


PARTS: dict[str, Callable[[int], Iterator[Verdict]]] = {
    "marginal": measure_marginal_fpr,
    "certified": measure_certified_fpr,
    "conformal": measure_conformal_levels,
    "combined": measure_combined_levels,
    "fdr": measure_false_discoveries,
    "interval": measure_grouped_intervals,
    "rates": lambda sets: measure_corrected_rates(sets, CORPORA, 500),
    "books": lambda sets: measure_corrected_rates(sets, BOOKS, 503),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=2000, help="Number of data sets per line.")
    parser.add_argument("--only", choices=tuple(PARTS), help="Part to run. Default: all parts.")
    chosen = parser.parse_args()
    failed = 0
    for name, part in PARTS.items():
        if chosen.only not in (None, name):
            continue
        began = time.perf_counter()
        for says, holds in part(chosen.sets):
            failed += not holds
            print(f"{'PASS' if holds else 'FAIL'}  {name}: {says}", flush=True)
        print(f"      {name}: {time.perf_counter() - began:.0f} s", flush=True)
    raise SystemExit(f"{failed} figures FAIL" if failed else 0)


if __name__ == "__main__":
    main()

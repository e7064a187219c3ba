"""Simulations of the size and power of the corpus-level tests.

Run by hand: ``python bench/bench_corpus_tests.py [PART …] [--data-sets 2000] [--seed 20240601]``. The parts are
combinations, orders, inference and power.

The size is the share of p-values up to 0.05 over at least 2,000 data sets without any effect. The script prints FAIL if
a share exceeds 5% + 3 standard errors. It judges these sizes:

- dataset inference, with one split, and with ten splits whose p-values are combined by twice the median;
- twice the median by itself;
- the exact rule of the permutation test;
- the t-test over shards, if the likelihoods are symmetric.

It measures, but does not judge, the t-test with skewed likelihoods, Fisher's rule (which the product does not use), and
all powers.

Cases that are computed by hand are in tests/statistics/.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import get_args

import numpy as np
import numpy.typing as npt
from scipy import stats

from audit_pipeline.statistics.dataset_inference import ComparedTexts, combine_p_values, run_dataset_inference
from audit_pipeline.statistics.sharded_permutation import Rule, run_sharded_permutation_test

ALPHA = 0.05
FEATURES = 20

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, ...]], Floats]

NOISES: dict[str, Noise] = {
    "normal": lambda generator, shape: generator.standard_normal(shape),
    "t, 3 degrees": lambda generator, shape: generator.standard_t(3, shape),
    "exponential": lambda generator, shape: generator.exponential(1.0, shape) - 1,
    "minus exponential": lambda generator, shape: 1 - generator.exponential(1.0, shape),
}


class Verdict:
    """Printer of measured sizes, with a list of the sizes that are too large.

    Attributes:
        limit: The largest accepted size.
        failed: Names of the sizes above the limit.
    """

    def __init__(self, data_sets: int) -> None:
        self.limit = ALPHA + 3 * float(np.sqrt(ALPHA * (1 - ALPHA) / data_sets))
        self.failed: list[str] = []

    def check_size(self, what: str, p_values: npt.ArrayLike, *, judged: bool = True) -> None:
        """Print the share of p-values up to 0.05, and record a failure if it is judged and too large."""
        share = float(np.mean(np.asarray(p_values) <= ALPHA))
        bad = judged and share > self.limit
        if bad:
            self.failed.append(what)
        print(f"  {what:<64} {share:7.2%}  {'FAIL' if bad else 'ok' if judged else 'not judged'}")


def draw_texts(
    generator: np.random.Generator, sides: tuple[int, int], windows: int, noise: Noise, effect: float
) -> tuple[Floats, npt.NDArray[np.bool_], list[str]]:
    """Draw the scores of texts by ``FEATURES`` detectors of equal quality.

    Scores of one document are correlated.

    Args:
        generator: Source of random numbers.
        sides: Numbers of audited and of held-out documents.
        windows: Mean number of texts per document. The number is drawn from 1 to 2 * windows - 1.
        noise: Distribution of the scores.
        effect: Number that is added to half of the features of audited texts, in standard deviations of a text's score.

    Returns:
        The scores [texts, features], the mask of held-out texts, and the document of each text.
    """
    n_groups = sum(sides)
    group = np.repeat(np.arange(n_groups), generator.integers(1, 2 * windows, n_groups))
    common = noise(generator, (n_groups, 1)) + noise(generator, (n_groups, FEATURES))
    values = common[group] + noise(generator, (len(group), 1)) + noise(generator, (len(group), FEATURES))
    held_out = group >= sides[0]
    values[~held_out, : FEATURES // 2] += effect * values[:, 0].std()
    return values, held_out, [f"g{one}" for one in group]


def draw_split_p_values(
    generator: np.random.Generator, sides: tuple[int, int], windows: int, noise: Noise, effect: float = 0.0
) -> tuple[float, ...]:
    """Draw a data set and return the p-values of its ten splits. The arguments are those of :func:`draw_texts`."""
    values, held_out, groups = draw_texts(generator, sides, windows, noise, effect)
    names = [f"f{one}" for one in range(FEATURES)]
    done = run_dataset_inference(
        ComparedTexts(values, names, held_out, groups),
        design="exchangeable",
        claim_level="screening only",
        seed=int(generator.integers(1 << 31)),
    )
    return done.split_p_values


def measure_inference(verdict: Verdict, data_sets: int, seed: int) -> None:
    print(f"dataset inference, {FEATURES} features, 10 splits, {data_sets} data sets without effect")
    cases = [
        ("20 and 20 groups, normal", (20, 20), 3, "normal"),
        ("40 and 40 groups, t with 3 degrees", (40, 40), 3, "t, 3 degrees"),
        ("60 and 20 groups, exponential", (60, 20), 3, "exponential"),
    ]
    for name, sides, windows, noise in cases:
        generator = np.random.default_rng([seed, 1, *sides])
        splits = [draw_split_p_values(generator, sides, windows, NOISES[noise]) for _ in range(data_sets)]
        verdict.check_size(f"{name}: one split", [one[0] for one in splits])
        verdict.check_size(f"{name}: twice the median", [combine_p_values(one) for one in splits])
        fisher = [stats.combine_pvalues(one, method="fisher").pvalue for one in splits]
        verdict.check_size(f"{name}: Fisher (not used)", fisher, judged=False)


def measure_power(verdict: Verdict, data_sets: int, seed: int) -> None:
    few = data_sets // 20
    print(f"power of dataset inference at 5%, twice the median, {few} data sets")
    for groups in (20, 50, 100):
        for effect in (0.2, 0.4, 0.8):
            generator = np.random.default_rng([seed, 2, groups, int(10 * effect)])
            splits = [draw_split_p_values(generator, (groups, groups), 3, NOISES["normal"], effect) for _ in range(few)]
            share = np.mean([combine_p_values(one) <= ALPHA for one in splits])
            print(f"  {groups} and {groups} groups, effect {effect} SD: {share:.1%}")


def draw_likelihoods(
    generator: np.random.Generator, data_sets: int, shards: int, permutations: int, noise: Noise, effect: float
) -> Floats:
    """Draw log-likelihoods [data sets, shards, 1 + permutations]. Each shard has a random level and spread.

    The first entry of a shard is its published order, which ``effect`` raises by this number of standard deviations.
    """
    spread = generator.gamma(2.0, 1.0, (data_sets, shards, 1))
    values = noise(generator, (data_sets, shards, permutations + 1))
    values[:, :, 0] += effect
    return 100 * generator.standard_normal((data_sets, shards, 1)) + spread * values


def compute_p_values(drawn: Floats, rule: Rule) -> list[float]:
    """Return the p-values of data sets [data sets, shards, 1 + permutations] by a rule, without refused tests."""
    found = [run_sharded_permutation_test(one[:, 0], one[:, 1:], rule=rule).p_value for one in drawn]
    return [p for p in found if p is not None]


def measure_orders(verdict: Verdict, data_sets: int, seed: int) -> None:
    print(f"sharded permutation test, 25 orders per shard, {data_sets} data sets without effect")
    for shards in (10, 50):
        for name, noise in NOISES.items():
            generator = np.random.default_rng([seed, 5, shards, len(name)])
            drawn = draw_likelihoods(generator, data_sets, shards, 25, noise, 0.0)
            verdict.check_size(f"{shards} shards, {name}: exact", compute_p_values(drawn, "exact"))
            symmetric = not name.endswith("exponential")
            verdict.check_size(f"{shards} shards, {name}: t-test", compute_p_values(drawn, "t_test"), judged=symmetric)
    print("power at 5% of the exact rule and of the t-test, by the effect on the published order's likelihood")
    for shards in (10, 20, 50):
        for effect in (0.2, 0.4, 0.8):
            generator = np.random.default_rng([seed, 6, shards, int(10 * effect)])
            drawn = draw_likelihoods(generator, data_sets, shards, 25, NOISES["normal"], effect)
            exact, t_test = (np.mean(np.array(compute_p_values(drawn, rule)) <= ALPHA) for rule in get_args(Rule))
            print(f"  {shards} shards, effect {effect} SD: {exact:.1%} and {t_test:.1%}")


def measure_combinations(verdict: Verdict, data_sets: int, seed: int) -> None:
    print(f"combination of ten p-values of equally correlated normals, {data_sets} data sets without effect")
    for correlation in (0.0, 0.5, 0.9, 1.0):
        generator = np.random.default_rng([seed, 7, int(10 * correlation)])
        common = generator.standard_normal((data_sets, 1))
        own = generator.standard_normal((data_sets, 10))
        p = stats.norm.sf(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
        verdict.check_size(f"correlation {correlation}: twice the median", [combine_p_values(one) for one in p])


PARTS: dict[str, Callable[[Verdict, int, int], None]] = {
    "combinations": measure_combinations,
    "orders": measure_orders,
    "inference": measure_inference,
    "power": measure_power,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[[], *PARTS],
        metavar="PART",
        help=f"Parts to run: {', '.join(PARTS)}. Default: all parts.",
    )
    parser.add_argument("--data-sets", type=int, default=2000, help="Number of simulated data sets per size.")
    parser.add_argument("--seed", type=int, default=20240601)
    given = parser.parse_args()
    verdict = Verdict(given.data_sets)
    print(f"largest accepted size: {verdict.limit:.2%}")
    for part in given.parts or PARTS:
        began = time.perf_counter()
        PARTS[part](verdict, given.data_sets, given.seed)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    print(f"FAIL: {'; '.join(verdict.failed)}" if verdict.failed else "PASS")


if __name__ == "__main__":
    main()

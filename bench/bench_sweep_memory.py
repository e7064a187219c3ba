"""Benchmark of the peak memory of head and reductions, by the size of the vocabulary and the number of positions.

Run by hand: ``python bench/bench_sweep_memory.py [--vocabularies 49152 151936] [--positions 512 2048 8192]
[--kinds base renyi]``.

Each case runs in a process of its own. It sweeps once over the vocabulary, with a head of random weights and random
hidden states, and computes the statistics of ``--kinds``. Matrices are multiplied by the faster library on this
machine. The printed number is the growth of the process's peak memory in the sweep, next to the size of the full logits
in float32.

This script measures memory. bench_token_statistics.py measures speed. Correctness is tested in tests/token_statistics.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audit_pipeline.tables import Kind

WIDTH = 576


def measure(vocabulary: int, positions: int, kinds: list[Kind]) -> None:
    """Print the growth of this process's peak memory in one sweep, in MB."""
    import torch

    from audit_pipeline.tables import KINDS
    from audit_pipeline.token_statistics.calibration import is_faster_with_onednn
    from audit_pipeline.token_statistics.layer_tuning import choose_linear_function
    from audit_pipeline.token_statistics.reductions import sweep
    from audit_pipeline.token_statistics.vocabulary_blocks import Head, HeadLogits, Scratch

    weight = torch.randn(vocabulary, WIDTH)
    head = Head(weight, None, 1.0, None, choose_linear_function(onednn=is_faster_with_onednn(weight)))
    target = torch.randint(vocabulary, (positions,))
    wanted = {name for kind in kinds for name in KINDS[kind].statistics}
    with torch.inference_mode():
        # Libraries load their kernels, and the allocator its pools, in the first call.
        sweep(HeadLogits(head, torch.randn(64, WIDTH)), target[:64], Scratch(torch.device("cpu")), wanted)
        hidden = torch.randn(positions, WIDTH)
        before = measure_peak_memory()
        sweep(HeadLogits(head, hidden), target, Scratch(torch.device("cpu")), wanted)
    print(round(measure_peak_memory() - before, 1))


def measure_peak_memory() -> float:
    """Return the peak memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--vocabularies", type=int, nargs="+", default=[49_152, 151_936], help="Sizes of the vocabulary."
    )
    parser.add_argument("--positions", type=int, nargs="+", default=[512, 2048, 8192], help="Numbers of positions.")
    parser.add_argument("--kinds", nargs="+", default=["base"], help="Kinds of statistics to compute.")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        vocabulary, positions = given.one
        measure(vocabulary, positions, given.kinds)
        return
    print(" vocabulary  positions   growth of peak, MB  full logits, MB")
    for vocabulary in given.vocabularies:
        for positions in given.positions:
            command = [sys.executable, __file__, "--one", str(vocabulary), str(positions), "--kinds", *given.kinds]
            grew = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            print(f"{vocabulary:11,} {positions:10,} {grew:>20} {4 * vocabulary * positions / 2**20:16,.0f}")


if __name__ == "__main__":
    main()

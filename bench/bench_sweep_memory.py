"""Peak memory of head and reductions, by the size of the vocabulary and the number of positions.

Run by hand: ``python bench/bench_sweep_memory.py [--vocabularies 49152 151936] [--positions 512 2048 8192]
[--kinds base renyi]``.

Each case runs in a process of its own: weights of a head with random numbers, hidden states of so many positions, one
sweep with what ``--kinds`` keep (by default what every text has), multiplied by the library that is faster here. What
is printed is by how much the process's peak memory grew in the sweep, beside what the full logits in float32 would
take.
What belongs here: memory. What does not: speed (bench_token_statistics.py), correctness (tests/token_statistics).
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
    """Print by how many MB the peak of this process grows in one sweep."""
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
        before = peak()
        sweep(HeadLogits(head, hidden), target, Scratch(torch.device("cpu")), wanted)
    print(round(peak() - before, 1))


def peak() -> float:
    """The most memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[49_152, 151_936])
    parser.add_argument("--positions", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--kinds", nargs="+", default=["base"])
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        vocabulary, positions = given.one
        measure(vocabulary, positions, given.kinds)
        return
    print(" vocabulary  positions  peak grew by, MB  full logits, MB")
    for vocabulary in given.vocabularies:
        for positions in given.positions:
            command = [sys.executable, __file__, "--one", str(vocabulary), str(positions), "--kinds", *given.kinds]
            grew = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
            print(f"{vocabulary:11,} {positions:10,} {grew:>17} {4 * vocabulary * positions / 2**20:16,.0f}")


if __name__ == "__main__":
    main()

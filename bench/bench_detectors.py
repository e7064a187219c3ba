"""Benchmark of the detectors on real text: their time after the pass, and the effect of half precision.

Run by hand: ``python bench/bench_detectors.py [--texts 16] [--words 64] [--steps 5]``.

The time is that of all one-pass detectors at all settings of their grids, from the cache, compared with the pass that
filled the cache. The deviations are those of log-probabilities, z-scores and default scores in float16 and bfloat16
from float32. The largest and the mean deviation are printed. Correctness is tested in tests/.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from bench_token_statistics import texts_from_addresses

from audit_pipeline.detectors.min_k import compute_z_scores
from audit_pipeline.detectors.registry import REGISTRY, select_detectors
from audit_pipeline.models.config import load_models, resolve_model
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.models.weights import choose_default_device, load_weights
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

DTYPES = ("float32", "bfloat16", "float16")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=int, default=16, help="Number of texts.")
    parser.add_argument("--words", type=int, default=64, help="Length of a text, in words.")
    parser.add_argument("--steps", type=int, default=5, help="Number of future tokens (m) of the Infilling Score.")
    parser.add_argument("--device", default=choose_default_device())
    return parser.parse_args()


def _get_forward_pass(forward: ForwardPass, model: TokenizedModel) -> ForwardPass:
    return forward


def main() -> None:
    given = parse()
    texts = texts_from_addresses(given.texts, given.words)
    ids = [str(number) for number in range(len(texts))]
    one_pass = [name for name, one in REGISTRY.items() if not one.needs]
    cached = [*one_pass, "lowercase", "infilling"]
    selection = select_detectors(cached, overrides={"infilling": {"m": given.steps}})
    tokens: dict[str, dict[str, np.ndarray]] = {}
    scores: dict[str, dict[str, np.ndarray]] = {}
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            paths = DataPaths(Path(folder))
            model = load_tokenized(apply_overrides(resolve_model(given.model, load_models()), dtype=dtype), paths)
            forward = ForwardPass(load_weights(model, given.device), model.vocab_size)
            load = partial(_get_forward_pass, forward)
            own = Session(model, select_detectors(one_pass), paths).run(texts, load).text_pass
            if dtype == "float32":
                started = time.perf_counter()
                table = Session(model, select_detectors(one_pass, grid=True), paths).score(ids, texts)
                seconds = time.perf_counter() - started
                print(f"load {os.getloadavg()[0]:.1f}; {', '.join(one_pass)}: {len(table):,} scores in {seconds:.3f} s")
                share = seconds / own.seconds
                print(
                    f"  {share:.2%} of the time of the pass over {own.tokens_computed:,} tokens ({own.seconds:.1f} s)"
                )
            session = Session(model, selection, paths)
            session.run(texts, load)
            statistics = session.statistics(texts)
            found = [one for text in texts if (one := statistics.find(text)) is not None]
            tokens[dtype] = {
                "log-probability": np.concatenate([one.logprob for one in found]),
                "z-score": np.concatenate([compute_z_scores(one) for one in found]),
            }
            rows = statistics.scores(selection, ids, texts).to_pylist()
            scores[dtype] = {
                name: np.array([row["score"] for row in rows if row["detector"] == name], float) for name in cached
            }
    for dtype in DTYPES[1:]:
        for what, values in (*tokens[dtype].items(), *scores[dtype].items()):
            exact = (tokens["float32"] | scores["float32"])[what]
            deviation = np.abs(values - exact)
            # A text may have no score, for example if it has no surprising token.
            largest, mean = np.nanmax(deviation), np.nanmean(deviation)
            print(f"{dtype:9} {what:16} largest {largest:9.5f}  mean {mean:9.5f}", end="")
            print(f"  largest in standard deviations: {largest / np.nanstd(exact):.3f}" if what in cached else "")


if __name__ == "__main__":
    main()

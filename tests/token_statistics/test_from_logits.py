"""Statistics from cached logits, and passes of the model if the logits are unusable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_models import SENTENCES, Tiny, never

from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import BETAS, KINDS, Kind, text_sha256
from audit_pipeline.token_statistics.cache import PartCache
from audit_pipeline.token_statistics.cached_texts import plan, read_statistics
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import Progress, compute
from audit_pipeline.token_statistics.tokens import cache_keys

pytestmark = pytest.mark.usefixtures("one_thread")

Rows = dict[str, dict[str, Any]]
SUMS: tuple[Kind, ...] = ("renyi", "temperatures")
# The last is longer than the model's context, and one has no token.
TEXTS = [*SENTENCES[:4], "", " ".join(SENTENCES)]


def rows(model: TokenizedModel, paths: DataPaths, kind: Kind) -> Rows:
    return {row["text_sha256"]: row for row in read_statistics(model, TEXTS, paths, kind).to_pylist()}


def with_logits(tiny: Tiny, paths: DataPaths) -> tuple[TokenizedModel, ForwardPass]:
    model, forward = tiny("llama")
    compute(model, TEXTS, paths, lambda: forward, kinds=("base", "logits"))
    return model, forward


def is_from_logits(model: TokenizedModel, paths: DataPaths, kind: Kind) -> dict[str, bool]:
    found = rows(model, paths, kind)
    return {text: found[text_sha256(text)]["from_logits"] for text in TEXTS}


def test_kinds_computed_from_logits_record_the_origin_of_a_row() -> None:
    assert set(SUMS) == {kind.name for kind in KINDS.values() if kind.is_from_logits}


def test_a_new_statistic_is_computed_from_cached_logits(tiny: Tiny, tmp_path: Path) -> None:
    kept, run = DataPaths(tmp_path / "kept"), DataPaths(tmp_path / "run")
    model, forward = with_logits(tiny, kept)
    planned = plan(model, TEXTS, kept, ("base", *SUMS))
    assert (planned.texts_to_run, planned.tokens_to_run, planned.passes) == (1, 0, 0), "the text without a token"
    assert planned.bytes_to_write["renyi"] > 0
    progress: list[Progress] = []
    summary = compute(model, TEXTS, kept, never, kinds=("base", *SUMS), on_progress=progress.append)
    assert (progress[-1].texts_done, progress[-1].tokens_done) == (len(TEXTS) - 1, progress[-1].tokens_total)
    assert (summary.texts_computed, summary.passes, summary.texts_from_logits) == (0, 0, len(TEXTS) - 1)
    assert compute(model, TEXTS, kept, never, kinds=("base", *SUMS)).texts_from_logits == 0, "they are there now"

    compute(model, TEXTS, run, lambda: forward, kinds=("base", *SUMS))
    for kind in SUMS:
        assert is_from_logits(model, kept, kind) == {text: text != "" for text in TEXTS}
        assert not any(is_from_logits(model, run, kind).values())
        for sha256, row in rows(model, run, kind).items():
            for name in KINDS[kind].statistics:
                made = np.asarray(rows(model, kept, kind)[sha256][name])
                # float16 has 11 bits: a logit of 8 or more is off by up to 0.004.
                np.testing.assert_allclose(made, row[name], atol=0.02, err_msg=name)
    [long] = [row for sha256, row in rows(model, kept, "temperatures").items() if sha256 == text_sha256(TEXTS[-1])]
    assert long["k"] == len(BETAS)
    assert len(long["log_sum_p_beta"]) == len(BETAS) * len(rows(model, kept, "base")[text_sha256(TEXTS[-1])]["logprob"])


def test_only_texts_without_cached_logits_run(tiny: Tiny, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    model, forward = tiny("llama")
    compute(model, TEXTS, paths, lambda: forward)
    compute(model, TEXTS[:2], paths, lambda: forward, kinds=("logits",))
    summary = compute(model, TEXTS, paths, lambda: forward, kinds=("renyi",))
    assert (summary.texts_computed, summary.texts_from_logits) == (len(TEXTS) - 3, 2)
    assert is_from_logits(model, paths, "renyi") == {text: text in TEXTS[:2] for text in TEXTS}


def test_a_text_that_runs_for_another_kind_uses_the_pass(tiny: Tiny, tmp_path: Path) -> None:
    """The statistics of the text itself never come from logits."""
    paths = DataPaths(tmp_path)
    model, forward = tiny("llama")
    compute(model, TEXTS, paths, lambda: forward, kinds=("logits",))
    summary = compute(model, TEXTS, paths, lambda: forward, kinds=("base", "renyi"))
    assert (summary.texts_computed, summary.texts_from_logits) == (len(TEXTS) - 1, 0)
    assert not any(is_from_logits(model, paths, "renyi").values())


def test_branches_run_while_sums_come_from_logits(tiny: Tiny, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    model, forward = with_logits(tiny, paths)
    summary = compute(model, TEXTS, paths, lambda: forward, kinds=("base", "renyi"), branch_steps=2)
    assert (summary.texts_computed, summary.texts_from_logits) == (0, len(TEXTS) - 1)
    assert summary.texts_branched == len(TEXTS) - 1
    other = DataPaths(tmp_path / "other")
    compute(model, TEXTS, other, lambda: forward, kinds=("base",), branch_steps=2)
    lengths = []
    for place in (paths, other):
        folder = place.token_statistics("branches", model.identity.model_fingerprint)
        table = pq.read_table(next(folder.glob("part-*.parquet")))
        lengths.append(dict(zip(table["text_sha256"].to_pylist(), table["offsets"].to_pylist(), strict=True)))
    assert lengths[0] == lengths[1]


def test_a_damaged_part_of_logits_is_set_aside_and_the_model_runs(tiny: Tiny, tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    model, forward = with_logits(tiny, paths)
    [part] = paths.token_statistics("logits", model.identity.model_fingerprint).glob("part-*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    summary = compute(model, TEXTS, paths, lambda: forward, kinds=("renyi",))
    assert (summary.texts_computed, summary.texts_from_logits) == (len(TEXTS) - 1, 0)
    assert not any(is_from_logits(model, paths, "renyi").values())
    assert summary.unreadable_parts == (str(part.with_suffix(".unreadable")),)
    assert part.with_suffix(".unreadable").exists()


@pytest.mark.parametrize("what", ["too few", "infinite"])
def test_unusable_logits_are_ignored_and_the_model_runs(tiny: Tiny, tmp_path: Path, what: str) -> None:
    paths = DataPaths(tmp_path)
    model, forward = tiny("llama")
    compute(model, TEXTS, paths, lambda: forward)
    n = len(rows(model, paths, "base")[text_sha256(TEXTS[0])]["logprob"])
    logits = np.zeros((n - (what == "too few"), model.vocab_size), dtype="<f2")
    logits[0, 0] = np.inf if what == "infinite" else 0.0
    cache = PartCache(paths.token_statistics("logits", model.identity.model_fingerprint), KINDS["logits"].table.schema)
    sha256 = text_sha256(TEXTS[0])
    row = {"key": cache_keys(model, [sha256], "logits")[sha256], "text_sha256": sha256, "vocab_size": model.vocab_size}
    cache.append(pa.Table.from_pylist([{**row, "logits": logits.tobytes()}], cache.schema))
    cache.flush()
    summary = compute(model, TEXTS[:1], paths, lambda: forward, kinds=("renyi",))
    assert (summary.texts_computed, summary.texts_from_logits) == (1, 0)

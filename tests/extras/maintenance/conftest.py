"""A workspace with two audited models on three benchmarks, made once and copied for every test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from cli_results import LABELLED
from made_workspace import Workspace, copy_workspace, made_text, make_workspace, quick_folder
from quick import empty_pictures
from tiny_models import forward_of, single_threaded

from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.scoring.pair_scores import run_passes
from audit_pipeline.store.ledger import LineageStep, record_outcome
from audit_pipeline.tables import Pair


@pytest.fixture(scope="session")
def audited_root(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    """Make the workspace. The benchmarks made_8 and twin_8 share four of their twelve texts."""
    root = tmp_path_factory.mktemp("forget") / "made"
    with pytest.MonkeyPatch.context() as patch, single_threaded(), empty_pictures():
        made = make_workspace(root, patch, tiny=tiny_folder("llama"), two=tiny_folder("gpt_neox"))
        for name, words, first in (("Made8", 8, 0), ("Made9", 9, 100), ("Made10", 10, 200), ("Twin", 8, 8)):
            rows = [{"input": made_text(f"row {at}", words), "label": at % 2} for at in range(first, first + 12)]
            (made.config / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        family = {**LABELLED, "path": "."}
        twin = {**family, "split": "Twin", "words": [8]}
        made.write_benchmarks(made={**family, "split": "Made{words}", "words": [8, 9, 10]}, twin=twin)
        benchmarks = ("made_8", "made_9", "twin_8")
        for benchmark in benchmarks:
            made.build(benchmark)
            made.assess(benchmark)
        for benchmark, name in product(benchmarks, ("tiny", "two")):
            made.audit(name, benchmark)
            pair, model = Pair(benchmark, name), made.model(name)
            write_card(model, made.paths)
            step = LineageStep.now(f"run-{benchmark}-{name}", "token_statistics", "1")
            run_passes(pair, model, made.paths, partial(forward_of, model), step, kinds=("topk",), logits_budget=0)
            record_outcome(made.paths, pair, "scores", "failed", "the device is gone", f"failed-{step.run_id}")
    return root


@pytest.fixture
def workspace(audited_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with quick_folder(tmp_path) as folder:
        yield copy_workspace(audited_root, folder / "made", monkeypatch)

"""The test of a model with twins: scores of all versions, ranks of the published versions, and the stored rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from audit_pipeline.detectors.registry import ONE_PASS, select_detectors
from audit_pipeline.errors import ConfigError
from audit_pipeline.extras.twins import DETECTORS
from audit_pipeline.extras.twins.publication_draw import Twins
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import OnProgress
from audit_pipeline.scoring.session import Session
from audit_pipeline.scoring.whole_set_tests import CorpusTest, write_corpus_test
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.twin_ranks import ASSUMPTION, TwinComparison, compare_twins, compute_rank_shares
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TWINS, Pair
from audit_pipeline.token_statistics.backend import BackendOf


@dataclass(frozen=True)
class TwinsTest:
    """The result of a test of one model.

    Attributes:
        test: The row of CORPUS_TESTS without its run id.
        rows: The rows of TWINS without model, benchmark and run id.
    """

    test: CorpusTest
    rows: Sequence[Mapping[str, Any]]


def run_twins_test(
    model: TokenizedModel,
    twins: Twins,
    paths: DataPaths,
    backend_of: BackendOf,
    *,
    name: str,
    detectors: Sequence[str] = DETECTORS,
    on_progress: OnProgress | None = None,
) -> TwinsTest:
    """Test whether a model scores the published version of each item above its other versions.

    The statistic and its p-value are in statistics/twin_ranks.py.

    Args:
        model: The model.
        twins: The items and their published versions.
        paths: The data folder.
        backend_of: Loads the model if a text is not in the cache.
        name: Name of the items in the tables.
        detectors: Names of the detectors that decide together, at their default settings. They must be chosen before
            any score is seen. Each detector has rows of its own, too.
        on_progress: Receives the progress of the passes.

    Raises:
        ConfigError: If a detector needs more than the pass of the text itself.
    """
    selected = [detector for detector, _ in select_detectors(detectors)]
    for detector in selected:
        if detector.needs:
            raise ConfigError(
                f"The detector {detector.name} needs more than one pass over each text. Choose from: "
                f"{', '.join(ONE_PASS)}."
            )
    texts: list[str] = []
    for item in twins.items:
        texts += item.versions
    session = Session(model, [(detector, [detector.default]) for detector in selected], paths)
    session.run(texts, backend_of, on_progress=on_progress)
    example_ids = [str(number) for number in range(len(texts))]
    table = session.score(example_ids, texts).select(["example_id", "detector", "score"])
    scores = {(row["detector"], row["example_id"]): row["score"] for row in table.to_pylist()}
    ends = np.cumsum([0, *(len(item.versions) for item in twins.items)])
    shares: dict[tuple[str, str], list[Floats]] = {}
    for detector in selected:
        shares_of_detector: list[Floats] = []
        for start, end in pairwise(ends):
            scores_of_item = [scores[detector.name, example_id] for example_id in example_ids[start:end]]
            shares_of_detector.append(compute_rank_shares(scores_of_item))
        shares[detector.name, detector.to_json(detector.default)] = shares_of_detector
    together = compare_twins(list(shares.values()), twins.published)
    detector_names = ", ".join(f"{detector} {parameters}" for detector, parameters in shares)
    return TwinsTest(
        CorpusTest(
            model=model.entry.name,
            benchmark=name,
            test=TWINS.name,
            status="ok" if together.reason is None else "refused",
            reason=together.reason,
            p_value=together.p_value,
            statistic=together.superiority,
            n=together.items,
            n_held_out=together.others,
            assumption=ASSUMPTION,
            claim_level="sound test",
            method=(
                f"{together.method}; by {detector_names}; statistic: share of the secret versions with a lower score "
                f"than the published version; items without a score of each version: {together.left_out}; "
                f"{twins.origin}; sha256 {twins.sha256}"
            ),
            detectable_auroc=together.detectable_auroc,
        ),
        _build_detector_group_rows(twins, shares, together),
    )


def _build_detector_group_rows(
    twins: Twins, shares: Mapping[tuple[str, str], Sequence[Floats]], together: TwinComparison
) -> list[dict[str, Any]]:
    """Return the rows of TWINS: for all items and for each group, per detector and for all detectors together.

    If no group has two or more items, no group has a row. Rows for all detectors together exist only if there are
    several detectors. The first row contains ``together``, the headline result.
    """
    item_groups = [item.group for item in twins.items]
    groups = [""]
    if len(set(item_groups)) < len(item_groups):
        groups += dict.fromkeys(item_groups)
    combinations: dict[tuple[str, str], list[Sequence[Floats]]] = {}
    if len(shares) > 1:
        combinations["all", "{}"] = list(shares.values())
    for key, shares_of_detector in shares.items():
        combinations[key] = [shares_of_detector]
    rows: list[dict[str, Any]] = []
    for (detector, parameters), combined in combinations.items():
        for group in groups:
            indices = [index for index, item_group in enumerate(item_groups) if group in ("", item_group)]
            group_shares: list[list[Floats]] = []
            for item_shares in combined:
                group_shares.append([item_shares[index] for index in indices])
            published = [twins.published[index] for index in indices]
            comparison = compare_twins(group_shares, published, alpha=1.0)
            rows.append({"detector": detector, "parameters": parameters, "group": group, **vars(comparison)})
    # The first row is the headline result. It contains the reason if no result can be given.
    rows[0] |= vars(together)
    return rows


def write_twins_test(
    result: TwinsTest,
    model: TokenizedModel,
    paths: DataPaths,
    step: LineageStep,
    upstream: Mapping[str, str],
    settings: Mapping[str, object] | None = None,
) -> str:
    """Write the rows of a test with their lines in the ledger.

    Args:
        result: The result of the test.
        model: The model.
        paths: The data folder.
        step: The step of the lineage.
        upstream: Data versions of the sources by asset key.
        settings: The options of the stage.

    Returns:
        The data version of the rows of TWINS.

    Raises:
        DataError: If the name of the items contains a vertical bar.
    """
    write_corpus_test(result.test, model, paths, run_id=step.run_id)
    keys = {"model": result.test.model, "benchmark": result.test.benchmark, "run_id": step.run_id}
    return store.write(
        paths,
        step,
        TWINS,
        Pair(result.test.benchmark, result.test.model),
        table_from_rows([{**keys, **row} for row in result.rows], TWINS),
        upstream=upstream,
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        settings=settings,
    )

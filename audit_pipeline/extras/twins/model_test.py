"""The test of a model with twins: scores of all versions, ranks of the published versions, the rows that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from audit_pipeline.detectors.registry import ONE_PASS, select
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
    """A test of one model: ``test`` is the row of CORPUS_TESTS, ``rows`` those of TWINS, both but for the run."""

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
    """Test whether ``model`` scores the published version of each item above the others (statistics/twin_ranks.py).

    ``name``: what the items are called in the tables. ``detectors``: those that decide together, at their default
    settings, named before scores are looked at; each has rows of its own, too. ``backend_of`` loads the model, where a
    text is not in the cache. Raises ConfigError for a detector that needs more than the text's own pass.
    """
    chosen = [detector for detector, _ in select(detectors)]
    if beyond := [detector.name for detector in chosen if detector.needs]:
        raise ConfigError(f"{beyond[0]} needs more than the text's own pass; take one of {', '.join(ONE_PASS)}")
    texts = [text for item in twins.items for text in item.versions]
    session = Session(model, [(detector, [detector.default]) for detector in chosen], paths)
    session.run(texts, backend_of, on_progress=on_progress)
    places = [str(place) for place in range(len(texts))]
    table = session.score(places, texts).select(["example_id", "detector", "score"])
    scores = {(row["detector"], row["example_id"]): row["score"] for row in table.to_pylist()}
    ends = np.cumsum([0, *(len(item.versions) for item in twins.items)])
    shares = {
        (detector.name, detector.to_json(detector.default)): [
            compute_rank_shares([scores[detector.name, place] for place in places[begin:end]])
            for begin, end in pairwise(ends)
        ]
        for detector in chosen
    }
    together = compare_twins(list(shares.values()), twins.published)
    named = ", ".join(f"{detector} {parameters}" for detector, parameters in shares)
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
                f"{together.method}; by {named}; statistic: share of the secret versions that the published version "
                f"scores above; items left out: {together.left_out}; {twins.origin}; sha256 {twins.sha256}"
            ),
            detectable_auroc=together.detectable_auroc,
        ),
        _build_detector_group_rows(twins, shares, together),
    )


def _build_detector_group_rows(
    twins: Twins, shares: Mapping[tuple[str, str], Sequence[Floats]], together: TwinComparison
) -> list[dict[str, Any]]:
    """Return a row of all items and of each group, by each detector, and by all where there are several."""
    groups = [item.group for item in twins.items]
    several = list(dict.fromkeys(groups)) if len(set(groups)) < len(groups) else []
    chosen = {key: [of_detector] for key, of_detector in shares.items()}
    if len(shares) > 1:
        chosen = {("all", "{}"): list(shares.values()), **chosen}
    rows = []
    for (detector, parameters), of_detectors in chosen.items():
        for group in ("", *several):
            within = [place for place, own in enumerate(groups) if group in ("", own)]
            own_shares = [[row[place] for place in within] for row in of_detectors]
            compared = compare_twins(own_shares, [twins.published[place] for place in within], alpha=1.0)
            rows.append({"detector": detector, "parameters": parameters, "group": group, **vars(compared)})
    # The answer's own row is refused where the answer is.
    return [{**rows[0], **vars(together)}, *rows[1:]]


def write_twins_test(
    result: TwinsTest,
    model: TokenizedModel,
    paths: DataPaths,
    step: LineageStep,
    upstream: Mapping[str, str],
    settings: Mapping[str, object] | None = None,
) -> str:
    """Write the rows of a test with their lines in the ledger; returns the data version of those of TWINS.

    ``upstream``: the versions of what it was made of; ``settings``: the options of its stage. Raises DataError for a
    name with a bar.
    """
    write_corpus_test(result.test, model, paths, run_id=step.run_id)
    named = {"model": result.test.model, "benchmark": result.test.benchmark, "run_id": step.run_id}
    return store.write(
        paths,
        step,
        TWINS,
        Pair(result.test.benchmark, result.test.model),
        table_from_rows([{**named, **row} for row in result.rows], TWINS),
        upstream=upstream,
        model_fingerprint=model.identity.model_fingerprint,
        tokenizer_fingerprint=model.identity.tokenizer_fingerprint,
        settings=settings,
    )

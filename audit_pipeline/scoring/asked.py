"""What a user asks of a model and texts of their own, from the command line or from Python.

What belongs here: what can be asked, and carrying it out. What does not: reading options and showing results (cli/,
corpus_audit/), and the order of read, run and score (file.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cluster.engine import Engine
from audit_pipeline.detectors.registry import Overrides
from audit_pipeline.endpoints.budget import Limits
from audit_pipeline.endpoints.in_use import Endpoints
from audit_pipeline.fetch.stream import TextStream
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.load import with_overrides
from audit_pipeline.scoring.backends import loader
from audit_pipeline.scoring.file import FileScores, ProgressListener, score_file
from audit_pipeline.scoring.known_texts import Side
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.neighbours import own_topk
from audit_pipeline.scoring.session import Selection


@dataclass(frozen=True)
class ScoringRequest:
    """Detectors with their settings, and how the model is run.

    ``named`` are the detectors that the user named, each of which has to have what it needs; the others of
    ``selection`` may go without. ``overrides`` are the parameters that the user set. What is None is as the model's
    entry says, or the machine.
    """

    selection: Selection
    named: Collection[str] = ()
    overrides: Overrides = field(default_factory=dict)
    start_token_policy: str | None = None
    dtype: str | None = None
    device: str | None = None
    reference_model: str | None = None
    frequencies: Path | None = None
    known: Mapping[Side, Sequence[str]] = field(default_factory=dict)
    proposer: str = own_topk.NAME
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    engine: Engine | None = None
    label_column: str = "label"


def score_as_asked(
    asked: ScoringRequest,
    model: ModelEntry,
    texts: TextStream,
    out: Path,
    paths: DataPaths,
    listener: ProgressListener,
) -> FileScores:
    """Score ``texts`` and write the table to ``out`` (see :func:`audit_pipeline.scoring.file.score_file`).

    Raises ConfigError, ModelError, DataError and what else a user can act on.
    """
    entry = with_overrides(
        model,
        dtype=asked.dtype,
        start_token_policy=asked.start_token_policy,
        reference_model=asked.reference_model,
    )
    named = {*asked.named, *asked.overrides}
    beside = UserInputs(
        frequencies=asked.frequencies,
        known=asked.known,
        asked_for={need for one, _ in asked.selection if one.name in named for need in one.needs},
        proposer=asked.proposer,
        seed=asked.seed,
        device=asked.device,
        tell=listener.how_far,
    )
    endpoints = Endpoints(asked.limits.for_model(entry))
    tokenized = endpoints.load(entry, paths, listener.step)
    return score_file(
        texts,
        out,
        tokenized,
        asked.selection,
        paths,
        loader(paths, asked.device, endpoints, asked.engine, listener.step),
        beside=beside,
        label_column=asked.label_column,
        overrides=asked.overrides,
        listener=listener,
    )

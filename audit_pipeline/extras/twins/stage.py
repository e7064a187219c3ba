"""The stage that tests the models of an audit with the twins of a benchmark, where config/stages.yaml asks for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import DataError
from audit_pipeline.extras.twins import DETECTORS
from audit_pipeline.extras.twins.publication_draw import read_twins
from audit_pipeline.pipeline.freshness import parse_pair
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, Inputs, Made, Product, Shown, Stage, StageRun
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.tables import TWINS
from audit_pipeline.token_statistics.pair_origin import compute_statistics_version

if TYPE_CHECKING:
    from audit_pipeline.pipeline.situation import Situation


class TwinsOptions(BaseModel):
    """Where the secret files are, and by which detectors versions are ranked."""

    secrets: str = Field(default="secrets", description="folder of the secret files: NAME.json is that of a benchmark")
    detectors: list[str] = Field(
        default=list(DETECTORS), description="detectors that decide together; named before scores are looked at"
    )


def _test(run: StageRun) -> Made:
    from audit_pipeline.extras.twins.model_test import run_twins_test, write_twins_test  # noqa: PLC0415 - scipy

    pair, options = run.pair, run.options
    secret = Path(options.secrets) / f"{pair.benchmark}.json"
    twins, built = read_twins(secret), read_built(run.paths, pair.benchmark)
    twins.require_published(built.model_inputs, f"the benchmark {pair.benchmark}")
    model = run.models.load_for_run(pair.model, run.paths, run.log)
    with run.progress(f"twins of {pair.benchmark}, {pair.model}") as on_progress:
        result = run_twins_test(
            model,
            twins,
            run.paths,
            partial(run.models.backend, paths=run.paths, log=run.log),
            name=pair.benchmark,
            detectors=options.detectors,
            on_progress=on_progress,
        )
    upstream = {
        f"examples/{pair.benchmark}": built.digest,
        "secret": twins.sha256,
        "statistics": compute_statistics_version(model, built.digest),
    }
    version = write_twins_test(result, model, run.paths, run.step(), upstream, options.model_dump(mode="json"))
    values = {name: value for name, value in result.rows[0].items() if value is not None}
    return Made(version, Shown(len(result.rows), values))


def _inputs(partition: str, situation: Situation) -> Inputs:
    benchmark = parse_pair(partition).benchmark
    entry = situation.stage_entries.get(TWINS_STAGE.name)
    secret = Path((entry.options if entry else TwinsOptions().model_dump())["secrets"]) / f"{benchmark}.json"
    if not secret.exists():
        raise DataError(f"{secret}: no such file; `corpus-audit twins draw` writes it")
    return {
        f"examples/{benchmark}": situation.find_built_digest(benchmark),
        "secret": file_sha256(secret),
        "statistics": situation.facts_of(Product("token_statistics", partition)).inputs.get("settings"),
    }


TWINS_STAGE = Stage(
    name="twins",
    description="Whether the model scores the published version of each item above the versions that were kept "
    "secret. Chance decided which was published, so the p-value holds whatever the versions are.",
    dimensions=("benchmark", "model"),
    group="4_findings",
    job=AUDIT_PAIRS,
    make=_test,
    after=("benchmark", "evaluations"),
    tables=(TWINS,),
    options=TwinsOptions,
    kinds=frozenset({"torch", "transformers", "parquet"}),
    lock="gpu",
    is_on_request=True,
    first="the twins of {0} are tested with {1} first",
    absent="it has not been tested with twins",
    words={
        "secret": "its secret file is another since",
        "statistics": "the model, its start token or the window changed since",
        "settings": "other detectors or secret files are asked for since",
    },
    inputs=_inputs,
    code="2",
)

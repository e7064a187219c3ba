"""The asset ``twins``: the test of a model with the twins of a benchmark, if config/stages.yaml requests it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.errors import DataError
from audit_pipeline.extras.twins import DETECTORS
from audit_pipeline.extras.twins.publication_draw import read_twins
from audit_pipeline.pipeline.stage import AUDIT_PAIRS, PAIR, StageResult, StageRun, UiMetadata, audit_asset
from audit_pipeline.pipeline.stage_settings import load_stage_entries
from audit_pipeline.pipeline.workspace_state import Inputs, WorkspaceState
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.tables import TWINS, parse_pair
from audit_pipeline.token_statistics.cached_texts import compute_statistics_version


class TwinsOptions(BaseModel):
    """The options of the twins test."""

    secrets: str = Field(
        default="secrets", description="folder of the secret files; the file of the benchmark NAME is NAME.json"
    )
    detectors: list[str] = Field(
        default=list(DETECTORS),
        description="detectors whose scores the test combines; choose them before you see any score",
    )


@audit_asset(
    partitions=PAIR,
    deps=["benchmark", "evaluations"],
    tables=[TWINS],
    code_version="2",
    group="4_findings",
    job=AUDIT_PAIRS,
    kinds={"torch", "transformers", "parquet"},
    options=TwinsOptions,
    lock="gpu",
    is_on_request=True,
    blocked_message="the twins of {0} are tested with {1} first",
    missing_message="it has not been tested with twins",
    change_messages={
        "secret": "its secret file changed",
        "statistics": "the model, its start token or the window changed",
        "settings": "its options changed",
    },
)
def twins(run: StageRun) -> StageResult:
    """Test whether the model prefers the published versions of a benchmark's items to their secret versions.

    Each item has several versions, and a random draw decided which one was published. The secret file holds the
    others. The result is a p-value, which is exact because of the draw. The test runs only if config/stages.yaml
    requests it.
    """
    # Imported here, because it imports scipy.
    from audit_pipeline.extras.twins.model_test import run_twins_test, write_twins_test  # noqa: PLC0415

    pair = run.pair
    options = run.options
    published = read_twins(Path(options.secrets) / f"{pair.benchmark}.json")
    built = read_built(run.paths, pair.benchmark)
    published.require_published(built.plain_texts, f"the benchmark {pair.benchmark}")
    model = run.models.load_for_run(pair.model, run.paths, run.log)
    with run.progress(f"twins of {pair.benchmark}, {pair.model}") as on_progress:
        result = run_twins_test(
            model,
            published,
            run.paths,
            partial(run.models.backend, paths=run.paths, log=run.log),
            name=pair.benchmark,
            detectors=options.detectors,
            on_progress=on_progress,
        )
    upstream = {
        f"examples/{pair.benchmark}": built.digest,
        "secret": published.sha256,
        "statistics": compute_statistics_version(model, built.digest),
    }
    version = write_twins_test(result, model, run.paths, run.step(), upstream, options.model_dump(mode="json"))
    values = {name: value for name, value in result.rows[0].items() if value is not None}
    return StageResult(version, UiMetadata(len(result.rows), values))


@twins.inputs
def get_twins_inputs(partition: str, state: WorkspaceState) -> Inputs:
    """Return the versions of the benchmark, the secret file and the pair's token statistics.

    Raises:
        DataError: If the secret file is missing.
    """
    pair = parse_pair(partition)
    entry = load_stage_entries([twins], state.config).get(twins.name)
    options = TwinsOptions() if entry is None else TwinsOptions.model_validate(entry.options)
    secret = Path(options.secrets) / f"{pair.benchmark}.json"
    if not secret.exists():
        raise DataError(f"the secret file {secret} is missing. Create it with `corpus-audit twins draw`.")
    return {
        f"examples/{pair.benchmark}": state.find_built_digest(pair.benchmark),
        "secret": file_sha256(secret),
        "statistics": state.find_statistics_version(pair),
    }

"""A reference model and token frequencies in an audit: computed once, and stale after a change."""

from __future__ import annotations

import dagster as dg
import pytest
from made_workspace import Workspace, count_loads, made_documents

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.dagster.partitions import register_partitions
from audit_pipeline.pipeline.dagster.runs import Runner, UpdateOutcome, run_job, update
from audit_pipeline.pipeline.plan import Planner, find_pair_state
from audit_pipeline.pipeline.registry import MODEL_STAGES, STAGES
from audit_pipeline.pipeline.stage import PAIR
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.files import read_table
from audit_pipeline.store.ledger import read_latest_run
from audit_pipeline.tables import SCORES, Pair

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")
PAIRS = [Pair("made_8", "one"), Pair("made_12", "one")]


@pytest.fixture
def audited_with(workspace: Workspace) -> Workspace:
    """Return a workspace in which model two is the reference of model one, with a corpus of its own."""
    workspace.fetch(*made_documents(2, 40))
    workspace.build("made")
    folders = {name: workspace.model(name).located.folder for name in ("one", "two")}
    workspace.write_models(one={"path": folders["one"], "reference_model": "two"}, two={"path": folders["two"]})
    corpus = workspace.root / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("The harbour was quiet.\nNobody had counted the lanterns.\n")
    entry = {"path": str(corpus), "language": "en", "licence": "CC0-1.0"}
    workspace.write_config("references", {"references": {"sotu": entry}})
    return workspace


def audit(definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
    register_partitions(instance, benchmarks=["made_8", "made_12"], models=["one", "two"])
    job = definitions.resolve_job_def("audit_pairs")
    run_job(job, instance, partition_range=(PAIRS[0].partition, PAIRS[1].partition))


def reasons(workspace: Workspace) -> set[str | None]:
    """Return the reasons why pairs have to be audited again. There is none if all are done."""
    of_pairs = [stage for stage in MODEL_STAGES if stage.dimensions == PAIR]
    there = look(workspace)
    made = there.plan(Scope(pairs=tuple(PAIRS)), of_pairs)
    states = {find_pair_state(of_pairs, made, there.get_product_state, pair) for pair in PAIRS}
    return {state.reason for state in states if state.status != "done"}


def look(workspace: Workspace) -> Planner:
    model = workspace.model("one")
    state = WorkspaceState(workspace.paths, dict(load_benchmarks()), {"one": model.entry}, {"one": model})
    return Planner(state, STAGES)


def count(
    workspace: Workspace, definitions: dg.Definitions, instance: dg.DagsterInstance, told: list[str]
) -> UpdateOutcome:
    """Count the tokens that an audit of the model needs."""
    runner = Runner(definitions.resolve_job_def, instance, workspace.paths, told.append)
    return update(Scope(models=("one",)), MODEL_STAGES, lambda: look(workspace), runner)


def statuses(workspace: Workspace, pair: Pair) -> dict[str, set[str]]:
    run = read_latest_run(workspace.paths, "scores", pair.partition).run_id
    rows = read_table(workspace.paths.run_file("scores", pair.partition, run), SCORES, label="scores").to_pylist()
    return {name: {row["status"] for row in rows if row["detector"] == name} for name in ("reference", "dc_pdd")}


def test_the_reference_model_is_loaded_once_before_its_model(
    definitions: dg.Definitions, instance: dg.DagsterInstance, audited_with: Workspace
) -> None:
    loads = count_loads(audited_with.monkeypatch)
    audit(definitions, instance)
    assert loads == ["two", "one"], "once each, for both benchmarks"
    two = audited_with.model("two").identity
    for pair in PAIRS:
        assert statuses(audited_with, pair) == {"reference": {"ok"}, "dc_pdd": {"not_applicable"}}
        for table in ("scores", "evaluations"):
            upstream = read_latest_run(audited_with.paths, table, pair.partition).upstream
            assert upstream["reference_model/two"] == f"{two.model_fingerprint}/{two.tokenizer_fingerprint}"
    assert reasons(audited_with) == set()

    # Another reference model: the pairs are not done any more.
    one = audited_with.model("one").located.folder
    audited_with.write_models(one={"path": one, "reference_model": str(one)})
    assert reasons(audited_with) == {"the reference model changed"}


def test_a_missing_reference_model_affects_one_detector(
    definitions: dg.Definitions, instance: dg.DagsterInstance, audited_with: Workspace
) -> None:
    one = audited_with.model("one").located.folder
    audited_with.write_models(one={"path": one, "reference_model": "./gone"}, two={"path": one})
    audit(definitions, instance)
    assert statuses(audited_with, PAIRS[0])["reference"] == {"not_applicable"}
    assert reasons(audited_with) == set()


def test_tokens_are_counted_once_and_a_new_table_makes_the_pairs_stale(
    definitions: dg.Definitions, instance: dg.DagsterInstance, audited_with: Workspace
) -> None:
    audit(definitions, instance)
    assert reasons(audited_with) == set()
    told: list[str] = []

    def ensure() -> dict[str, str]:
        return count(audited_with, definitions, instance, told).runs

    assert set(ensure()) == {"token_frequencies/sotu|one"}
    assert told == ["counting how often tokens occur in the corpus sotu for one (the detector dc_pdd compares with it)"]
    assert reasons(audited_with) == {"the token frequencies changed"}, "dc_pdd has what it needs now"
    audit(definitions, instance)
    assert reasons(audited_with) == set()
    assert statuses(audited_with, PAIRS[0])["dc_pdd"] == {"ok"}
    assert ensure() == {}, "it is there"

    [table] = audited_with.paths.root.glob("token_frequencies/*/*.parquet")
    table.write_bytes(b"damaged")
    assert set(ensure()) == {"token_frequencies/sotu|one"}, "counted again"
    assert ensure() == {}


def test_a_missing_corpus_is_an_error_with_its_path(
    definitions: dg.Definitions, instance: dg.DagsterInstance, audited_with: Workspace
) -> None:
    register_partitions(instance, models=["one"])
    entry = {"path": "./nowhere", "language": "en", "licence": "CC0-1.0"}
    audited_with.write_config("references", {"references": {"sotu": entry}})
    [error] = count(audited_with, definitions, instance, []).errors.values()
    assert isinstance(error, DataError)
    assert "nowhere" in str(error)

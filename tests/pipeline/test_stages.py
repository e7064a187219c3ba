"""The stages of an audit without Dagster: their tables, lineage and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledger_lines import lineage_rows
from made_workspace import SOURCE, Workspace, copy_workspace, made_documents, make_workspace, temporal
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import SPLIT_VERSION, assess_split, read_built, read_split_assessment
from audit_pipeline.detectors.registry import is_default
from audit_pipeline.errors import DataError, TransientError
from audit_pipeline.models.tokenized_model import TokenizedModel, apply_overrides, load_tokenized
from audit_pipeline.pipeline.evaluate_pair import evaluate_pair
from audit_pipeline.scoring.pair_scores import run_other_models, run_passes, score_and_store_pair
from audit_pipeline.scoring.session import build_audit_selection
from audit_pipeline.splits import blind_controls
from audit_pipeline.splits.blind_controls import BlindControl
from audit_pipeline.store.files import read_json, read_table, write_json
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import EVALUATIONS, KINDS, SCORES, SPLIT_QUALITY, Pair
from audit_pipeline.token_statistics.cached_texts import compute_statistics_version
from audit_pipeline.token_statistics.forward import ForwardPass

pytestmark = pytest.mark.usefixtures("one_thread")
PAIR = Pair("made_8", "tiny")


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(tmp_path_factory.mktemp("built") / "made", patch, tiny=tiny_folder("llama"))
        made.write_benchmarks(made=temporal([8]))
        made.fetch(*made_documents(2, 30))
        made.build("made_8")
    return made.root


@pytest.fixture
def workspace(built_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return copy_workspace(built_once, tmp_path / "made", monkeypatch)


def step(run_id: str) -> LineageStep:
    return LineageStep.now(run_id, "asset", "3")


def fill_cache(workspace: Workspace, model: TokenizedModel, forward: Callable[[], ForwardPass], run_id: str) -> None:
    run_passes(PAIR, model, workspace.paths, forward, step(run_id), kinds=["base"], logits_budget=0)


def lineage(workspace: Workspace) -> dict[tuple[str, str], dict[str, object]]:
    rows = lineage_rows(workspace.paths)
    assert len({(row["table"], row["partition"], row["run_id"]) for row in rows}) == len(rows)
    return {(row["table"], row["run_id"]): row for row in rows}


def test_each_stage_writes_its_table_and_one_lineage_row_that_leads_upstream(workspace: Workspace) -> None:
    model, paths = workspace.model("tiny"), workspace.paths
    fill_cache(workspace, model, lambda: forward_of(model), "tokens")
    scored = score_and_store_pair(PAIR, model, paths, step("scores"))
    evaluated = evaluate_pair(PAIR, model, paths, step("evaluations"))

    examples = read_built(paths, "made_8").examples
    settings = sum(len(one) for _, one in build_audit_selection({"infilling": {"m": 1}}))
    table = read_table(paths.run_file("scores", PAIR.partition, "scores"), SCORES, label="scores")
    assert len(table) == scored.rows == len(examples) * settings
    # The tiny model has no reference model, no frequencies were counted with its tokenizer, and too few texts are for
    # calibration to make a prefix of seven.
    reasons = {row["detector"]: row["reason"] for row in table.to_pylist() if row["status"] == "not_applicable"}
    assert "Raise calibration_fraction" in reasons["recall"]
    by_detector: dict[str, set[str]] = {}
    for row in table.to_pylist():
        by_detector.setdefault(row["detector"], set()).add(row["status"])
    assert {name for name, found in by_detector.items() if "ok" not in found} == {
        *("reference", "error_zone", "dc_pdd", "recall", "con_recall")
    }
    assert set(scored.by_status) == {"ok", "not_applicable"}
    assert set(table.column("run_id").to_pylist()) == {"scores"}
    found = read_table(paths.run_file("evaluations", PAIR.partition, "evaluations"), EVALUATIONS, label="findings")
    assert found.equals(evaluated.findings.evaluation.table)
    assert len(found) == 5 * (settings + 1), "five metrics of every setting and of the blind control"
    assert evaluated.out_of_range == 0

    rows = lineage(workspace)
    digest = read_built(paths, "made_8").digest
    upstream = {key: json.loads(str(row["upstream_data_versions"])) for key, row in rows.items()}
    assert upstream["documents", "fetched"] == {}
    documents = rows["documents", "fetched"]["data_version"]
    assert upstream["examples", "built"] == {f"documents/{SOURCE}": documents}
    assert rows["examples", "built"]["data_version"] == digest
    assert upstream["token_statistics", "tokens"] == {"examples/made_8": digest}
    statistics = rows["token_statistics", "tokens"]["data_version"]
    assert upstream["scores", "scores"] == {"examples/made_8": digest, "token_statistics/made_8|tiny": statistics}
    assert upstream["evaluations", "evaluations"] == {
        "examples/made_8": digest,
        "scores/made_8|tiny": scored.data_version,
        "token_statistics/made_8|tiny": statistics,
        "blind_scores/made_8": rows["blind_scores", "evaluations"]["data_version"],
        "split_quality/made_8": rows["split_quality", "evaluations"]["data_version"],
    }
    for table_name in ("token_statistics", "scores", "evaluations"):
        [row] = [row for (name, _), row in rows.items() if name == table_name]
        assert row["model_fingerprint"] == model.identity.model_fingerprint
        assert row["tokenizer_fingerprint"] == model.identity.tokenizer_fingerprint
        assert row["benchmark_digest"] == digest
        assert row["code_version"] == "3"

    overrides = read_built(paths, "made_8").overrides
    assert overrides == {"infilling": {"m": 1}}
    for row in table.to_pylist():
        assert row["is_default"] == is_default(row["detector"], row["parameters"], overrides)

    made = evaluated.findings.evaluation
    values = made.table.to_pylist()
    values[0]["value"], values[1]["ci_low"], values[2]["ci_high"] = 1.5, -0.1, float("nan")
    wrong = replace(made, table=type(made.table).from_pylist(values, schema=EVALUATIONS.schema))
    assert replace(evaluated, findings=replace(evaluated.findings, evaluation=wrong)).out_of_range == 3

    again = score_and_store_pair(PAIR, model, paths, step("again"))
    assert again.data_version == scored.data_version, "scores are a pure function of the cache"
    kept = [paths.run_file("scores", PAIR.partition, run) for run in ("scores", "again")]
    assert all(path.exists() for path in kept), "append-only: one file per run"


def test_without_any_statistics_nothing_is_scored(workspace: Workspace) -> None:
    with pytest.raises(DataError, match="has not been run on any of these texts"):
        score_and_store_pair(PAIR, workspace.model("tiny"), workspace.paths, step("scores"))
    assert not workspace.paths.table("scores").exists()


def test_evaluating_needs_scores_and_scores_of_these_examples(workspace: Workspace) -> None:
    model, paths = workspace.model("tiny"), workspace.paths
    with pytest.raises(DataError, match=r"there are no scores of made_8\|tiny yet"):
        evaluate_pair(PAIR, model, paths, step("early"))
    scored(workspace)
    # Other settings, the same texts: what an example is called does not tell.
    workspace.write_benchmarks(made=temporal([8], near_duplicate_threshold=0.4))
    workspace.build("made_8")
    with pytest.raises(DataError, match="for an earlier build of the benchmark"):
        evaluate_pair(PAIR, model, paths, step("late"))
    workspace.write_benchmarks(made=temporal([8], seed=6))
    workspace.build("made_8")
    with pytest.raises(DataError, match=r"Compute them again: corpus-audit audit --model tiny --benchmark made_8$"):
        evaluate_pair(PAIR, model, paths, step("late"))
    assert not paths.table("evaluations").exists()


def test_a_check_that_only_warns_stops_nothing(workspace: Workspace) -> None:
    manifest = workspace.paths.benchmark_manifest("made_8")
    content = read_json(manifest)
    for check in content["checks"]:
        check["passed"] = check["passed"] and check["blocking"]
    write_json(manifest, content)
    read_built(workspace.paths, "made_8").require_passed_checks()


def test_the_reference_model_is_run_once_for_all_pairs_and_again_after_a_transient_error(
    workspace: Workspace, tiny_folder: Callable[[str], Path]
) -> None:
    model = load_tokenized(
        apply_overrides(workspace.model("tiny").entry, reference_model=str(tiny_folder("gpt2"))), workspace.paths
    )
    loaded: list[str] = []

    def load(wanted: TokenizedModel) -> ForwardPass:
        loaded.append(wanted.entry.name)
        if len(loaded) == 1:
            raise TransientError("the hub does not answer")
        return forward_of(wanted)

    said: list[str] = []
    with pytest.raises(TransientError):
        run_other_models(model, [PAIR], workspace.paths, load, said.append)
    for _ in range(2):
        run_other_models(model, [PAIR], workspace.paths, load, said.append)
    assert loaded == [str(tiny_folder("gpt2"))] * 2
    assert said == []
    fill_cache(workspace, model, lambda: forward_of(model), "tokens")
    score_and_store_pair(PAIR, model, workspace.paths, step("scores"))
    table = read_table(workspace.paths.run_file("scores", PAIR.partition, "scores"), SCORES, label="scores")
    assert {row["status"] for row in table.to_pylist() if row["detector"] == "reference"} == {"ok"}


def test_a_missing_reference_model_is_reported_with_its_reason(workspace: Workspace) -> None:
    said: list[str] = []
    run_other_models(workspace.model("tiny"), [PAIR], workspace.paths, forward_of, said.append)
    [words] = said
    assert words.startswith("tiny: detectors that require another model have no scores: tiny has no reference model.")


def test_statistics_version_follows_all_that_can_change_a_statistic(workspace: Workspace) -> None:
    entry = workspace.model("tiny").entry

    def version(digest: str = "d", **changes: object) -> str:
        changed = entry.model_copy(update={key: value for key, value in changes.items() if key != "policy"})
        if "policy" in changes:
            changed = apply_overrides(changed, start_token_policy=str(changes["policy"]))
        return compute_statistics_version(load_tokenized(changed, workspace.paths), digest)

    versions = [
        version(),
        version("another digest"),
        version(dtype="bfloat16"),
        version(policy="tokenizer"),
        version(start_token="</s>"),
        version(window=32),
        version(stride=8),
    ]
    assert len(set(versions)) == len(versions)
    assert version() == versions[0]
    assert version(notes="words about it", licence="MIT") == versions[0]
    # No start token is put in front, so it does not matter which it would be.
    assert version(policy="tokenizer", start_token="</s>") == versions[3]


def test_kinds_that_an_audit_reads_are_declared_as_such_and_another_version_of_one_is_another_version(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a kind were missing in the declaration, pairs without it would count as done."""
    model = workspace.model("tiny")
    digest = read_built(workspace.paths, PAIR.benchmark).digest
    fill_cache(workspace, model, lambda: forward_of(model), "tokens")
    folders = workspace.paths.table("token_statistics").glob("kind=*")
    left_behind = {folder.name.removeprefix("kind=") for folder in folders if list(folder.rglob("part-*"))}
    # Too few texts are for calibration to make a prefix.
    assert left_behind | {"prefixed"} == {kind.name for kind in KINDS.values() if kind.is_read_by_audits}

    before = compute_statistics_version(model, digest)
    for name, kind in KINDS.items():
        with monkeypatch.context() as changed:
            changed.setitem(KINDS, name, replace(kind, version=kind.version + 1))  # type: ignore[arg-type]
            assert (compute_statistics_version(model, digest) != before) == kind.is_read_by_audits


def test_a_split_is_assessed_with_lineage(workspace: Workspace) -> None:
    paths = workspace.paths
    with pytest.raises(DataError, match="other_8 has not been built"):
        read_built(paths, "other_8")
    benchmark = read_built(paths, "made_8")
    manifest = benchmark.manifest
    report = assess_split(benchmark, paths, step("assessed"))
    written = read_table(paths.split_quality("made_8"), SPLIT_QUALITY, label="the quality")
    assert written.equals(report.quality)
    assert set(written.column("run_id").to_pylist()) == {"assessed"}
    rows = lineage(workspace)
    for table, path in (
        ("split_quality", paths.split_quality("made_8")),
        ("blind_scores", paths.rewritten_file("blind_scores", "benchmark", "made_8")),
    ):
        row = rows[table, "assessed"]
        assert (row["partition"], row["data_version"]) == ("made_8", report.versions[f"{table}/made_8"])
        assert json.loads(str(row["upstream_data_versions"])) == {"examples/made_8": manifest["digest"]}
        assert row["benchmark_digest"] == manifest["digest"]
        assert row["file_sha256"] == file_sha256(path)
    # The texts of a side are counted, however few of them are read.
    few = assess_split(benchmark, paths, step("few"), most_per_side=2)
    members = [row for row in few.quality.to_pylist() if (row["measure"], row["side"]) == ("texts", "members")]
    assert members[0]["value"] == manifest["counts"]["members"] > 2
    assert any("measured on 2 of" in method for method in few.quality["method"].to_pylist())


def test_the_words_are_those_of_the_benchmarks_unit(workspace: Workspace) -> None:
    manifest = read_json(workspace.paths.benchmark_manifest("made_8"))
    manifest["spec"]["unit"] = "jieba"
    write_json(workspace.paths.benchmark_manifest("made_8"), manifest)
    found = assess_split(read_built(workspace.paths, "made_8"), workspace.paths, step("assessed")).quality.to_pylist()
    lengths = {row["value"] for row in found if (row["measure"], row["part"]) == ("length_mean", "words")}
    assert lengths == {8.0}, "jieba takes these words as they are"


def scored(workspace: Workspace, name: str = "tiny") -> TokenizedModel:
    """Score the benchmark with a model in the run ``scores``, and return the model."""
    model = workspace.model(name)
    pair = Pair("made_8", name)
    run_passes(pair, model, workspace.paths, lambda: forward_of(model), step("tokens"), kinds=["base"], logits_budget=0)
    score_and_store_pair(pair, model, workspace.paths, step("scores"))
    return model


def test_the_blind_control_is_read_once_a_benchmark_and_by_every_evaluation(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = workspace.paths
    read: list[int] = []
    actual = blind_controls.compute_blind_control

    def counted(*texts: Any, **options: Any) -> BlindControl:
        read.append(len(texts[0]))
        return actual(*texts, **options)

    monkeypatch.setattr(blind_controls, "compute_blind_control", counted)
    monkeypatch.setattr(blind_controls, "MIN_EXAMPLES", 12)
    model = scored(workspace)
    first = evaluate_pair(PAIR, model, paths, step("first"))
    again = evaluate_pair(PAIR, model, paths, step("again"))
    assert len(read) == 1, "the second evaluation takes it from the tables"
    assert again.findings.evaluation.columns[-1].detector == "blind_control"
    assert again.data_version == first.data_version
    assert ("split_quality", "again") not in lineage(workspace)
    quality = read_table(paths.split_quality("made_8"), SPLIT_QUALITY, label="the quality").to_pylist()
    (words,) = (row for row in quality if (row["measure"], row["part"]) == ("blind_auroc", "words"))
    (blind,) = (
        row
        for row in again.findings.evaluation.table.to_pylist()
        if (row["detector"], row["metric"]) == ("blind_control", "auroc")
    )
    same = ("ci_low", "ci_high", "value", "method", "split_verdict")
    assert [blind[name] for name in same] == [words[name] for name in same]
    assert blind["value"] is not None

    # Assessed as the asset does it: no evaluation reads it again.
    benchmark = read_built(paths, "made_8")
    assess_split(benchmark, paths, LineageStep.now("asset", "split_quality", SPLIT_VERSION))
    evaluate_pair(PAIR, model, paths, step("later"))
    assert len(read) == 2
    paths.rewritten_file("blind_scores", "benchmark", "made_8").unlink()
    assert read_split_assessment(benchmark, paths) is None
    evaluate_pair(PAIR, model, paths, step("older"))
    assert len(read) == 3
    known = read_split_assessment(benchmark, paths)
    assert known is not None
    assert lineage(workspace)["split_quality", "older"]["data_version"] == known.versions["split_quality/made_8"]


def test_a_split_of_another_build_or_version_is_assessed_again_and_a_damaged_one_refused(workspace: Workspace) -> None:
    paths, benchmark = workspace.paths, read_built(workspace.paths, "made_8")
    assert read_split_assessment(benchmark, paths) is None
    assess_split(benchmark, paths, LineageStep.now("older", "split_quality", "0"))
    assert read_split_assessment(benchmark, paths) is None, "by the code of another version"
    assess_split(benchmark, paths, LineageStep.now("now", "split_quality", SPLIT_VERSION))
    assert read_split_assessment(benchmark, paths) is not None
    workspace.write_benchmarks(made=temporal([8], seed=6))
    workspace.build("made_8")
    assert read_split_assessment(read_built(paths, "made_8"), paths) is None, "of another build"
    path = paths.rewritten_file("blind_scores", "benchmark", "made_8")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match="the blind_scores of made_8 is damaged"):
        read_split_assessment(read_built(paths, "made_8"), paths)


def test_the_detectors_that_are_combined_are_named_beforehand(workspace: Workspace) -> None:
    before = read_built(workspace.paths, "made_8").digest
    workspace.write_benchmarks(made=temporal([8], combined=["loss", "zlib"]))
    workspace.build("made_8")
    assert read_built(workspace.paths, "made_8").digest != before
    scored(workspace)
    path = workspace.paths.run_file("scores", PAIR.partition, "scores")
    rows = [row for row in read_table(path, SCORES, label="scores").to_pylist() if row["detector"] == "combined"]
    assert {(row["parameters"], row["is_default"], row["status"]) for row in rows} == {
        ('{"of":"loss,zlib"}', True, "ok")
    }
    # The mean of ranks from 1 to N, each divided by N, is (N + 1) / 2N.
    assert sum(row["score"] for row in rows) / len(rows) == pytest.approx((len(rows) + 1) / (2 * len(rows)))


def test_a_matched_benchmark_is_reported_and_never_a_mild_shift(workspace: Workspace) -> None:
    workspace.write_benchmarks(made=temporal([8], match={"per_side": 4}))
    workspace.build("made_8")
    paths, model = workspace.paths, scored(workspace)
    evaluate_pair(PAIR, model, paths, step("evaluations"))
    known = read_split_assessment(read_built(paths, "made_8"), paths)
    assert known is not None
    assert known.assessed.matched
    built = read_built(paths, "made_8")
    assert assess_split(built, paths, step("assessed")).assessed.matched
    assert built.matched is not None
    assert set(built.matched["achieved"]) == {"before", "at_random", "after", "after_by_all"}

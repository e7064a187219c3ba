"""Packs: their files, the findings that follow from them, and the check that names every change."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from made_rows import score, scores_table
from made_workspace import Workspace, count_loads
from timestamp_authority import make_authority
from tiny_models import save_model

from audit_pipeline.extras.evidence_packs.pack import reduce_model_entries, write_pack
from audit_pipeline.extras.evidence_packs.sealed_plan import SealedPlan, compose_plan, read_last_plan, write_plan
from audit_pipeline.extras.evidence_packs.verify import PackCheck, PackRerun, describe_first_difference, verify_pack
from audit_pipeline.models.config import load_models
from audit_pipeline.pipeline.evaluate_pair import evaluate_pair
from audit_pipeline.pipeline.whole_configuration import load_configuration
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, score_and_store_pair
from audit_pipeline.store.files import read_json, write_json, write_table
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.tables import SCORES, Pair, canonical_json

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
PAIR = Pair("made_8", "tiny")
ChangePack = Callable[[Callable[[Path], object]], Path]


def pack(workspace: Workspace, out: Path) -> Path:
    write_pack(out, [PAIR], workspace.model("tiny"), load_configuration(), workspace.paths, on_step=lambda words: None)
    return out


def verify(file: Path, rerun: PackRerun | None = None, certificates: Path | None = None) -> list[PackCheck]:
    return list(verify_pack(file, rerun=rerun, certificates=certificates, on_step=lambda words: None))


def failed(checks: list[PackCheck]) -> dict[str, str]:
    return {check.what: check.message for check in checks if check.ok is False}


def change_column(payload: Path, table: str, column: str, change: Callable[[pa.ChunkedArray], pa.Array]) -> None:
    """Change a column of the only file of a table."""
    [file] = (payload / "workspace" / "data" / table).rglob("*.parquet")
    rows = pq.read_table(file, partitioning=None)
    place = rows.schema.get_field_index(column)
    write_table(file, rows.set_column(place, rows.schema.field(column), change(rows[column])))


def test_a_pack_is_verified_without_its_workspace_and_without_the_model(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pack(workspace, tmp_path / "pack.zip")
    shutil.rmtree(workspace.root)
    monkeypatch.delenv("CORPUS_AUDIT_DATA")
    monkeypatch.delenv("CORPUS_AUDIT_CONFIG")
    loads = count_loads(monkeypatch)
    checks = verify(file)
    assert failed(checks) == {}
    assert loads == []
    told = {check.what: check.message for check in checks}
    assert told["scores of made_8"].endswith("computed again are equal to the last digit")
    assert told["document_memorisation of made_8"].endswith("computed again are equal to the last digit")
    assert "no timestamp" in told["plan of made_8"]


@pytest.mark.parametrize(
    "change_lines",
    [
        lambda lines: [line for line in lines if b"blind_scores" not in line],
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    ],
    ids=["removed", "exchanged"],
)
def test_a_removed_or_moved_line_of_the_ledger_is_named(
    workspace: Workspace, tmp_path: Path, change_lines: Callable[[list[bytes]], list[bytes]]
) -> None:
    file = workspace.paths.ledger_file
    file.write_bytes(b"".join(change_lines(file.read_bytes().splitlines(keepends=True))))
    told = failed(verify(pack(workspace, tmp_path / "pack.zip")))["chain of the lineage"]
    assert "does not follow the line before it" in told


def raise_scores_and_change_plan(payload: Path) -> None:
    change_column(payload, "scores", "score", lambda scores: pc.add(scores, 0.001))
    change_column(payload, "plans", "plan", lambda plans: pc.replace_substring(plans, '"min_k_plus_plus"', '"loss"'))


def change_statistics(payload: Path) -> None:
    def lower(logprobs: pa.ChunkedArray) -> pa.Array:
        return pa.array([[value - 1 for value in row] for row in logprobs.to_pylist()], logprobs.type)

    change_column(payload, "token_statistics/kind=base", "logprob", lower)


@pytest.mark.parametrize(
    ("apply", "named"),
    [
        (
            raise_scores_and_change_plan,
            {
                "tables against lineage": "scores/",
                "scores of made_8": "the column score differs by up to 0.001",
                "plan of made_8": "was changed after it was sealed",
            },
        ),
        (change_statistics, {"tables against lineage": "token_statistics/", "findings of made_8": ""}),
        (
            lambda payload: shutil.rmtree(payload / "workspace" / "data" / "plans"),
            {"tables against lineage": "the file of the table plans for made_8|tiny is missing"},
        ),
        (
            lambda payload: write_json(payload / "pack.json", {**read_json(payload / "pack.json"), "benchmarks": []}),
            {"everything else": "pack.json names no benchmark"},
        ),
    ],
    ids=["scores and plan", "statistics", "no plans", "no benchmark"],
)
def test_a_change_is_named_even_if_the_digests_of_the_bag_follow_it(
    packed: Path, change_pack: ChangePack, apply: Callable[[Path], None], named: dict[str, str]
) -> None:
    told = failed(verify(change_pack(apply)))
    assert told.keys() == named.keys()
    assert all(words in told[what] for what, words in named.items())


def test_a_timestamp_of_another_digest_is_named(packed: Path, tmp_path: Path, change_pack: ChangePack) -> None:
    authority = make_authority(tmp_path / "authority")
    answer = base64.b64encode(authority.stamp_content(b"another plan")).decode()
    file = change_pack(
        lambda payload: change_column(payload, "plans", "timestamp", lambda stamps: pa.array([answer], stamps.type))
    )
    told = failed(verify(file))
    assert "of another digest" in told["plan of made_8"]


def test_the_verifiers_seed_selects_the_texts_and_windows_to_run_again(workspace: Workspace, tmp_path: Path) -> None:
    file = pack(workspace, tmp_path / "pack.zip")
    weights = load_models().get_entry("tiny")
    again = {check.what: check for check in verify(file, PackRerun(3, 11, weights)) if "run again" in check.what}
    assert {what: check.ok for what, check in again.items()} == {
        "texts of made_8 run again": True,
        "windows of made_8 run again": True,
    }
    for what, check in again.items():
        assert check.message.startswith(f"3 {what.split()[0]} were selected with the seed 11")
    other = weights.model_copy(update={"path": save_model(tmp_path / "other", seed=9)})
    [refused] = [check for check in verify(file, PackRerun(3, 11, other)) if "run again" in check.what]
    assert refused.ok is False
    assert "has another fingerprint than tiny, the model of the pack" in refused.message


def test_servers_and_code_that_a_changed_pack_names_are_not_used(
    packed: Path, tmp_path: Path, change_pack: ChangePack
) -> None:
    def add_code(payload: Path) -> None:
        config = payload / "workspace" / "config" / "models.yaml"
        entry = yaml.safe_load(config.read_text())["models"]["tiny"]
        config.write_text(yaml.safe_dump({"models": {"tiny": {**entry, "trust_remote_code": True, "hub": "evil/one"}}}))
        [kept] = (payload / "workspace" / "data" / "models" / "tokenizers").glob("*/*")
        (kept / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "evil.Config"}}))
        (kept / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")

    checks = verify(change_pack(add_code))
    assert failed(checks) == {}
    assert not (tmp_path / "ran").exists()

    def drop_card(payload: Path) -> None:
        config = payload / "workspace" / "config" / "models.yaml"
        config.write_text(yaml.safe_dump({"models": {"tiny": {"hub": "evil/one"}}}))

    shutil.rmtree(tmp_path / "opened")
    assert "no fingerprint ('card') of the model tiny" in failed(verify(change_pack(drop_card)))["everything else"]


def test_packed_entries_contain_only_fields_that_affect_results() -> None:
    endpoint = {"url": "https://evil.example", "key_env": "SECRET", "model": "m"}
    one = {"card": "c", "endpoint": endpoint, "backend": "openai", "reference_model": "evil/model", "path": "/p"}
    two = {"card": "d", "dtype": "bfloat16", "reference_model": "one"}
    reduced = {"url": "http://127.0.0.1:9", "key_env": None, "model": "m"}
    expected = {"one": {"backend": "openai", "endpoint": reduced, "card": "c"}, "two": two}
    assert reduce_model_entries({"one": one, "two": two}) == expected


def seal_another(workspace: Workspace, suffix: int, **changes: object) -> SealedPlan:
    """Seal another plan of the pair, for a search with suffixes of this length."""
    config = workspace.config / "benchmarks.yaml"
    config.write_text(re.sub("suffix: [0-9]+", f"suffix: {suffix}", config.read_text()))
    model = workspace.model("tiny")
    plan = replace(compose_plan(PAIR, model, workspace.paths), **changes)
    write_plan(plan, PAIR, model, workspace.paths)
    return plan


def test_late_and_foreign_plans_do_not_count(workspace: Workspace, tmp_path: Path) -> None:
    first = read_last_plan(PAIR, workspace.paths)
    assert first is not None
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    foreign = SealedPlan(canonical_json({**first.fields, "model_fingerprint": "f" * 40}), moment)
    write_plan(foreign, PAIR, workspace.model("tiny"), workspace.paths)
    late = seal_another(workspace, 9, sealed_at=moment)
    evaluate_pair(PAIR, workspace.model("tiny"), workspace.paths, LineageStep.now("later", "evaluations", "3"))
    result = workspace.run("verify", pack(workspace, tmp_path / "pack.zip"), "--json")
    assert result.exit_code == 0, result.output
    checks = json.loads(result.stdout)["checks"]
    plans = {plan: check for plan in (first, foreign, late) for check in checks if plan.sha256 in check["words"]}
    assert [check["ok"] for check in plans.values()] == [True, None, None]
    assert "the plan and the findings differ in the model fingerprint" in plans[foreign]["words"]
    newer = (
        "the findings were not planned beforehand: by the order of the lineage, the plan is newer than current findings"
    )
    assert plans[late]["words"].startswith(newer)
    assert [check["ok"] for check in checks if check["what"] == "earlier runs of made_8"] == [None]


def test_a_replaced_plan_does_not_count(workspace: Workspace, tmp_path: Path) -> None:
    replaced, last = seal_another(workspace, 9), seal_another(workspace, 7)
    step = LineageStep.now("again", "scores", SCORES_VERSION)
    score_and_store_pair(PAIR, workspace.model("tiny"), workspace.paths, step)
    checks = verify(pack(workspace, tmp_path / "pack.zip"))
    words = "another plan was sealed between this plan and the findings"
    assert [words in check.message for check in checks if replaced.sha256 in check.message] == [True]
    [check] = [check for check in checks if last.sha256 in check.message]
    assert words not in check.message
    assert check.ok is None, "the model had been run on its texts before"


def test_the_order_of_rows_and_the_run_id_are_no_difference() -> None:
    def scores(*values: float, run_id: str) -> pa.Table:
        return scores_table(score(str(number), value, run_id=run_id) for number, value in enumerate(values))

    packed = scores(1.0, 2.0, run_id="one")
    assert describe_first_difference(SCORES, packed, scores(1.0, 2.0, run_id="two").take([1, 0])) is None
    assert (
        describe_first_difference(SCORES, packed, scores(1.0, 2.5, run_id="two"))
        == "the column score differs by up to 0.5"
    )
    difference = describe_first_difference(SCORES, packed, scores(1.0, run_id="two"))
    assert difference == "the pack has 2 rows, but computing them again gave 1 rows"

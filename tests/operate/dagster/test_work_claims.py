"""Claims: they are live while their process lives, whatever becomes of it, and keep out what they must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.operate.dagster.work_claims import claim_audit, claim_removal, live_claims
from audit_pipeline.operate.removal import RemovalTarget

_HOLDING = """
import sys, time
from pathlib import Path
from audit_pipeline.operate.dagster.work_claims import claim_audit
from audit_pipeline.catalogue.paths import DataPaths
with claim_audit(DataPaths(Path(sys.argv[1])), models=["m"], benchmarks=["b"]):
    print("claimed", flush=True)
    time.sleep(60)
"""


def test_a_claim_is_live_within_its_block_and_leaves_nothing(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert live_claims(paths) == []
    assert not paths.claims.exists()
    with claim_audit(paths, models=["m"], benchmarks=["b", "c"]):
        [claim] = live_claims(paths)
        assert (claim.doing, claim.models, claim.benchmarks) == ("audit", ("m",), ("b", "c"))
    assert live_claims(paths) == []
    assert {file.name for file in paths.claims.iterdir()} <= {"gate.lock"}


def test_after_an_error_it_is_gone(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with pytest.raises(ZeroDivisionError), claim_audit(paths, models=["m"]):
        raise ZeroDivisionError
    assert live_claims(paths) == []


def test_that_of_a_killed_process_is_taken_away(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with subprocess.Popen([sys.executable, "-c", _HOLDING, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        assert [claim.models for claim in live_claims(paths)] == [("m",)]
        at_work = rf"while corpus-audit audit \(process {process.pid} on .*\) is at work"
        with pytest.raises(AuditError, match=at_work), claim_removal(RemovalTarget("model", "m"), paths):
            pass
        process.kill()
    assert live_claims(paths) == []
    assert {file.name for file in paths.claims.iterdir()} <= {"gate.lock"}


def test_audits_share_and_a_removal_waits_for_every_audit(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with claim_audit(paths, models=["m"], benchmarks=["b"]), claim_audit(paths, models=["m"], benchmarks=["b"]):
        for target in (RemovalTarget("model", "m"), RemovalTarget("benchmark", "another")):
            at_work = pytest.raises(AuditError, match=r"is at work: wait for it or end it.*nothing was removed")
            with at_work, claim_removal(target, paths):
                pass
    assert live_claims(paths) == []


def test_a_removal_keeps_out_others_and_the_audits_of_what_it_removes(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with claim_removal(RemovalTarget("benchmark", "m"), paths):
        another = pytest.raises(AuditError, match="another `corpus-audit forget`")
        with another, claim_removal(RemovalTarget("benchmark", "z"), paths):
            pass
        with pytest.raises(AuditError, match="m: in use by corpus-audit forget"), claim_audit(paths, benchmarks=["m"]):
            pass
        with claim_audit(paths, models=["m"], benchmarks=["b"]):
            pass
    assert live_claims(paths) == []

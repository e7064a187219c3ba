"""Claims: they stand while their process lives, whatever becomes of it, and keep out what they must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.operate.dagster.work_claims import audit_of, removal_of, standing
from audit_pipeline.operate.removal import RemovalTarget

_HOLDING = """
import sys, time
from pathlib import Path
from audit_pipeline.operate.dagster.work_claims import audit_of
from audit_pipeline.catalogue.paths import DataPaths
with audit_of(DataPaths(Path(sys.argv[1])), models=["m"], benchmarks=["b"]):
    print("claimed", flush=True)
    time.sleep(60)
"""


def test_a_claim_stands_within_its_block_and_leaves_nothing(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert standing(paths) == []
    assert not paths.claims.exists()
    with audit_of(paths, models=["m"], benchmarks=["b", "c"]):
        [claim] = standing(paths)
        assert (claim.doing, claim.models, claim.benchmarks) == ("audit", ("m",), ("b", "c"))
        assert [claim.uses(one) for one in (RemovalTarget("model", "m"), RemovalTarget("benchmark", "c"))] == [
            True,
            True,
        ]
        assert [claim.uses(one) for one in (RemovalTarget("model", "b"), RemovalTarget("benchmark", "d"))] == [
            False,
            False,
        ]
    assert standing(paths) == []
    assert {file.name for file in paths.claims.iterdir()} <= {"gate.lock"}


def test_after_an_error_it_is_gone(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with pytest.raises(ZeroDivisionError), audit_of(paths, models=["m"]):
        raise ZeroDivisionError
    assert standing(paths) == []


def test_that_of_a_killed_process_is_taken_away(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with subprocess.Popen([sys.executable, "-c", _HOLDING, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        assert [claim.models for claim in standing(paths)] == [("m",)]
        in_use = rf"in use by corpus-audit audit \(process {process.pid} on "
        with pytest.raises(AuditError, match=in_use), removal_of(RemovalTarget("model", "m"), paths):
            pass
        process.kill()
    assert standing(paths) == []
    assert {file.name for file in paths.claims.iterdir()} <= {"gate.lock"}


def test_audits_share_removals_do_not_and_others_are_left_alone(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with audit_of(paths, models=["m"], benchmarks=["b"]), audit_of(paths, models=["m"], benchmarks=["b"]):
        for target in (RemovalTarget("model", "m"), RemovalTarget("benchmark", "b")):
            with pytest.raises(AuditError, match="in use by"), removal_of(target, paths):
                pass
        with removal_of(RemovalTarget("benchmark", "m"), paths):
            another = pytest.raises(AuditError, match="another `corpus-audit forget`")
            with another, removal_of(RemovalTarget("benchmark", "z"), paths):
                pass
            with pytest.raises(AuditError, match="in use by corpus-audit forget"), audit_of(paths, benchmarks=["m"]):
                pass
    assert standing(paths) == []

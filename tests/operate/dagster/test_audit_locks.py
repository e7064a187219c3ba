"""Locks of audits and removals: held while their process lives, whatever becomes of it, and by many audits at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.operate.dagster import audit_locks
from audit_pipeline.operate.dagster.audit_locks import has_running_audit, hold_audit_lock, hold_removal_lock

_AUDIT = """
import sys, time
from pathlib import Path
from audit_pipeline.operate.dagster.audit_locks import hold_audit_lock
from audit_pipeline.catalogue.paths import DataPaths
with hold_audit_lock(DataPaths(Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


def test_audits_share_and_a_removal_is_refused_while_any_is_at_work(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    assert not has_running_audit(paths)
    assert not paths.claims.exists()
    with hold_audit_lock(paths):
        with hold_audit_lock(paths):
            pass
        assert has_running_audit(paths)
        with (
            pytest.raises(AuditError, match=r"while an audit is at work.*nothing was"),
            hold_removal_lock(paths),
        ):
            pass
    with pytest.raises(ZeroDivisionError), hold_audit_lock(paths):
        raise ZeroDivisionError
    assert {file.name for file in paths.claims.iterdir()} == {"gate.lock"}
    with hold_removal_lock(paths):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with subprocess.Popen([sys.executable, "-c", _AUDIT, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert has_running_audit(paths)
        process.kill()
    assert not has_running_audit(paths)
    assert {file.name for file in paths.claims.iterdir()} == {"gate.lock"}


def test_a_removal_keeps_out_audits_and_other_removals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_locks, "_GATE_SECONDS", 0.1)
    paths = DataPaths(tmp_path)
    with hold_removal_lock(paths):
        for hold in (hold_audit_lock, hold_removal_lock):
            with pytest.raises(AuditError, match=r"another process forgets .*nothing was changed"), hold(paths):
                pass

"""The doctor's look at Dagster: runs whose process is gone. It makes no Dagster home and changes nothing."""

from __future__ import annotations

from audit_pipeline.extras.maintenance.doctor import DoctorCheck
from audit_pipeline.pipeline.dagster.instance import dagster_home, dead_runs, open_existing_instance
from audit_pipeline.store.paths import DataPaths, explain_unwritable


def examine_dagster(paths: DataPaths) -> DoctorCheck:
    """Say whether Dagster's storage can be opened, and which of its runs are dead."""
    home = dagster_home(paths)
    if (reason := explain_unwritable(home)) is not None:
        return DoctorCheck(
            "Dagster", False, f"{home} cannot be written ({reason}); set DAGSTER_HOME to a folder of yours"
        )
    if not (home / "dagster.yaml").exists():
        return DoctorCheck("Dagster", True, f"{home} is made by the first audit")
    try:
        with open_existing_instance(home) as instance:
            dead = [run.run_id for run in dead_runs(instance, paths)]
    except Exception as error:  # noqa: BLE001 - each storage has errors of its own
        words = f"the storage that {home / 'dagster.yaml'} names cannot be opened: {' '.join(str(error).split())[:300]}"
        return DoctorCheck("Dagster", False, words)
    if dead:
        return DoctorCheck("Dagster", False, "runs whose process is gone; the next audit marks them failed", dead)
    return DoctorCheck("Dagster", True, str(home))

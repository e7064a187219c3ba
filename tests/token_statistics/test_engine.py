"""The choice of the engine, and the workers that it uses in a cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from audit_pipeline.cli import main
from audit_pipeline.errors import ClusterError, ConfigError
from audit_pipeline.extras.ray.ray_backend import WorkerPlan, connect_cluster, plan_workers
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.pipeline.audit_requests import AuditRequest
from audit_pipeline.pipeline.dagster.resources import ModelsResource
from audit_pipeline.pipeline.options import AuditOptions
from audit_pipeline.token_statistics import engine_choice as engine_module
from audit_pipeline.token_statistics.engine_choice import IN_PROCESS, Engine, choose_engine

GPUS = [{"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}]
CORES = [{"CPU": 8.0}, {"CPU": 6.0}, {"memory": 1.0}]
RAY = Engine(name="ray")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CORPUS_AUDIT_ENGINE", "CORPUS_AUDIT_WORKERS", "OMP_NUM_THREADS", "RAY_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)


def test_this_process_runs_models_by_default() -> None:
    assert choose_engine() == IN_PROCESS
    assert IN_PROCESS.run_config == {"engine": "in_process"}


def test_environment_variables_supply_missing_arguments(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: object())
    monkeypatch.setenv("CORPUS_AUDIT_WORKERS", "4")
    assert choose_engine() == IN_PROCESS
    monkeypatch.setenv("CORPUS_AUDIT_ENGINE", "ray")
    assert choose_engine() == Engine(name="ray", workers=4)
    assert choose_engine(workers=2) == Engine(name="ray", workers=2)
    assert choose_engine("in_process").name == "in_process"
    assert choose_engine(workers=2).run_config == {"engine": "ray", "workers": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"CORPUS_AUDIT_ENGINE": "dask"}, r"CORPUS_AUDIT_ENGINE\) is 'dask'. Use in_process or ray"),
        ({"CORPUS_AUDIT_ENGINE": "ray", "CORPUS_AUDIT_WORKERS": "0"}, r"CORPUS_AUDIT_WORKERS\) is '0'. Use a whole"),
        (
            {"CORPUS_AUDIT_ENGINE": "ray", "CORPUS_AUDIT_WORKERS": "two"},
            r"CORPUS_AUDIT_WORKERS\) is 'two'. Use a whole",
        ),
    ],
)
def test_an_invalid_engine_setting_raises_an_error(monkeypatch, settings, message) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: object())
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=message):
        choose_engine()


def test_without_ray_the_error_names_the_command_that_installs_it(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'corpus-audit\[ray\]'"):
        choose_engine("ray")


@pytest.mark.parametrize(
    ("engine", "nodes", "device", "room"),
    [
        (RAY, GPUS, None, WorkerPlan(6, 1, 1)),
        (RAY, GPUS, "cuda", WorkerPlan(6, 1, 1)),
        (RAY, GPUS, "cpu", WorkerPlan(3, 4, 0)),
        (Engine(name="ray", workers=2), GPUS, None, WorkerPlan(2, 1, 1)),
        (Engine(name="ray", workers=9), GPUS, None, WorkerPlan(6, 1, 1)),
        (RAY, CORES, None, WorkerPlan(2, 6, 0)),
        (Engine(name="ray", workers=5), CORES, None, WorkerPlan(5, 2, 0)),
        (Engine(name="ray", workers=50), CORES, None, WorkerPlan(14, 1, 0)),
    ],
)
def test_workers_take_a_gpu_each_or_share_the_cores(engine, nodes, device, room) -> None:
    assert plan_workers(engine, nodes, device) == room


def test_workers_use_the_configured_number_of_cores(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert plan_workers(RAY, CORES, None) == WorkerPlan(2, 3, 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    with pytest.raises(ClusterError, match=r"needs 9 CPUs of one node .* offers 8"):
        plan_workers(RAY, CORES, None)


@pytest.mark.parametrize(
    ("nodes", "device", "message"), [(CORES, "cuda", "has no GPU"), ([{"CPU": 0.0}], None, "offers 0")]
)
def test_a_cluster_without_capacity_raises_an_error(nodes, device, message) -> None:
    with pytest.raises(ClusterError, match=message):
        plan_workers(RAY, nodes, device)


def test_an_unreachable_cluster_raises_an_error(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "not an address")
    with pytest.raises(ClusterError, match="RAY_ADDRESS=not an address cannot be reached"):
        connect_cluster(RAY)


def test_a_run_of_dagster_has_the_engine_in_its_configuration(monkeypatch) -> None:
    def engine_of(models: ModelsResource) -> Engine:
        return choose_engine(models.engine, models.workers)

    monkeypatch.setattr(engine_module, "find_spec", lambda name: object())
    entry = ModelEntry(name="m", hub="some/model")
    resources = AuditRequest([entry], [], AuditOptions(device="cpu", engine="ray", workers=3)).resources["models"]
    assert resources == {"device": "cpu", "engine": "ray", "workers": 3}
    assert engine_of(ModelsResource(**resources)) == Engine(name="ray", workers=3)  # type: ignore[arg-type]
    assert AuditRequest([entry], []).resources["models"] == {"device": None, "engine": "in_process"}
    assert engine_of(ModelsResource()) == IN_PROCESS
    monkeypatch.setenv("CORPUS_AUDIT_ENGINE", "ray")
    assert engine_of(ModelsResource(workers=2)) == Engine(name="ray", workers=2)


@pytest.mark.parametrize("command", ["audit --benchmark b", "score --texts t --out o.parquet", "extract --texts t"])
def test_workers_without_ray_are_refused_by_each_command(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--model", "m", "--workers", "2"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("Use --engine ray, or remove --workers.")

"""Which engine is chosen, what it gets of a cluster, and what is said of its address."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli import main
from audit_pipeline.cluster import engine as engine_module
from audit_pipeline.cluster.dispatch import Ended, Failed, Ready
from audit_pipeline.cluster.engine import IN_PROCESS, Engine, choose_engine
from audit_pipeline.cluster.ray_pool import RayPool, Room, connect_cluster, format_public_address_warning, plan_room
from audit_pipeline.cluster.worker import Assignment, WorkerError
from audit_pipeline.errors import ClusterError, ConfigError, ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.operate.audit_request import AuditRequest
from audit_pipeline.operate.dagster.resources import Models
from audit_pipeline.operate.options import AuditOptions

GPUS = [{"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0}]
CORES = [{"CPU": 8.0}, {"CPU": 6.0}, {"memory": 1.0}]
RAY = Engine(name="ray")
MODEL = ModelEntry(name="m", hub="some/model")


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*engine_module._VARIABLES.values(), "OMP_NUM_THREADS", "RAY_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)


def test_this_process_runs_models_where_nobody_says_otherwise() -> None:
    assert choose_engine() == choose_engine({"name": None, "workers": None}) == IN_PROCESS
    assert IN_PROCESS.run_config == {"engine": "in_process"}


def test_the_environment_says_what_is_not_given(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: object())
    monkeypatch.setenv("CORPUS_AUDIT_ENGINE", "ray")
    monkeypatch.setenv("CORPUS_AUDIT_WORKERS", "4")
    monkeypatch.setenv("CORPUS_AUDIT_SHARD_MINUTES", "7.5")
    assert choose_engine() == Engine(name="ray", workers=4, shard_minutes=7.5)
    assert choose_engine({"workers": 2}) == Engine(name="ray", workers=2, shard_minutes=7.5)
    assert choose_engine({"name": "in_process"}).name == "in_process"
    assert choose_engine({"workers": 2}).run_config == {"engine": "ray", "workers": 2, "shard_minutes": 7.5}


def test_workers_that_the_environment_speaks_of_are_none_of_this_process(monkeypatch) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_WORKERS", "3")
    assert choose_engine().run_config == {"engine": "in_process"}
    assert choose_engine({"name": "ray"}).run_config == {"engine": "ray", "workers": 3}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CORPUS_AUDIT_ENGINE", "dask"), ("CORPUS_AUDIT_WORKERS", "0"), ("CORPUS_AUDIT_SHARD_MINUTES", "soon")],
)
def test_what_makes_no_sense_is_named(monkeypatch, variable, value) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=rf"{variable} \(or the option\): '{value}'"):
        choose_engine()


def test_workers_without_ray_are_refused() -> None:
    with pytest.raises(ConfigError, match="give --engine ray, or leave --workers out"):
        choose_engine({"workers": 2})


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'corpus-audit\[ray\]'"):
        choose_engine({"name": "ray"})


@pytest.mark.parametrize(
    ("engine", "nodes", "device", "room"),
    [
        (RAY, GPUS, None, Room(6, 1, 1.0)),
        (RAY, GPUS, "cuda", Room(6, 1, 1.0)),
        (RAY, GPUS, "cpu", Room(3, 4, 0.0)),
        (Engine(name="ray", gpus_per_worker=2), GPUS, "cpu", Room(3, 4, 0.0)),
        (Engine(name="ray", gpus_per_worker=0.5), GPUS, None, Room(12, 1, 0.5)),
        (Engine(name="ray", gpus_per_worker=4), GPUS, None, Room(1, 1, 4.0)),
        (Engine(name="ray", workers=2), GPUS, None, Room(2, 1, 1.0)),
        (RAY, CORES, None, Room(2, 6, 0.0)),
        (Engine(name="ray", workers=5), CORES, None, Room(5, 2, 0.0)),
        (Engine(name="ray", workers=50), CORES, None, Room(50, 1, 0.0)),
    ],
)
def test_workers_take_a_gpu_each_or_share_the_cores(engine, nodes, device, room) -> None:
    assert plan_room(engine, nodes, device, MODEL) == room


@pytest.mark.parametrize(("ranks", "room"), [(2, Room(3, 1, 2.0)), (4, Room(1, 1, 4.0))])
def test_a_divided_model_has_as_many_gpus_a_worker(ranks, room) -> None:
    assert plan_room(RAY, GPUS, None, MODEL.model_copy(update={"tensor_parallel": ranks})) == room


@pytest.mark.parametrize(
    ("engine", "nodes", "device", "of_model", "says"),
    [
        (RAY, CORES, "cuda", {}, "has no GPU"),
        (Engine(name="ray", gpus_per_worker=1), CORES, None, {}, "has no GPU"),
        (
            Engine(name="ray", gpus_per_worker=5),
            GPUS,
            None,
            {},
            r"5 GPUs, and no node of .* has more than 4",
        ),
        (Engine(name="ray", gpus_per_worker=0), GPUS, "cuda", {}, "cuda with gpus_per_worker 0"),
        (RAY, GPUS, None, {"tensor_parallel": 8}, "8 GPUs, and no node"),
        (Engine(name="ray", gpus_per_worker=1), GPUS, None, {"tensor_parallel": 2}, "divided over 2 GPUs"),
        (RAY, CORES, None, {"tensor_parallel": 2}, "workers on CPUs have one each"),
        (RAY, GPUS, "cpu", {"devices": "auto"}, "workers on CPUs have one each"),
        (RAY, [{"CPU": 0.0}], None, {}, "no node of the Ray cluster offers a CPU"),
    ],
)
def test_room_that_can_never_be_had_is_one_line(engine, nodes, device, of_model, says) -> None:
    with pytest.raises(ClusterError, match=says):
        plan_room(engine, nodes, device, MODEL.model_copy(update=of_model))


@pytest.mark.parametrize("threads", ["0", "9"])
def test_more_threads_than_a_node_has_cpus_are_one_line(monkeypatch, threads) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    with pytest.raises(ClusterError, match=f"OMP_NUM_THREADS is {threads}.*offers 8"):
        plan_room(RAY, CORES, None, MODEL)


def test_what_the_user_says_of_threads_stands(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert plan_room(RAY, CORES, None, MODEL) == Room(2, 3, 0.0)


@pytest.mark.parametrize(
    ("address", "warns"),
    [
        ("127.0.0.1:6379", False),
        ("10.0.0.7:6379", False),
        ("192.168.1.4:6379", False),
        ("[::1]:6379", False),
        ("[fd00::1]:6379", False),
        ("localhost:6379", False),
        ("8.8.4.4:6379", True),
        ("[2001:4860:4860::8844]:6379", True),
        ("no.such.host.invalid:6379", False),
    ],
)
def test_an_address_that_strangers_reach_is_warned_of(address, warns) -> None:
    warning = format_public_address_warning(address)
    assert (warning is not None) is warns
    if warning is not None:
        assert f"the Ray cluster at {address} has the public address" in warning


def test_a_name_is_looked_up(monkeypatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("10.0.0.1", "8.8.4.4")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: found)
    assert "public address 8.8.4.4" in str(format_public_address_warning("head.example.org:6379"))


def test_a_run_of_dagster_says_it_in_its_configuration_or_leaves_it_to_the_environment(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "find_spec", lambda name: object())
    engine = Engine(name="ray", workers=3)
    said = AuditRequest(MODEL, [], AuditOptions(device="cpu", engine="ray", workers=3)).resources["models"]
    assert said == {"device": "cpu", "engine": "ray", "workers": 3}
    assert Models(**said)._engine == engine  # type: ignore[arg-type]
    assert AuditRequest(MODEL, []).resources["models"] == {"device": None, "engine": "in_process"}
    assert Models()._engine == IN_PROCESS
    monkeypatch.setenv("CORPUS_AUDIT_ENGINE", "ray")
    assert Models(workers=2)._engine == Engine(name="ray", workers=2)


@pytest.mark.parametrize("command", ["audit --benchmark b", "score --texts t --out o.parquet", "extract --texts t"])
def test_what_makes_no_sense_is_one_line_of_each_command(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--model", "m", "--workers", "2"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("give --engine ray, or leave --workers out")


def test_the_remote_client_is_refused_in_one_line(monkeypatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "ray://10.0.0.7:10001")
    with pytest.raises(ClusterError, match="give the head's own host:port"):
        connect_cluster(RAY, pytest.fail)


def test_what_ray_says_of_a_worker_that_is_gone() -> None:
    errors = pytest.importorskip("ray").exceptions
    pool = RayPool(Assignment(MODEL, None, {}, DataPaths(Path("data")), "cpu", 1), 0.0)  # type: ignore[arg-type]

    def raised_there(error: Exception) -> Exception:
        arrived: Exception = errors.RayTaskError("run", "the worker's traceback", error, "ray", 1, "127.0.0.1")
        return arrived

    created = pool._event_from_ray_error(0, errors.ActorDiedError(raised_there(ImportError("no torch"))))
    assert isinstance(created, Failed)
    assert isinstance(created.error, ClusterError)
    assert "a worker cannot be created" in str(created.error)
    assert pool._event_from_ray_error(0, errors.ActorDiedError()).cause == "died"  # type: ignore[union-attr]
    assert pool._event_from_ray_error(0, errors.OutOfMemoryError("no memory")).cause == "memory_monitor"  # type: ignore[union-attr]
    # What a user can act on is one line; a fault of the program shows where it was.
    for error, shows in ((ModelError("damaged"), False), (KeyError("shape"), True)):
        failed = pool._event_from_ray_error(0, raised_there(WorkerError(error)))
        assert isinstance(failed, Failed)
        assert failed.error is error
        assert ("the worker's traceback" in str(failed.error.__cause__)) is shows


def test_a_death_that_ends_several_calls_of_a_worker_is_told_once(monkeypatch) -> None:
    ray = pytest.importorskip("ray")
    pool = RayPool(Assignment(MODEL, None, {}, DataPaths(Path("data")), "cpu", 1), 0.0)  # type: ignore[arg-type]

    def get(call: object) -> object:
        raise ray.exceptions.ActorDiedError

    pool._ray = SimpleNamespace(  # type: ignore[assignment]
        exceptions=ray.exceptions,
        get=get,
        wait=lambda calls, num_returns=1, timeout=0: (calls[:num_returns], calls[num_returns:]),
    )
    pool._calls = {"placed": (0, Ready), "prepare": (0, Ready), "other": (1, Ready)}  # type: ignore[dict-item]
    assert [(type(event), event.worker) for event in pool.wait(0)] == [(Ended, 0), (Ended, 1)]
    # Whoever asks again while all workers pause does not do so without end.
    slept: list[float] = []
    monkeypatch.setattr("audit_pipeline.cluster.ray_pool.time.sleep", slept.append)
    assert (list(pool.wait(1.0)), slept) == ([], [1.0])

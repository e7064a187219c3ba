"""Stress test that kills audits at random moments and checks what the next run reads from the cache and computes again.

    python bench/kill_audits.py [--moments 20] [--daemon-moments 20] [--outages 3] [--seed 0]

Audits are killed with SIGKILL, on the command line and under the Dagster daemon. An outage kills the daemon, the code
server and the run together, like a power failure.

Every kill uses a new model, so that no text is in the cache, and the data folder that all earlier kills left. Moments
are uniform over the time of an undisturbed audit. This time starts at the first line of output of the command, or at
the start of the run's process under the daemon. Every text is flushed as soon as it is computed, and a delay of 20 ms
per text makes the pass the longest step, as with a real model.

The exit code is 1 if a check fails. tests/end_to_end/test_killed_audit.py tests two chosen moments, and is fast enough
to run every time.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import dagster as dg
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from live_workspace import end, family, graphql, make, start_services
from tiny_models import save_model

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.pipeline.dagster import partitions
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair
from audit_pipeline.warehouse.query import query_warehouse

BENCHMARK = "kills_8"
KINDS_OF_PASS = ("base", "renyi")
"""The kinds of statistics that a pass over a text writes."""
PATIENCE_SECONDS = 400.0
"""Timeout of a run. Dagster's monitoring notices a dead run earlier, so a run that takes longer hangs."""

FLUSH_AT_ONCE = """
import time
from audit_pipeline.token_statistics.cache import PartCache
PartCache.__init__.__kwdefaults__["flush_seconds"] = 0.0
flush = PartCache.flush
PartCache.flush = lambda self: (time.sleep(0.02), flush(self))[1]
"""

QUICK_MONITORING = """
telemetry: {enabled: false}
nux: {enabled: false}
run_monitoring: {enabled: true, poll_interval_seconds: 2}
"""

LAUNCH = """
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}
"""


@dataclass
class Moment:
    """A kill and its consequences.

    Attributes:
        how: Kind of the kill.
        model: Name of the audited model.
        after: Time of the kill after the start, in seconds.
        during: Job and step that ran at the time of the kill.
        flushed: Number of texts that were on disk after the kill.
        from_cache: Number of texts that the next run read from the cache.
        computed: Number of texts that the next run computed.
        seconds: Time of the next run.
        problems: Failed checks.
    """

    how: str
    model: str
    after: float
    during: str = ""
    flushed: int = 0
    from_cache: int = -1
    computed: int = -1
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class KillTest:
    """A workspace, and the kills of its audits."""

    def __init__(self, root: Path, seed: int, documents: int) -> None:
        self.random = random.Random(seed)
        self.site = make(root, models=1, documents=documents)
        self.paths = DataPaths(self.site.data)
        self.site.write("benchmarks", {"benchmarks": {"kills": family([8])}})
        self.entries = self.site.read("models")["models"]
        self.done: list[Moment] = []

    def add_model(self) -> str:
        """Add a new model to the configuration and return its name."""
        name = f"tiny-{len(self.entries):02}"
        folder = self.site.root / "models" / name
        save_model(folder, "llama", seed=100 + len(self.entries))
        self.entries[name] = {"path": str(folder), "release_date": "2024-06-01"}
        self.site.write("models", {"models": self.entries})
        return name

    @property
    def texts(self) -> int:
        return len(read_built(self.paths, BENCHMARK).plain_texts)

    def list_parts(self) -> list[Path]:
        return sorted(self.paths.table("token_statistics").glob("kind=*/*/part-*.parquet"))

    def read_new_texts(self, before: set[Path], moment: Moment, kind: str) -> list[str]:
        """Return the texts in the new parts of a kind, which are not in ``before``. An unreadable part is a problem."""
        texts: list[str] = []
        for part in self.list_parts():
            if part not in before and part.parts[-3] == f"kind={kind}":
                try:
                    texts += pq.read_table(part, partitioning=None).column("text_sha256").to_pylist()
                except (pa.ArrowInvalid, OSError) as error:
                    moment.problems.append(f"{part.name} cannot be read: {error}")
        return texts

    def check_after_kill(self, moment: Moment, before: set[Path]) -> None:
        # The kinds of a pass are written one after the other. A text is finished when all kinds contain it.
        texts_by_kind = [set(self.read_new_texts(before, moment, kind)) for kind in KINDS_OF_PASS]
        moment.flushed = len(set.intersection(*texts_by_kind))
        if self.paths.warehouse.exists():
            self.check_warehouse(moment, "after the kill")

    def check_after_next(self, moment: Moment, before: set[Path]) -> None:
        for kind in KINDS_OF_PASS:
            texts = self.read_new_texts(before, moment, kind)
            if len(set(texts)) != self.texts or len(texts) != self.texts:
                moment.problems.append(
                    f"the disk has {len(texts)} rows of kind {kind} for {len(set(texts))} texts, but {self.texts} "
                    "texts were audited"
                )
        if moment.computed != self.texts - moment.flushed or moment.from_cache != moment.flushed:
            moment.problems.append(
                f"{moment.flushed} of {self.texts} texts were flushed, but the next run read {moment.from_cache} from "
                f"the cache and computed {moment.computed}"
            )
        if aside := list(self.paths.table("token_statistics").rglob("*.unreadable")):
            moment.problems.append(f"{len(aside)} parts were renamed because they are damaged")
        self.check_warehouse(moment, "after the next run")
        counted = query_warehouse(self.paths.warehouse, "SELECT model, count(*) AS n FROM leaderboard GROUP BY model")
        found = {row["model"]: row["n"] for row in counted.to_pylist()}
        if found.get(moment.model) != max(found.values()):
            moment.problems.append("some detectors have no finding")

    def check_warehouse(self, moment: Moment, when: str) -> None:
        gaps = query_warehouse(self.paths.warehouse, "FROM lineage_gaps").num_rows
        if gaps:
            moment.problems.append(f"{gaps} lineage gaps {when}")

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.from_config(str(self.paths.dagster_home)) as instance:
            yield instance

    def describe_latest_run(self) -> str:
        """Return the job of the latest run, its unfinished steps, and its status if it is finished."""
        with self.instance() as instance:
            (run,) = instance.get_runs(limit=1)
            steps = [one.step_key for one in instance.get_run_step_stats(run.run_id) if one.end_time is None]
            status = run.status.value if run.is_finished else ""
            return " ".join([run.job_name, *(step or "" for step in steps), status]).strip()

    def print_message(self, moment: Moment) -> None:
        self.done.append(moment)
        print(
            f"{len(self.done):>3} {moment.how:<13} {moment.after:6.2f} s  {moment.during:<34}"
            f" flushed {moment.flushed:>4}  from cache {moment.from_cache:>4}  computed {moment.computed:>4}"
            f"  next run {moment.seconds:6.1f} s  {'; '.join(moment.problems) or 'ok'}",
            flush=True,
        )

    # Without a daemon

    def start_audit(self, model: str) -> subprocess.Popen[str]:
        """Start an audit on the command line. Return its process after its first line of output."""
        command = [str(Path(sys.executable).with_name("corpus-audit")), "audit", "--model", model]
        process = subprocess.Popen(
            [*command, "--benchmark", BENCHMARK],
            env=self.site.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        process.stderr.readline()
        return process

    def audit(self, moment: Moment) -> None:
        """Run the next audit on the command line, and read the numbers of cached and computed texts from its output."""
        started = time.monotonic()
        try:
            done = self.site.run("audit", "--model", moment.model, "--benchmark", BENCHMARK, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            told = error.stderr.decode() if isinstance(error.stderr, bytes) else str(error.stderr)
            moment.problems.append(f"the next audit hangs. Its last line is: {told.strip().splitlines()[-1]}")
            return
        moment.seconds = time.monotonic() - started
        if done.returncode != 0:
            moment.problems.append(
                f"the next audit ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}"
            )
            return
        # If the pass was finished before the kill, the audit prints no line about it.
        said = [line.rpartition(":")[2].split() for line in done.stderr.splitlines() if "texts from the cache" in line]
        moment.from_cache, moment.computed = (int(said[0][0]), int(said[0][5])) if said else (self.texts, 0)

    def time_undisturbed_audit(self) -> float:
        """Return the time of an audit from its first line of output to its end, in seconds."""
        process = self.start_audit(self.add_model())
        started = time.monotonic()
        process.communicate()
        return time.monotonic() - started

    def kill_commands(self, count: int) -> None:
        length = self.time_undisturbed_audit()
        print(f"without a daemon: {self.texts} texts. An audit takes {length:.1f} s after its first line.", flush=True)
        killed = 0
        while killed < count:
            moment = Moment("command line", self.add_model(), self.random.uniform(0, length))
            before = set(self.list_parts())
            process = self.start_audit(moment.model)
            time.sleep(moment.after)
            process.kill()
            process.communicate()
            if process.returncode == 0:
                continue
            killed += 1
            moment.during = self.describe_latest_run()
            self.check_after_kill(moment, before)
            self.audit(moment)
            self.check_after_next(moment, before)
            self.print_message(moment)

    # Under a daemon

    def launch(self, address: str, model: str) -> str:
        """Launch a run of audit_pairs by GraphQL, as the UI does, and return its id."""
        with self.instance() as instance:
            partitions.register_partitions(instance, benchmarks=[BENCHMARK], models=[model])
        key = Pair(BENCHMARK, model).partition
        tags = {f"dagster/asset_partition_range_{end}": key for end in ("start", "end")}
        location = {"repositoryName": "__repository__", "repositoryLocationName": "corpus_audit"}
        params = {
            "selector": {**location, "jobName": "audit_pairs"},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        answer = graphql(address, LAUNCH, params=params)["launchRun"]
        if answer["__typename"] != "LaunchRunSuccess":
            raise RuntimeError(str(answer))
        return str(answer["run"]["runId"])

    def wait_for_process(self, run_id: str) -> psutil.Process:
        """Wait for the process that executes a run, and return it."""
        with self.instance() as instance:

            def found() -> int | None:
                for event in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
                    if "Started process for run" in event.message:
                        return int(event.message.partition("pid: ")[2].split(")")[0])
                return None

            return psutil.Process(wait_for(found, "the run does not start"))

    def wait_for_end(self, run_id: str) -> dg.DagsterRunStatus:
        with self.instance() as instance:

            def ended() -> dg.DagsterRunStatus | None:
                run = instance.get_run_by_id(run_id)
                return run.status if run is not None and run.is_finished else None

            return wait_for(ended, "the run does not end")

    def run_again(self, address: str, moment: Moment) -> None:
        started = time.monotonic()
        run_id = self.launch(address, moment.model)
        try:
            status = self.wait_for_end(run_id)
        except TimeoutError:
            moment.problems.append("the next run hangs")
            return
        moment.seconds = time.monotonic() - started
        if status is not dg.DagsterRunStatus.SUCCESS:
            moment.problems.append(f"the next run ended with the status {status.value}")
            return
        with self.instance() as instance:
            wanted = dg.AssetRecordsFilter(
                asset_key=dg.AssetKey("token_statistics"), asset_partitions=[Pair(BENCHMARK, moment.model).partition]
            )
            (record,) = instance.fetch_materializations(wanted, limit=1).records
        assert record.asset_materialization is not None
        said = record.asset_materialization.metadata
        moment.from_cache = int(str(said["texts_from_cache"].value))
        moment.computed = int(str(said["texts_computed"].value))

    def kill_runs(self, count: int, how: str) -> None:
        if count == 0:
            return
        with self.site.services() as address:
            run_id = self.launch(address, self.add_model())
            self.wait_for_process(run_id)
            started = time.monotonic()
            assert self.wait_for_end(run_id) is dg.DagsterRunStatus.SUCCESS
            length = time.monotonic() - started
            print(f"{how}: a run of audit_pairs takes {length:.1f} s after the start of its process", flush=True)
            killed = 0
            while killed < count:
                moment = Moment(how, self.add_model(), self.random.uniform(0, length))
                before = set(self.list_parts())
                run_id = self.launch(address, moment.model)
                worker = self.wait_for_process(run_id)
                time.sleep(moment.after)
                moment.during = self.describe_latest_run()
                if not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE:
                    continue
                worker.kill()
                wait_for(lambda worker=worker: not is_alive(worker) or None, "the killed process does not end")  # type: ignore[misc]
                self.check_after_kill(moment, before)
                # A run may end shortly before its process.
                if self.wait_for_end(run_id) is dg.DagsterRunStatus.SUCCESS:
                    continue
                killed += 1
                self.run_again(address, moment)
                build_warehouse(self.paths, config=self.site.config)
                self.check_after_next(moment, before)
                self.print_message(moment)

    def simulate_outages(self, count: int) -> None:
        """Kill the daemon, the code server and a run together. Then run an audit without a daemon."""
        for _ in range(count):
            moment = Moment("outage", self.add_model(), self.random.uniform(6, 10))
            before = set(self.list_parts())
            services, address = start_services(self.site)
            try:
                worker = self.wait_for_process(self.launch(address, moment.model))
                wait_for(
                    lambda before=before: len(self.list_parts()) > len(before) + 3 or None,  # type: ignore[misc]
                    "no parts are written",
                )
                moment.during = self.describe_latest_run()
                everything = [*psutil.Process(services.pid).children(recursive=True), psutil.Process(services.pid)]
                for one in [worker, *everything]:
                    if one.is_running():
                        one.kill()
                services.wait()
            finally:
                end(services)
            self.check_after_kill(moment, before)
            self.audit(moment)
            self.check_after_next(moment, before)
            self.print_message(moment)


T = TypeVar("T")


def kill_remaining_processes(folder: Path) -> None:
    """Kill the processes that killed runs left behind. Dagster follows a run's output with separate processes."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or []):
            process.kill()


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_for(found: Callable[[], T | None], otherwise: str) -> T:
    """Call ``found`` until it returns a value other than None. After the timeout, raise TimeoutError(otherwise)."""
    until = time.monotonic() + PATIENCE_SECONDS
    while (value := found()) is None:
        if time.monotonic() > until:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=20, help="Number of kills without a daemon.")
    parser.add_argument(
        "--daemon-moments", type=int, default=20, help="Number of kills of a run's process under the daemon."
    )
    parser.add_argument(
        "--as-shipped",
        type=int,
        default=1,
        help="Number of further kills under the daemon, with Dagster's default settings.",
    )
    parser.add_argument("--outages", type=int, default=2, help="Number of kills of all processes under the daemon.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--documents", type=int, default=120, help="Number of documents of the benchmark.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-audits-") as folder:
        flushing = Path(folder) / "flushing"
        flushing.mkdir()
        (flushing / "sitecustomize.py").write_text(FLUSH_AT_ONCE, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(flushing), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
        kills = KillTest(Path(folder) / "site", given.seed, given.documents)
        started = time.monotonic()
        kills.kill_commands(given.moments)
        kills.kill_runs(given.as_shipped, "as shipped")
        (kills.paths.dagster_home / "dagster.yaml").write_text(QUICK_MONITORING, encoding="utf-8")
        kills.kill_runs(given.daemon_moments, "daemon")
        kills.simulate_outages(given.outages)
        kill_remaining_processes(Path(folder))
    wrong = [moment for moment in kills.done if moment.problems]
    print(f"{len(kills.done)} kills in {time.monotonic() - started:.0f} s. Kills with a problem: {len(wrong)}.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

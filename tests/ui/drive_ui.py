"""The Dagster UI in a real browser: everything its users click, on an installation that is made for it and ended.

    python tests/ui/drive_ui.py [--shots FOLDER] [--keep] [--patience TIMES]

Needs Chromium and chromedriver on PATH, and selenium: pip install --constraint constraints.txt --group ui. Takes some
minutes, prints a line per step, and ends with exit code 1 and one line that says what was not as it should be.
--shots writes a picture of every page that matters (and, of a step that fails, failed.png); --keep leaves the
installation's folder where it is; --patience 4 waits four times as long for everything, on a machine that is busy.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import get_args

import psutil
import requests
import transformers
from selenium.common.exceptions import WebDriverException

sys.path.insert(0, str(Path(__file__).parent.parent))

from browser import Browser, NotSeenError, browser
from instance_state import Backfill, Instance, Run
from live_workspace import LiveWorkspace, make
from tiny_models import save_model

from audit_pipeline.pipeline.dagster.resources import IS_READY
from audit_pipeline.pipeline.stage import Group
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.ledger import read_ledger
from audit_pipeline.store.paths import DataPaths

SENSORS = ("observe_inputs", "audit_what_changed", "publish_what_is_new", "alert_finding_changed")
ON_FROM_THE_START = ("observe_inputs", "publish_what_is_new")
SCHEDULE = "weekly_audit"
BENCHMARKS = ("made_8", "made_12", "made_16")
MODELS = ("tiny-a", "tiny-b")
GRAPH = f"/asset-groups?expanded={','.join(f'global@global:{group}' for group in get_args(Group))}"
GRAPH_SIZE = (2400, 3000)
LOCATION = "/locations/__repository__@corpus_audit"
AUDITED = ("token_statistics", "scores", "evaluations")
DIALOG = "//*[@role='dialog']"
# The icons of a tick that asked for runs, and of one that had no reason to.
TICKED = {"done", "status"}
AUDIT_SECONDS = 240.0
TICK_SECONDS = 90.0
GOING_SECONDS = 5.0


def require(condition: bool, otherwise: str) -> None:
    """Raise NotSeenError, with what is the case instead, where ``condition`` does not hold."""
    if not condition:
        raise NotSeenError(otherwise)


@dataclass
class Drive:
    """One drive through the UI of ``workspace``; ``step`` is the one that is being taken."""

    workspace: LiveWorkspace
    instance: Instance
    page: Browser
    shots: Path | None
    step: str = ""

    @contextmanager
    def stepping(self, what: str) -> Iterator[None]:
        """Tell how long a step took."""
        self.step = what
        started = time.monotonic()
        yield
        tell(f"{time.monotonic() - started:6.1f} s  {what}")

    def picture(self, name: str) -> None:
        if self.shots is not None:
            self.page.picture(self.shots / f"{name}.png")

    def everything(self) -> None:
        """All steps, in order."""
        with self.stepping("five sensors and the schedule are switched on, and tick"):
            self.switch_on()
        with self.stepping("source, 3 benchmarks, 2 models, warehouse and report from nothing"):
            self.build_from_nothing()
        with self.stepping("the asset graph shows every asset"):
            self.look_at_graph()
        with self.stepping("the grid of evaluations: 6 of 6"):
            self.look_at_grid(6, MODELS[1])
        with self.stepping("a backfill of 6 pairs from the UI loads each model once"):
            self.backfill()
        with self.stepping("damaged cache: one run over 6 pairs, and a check that failed and says why"):
            self.damage_the_cache()
        with self.stepping("a third model in models.yaml: one run, then warehouse and report"):
            self.add_a_model()
        with self.stepping("other weights: stale in the UI, then one run over the model's column"):
            self.change_weights()
        with self.stepping("an edited benchmark: it is built, and then its pairs are audited"):
            self.edit_benchmark()
        with self.stepping("a broken models.yaml: the tick says so, nothing goes; mended, the next tick is fine"):
            self.break_the_configuration()
        with self.stepping("the weekly audit from the UI: nothing new"):
            self.audit_the_week()
        with self.stepping("the addresses of docs/dagster-ui.md: what failed, what is new"):
            self.follow_addresses()

    def switch_on(self) -> None:
        page = self.page
        page.open("/automation", *SENSORS, SCHEDULE)
        page.click("//*[text()='Hide navigation']")
        for name in (*SENSORS, SCHEDULE):
            if name not in ON_FROM_THE_START:
                page.click(f"({_row(name)}//label)[last()]")
            page.until(partial(page.is_checked, f"({_row(name)}//input)[last()]"), f"{name} switched on")
            kind = "schedule" if name == SCHEDULE else "sensor"
            page.until(partial(self.instance.is_on, name, kind), f"{name} running")
        require(not page.is_checked(f"({_row('hub_watcher')}//input)[last()]"), "hub_watcher is on, and nobody asked")
        for name in SENSORS:
            page.until(partial(self.shows_tick, name), f"a tick of {name}", TICK_SECONDS)

    def shows_tick(self, sensor: str) -> bool:
        return not TICKED.isdisjoint(self.page.icons(_row(sensor)))

    def build_from_nothing(self) -> None:
        """Audit what was missing when the sensors were switched on: they request changes alone."""
        self.page.open(f"{LOCATION}/jobs/{SCHEDULE}/playground", "Launch Run", "No errors")
        self.page.press("Launch Run")
        self.follow_launched_run()
        self.wait_until_published(6)
        built = Counter(run.tags["dagster/partition"] for run in self.instance.runs("build_benchmarks"))
        require(built == Counter(BENCHMARKS), f"benchmarks were built so often: {dict(built)}")
        require(len(self.instance.runs("refresh_sources")) == 1, "the source was not fetched once")
        audits = [run.range for run in self.instance.runs("audit_pairs")]
        wholes = [(f"{BENCHMARKS[0]}|{model}", f"{BENCHMARKS[-1]}|{model}") for model in MODELS]
        require(
            sorted(map(str, audits)) == sorted(map(str, wholes)), f"not one run per model over all benchmarks: {audits}"
        )
        require(self.pairs_in_warehouse() == 6, f"the leaderboard holds {self.pairs_in_warehouse()} pairs, not 6")
        self.page.open("/automation", *SENSORS, SCHEDULE)
        for name in SENSORS:
            self.page.until(partial(self.shows_tick, name), f"a tick of {name}")
        self.picture("ui_automation")

    def look_at_graph(self) -> None:
        """The groups by themselves, in the order of the flow, and then with every asset in them."""
        self.page.open("/asset-groups", *get_args(Group))
        self.page.until(lambda: "fetching statuses" not in self.page.text, "the state of every group")
        self.picture("ui_groups")
        # What lies outside of the window is not drawn.
        self.page.as_large_as(*GRAPH_SIZE)
        self.page.open(GRAPH)
        self.page.click("//button[.//*[@aria-label='panel_show_right']]")
        for asset in self.instance.assets():
            # The graph shortens long names in the middle.
            self.page.see(asset if len(asset) <= 16 else asset[-7:])
        self.picture("asset_graph")
        self.page.as_at_first()

    def look_at_grid(self, pairs: int, model: str) -> None:
        page = self.page
        page.open("/assets/evaluations?view=partitions", f"Materialized ({pairs})", "Missing (0)", "Failed (0)")
        for name in (BENCHMARKS[-1], model):
            page.click(f"//*[text()='{name}']")
        page.see(f"{BENCHMARKS[-1]}|{model}")
        page.see("claim level")
        self.picture("ui_grid")

    def backfill(self) -> None:
        page, before = self.page, {one.id for one in self.instance.backfills()}
        self.wait_until_settled()
        shutil.rmtree(self.workspace.data / "token_statistics")
        # Not from the page of the job audit_pairs: of a backfill that is launched there, Dagster's daemon tags every
        # run with the dimensions of the first partition of all, and a run computes that one alone.
        page.open("/asset-groups", *get_args(Group))
        page.enter("//*[contains(@class, 'CodeMirror')]", " or ".join(f'key:"{asset}"' for asset in AUDITED))
        page.until(lambda: "5_reports" not in page.text, "the graph of three assets")
        page.press("Materialize all…")
        page.dialog("Are you sure?", "token_frequencies")
        page.press("Confirm", inside=DIALOG)
        page.dialog("3 assets", "benchmark", "model", "Launch backfill")
        for number in (1, 2):
            page.click(f"({DIALOG}//button[normalize-space()='All'])[{number}]")
        page.dialog("6 partitions")
        page.press("Launch backfill", inside=DIALOG)
        launched = page.until(
            lambda: next((one for one in self.instance.backfills() if one.id not in before), None), "a new backfill"
        )
        done = page.until(lambda: self._finished_backfill(launched.id), "the end of the backfill", AUDIT_SECONDS)
        require(done.status == "COMPLETED_SUCCESS" and done.partitions == 6, f"the backfill is {done}")
        # Dagster's daemon makes a run for every value of the dimension that has fewer: here, the models.
        require(len(done.runs) <= len(MODELS), f"the backfill took {len(done.runs)} runs")
        self.require_each_model_loaded_once(done.runs, _pairs(MODELS))
        page.open(f"/runs/b/{done.id}", "6 partitions", "Succeeded", "100% completed")
        self.picture("ui_backfill")
        self.wait_until_published(6)

    def _finished_backfill(self, backfill_id: str) -> Backfill | None:
        found = next(one for one in self.instance.backfills() if one.id == backfill_id)
        return found if found.is_finished else None

    def wait_until_settled(self) -> None:
        """Wait until the sensor of changes has handled all finished runs and nothing is running.

        After an audit it requests the audited pairs once more. The run makes none that is current according to
        the ledger, but it would fill a cache that a step has just removed.
        """
        self.page.until(self._is_settled, "two ticks of audit_what_changed that request nothing", AUDIT_SECONDS)

    def _is_settled(self) -> bool:
        # The ticks are read before the runs, so that the runs that a tick requested are seen.
        ticks = self.instance.ticks("audit_what_changed")
        if self.instance.unfinished() or not all(backfill.is_finished for backfill in self.instance.backfills()):
            return False
        last_end = max(run.ended_at or 0.0 for run in self._find_audits())
        # A run ends before its process does. The first tick may still find the audit at work, and requests nothing.
        return sum(tick.at > last_end for tick in ticks) >= 2

    def damage_the_cache(self) -> None:
        page, data = self.page, self.workspace.data
        self.wait_until_settled()
        parts = sorted((data / "token_statistics").rglob("part-*.parquet"))
        folders = {part.parent for part in parts}
        require(len(folders) >= len(MODELS), f"the cache holds {len(parts)} parts in {len(folders)} folders")
        for part in parts:
            os.truncate(part, part.stat().st_size // 2)
        first, last = f"{BENCHMARKS[0]}|{MODELS[0]}", f"{BENCHMARKS[-1]}|{MODELS[-1]}"
        page.open(f"{LOCATION}/jobs/audit_pairs/playground", "Launch Run", "No errors")
        page.press("Edit tags")
        page.press("Add custom tag", inside=DIALOG)
        tags = ["dagster/asset_partition_range_start", first, "dagster/asset_partition_range_end", last]
        page.type(f"{DIALOG}//input", tags)
        page.press("Apply", inside=DIALOG)
        page.see(f"asset_partition_range_end: {last}")
        page.press("Launch Run")
        page.dialog("without a partition specified")
        page.press("Confirm", inside=DIALOG)
        run = self.follow_launched_run()
        require(run.range == (first, last), f"the run is over {run.range}")
        self.require_each_model_loaded_once([run], _pairs(MODELS))
        check = self.instance.check("token_statistics", "cache_intact")
        require(check is not None and check.run_id == run.id and not check.passed, f"cache_intact says {check}")
        named = [Path(name).stem for name in check.said["damaged files"]] if check is not None else []
        require(bool(named) and {*named} <= {part.stem for part in parts}, f"cache_intact names {named}, not {parts}")
        said = f"{len(named)} damaged files were renamed and their texts run again"
        page.open("/assets/token_statistics?view=checks", "cache_intact", "Failed", said)
        self.picture("ui_failed_check")
        page.click("//*[contains(text(), 'Show JSON')]")
        page.dialog("damaged files", *named)
        self.wait_until_published(6)

    def add_a_model(self) -> None:
        added = self.workspace.add_model(len(MODELS))
        self.wait_until_published(9)
        whole = (f"{BENCHMARKS[0]}|{added}", f"{BENCHMARKS[-1]}|{added}")
        audits = [run.range for run in self.instance.runs() if run.range and run.range[1] == whole[1]]
        require(audits == [whole], f"the new model was audited by runs over {audits}")
        require(self.pairs_in_warehouse(added) == 3, f"the leaderboard holds not all three pairs of {added}")
        report = (self.workspace.data / "reports" / "contamination_report.html").read_text(encoding="utf-8")
        require(added in report, f"the report does not name {added}")
        self.look_at_grid(9, added)

    def change_weights(self) -> None:
        page, model = self.page, MODELS[1]
        column = (f"{BENCHMARKS[0]}|{model}", f"{BENCHMARKS[-1]}|{model}")
        self.wait_until_settled()
        before = {run.id for run in self.instance.runs()}
        self.switch("audit_what_changed", on=False)
        save_model(self.workspace.root / "models" / model, "llama", seed=77)
        page.until(lambda: self.instance.stale_cells("token_statistics") == 3, "three stale cells", TICK_SECONDS)
        page.open(f"/assets/token_statistics?view=partitions&partition={column[0]}", "Unsynced")
        page.hover("//*[starts-with(text(),'Unsynced')]")
        page.see("model_files")
        self.picture("ui_stale")
        self.switch("audit_what_changed", on=True)
        page.until(lambda: self._requested_ranges(before) == [column], "one run over the column", TICK_SECONDS)
        self.wait_until_published(9)
        require(self.instance.stale_cells("token_statistics") == 0, "cells are stale after they were made again")
        require(self._requested_ranges(before) == [column], f"there were runs over {self._requested_ranges(before)}")
        page.open("/assets/token_statistics?view=automation", "3 requested")
        self.picture("ui_condition")

    def switch(self, sensor: str, *, on: bool) -> None:
        page = self.page
        page.open("/automation", sensor)
        page.click(f"({_row(sensor)}//label)[last()]")
        page.until(lambda: self.instance.is_on(sensor, "sensor") == on, f"{sensor} {'on' if on else 'off'}")

    def edit_benchmark(self) -> None:
        before = {run.id for run in self.instance.runs()}
        entries = self.workspace.read("benchmarks")["benchmarks"]
        [family] = entries
        entries[family]["member_before"] = "2021-06-01"
        self.workspace.write("benchmarks", {"benchmarks": entries})
        self.page.until(
            lambda: self._count_new_runs(before, of_pairs=False) >= len(BENCHMARKS), "runs of benchmarks", AUDIT_SECONDS
        )
        self.page.until(lambda: self._count_new_runs(before, of_pairs=True) >= 1, "a run of pairs", AUDIT_SECONDS)
        self.wait_until_published(9)
        built = self._count_new_runs(before, of_pairs=False)
        require(built == len(BENCHMARKS), f"{built} runs built {len(BENCHMARKS)} benchmarks")

    def _find_audits(self) -> list[Run]:
        """Return the runs that the sensor of warehouse and report did not request."""
        publishing = "publish_what_is_new"
        return [run for run in self.instance.runs() if run.tags.get("dagster/sensor_name") != publishing]

    def _list_audits(self) -> list[str]:
        return [f"{run.id[:8]} of {run.job}" for run in self._find_audits()]

    def _requested_ranges(self, before: Collection[str]) -> list[tuple[str, str] | None]:
        return [run.range for run in self.instance.runs() if run.id not in before and "why" in run.tags and run.range]

    def _count_new_runs(self, before: Collection[str], *, of_pairs: bool) -> int:
        new = [run for run in self.instance.runs() if run.id not in before]
        cells = [run.range[0] if run.range else run.tags.get("dagster/partition", "") for run in new]
        return sum(("|" in cell) == of_pairs for cell in cells if cell)

    def break_the_configuration(self) -> None:
        self.wait_until_settled()
        page, file = self.page, self.workspace.config / "models.yaml"
        good, audits = file.read_text(encoding="utf-8"), self._list_audits()
        broken_at = time.time()
        file.write_text(f"{good}  half_written: [\n", encoding="utf-8")
        try:
            self.wait_for_tick(broken_at, failing=str(file))
            require(self.instance.partitions("evaluations") == (9, 9), "partitions went with a file that is broken")
            require(self._list_audits() == audits, f"a file that is broken led to a run: {self._list_audits()}")
            page.open(f"{LOCATION}/sensors/observe_inputs", "Failure")
            page.click("//tr[.//*[text()='Failure']]//button[text()='View']")
            page.dialog("BrokenFileError", str(file), "it is not valid YAML")
            # Of the picture only: the frames name folders of this machine.
            page.style("[class*=PythonErrorInfo_trace] { display: none }")
            self.picture("ui_tick_error")
        finally:
            file.write_text(good, encoding="utf-8")
        self.wait_for_tick(time.time())
        require(self._list_audits() == audits, f"a file that is as it was led to a run: {self._list_audits()}")

    def audit_the_week(self) -> None:
        page = self.page
        page.open(f"{LOCATION}/schedules/{SCHEDULE}", "Next tick", "every Monday at 06:00 UTC")
        page.press("Preview tick result")
        page.press("Continue", inside=DIALOG)
        page.dialog("1 run request", SCHEDULE)
        page.press("Close", inside=DIALOG)
        page.open(f"{LOCATION}/jobs/{SCHEDULE}/playground", "Launch Run", "No errors")
        page.press("Launch Run")
        run = self.follow_launched_run()
        said = run.tags.get("corpus_audit/summary", "")
        require(run.status == "SUCCESS" and said.startswith("nothing new"), f"the weekly audit {run.status}: {said!r}")
        page.open(f"/runs/{run.id}", "Success", "nothing new")
        self.picture("ui_weekly")

    def follow_addresses(self) -> None:
        """Of runs by their job those alone, of runs that failed none; the group of reports."""
        page, others = self.page, ("build_benchmarks", "refresh_sources")
        page.open("/runs?q[]=job:weekly_audit", "Job is", SCHEDULE, "View all tags")
        require(not any(job in page.text for job in others), "runs of other jobs are listed beside the weekly audit")
        page.open("/runs?q[]=status:FAILURE", "Status is")
        page.until(lambda: "View all tags" not in page.text, "a list without any run that failed")
        page.open('/assets?asset-selection=group:"5_reports"', "contamination_report", "warehouse")

    def follow_launched_run(self) -> Run:
        """The run whose page the UI has gone to, when it has ended well."""
        self.page.until(lambda: re.fullmatch(r"/runs/[0-9a-f-]{36}.*", self.page.path), "the page of the new run")
        run_id = self.page.path.split("/")[2][:36]
        run = self.page.until(lambda: self._finished_run(run_id), f"the end of run {run_id[:8]}", AUDIT_SECONDS)
        require(run.status == "SUCCESS", f"run {run_id[:8]} of {run.job} ended as {run.status}")
        return run

    def _finished_run(self, run_id: str) -> Run | None:
        return next((run for run in self.instance.runs() if run.id == run_id and run.is_finished), None)

    def wait_for_tick(self, since: float, failing: str = "") -> None:
        """Wait for a tick of observe_inputs that began after ``since``, and failed if ``failing`` names a file."""
        tick = self.page.until(
            lambda: next((one for one in self.instance.ticks("observe_inputs") if one.at > since), None),
            "a tick of observe_inputs",
            TICK_SECONDS,
        )
        if failing:
            require(tick.status == "FAILURE" and failing in tick.reason, f"the tick is {tick}, not naming {failing}")
        else:
            require(tick.status != "FAILURE", f"the tick failed: {tick.reason}")

    def wait_until_published(self, pairs: int) -> None:
        """Wait until so many pairs are evaluated, no run is left, and warehouse and report are newer than they."""
        try:
            self.page.until(lambda: self._has_published(pairs), f"{pairs} pairs evaluated and published", AUDIT_SECONDS)
        except NotSeenError as error:
            left = ", ".join(f"{run.id[:8]} of {run.job}: {run.status}" for run in self.instance.unfinished())
            evaluated, all_pairs = self.instance.partitions("evaluations")
            raise NotSeenError(
                f"{error}: {evaluated} of {all_pairs} pairs are evaluated, {'' if self._is_published() else 'not '}"
                f"published since; unfinished runs: {left or 'none'}"
            ) from error

    def _has_published(self, pairs: int) -> bool:
        return (
            self.require_no_failed_run()
            and self.instance.partitions("evaluations") == (pairs, pairs)
            and not self.instance.unfinished()
            and self._is_published()
        )

    def require_no_failed_run(self) -> bool:
        """Raise for the first run that failed, or was ended: no step has one that should."""
        for run in self.instance.runs():
            if run.status in ("FAILURE", "CANCELED"):
                raise NotSeenError(f"run {run.id} of {run.job} failed; it says {self.instance.log(run.id)[-3:]}")
        return True

    def _is_published(self) -> bool:
        """Whether the report is of a warehouse that was built from the whole ledger."""
        paths = DataPaths(self.workspace.data)
        made = read_json_if_whole(paths.published) or {}
        return "code" in made and made.get("results") == read_ledger(paths).head

    def pairs_in_warehouse(self, model: str = "%") -> int:
        """How many pairs the leaderboard holds, asked as users ask."""
        asked = self.workspace.run(
            "sql", f"SELECT count(DISTINCT (benchmark, model)) AS pairs FROM leaderboard WHERE model LIKE '{model}'"
        )
        require(asked.returncode == 0, f"corpus-audit sql ended with {asked.returncode}: {asked.stderr.strip()}")
        return int(asked.stdout.split()[1])

    def require_each_model_loaded_once(self, runs: Sequence[Run], pairs: set[str]) -> None:
        """The runs' own lines: each model loaded once, and every pair's texts computed or found, none left out."""
        lines = [line for run in runs for line in self.instance.log(run.id)]
        loaded = Counter(line.partition(f" {IS_READY} ")[0] for line in lines if f" {IS_READY} " in line)
        names = ", ".join(run.id for run in runs)
        require(
            loaded == Counter(MODELS),
            f"models were loaded so often in the runs {names} of {self._list_audits()}: {dict(loaded)}",
        )
        counted = r"(\S+): (\d+) texts from the cache, (\d+) computed"
        computed = {match[1]: int(match[3]) for line in lines if (match := re.match(counted, line))}
        require(set(computed) == pairs and all(computed.values()), f"texts computed, by pair: {computed}")


def _row(automation: str) -> str:
    """The row of a sensor or schedule on the Automation page: what holds its name, its box and its switch."""
    return f"//*[text()='{automation}']/ancestor::*[count(.//input[@type='checkbox'])=2][1]"


def _pairs(models: Iterable[str]) -> set[str]:
    return {f"{benchmark}|{model}" for benchmark in BENCHMARKS for model in models}


def left_behind(workspace: LiveWorkspace) -> list[psutil.Process]:
    """Living processes that work on this installation."""
    home = workspace.environment["DAGSTER_HOME"]
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DAGSTER_HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def drive(root: Path, shots: Path | None, patience: float) -> None:
    """Make the installation, start it, and take all steps; raises NotSeenError for the first that fails."""
    started = time.monotonic()
    workspace = make(root / "workspace")
    try:
        with workspace.services() as address, browser(root / "profile", address, patience) as page:
            tell(f"{time.monotonic() - started:6.1f} s  services and browser are up")
            at = Drive(workspace, Instance(address), page, shots)
            try:
                at.everything()
            except (NotSeenError, WebDriverException, RuntimeError, requests.RequestException) as error:
                if shots is not None and not isinstance(error, WebDriverException):
                    page.snapshot(shots / "failed.png")
                raise NotSeenError(f"{at.step}: {' '.join(str(error).split())}") from error
    finally:
        _, remaining = psutil.wait_procs(left_behind(workspace), timeout=GOING_SECONDS * patience)
        named = [f"{process.pid} {' '.join(process.cmdline())[:200]}" for process in remaining if process.is_running()]
        for process in remaining:
            process.kill()
    require(not named, f"ending the services left processes behind, which are ended now: {'; '.join(named)}")


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description="Drive the Dagster UI of a made-up installation in Chromium.")
    parser.add_argument("--shots", type=Path, help="write pictures into this folder")
    parser.add_argument("--keep", action="store_true", help="leave the installation's folder where it is")
    parser.add_argument("--patience", type=float, default=1.0, help="wait so many times as long as usual")
    arguments = parser.parse_args()
    # What a shell starts in the background ignores Ctrl-C, and would leave the services running.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    root = Path(tempfile.mkdtemp(prefix="corpus-audit-ui-"))
    started = time.monotonic()
    try:
        drive(root, arguments.shots, arguments.patience)
    except NotSeenError as error:
        tell(f"NOT AS IT SHOULD BE: {error}")
        return 1
    except KeyboardInterrupt:
        tell("stopped; everything that was started is ended")
        return 130
    finally:
        if arguments.keep:
            tell(f"the installation is in {root}")
        else:
            shutil.rmtree(root)
    tell(f"{time.monotonic() - started:6.1f} s  in all; everything was as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The verification of a pack: its files, its lineage, its sealed plans and its findings.

The pack is unpacked into a temporary workspace. Its findings are computed again from its cached statistics, by the same
code as in an audit, but without the model. Somebody else wrote the pack, so its content may have any fault. A failed
check reports the fault.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError, ModelError, escape_unprintable, is_full_disk, to_one_line
from audit_pipeline.extras.evidence_packs import sealed_plan
from audit_pipeline.extras.evidence_packs.pack import PACK, WORKSPACE, reduce_model_entries
from audit_pipeline.extras.evidence_packs.timestamps import require_signature
from audit_pipeline.extras.extraction.pair_extraction import EXTRACTION_VERSION, extract_pair, read_searched_documents
from audit_pipeline.extras.extraction.window_probabilities import encode_document_windows, read_windows, run_windows
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized
from audit_pipeline.pipeline.evaluate_pair import EVALUATIONS_VERSION, evaluate_pair
from audit_pipeline.scoring.backends import Endpoints, build_backend_loader
from audit_pipeline.scoring.pair_scores import SCORES_VERSION, score_and_store_pair
from audit_pipeline.store.files import read_json, read_table
from audit_pipeline.store.integrity import code_digest, file_sha256
from audit_pipeline.store.ledger import LineageStep, file_of, read_latest_run, read_ledger
from audit_pipeline.store.ledger_records import Entry, Ledger
from audit_pipeline.store.paths import DataPaths, use_workspace
from audit_pipeline.tables import DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS, PLANS, SCORES, Pair, Table, text_sha256
from audit_pipeline.token_statistics.backend import Backend
from audit_pipeline.token_statistics.cached_texts import read_statistics
from audit_pipeline.token_statistics.run import compute
from audit_pipeline.token_statistics.tokens import EncodedText
from audit_pipeline.warehouse.verified_files import verify_files

TOLERANCE = {"float32": 1e-4, "float16": 0.012, "bfloat16": 0.12}
"""Maximum mean absolute difference of log-probabilities between two machines, in nats per token, by dtype.

For 16-bit dtypes it is twice the difference from float32 (docs/measurements.md).
"""

_RUN = "verify"
# Columns about generated text. The cache contains no generated text, so they cannot be computed again.
_GENERATED = ("log_p_near_verbatim", "given_text", "suffix_words", "words_in_common")
_RUN_BY_MODEL = (SCORES, DOCUMENT_MEMORISATION)
_PASS_SETTINGS = ("dtype", "attention", "compile", "start_token", "start_token_policy", "window", "stride")
_MANIFEST = "manifest-sha256.txt"
_TAG_MANIFEST = "tagmanifest-sha256.txt"
# Maximum size of the unpacked files as a multiple of the size of the pack. This limit prevents a zip bomb from filling
# the disk.
_MAX_SIZE_RATIO = 200


@dataclass(frozen=True)
class PackCheck:
    """The result of one check of a pack.

    Attributes:
        what: The checked part of the pack.
        ok: True if the check passed, False if it failed, None if it could not decide (for example, without a plan).
        message: The reason for the result.
    """

    what: str
    ok: bool | None
    message: str


@dataclass(frozen=True)
class PackRerun:
    """The options of a check that runs the model on a random sample of texts and windows.

    Attributes:
        count: Maximum number of texts, and of windows, per benchmark.
        seed: Seed of the sample.
        weights: The configuration entry of the model whose weights the verifier has.
    """

    count: int
    seed: int
    weights: ModelEntry


def verify_pack(
    file: Path, *, rerun: PackRerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[PackCheck]:
    """Verify a pack, and yield the result of each check as soon as it ends. The pack is not changed.

    Args:
        file: The pack.
        rerun: Options of a check that runs the model, or None.
        certificates: A PEM file with the certificates of trusted timestamp authorities, or None.
        on_step: Receives a description of each step.

    Raises:
        OSError: If the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="corpus-audit-") as folder:
        on_step("the files")
        unpacked = list(_attempt("files", _unpack(file, Path(folder))))
        yield from unpacked
        if not all(check.ok for check in unpacked):
            yield PackCheck("everything else", None, "not checked, because the check of the files failed")
            return
        [tags] = Path(folder).glob(f"*/{_TAG_MANIFEST}")
        checks = _check_payload(tags.parent / "data", rerun, certificates, on_step)
        yield from _attempt("everything else", checks)


def _attempt(what: str, checks: Iterator[PackCheck]) -> Iterator[PackCheck]:
    """Yield the results of checks, and a failed check if an error stops them. A faulty pack may cause any error."""
    try:
        yield from checks
    except Exception as error:
        if isinstance(error, OSError) and is_full_disk(error):
            raise
        yield PackCheck(
            what, False, f"the check was stopped by an error ({type(error).__name__}): {to_one_line(error)}"
        )


def _unpack(file: Path, folder: Path) -> Iterator[PackCheck]:
    """Unpack a pack, and check its files against the sha256 digests in its manifests.

    The manifests are read here, because the package bagit ignores their unreadable lines, and files in no manifest.

    Raises:
        DataError: If the unpacked files would be too large.
    """
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        size = sum(member.file_size for member in members)
        if size > _MAX_SIZE_RATIO * file.stat().st_size:
            raise DataError(
                f"The unpacked files would have {size:,} bytes, which is more than {_MAX_SIZE_RATIO} times the size of "
                f"{file.name}. `corpus-audit pack` writes no such file, so it was not unpacked."
            )
        archive.extractall(folder)
    bags = {path.parent for path in [*folder.glob("*/bagit.txt"), *folder.glob(f"*/{_TAG_MANIFEST}")]}
    digests = {path: file_sha256(path) for path in folder.rglob("*") if path.is_file()}
    expected: dict[Path, str] = {}
    for bag in bags:
        tag_manifest = bag / _TAG_MANIFEST
        # No manifest contains the digest of the tag manifest, so this digest is not compared.
        expected[tag_manifest] = digests.get(tag_manifest, "")
        expected |= _read_manifest(tag_manifest)
        expected |= _read_manifest(bag / _MANIFEST)
    wrong = sorted(path for path in digests.keys() | expected.keys() if digests.get(path) != expected.get(path))
    if wrong or len(bags) != 1 or len(members) != len(digests):
        names = ", ".join(escape_unprintable(path.relative_to(folder).as_posix()) for path in wrong)
        message = (
            f"{len(members):,} files with {len(digests):,} different names are in {len(bags)} bag(s), but a pack has "
            f"one bag and no name twice; files that are changed, missing, or in no manifest: {names or 'none'}"
        )
        yield PackCheck("files", False, message)
        return
    yield PackCheck(
        "files", True, f"{len(digests):,} files have the sha256 that the manifests state, and there is no other file"
    )


def _read_manifest(path: Path) -> dict[Path, str]:
    """Return the sha256 of each file that a manifest of a bag contains (RFC 8493, 2.1.3)."""
    digests: dict[Path, str] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line:
            digest, _, name = line.partition(" ")
            digests[path.parent / name.strip()] = digest
    return digests


def _check_payload(
    payload: Path, rerun: PackRerun | None, certificates: Path | None, on_step: Callable[[str], None]
) -> Iterator[PackCheck]:
    about = read_json(payload / PACK)
    # An entry of a manipulated pack could name files, servers or code, so all such fields are removed here, too.
    config = payload / WORKSPACE / "config" / "models.yaml"
    reduced = reduce_model_entries(yaml.safe_load(config.read_text(encoding="utf-8"))["models"])
    config.write_text(yaml.safe_dump({"models": reduced}), encoding="utf-8")
    pairs = [Pair(benchmark, about["model"]) for benchmark in about["benchmarks"]]
    if not pairs:
        raise DataError(f"{PACK} names no benchmark, so the pack has no findings to check.")
    packed_code = about["code_digest"]
    code = code_digest()
    if packed_code == code:
        yield PackCheck("code", True, f"the installed code is the code that wrote the pack (digest {code[:16]})")
    else:
        message = (
            f"other code wrote the pack (digest {packed_code[:16]}; installed here: {code[:16]}), so numbers may differ"
        )
        yield PackCheck("code", None, message)
    with use_workspace(payload / WORKSPACE, own_data=True):
        paths = DataPaths.from_environment()
        on_step("the lineage")
        ledger = read_ledger(paths)
        yield from _attempt("tables against lineage", _check_ledger_and_tables(paths, ledger))
        verification = _Verification(load_tokenized(load_models().get_entry(about["model"]), paths), paths, ledger)
        for pair in pairs:
            yield from _attempt(f"plan of {pair.benchmark}", verification.check_plans(pair, certificates))
            on_step(f"the findings of {pair.benchmark}")
            yield from _attempt(f"findings of {pair.benchmark}", verification.check_findings(pair))
            if rerun is not None:
                on_step(f"{rerun.count} texts and {rerun.count} windows of {pair.benchmark} by running the model")
                yield from _attempt(f"{pair.benchmark} run again", verification.check_rerun(pair, rerun))


def _check_ledger_and_tables(paths: DataPaths, ledger: Ledger) -> Iterator[PackCheck]:
    """Check the chain of the ledger's lines, and that the stored tables are the files that the lines name.

    Each line of the ledger contains the digest of the line before it, so the lines form a chain.
    """
    state = f"{len(ledger.lines):,} lines form an unbroken chain"
    if ledger.forgotten_count:
        state += f"; {ledger.forgotten_count:,} of these lines contain only a digest, because they belong to other data"
    yield PackCheck("chain of the lineage", not ledger.problems, "; ".join(ledger.problems) or state)
    files = verify_files(paths, ledger)
    problems = [f"{file.path.relative_to(paths.root).as_posix()}: {file.reason}" for file in files.left_out]
    for entry in files.missing:
        later = [other for other in ledger.entries if other.line_number > entry.line_number]
        # It is no fault if the last line of a killed step lacks its file and a later run wrote the partition again.
        has_next_line = any((other.run_id, other.asset_key) == (entry.run_id, entry.asset_key) for other in later)
        is_replaced = any((other.table, other.partition) == (entry.table, entry.partition) for other in later)
        if has_next_line or not is_replaced:
            problems.append(f"the file of the table {entry.table} for {entry.partition} is missing")
    n_files = sum(map(len, files.by_table.values()))
    state = f"{n_files:,} files have the digests that the lineage states"
    yield PackCheck("tables against lineage", not problems, "; ".join(problems) or state)


@dataclass(frozen=True)
class _Verification:
    """The checks of one pair of benchmark and model at a time.

    Attributes:
        model: The packed model, loaded from its card and tokenizer without weights.
        paths: The data folder of the unpacked workspace.
        ledger: The ledger of the pack.
    """

    model: TokenizedModel
    paths: DataPaths
    ledger: Ledger

    def _list_entries(self, table: Table, pair: Pair, run_id: str) -> list[Entry]:
        return [entry for entry in self.ledger.list_entries(table.name, pair.partition) if entry.run_id == run_id]

    def check_plans(self, pair: Pair, certificates: Path | None) -> Iterator[PackCheck]:
        """Check that the sealed plans are unchanged, and that they precede the findings."""
        what = f"plan of {pair.benchmark}"
        # The order of the ledger's lines counts, because a clock may be wrong.
        rows: dict[int, Mapping[str, Any]] = {}
        for file in self._list_run_files(PLANS, pair):
            for row in read_table(file, PLANS, label=what).to_pylist():
                rows[self._list_entries(PLANS, pair, row["run_id"])[-1].line_number] = row
        if not rows:
            yield PackCheck(what, None, "the findings were not planned beforehand: no plan was sealed")
        line_digests = [line.digest for line in self.ledger.lines]
        for line_number, row in sorted(rows.items()):
            plan = sealed_plan.plan_from_row(row)
            stamp = _describe_timestamp(plan, certificates)
            if plan.fields["lineage_head"] not in (None, *line_digests[: line_number - 1]):
                raise DataError(
                    "The plan contains the digest of a ledger line that is missing from the pack, or that was written "
                    "after the plan. Therefore the plan or the ledger was changed."
                )
            reasons = self._explain_not_planned(plan, line_number, rows, pair)
            order = "the plan is older than the findings, by the order of the lineage"
            if reasons:
                order = f"the findings were not planned beforehand: {'; '.join(reasons)}"
            message = f"{order}; the plan was sealed on {plan.sealed_at:%F %T} UTC, sha256 {plan.sha256}; {stamp}"
            yield PackCheck(what, None if reasons else True, message)

    def _explain_not_planned(
        self, plan: sealed_plan.SealedPlan, line_number: int, plan_line_numbers: Iterable[int], pair: Pair
    ) -> list[str]:
        """Return the reasons why a plan does not prove that the current findings were planned.

        Args:
            plan: The plan.
            line_number: The number of the plan's line in the ledger.
            plan_line_numbers: The numbers of the lines of all plans of the pair.
            pair: The benchmark and the model.
        """
        entries: list[Entry] = []
        last_lines: list[int] = []
        for table, run in self._read_runs(pair).items():
            if table in _RUN_BY_MODEL:
                entries += self._list_entries(table, pair, run.run_id)
                last_lines.append(entries[-1].line_number)
        planned: dict[str, str] = {}
        for side in ("texts", "held_out"):
            planned |= {row["document_id"]: row["sha256"] for row in plan.fields[side]}
        documents = read_searched_documents(pair.benchmark, self.model, self.paths)
        reasons: list[str] = []
        if line_number > min(last_lines):
            reasons.append("by the order of the lineage, the plan is newer than current findings")
        if any(line_number < other < max(last_lines) for other in plan_line_numbers):
            reasons.append("another plan was sealed between this plan and the findings")
        differing: list[str] = []
        for name in sealed_plan.DIGESTS:
            if any(getattr(entry, name) != plan.fields[name] for entry in entries):
                differing.append(name)
        if differing:
            reasons.append(f"the plan and the findings differ in the {' and the '.join(differing).replace('_', ' ')}")
        if planned != {document.name: text_sha256(document.text) for document in documents}:
            reasons.append("the texts in the plan differ from the texts in the pack")
        return reasons + sealed_plan.explain_late_plan(plan, pair, self.paths)

    def _read_runs(self, pair: Pair) -> dict[Table, Entry]:
        """Return the ledger's entry of the latest run for each table with results in the pack.

        Raises:
            DataError: If the pack has no findings.
        """
        runs: dict[Table, Entry] = {}
        for table in sealed_plan.RESULTS:
            if self._list_run_files(table, pair):
                runs[table] = read_latest_run(self.paths, table.name, pair.partition)
        if not any(table in runs for table in _RUN_BY_MODEL):
            raise DataError("The pack contains no findings: neither scores nor results of a search for passages.")
        return runs

    def _list_run_files(self, table: Table, pair: Pair) -> list[Path]:
        return sorted(self.paths.run_file(table.name, pair.partition, "any").parent.glob("*.parquet"))

    def _read_run(self, table: Table, pair: Pair, run_id: str) -> pa.Table:
        return read_table(file_of(self.paths, table, pair.partition, run_id), table, label=table.name)

    def check_findings(self, pair: Pair) -> Iterator[PackCheck]:
        """Compute scores, evaluations and search results again from the cache, and compare all numbers."""
        runs = self._read_runs(pair)
        packed = {table: self._read_run(table, pair, run.run_id) for table, run in runs.items()}
        n_earlier = sum(len(self._list_run_files(table, pair)) - 1 for table in runs)
        step = partial(LineageStep.now, _RUN)
        if SCORES in runs:
            score_and_store_pair(pair, self.model, self.paths, step("scores", SCORES_VERSION))
            evaluate_pair(pair, self.model, self.paths, step("evaluations", EVALUATIONS_VERSION))
        if DOCUMENT_MEMORISATION in runs:
            options = ExtractionSettings.model_validate(runs[DOCUMENT_MEMORISATION].settings)
            search = step("extraction", EXTRACTION_VERSION)
            extract_pair(pair, self.model, self.paths, _refuse_to_run, search, options, generate=False)
        for table, rows in packed.items():
            what = f"{table.name} of {pair.benchmark}"
            if not file_of(self.paths, table, pair.partition, _RUN).is_file():
                yield PackCheck(what, None, "the table is not computed again; only its digest is checked")
                continue
            difference = describe_first_difference(table, rows, self._read_run(table, pair, _RUN))
            state = f"{len(rows):,} rows that were computed again are equal to the last digit"
            yield PackCheck(what, difference is None, difference or state)
        if n_earlier:
            message = f"{n_earlier:,} table(s) of earlier runs are not computed again; only their digests are checked"
            yield PackCheck(f"earlier runs of {pair.benchmark}", None, message)

    def check_rerun(self, pair: Pair, rerun: PackRerun) -> Iterator[PackCheck]:
        """Run a sample of texts and windows with the verifier's weights, and compare the log-probabilities.

        Raises:
            ModelError: If the weights belong to another model.
        """
        if not (self.model.entry.host.is_here and rerun.weights.host.is_here):
            message = "the model was not run, because a model on a server cannot be compared"
            yield PackCheck(f"{pair.benchmark} run again", None, message)
            return
        generator = np.random.default_rng(rerun.seed)
        entry = rerun.weights.model_copy(update={name: getattr(self.model.entry, name) for name in _PASS_SETTINGS})
        with tempfile.TemporaryDirectory(prefix="corpus-audit-") as folder:
            fresh = DataPaths(Path(folder))
            model = load_tokenized(entry, fresh)
            if model.identity.model_fingerprint != self.model.identity.model_fingerprint:
                raise ModelError(
                    f"{rerun.weights.name} has another fingerprint than {self.model.entry.name}, the model of the "
                    f"pack. Give the weights of {self.model.entry.name} with --model."
                )
            backend = partial(build_backend_loader(fresh, None, Endpoints()), model)
            texts = sorted(read_built(self.paths, pair.benchmark).plain_texts)
            texts = [texts[number] for number in generator.permutation(len(texts))[: rerun.count]]
            compute(model, texts, fresh, backend)
            packed_rows = read_statistics(self.model, texts, self.paths)
            fresh_rows = read_statistics(model, texts, fresh)
            yield self._compare_logprobs(f"texts of {pair.benchmark} run again", packed_rows, fresh_rows, rerun)
            windows = self._list_windows(pair)
            windows = [windows[number] for number in generator.permutation(len(windows))[: rerun.count]]
            if windows:
                run_windows(model, windows, fresh, backend)
                packed_rows = read_windows(self.model, windows, self.paths)
                fresh_rows = read_windows(model, windows, fresh)
                yield self._compare_logprobs(f"windows of {pair.benchmark} run again", packed_rows, fresh_rows, rerun)

    def _list_windows(self, pair: Pair) -> list[EncodedText]:
        """Return the windows of the latest search for passages, or an empty list without a search."""
        if not self._list_run_files(EXTRACTION_WINDOWS, pair):
            return []
        run = read_latest_run(self.paths, EXTRACTION_WINDOWS.name, pair.partition)
        options = ExtractionSettings.model_validate(run.settings)
        starts: dict[str, list[int]] = {}
        for row in self._read_run(EXTRACTION_WINDOWS, pair, run.run_id).select(["document_id", "start"]).to_pylist():
            starts.setdefault(row["document_id"], []).append(row["start"])
        documents = read_searched_documents(pair.benchmark, self.model, self.paths)
        cut_documents = {document.name: document.limit_characters(options.characters) for document in documents}
        windows: list[EncodedText] = []
        for name, window_starts in sorted(starts.items()):
            windows += encode_document_windows(self.model, cut_documents[name], window_starts, options.lengths)
        return windows

    def _compare_logprobs(self, what: str, packed: pa.Table, again: pa.Table, rerun: PackRerun) -> PackCheck:
        packed_values = _index_logprobs_by_text(packed)
        fresh_values = _index_logprobs_by_text(again)
        packed_lengths = {key: len(values) for key, values in packed_values.items()}
        fresh_lengths = {key: len(values) for key, values in fresh_values.items()}
        if packed_lengths != fresh_lengths:
            message = "the pack lacks token statistics of some texts, or has other tokens than the model of --model"
            return PackCheck(what, False, message)
        differences = np.concatenate([np.abs(packed_values[key] - fresh_values[key]) for key in packed_values])
        mean = float(differences.mean())
        dtype = self.model.entry.dtype
        kind = what.partition(" ")[0]
        message = (
            f"{len(packed_values)} {kind} were selected with the seed {rerun.seed}; log-probabilities differ by "
            f"{mean:.2g} nats per token on average and by {differences.max():.2g} at most; for {dtype}, the average "
            f"may be {TOLERANCE[dtype]:g} at most"
        )
        return PackCheck(what, mean <= TOLERANCE[dtype], message)


def _index_logprobs_by_text(rows: pa.Table) -> dict[tuple[str, ...], npt.NDArray[np.floating]]:
    """Return the log-probabilities of each text by its sha256, or of each window by sha256 and start."""
    names = [name for name in ("text_sha256", "start") if name in rows.column_names]
    keys = zip(*(map(str, rows[name].to_pylist()) for name in names), strict=True)
    return dict(zip(keys, map(np.asarray, rows["logprob"].to_pylist()), strict=True))


def _describe_timestamp(plan: sealed_plan.SealedPlan, certificates: Path | None) -> str:
    stamp = plan.timestamp
    if stamp is None:
        return "no timestamp, so the time comes only from the machine that sealed the plan"
    if certificates is None:
        return f"{stamp}; its signature was not verified: pass the authority's certificates with --certificates"
    require_signature(stamp.response, plan.content.encode(), certificates)
    return f"{stamp}; its signature is confirmed"


def _refuse_to_run(model: TokenizedModel) -> Backend:
    raise ModelError(
        f"The pack lacks token statistics of {model.entry.name}, so its findings cannot be computed again. Ask the "
        "sender for a complete pack."
    )


def describe_first_difference(table: Table, packed: pa.Table, again: pa.Table) -> str | None:
    """Describe the first column that differs between packed rows and rows that were computed again, or return None.

    The order of the rows, their run ids and columns about generated text do not matter.
    """
    names = [name for name in table.names if name not in ("run_id", *_GENERATED)]
    key = [(name, "ascending") for name in table.key if name in names]
    packed = packed.select(names).sort_by(key).combine_chunks()
    again = again.select(names).sort_by(key).combine_chunks()
    if len(packed) != len(again):
        return f"the pack has {len(packed):,} rows, but computing them again gave {len(again):,} rows"
    for name in names:
        if packed[name].equals(again[name]):
            continue
        if not pa.types.is_floating(packed[name].type):
            return f"the column {name} differs"
        packed_values = packed[name].to_numpy(zero_copy_only=False).astype(float)
        new_values = again[name].to_numpy(zero_copy_only=False).astype(float)
        return f"the column {name} differs by up to {np.nanmax(np.abs(packed_values - new_values), initial=0.0):.3g}"
    return None

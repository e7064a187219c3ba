"""The export of a benchmark: a folder of Parquet files with a card, from which the same benchmark can be built."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, build_export_names, compute_content_digest
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.redistribution import OTHER, allows_redistribution, to_hub_licences
from audit_pipeline.benchmarks.row_settings import WORDS_PLACE
from audit_pipeline.benchmarks.settings import MEANINGS, BenchmarkSpec
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.statistics.claims import VERDICT_IN_WORDS
from audit_pipeline.store.files import write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents, read_documents_version

CARD = "README.md"
FOLDER = "FOLDER"
"""The placeholder in the card for the path of a data set that is not on the hub."""
COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "text": (pa.string(), "the text that is audited"),
    "context": (
        pa.string(),
        "the text before the audited text, which a model reads and no detector scores; null: no such text",
    ),
    "label": (pa.int8(), "1 member, 0 non-member, null unknown"),
    "split": (pa.string(), "calibration or evaluation; all texts of a group are in the same split"),
    "document_id": (pa.string(), "the document that the text was taken from"),
    "group": (pa.string(), "the book, patent, article or release: texts of one group are not independent"),
    "collection": (pa.string(), "the project, series or folder that the document belongs to"),
    "published": (pa.date32(), "the document's date; null if it has none"),
    "language": (pa.string(), "the language of the text (ISO 639-1)"),
    "words": (pa.int32(), "the text's length in words"),
    "title": (pa.string(), "the document's title; null if it is unknown"),
    "url": (pa.string(), "the document's address; null if it is unknown"),
    "licence": (pa.string(), "the document's licence; null if the card states one licence for all documents"),
}
"""The columns of an export: type and meaning by name."""
_MESSAGES_COLUMN: Mapping[str, tuple[pa.DataType, str]] = {
    "messages": (pa.string(), "the conversation whose parts are text and context, in JSON; null: a plain text"),
}
_DOCUMENT_COLUMNS = ("title", "url", "licence")
_ENTRY_COLUMNS = {
    "text_column": "text",
    "label_column": "label",
    "group_column": "group",
    "context_column": "context",
    "split_column": "split",
    "collection_column": "collection",
    "language_column": "language",
    "id_column": "document_id",
    "date_column": "published",
}
# These keys determine how the texts are audited. The entry of the export copies them.
_AUDIT_KEYS = (
    "unit",
    "seed",
    "calibration_fraction",
    "near_duplicate_threshold",
    "infilling_m",
    "dc_pdd_a",
    "combined",
)
# These keys determine which texts were drawn. The card lists them.
_DRAWING_KEYS = (
    "builder",
    "member_before",
    "nonmember_from",
    "words",
    "unit",
    "windows_per_document",
    "per_side",
    "balance",
    "match",
    "calibration_fraction",
    "seed",
)
_SIZES = {"n<1K": 1_000, "1K<n<10K": 10_000, "10K<n<100K": 100_000, "100K<n<1M": 1_000_000}


def require_new_folder(folder: Path) -> None:
    """Check that ``folder`` is new or empty, so that an export can be written to it.

    Raises:
        DataError: If the folder exists and is not empty.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not an empty folder. Choose a new or empty folder.")


def require_redistributable(benchmarks: Sequence[BuiltBenchmark], *, override_unclear_licences: bool) -> None:
    """Check that the texts may be redistributed.

    Args:
        benchmarks: The benchmarks of one family.
        override_unclear_licences: True if the user states that the texts may be redistributed.

    Raises:
        DataError: If a licence does not clearly allow redistribution and is not overridden. Also for the texts of a
            control, because their labels are valid only for the control's models.
    """
    for built in benchmarks:
        if built.control is not None:
            raise DataError(
                f"{built.name} cannot be exported: its labels are valid only for the models of the control "
                f"{built.control}"
            )
    unclear = [licence for licence in _list_licences(benchmarks) if not allows_redistribution(licence)]
    if unclear and not override_unclear_licences:
        raise DataError(
            f"the licences of the texts of {benchmarks[0].manifest['family']} do not clearly allow redistribution "
            f"(licence: {'; '.join(unclear)}), so nothing was written. If you may redistribute the texts, add "
            "--with-text."
        )


def export(
    benchmarks: Mapping[BuiltBenchmark, pa.Table], folder: Path, paths: DataPaths, *, hub: str | None
) -> dict[str, str]:
    """Write benchmarks of one family as a data set into a new folder.

    The files are written next to the folder and read as a user would read them. If the result is the same benchmarks,
    the files are moved into the folder.

    Args:
        benchmarks: The benchmarks, each with its split quality (SPLIT_QUALITY).
        folder: The new folder.
        paths: The data folder.
        hub: The name that the data set will have on the hub, or None if it stays in its folder.

    Returns:
        The content digest of each benchmark, by name.

    Raises:
        DataError: If the files, read again, do not yield the same benchmarks.
    """
    digests = {}
    for built in benchmarks:
        digests[built.name] = compute_content_digest(built.examples)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        new_folder = Path(temporary) / folder.name
        files = {}
        for built in benchmarks:
            files[built] = _write_rows(built, new_folder, paths)
        entries = _build_entries(files, {"path": FOLDER} if hub is None else {"hub": hub})
        _require_same_benchmarks(entries, new_folder, sorted(digests.values()), paths)
        card = _build_card(benchmarks, files, digests, entries, hub or FOLDER)
        (new_folder / CARD).write_text(card, encoding="utf-8")
        new_folder.rename(folder)
    return digests


def _write_rows(built: BuiltBenchmark, folder: Path, paths: DataPaths) -> dict[str, str]:
    """Write the rows of every split, and return the file of each split."""
    examples = built.examples
    documents = _read_document_metadata(built, paths)
    ids = examples.column("document_id").to_pylist()
    family = str(built.manifest["family"])
    arrays = {}
    for name, (type_, _) in _get_columns([built]).items():
        values: list[Any]
        if name in _DOCUMENT_COLUMNS:
            values = [documents.get(document_id, {}).get(name) for document_id in ids]
        else:
            values = examples.column(name).to_pylist()
        if name in ("document_id", "group"):
            values = build_export_names(map(str, values), family)
        arrays[name] = pa.array(values, type_)
    rows = pa.table(arrays)
    files = {}
    for split in sorted(set(rows["split"].to_pylist())):
        files[split] = f"data/{built.name}/{split}.parquet"
        write_table(folder / files[split], rows.filter(pc.equal(rows["split"], split)))
    return files


def _get_columns(benchmarks: Sequence[BuiltBenchmark]) -> Mapping[str, tuple[pa.DataType, str]]:
    """Return the columns of an export. Messages are a column if an example is a conversation."""
    if any(benchmark.scored_part is not None for benchmark in benchmarks):
        return {**COLUMNS, **_MESSAGES_COLUMN}
    return COLUMNS


def _read_document_metadata(built: BuiltBenchmark, paths: DataPaths) -> dict[str, dict[str, Any]]:
    """Read title, address and licence by document id, for sources that are unchanged since the build."""
    metadata: dict[str, dict[str, Any]] = {}
    sources = built.spec.get("sources", ())
    for source, source_version in built.manifest["source_versions"].items():
        try:
            is_same = source in sources and read_documents_version(paths, source) == source_version
        except DataError:
            # If a source was removed or is unreadable, the export has no metadata of its documents.
            continue
        if is_same:
            for row in read_documents(paths, source).select(["document_id", *_DOCUMENT_COLUMNS]).to_pylist():
                metadata[row["document_id"]] = row
    return metadata


def _build_entries(
    files: Mapping[BuiltBenchmark, Mapping[str, str]], place: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Build the entries of config/benchmarks.yaml that read the exported benchmarks.

    Lengths with the same splits share one entry.
    """
    by_templates: dict[tuple[str, ...], list[BuiltBenchmark]] = {}
    for built, file_of_split in files.items():
        words = built.manifest["words"]
        templates = tuple(file_of_split.values())
        if words is not None:
            templates = tuple(file.replace(f"_{words}/", f"_{WORDS_PLACE}/") for file in templates)
        by_templates.setdefault(templates, []).append(built)
    family = str(next(iter(files)).manifest["family"])
    licences = "; ".join(_list_licences(list(files)))
    entries = {}
    for number, (templates, benchmarks) in enumerate(by_templates.items(), 1):
        name = family
        if number > 1:
            name = f"{family}_splits_{number}"
        entries[name] = _build_entry(benchmarks, templates, licences, place)
    return entries


def _build_entry(
    benchmarks: Sequence[BuiltBenchmark], files: Sequence[str], licence: str, place: Mapping[str, str]
) -> dict[str, Any]:
    first_benchmark = benchmarks[0]
    words = [built.manifest["words"] for built in benchmarks]
    is_any_length = words == [None]
    is_exact = True
    date_kinds: dict[str, None] = {}
    for built in benchmarks:
        if set(built.examples.column("words").to_pylist()) != {built.manifest["words"]}:
            is_exact = False
        for origin in _list_origins(built):
            date_kinds[origin["dates"]] = None
    date_kinds.pop("", None)
    entry: dict[str, Any] = {
        "builder": "labelled",
        "description": str(first_benchmark.manifest["description"]),
        **place,
        "files": list(files),
        "words": "any" if is_any_length else words,
    }
    if not (is_exact or is_any_length):
        entry["exact_words"] = False
    entry |= _ENTRY_COLUMNS
    if first_benchmark.scored_part is not None:
        # The reader derives text and context from the messages.
        del entry["text_column"], entry["context_column"]
        entry["scored_part"] = first_benchmark.scored_part
    if date_kinds:
        entry["date_kind"] = ", ".join(date_kinds)
    entry["design"] = first_benchmark.design
    if first_benchmark.matched is not None:
        entry["matched"] = True
    for key in _AUDIT_KEYS:
        if first_benchmark.spec.get(key) is not None:
            entry[key] = first_benchmark.spec[key]
    entry["licence"] = licence
    return entry


def _require_same_benchmarks(
    entries: Mapping[str, Mapping[str, Any]], folder: Path, digests: Sequence[str], paths: DataPaths
) -> None:
    """Raise DataError unless the entries, with ``folder`` as their path, read benchmarks with these content digests."""
    read_digests: list[str] = []
    for name, entry in entries.items():
        local_entry = {key: value for key, value in entry.items() if key != "hub"}
        settings = LabelledSettings.model_validate({**local_entry, "path": folder})
        for words in settings.words or (None,):
            spec = BenchmarkSpec(name, words, settings)
            drawn = BUILDERS[settings.builder].draw(read_inputs(spec, paths).content, spec, "")
            if drawn.skipped:
                skipped = drawn.skipped[0]
                raise DataError(
                    f"{spec.name} cannot be exported: {len(drawn.skipped)} of its texts cannot be read "
                    f"from the export. The first text is {skipped.location}: {skipped.reason}"
                )
            read_digests.append(compute_content_digest(drawn.examples))
    if sorted(read_digests) != digests:
        raise DataError(
            f"{', '.join(entries)}: nothing was exported, because the written files, read again, contain other "
            "examples than the built benchmark. Please report this."
        )


def _list_origins(built: BuiltBenchmark) -> list[dict[str, Any]]:
    """List the origins of a benchmark, each with name, version, licences, kinds of date and day of retrieval."""
    origins: list[dict[str, Any]] = []
    for entry in map(dict, built.manifest["provenance"]):
        if "licences" in entry:
            origins.append(_describe_source(entry))
        else:
            origins.append(_describe_rows(entry))
    return origins


def _describe_source(entry: Mapping[str, Any]) -> dict[str, Any]:
    days = [str(entry["retrieved"][day]) for day in ("first", "last") if entry["retrieved"][day]]
    return {
        "name": entry["source"],
        "version": entry["version"],
        "licences": list(entry["licences"]),
        "dates": ", ".join(entry["kinds of date"]),
        "retrieved": " to ".join(dict.fromkeys(days)),
    }


def _describe_rows(entry: Mapping[str, Any]) -> dict[str, Any]:
    name = entry.get("hub") or entry.get("package")
    if name:
        version_of_rows = entry.get("commit") or entry.get("version")
    else:
        # The path of a file is private. Its digest identifies the content.
        version_of_rows = ", ".join(f"sha256 {digest}" for digest in entry.get("files", {}).values())
    return {
        "name": name or "rows of a file",
        "version": version_of_rows or "",
        "licences": [entry.get("licence") or "not stated"],
        "retrieved": "",
        "dates": str(entry.get("kind of date", "")),
    }


def _list_licences(benchmarks: Sequence[BuiltBenchmark]) -> list[str]:
    licences: dict[str, None] = {}
    for built in benchmarks:
        for origin in _list_origins(built):
            licences.update(dict.fromkeys(origin["licences"]))
    return list(licences)


def _build_card(
    benchmarks: Mapping[BuiltBenchmark, pa.Table],
    files: Mapping[BuiltBenchmark, Mapping[str, str]],
    digests: Mapping[str, str],
    entries: Mapping[str, Mapping[str, Any]],
    place: str,
) -> str:
    """Build the card from card.md.j2, with a header that the hub and `datasets` read."""
    built = list(benchmarks)
    manifest = built[0].manifest
    licences = _list_licences(built)
    origins = {}
    for benchmark in built:
        for origin in _list_origins(benchmark):
            origins[origin["name"], origin["version"]] = origin
    card = DatasetCard.from_template(
        _build_card_header(files, licences),
        template_path=str(Path(__file__).with_name("card.md.j2")),
        manifest=manifest,
        meaning=MEANINGS.get(manifest["design"], ""),
        columns={name: meaning for name, (_, meaning) in _get_columns(built).items()},
        version=version("corpus-audit"),
        benchmarks=list(map(_describe_benchmark, benchmarks.keys(), benchmarks.values())),
        digests=digests,
        origins=list(origins.values()),
        unclear=list(itertools.filterfalse(allows_redistribution, licences)),
        place=place,
        is_folder=place == FOLDER,
        entry=yaml.safe_dump(dict(entries), sort_keys=False, allow_unicode=True, width=100),
    )
    return str(card)


def _build_card_header(files: Mapping[BuiltBenchmark, Mapping[str, str]], licences: Sequence[str]) -> DatasetCardData:
    built = list(files)
    n_texts = sum(benchmark.examples.num_rows for benchmark in built)
    size = "1M<n<10M"
    for name, limit in _SIZES.items():
        if n_texts < limit:
            size = name
            break
    languages: set[str] = set()
    configs: list[dict[str, Any]] = []
    for benchmark, file_of_split in files.items():
        languages.update(benchmark.examples.column("language").to_pylist())
        data_files = [{"split": split, "path": path} for split, path in file_of_split.items()]
        configs.append({"config_name": benchmark.name, "data_files": data_files})
    configs[0]["default"] = True
    hub_licences = to_hub_licences(licences)
    licence = hub_licences[0] if len(hub_licences) == 1 else hub_licences
    licence_name = to_one_line("; ".join(licences))[:200] if OTHER in hub_licences else None
    return DatasetCardData(
        pretty_name=f"{built[0].manifest['family']}: a benchmark of membership in pretraining data",
        language=sorted(languages),
        license=licence,
        task_categories=["text-classification"],
        tags=["membership-inference", "pretraining-data", "corpus-audit"],
        size_categories=[size],
        configs=configs,
        license_name=licence_name,
    )


def _describe_benchmark(built: BuiltBenchmark, quality: pa.Table) -> dict[str, Any]:
    measures = quality.to_pylist()
    verdict = measures[0]["split_verdict"]
    drawn_by = {key: built.spec[key] for key in _DRAWING_KEYS if built.spec.get(key) not in (None, "none")}
    labels = Counter(zip(built.examples["split"].to_pylist(), built.examples["label"].to_pylist(), strict=True))
    splits = {}
    for split in sorted({split for split, _ in labels}):
        splits[split] = [labels[split, label] for label in (1, 0, None)]
    controls = []
    for row in measures:
        if row["measure"] in ("blind_auroc", "worst_blind_auroc") and row["value"] is not None:
            controls.append(row)
    return {
        "name": built.name,
        "drawn_by": drawn_by,
        "left_out": {**built.manifest["documents_left_out"], **built.manifest["texts_left_out"]},
        "splits": splits,
        "controls": controls,
        "verdict": f"{verdict}: {VERDICT_IN_WORDS[verdict]}",
    }

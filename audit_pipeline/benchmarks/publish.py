"""A benchmark as a data set: a folder of Parquet files and a card, written whole, that reads back the same; its push.

Which licences let texts be handed on is a table here. It is no legal advice.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from huggingface_hub import DatasetCard, DatasetCardData, HfApi, get_token

from audit_pipeline.benchmarks.build import read_inputs
from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, compute_content_digest, to_export_names
from audit_pipeline.benchmarks.config import BUILDERS
from audit_pipeline.benchmarks.row_settings import WORDS_PLACE
from audit_pipeline.benchmarks.settings import MEANINGS, BenchmarkSpec
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.readers.hub_faults import HubDataUnreachableError, hub_faults_as_errors
from audit_pipeline.statistics.claims import VERDICT_IN_WORDS
from audit_pipeline.store.files import write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents, read_documents_version

# Of a licence that says several things, each: "MIT (package); public domain text".
_SEVERAL = re.compile(r"\s*(?:;|\bAND\b)\s*")
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_FREE = re.compile(
    r"""
    CC0(?:[ -]1\.0)? | CC[ -]BY(?:[ -]SA)?(?:[ -][1-4]\.[05])? | PDDL(?:-1\.0)? | ODC-BY(?:-1\.0)? | ODbL(?:-1\.0)?
    | MIT(?:-0)? | BSD(?:-[0234]-Clause)? | Apache-2\.0 | ISC | PSF-2\.0 | Python-2\.0 | Unlicense
    | public\ domain(?:\ text)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# What the hub lists: https://huggingface.co/docs/hub/repositories-licenses
_ON_THE_HUB = frozenset(
    """
    apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 odc-by odbl pddl unlicense
    bsd bsd-2-clause bsd-3-clause isc
    """.split()  # noqa: SIM905 - a list of words is read best as words
)
OTHER = "other"


def allows_redistribution(licence: str) -> bool:
    """Return whether everybody may hand on texts under ``licence``, under conditions that the licence names itself.

    False also if that is not certain: an unknown licence, one that allows it to some people (non-commercial) or in some
    places (public domain in one country), or one that forbids changed texts, such as windows.
    """
    return all(_FREE.fullmatch(_REMARK.sub("", part).strip()) for part in _SEVERAL.split(licence.strip()))


def to_hub_licences(licences: Iterable[str]) -> list[str]:
    """Return what the hub calls these licences, each once, in order; ``other`` where it has no name for one of them."""
    names = (re.sub(r"\s+", "-", licence.strip().lower()) for licence in licences)
    return list(dict.fromkeys(name if name in _ON_THE_HUB else OTHER for name in names))


def require_hub_name_and_token(name: str) -> None:
    """Raise DataError unless ``name`` can name a data set on the hub, and the environment or its login has a token."""
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII):
        raise DataError(f"{name!r} cannot name a data set on the hub: give it as owner/name")
    if not get_token():
        raise DataError("no token for the hub: set HF_TOKEN to a token that may write, or run `hf auth login`")


def push(folder: Path, name: str) -> str:
    """Send the export in ``folder`` to the hub as the data set ``name``, in one commit; return its address.

    A data set that is not there yet is made, private: its owner makes it public on the hub. In one that is there, the
    card and data/ are replaced. Raises DataError (HubDataUnreachableError where that may pass) where the hub refuses or
    cannot be reached.
    """
    api = HfApi()
    instead = f"or keep what was written to {folder}"
    with hub_faults_as_errors(f"the data set {name}", None, instead, DataError, HubDataUnreachableError):
        api.create_repo(name, repo_type="dataset", private=True, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            repo_type="dataset",
            folder_path=folder,
            commit_message="A benchmark built with Corpus Audit",
            delete_patterns=["data/**"],
        )
    return str(commit.repo_url)


CARD = "README.md"
FOLDER = "FOLDER"
"""The placeholder for the place of a data set that lies in a folder."""
COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "text": (pa.string(), "the text that is audited"),
    "context": (pa.string(), "text before it, which a model reads and no detector scores; null: none"),
    "label": (pa.int8(), "1 member, 0 non-member, null unknown"),
    "split": (pa.string(), "calibration or evaluation; the texts of a group are all in one"),
    "document_id": (pa.string(), "the document that the text was taken from"),
    "group": (pa.string(), "the book, patent, article or release: texts of one group are not independent"),
    "collection": (pa.string(), "the project, series or folder"),
    "published": (pa.date32(), "the document's date; null where it has none"),
    "language": (pa.string(), "ISO 639-1"),
    "words": (pa.int32(), "the text's length in words"),
    "title": (pa.string(), "the document's title; null where it is not known"),
    "url": (pa.string(), "where the document came from; null where it is not known"),
    "licence": (pa.string(), "the document's licence; null where the card says it of all"),
}
"""What is handed on of a text: type and meaning by name."""
_OF_DOCUMENTS = ("title", "url", "licence")
_ENTRY_COLUMNS = {
    **{f"{name}_column": name for name in ("text", "label", "group", "context", "split", "collection", "language")},
    **{"id_column": "document_id", "date_column": "published"},
}
# What of the original's entry goes on to say how its texts are audited.
_KEPT = ("unit", "seed", "calibration_fraction", "near_duplicate_threshold", "infilling_m", "dc_pdd_a", "combined")
# What of it decides which texts were taken.
_DRAWN_BY = (
    *("builder", "member_before", "nonmember_from", "words", "unit", "windows_per_document", "per_side", "balance"),
    *("match", "calibration_fraction", "seed"),
)
_SIZES = {"n<1K": 1_000, "1K<n<10K": 10_000, "10K<n<100K": 100_000, "100K<n<1M": 1_000_000}


def require_new_folder(folder: Path) -> None:
    """Raise DataError unless an export may be written to ``folder``: it is new, or empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise DataError(f"{folder} is there already; name a folder that is new or empty")


def require_redistributable(benchmarks: Sequence[BuiltBenchmark], *, override_unclear_licences: bool) -> None:
    """Raise DataError if licences do not clearly allow handing the texts on, unless
    ``override_unclear_licences`` says that they may.

    Also for a control's texts, whose labels say something of its own models alone.
    """
    for built in benchmarks:
        if built.control is not None:
            raise DataError(
                f"{built.name} cannot be handed on: its labels say what the models of the control {built.control} were "
                "trained on, and nothing of any other model"
            )
    unclear = [licence for licence in _list_licences(benchmarks) if not allows_redistribution(licence)]
    if unclear and not override_unclear_licences:
        raise DataError(
            f"the texts of {benchmarks[0].manifest['family']} are not plainly free to hand on (licence: "
            f"{'; '.join(unclear)}), so nothing was written; if you may hand them on, say so with --with-text"
        )


def export(
    benchmarks: Mapping[BuiltBenchmark, pa.Table], folder: Path, paths: DataPaths, *, hub: str | None
) -> dict[str, str]:
    """Write ``benchmarks`` of one family, each with its split quality (SPLIT_QUALITY), as a data set into the new
    ``folder``; return their content digests by name.

    ``hub`` is the name under which the data set will be found on the hub; None: its folder is its place. Everything is
    written next to the folder, read back as any user would, compared, and moved into place. Raises DataError if what
    was written does not read back as the same benchmarks.
    """
    digests = {built.name: compute_content_digest(built.examples) for built in benchmarks}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        written = Path(temporary) / folder.name
        files = {built: _write_rows(built, written, paths) for built in benchmarks}
        entries = _build_entries(files, {"path": FOLDER} if hub is None else {"hub": hub})
        _require_same_benchmarks(entries, written, sorted(digests.values()), paths)
        card = _build_card(benchmarks, files, digests, entries, hub or FOLDER)
        (written / CARD).write_text(card, encoding="utf-8")
        written.rename(folder)
    return digests


def _write_rows(built: BuiltBenchmark, folder: Path, paths: DataPaths) -> dict[str, str]:
    """Write the rows of every split; return the splits' files by name."""
    examples, documents = built.examples, _read_document_metadata(built, paths)
    ids = examples.column("document_id").to_pylist()
    columns: dict[str, list[object]] = {
        name: examples.column(name).to_pylist() for name in COLUMNS if name not in _OF_DOCUMENTS
    }
    for name in ("document_id", "group"):
        columns[name] = [*to_export_names(map(str, columns[name]), str(built.manifest["family"]))]
    for name in _OF_DOCUMENTS:
        columns[name] = [documents.get(document_id, {}).get(name) for document_id in ids]
    rows = pa.table({name: pa.array(columns[name], type_) for name, (type_, _) in COLUMNS.items()})
    files = {split: f"data/{built.name}/{split}.parquet" for split in sorted(set(map(str, columns["split"])))}
    for split, file in files.items():
        write_table(folder / file, rows.filter(pc.equal(rows["split"], split)))
    return files


def _read_document_metadata(built: BuiltBenchmark, paths: DataPaths) -> dict[str, dict[str, Any]]:
    """Read title, address and licence by document_id, of sources whose documents are still those it was built from."""
    found: dict[str, dict[str, Any]] = {}
    for source, source_version in built.manifest["source_versions"].items():
        try:
            is_same = (
                source in built.spec.get("sources", ()) and read_documents_version(paths, source) == source_version
            )
        except DataError:
            # Removed, or not readable: the benchmark alone remains.
            continue
        if is_same:
            rows = read_documents(paths, source).select(["document_id", *_OF_DOCUMENTS])
            found |= {row["document_id"]: row for row in rows.to_pylist()}
    return found


def _build_entries(
    files: Mapping[BuiltBenchmark, Mapping[str, str]], place: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Build the entries of config/benchmarks.yaml that read these benchmarks back: one for all lengths that have the
    same splits."""
    alike: dict[tuple[str, ...], list[BuiltBenchmark]] = {}
    for built, of_splits in files.items():
        words = built.manifest["words"]
        names = (
            file if words is None else file.replace(f"_{words}/", f"_{WORDS_PLACE}/") for file in of_splits.values()
        )
        alike.setdefault(tuple(names), []).append(built)
    family, licences = str(next(iter(files)).manifest["family"]), "; ".join(_list_licences([*files]))
    return {
        family if number == 1 else f"{family}_splits_{number}": _build_entry(benchmarks, names, licences, place)
        for number, (names, benchmarks) in enumerate(alike.items(), 1)
    }


def _build_entry(
    benchmarks: Sequence[BuiltBenchmark], files: Sequence[str], licence: str, place: Mapping[str, str]
) -> dict[str, Any]:
    first = benchmarks[0]
    words = [built.manifest["words"] for built in benchmarks]
    exact = all(set(built.examples.column("words").to_pylist()) == {built.manifest["words"]} for built in benchmarks)
    dates = {origin["dates"]: None for built in benchmarks for origin in _list_origins(built) if origin["dates"]}
    return {
        "builder": "labelled",
        "description": str(first.manifest["description"]),
        **place,
        "files": list(files),
        "words": "any" if words == [None] else words,
        **({} if exact or words == [None] else {"exact_words": False}),
        **_ENTRY_COLUMNS,
        **({"date_kind": ", ".join(dates)} if dates else {}),
        "design": first.design,
        **({"matched": True} if first.matched is not None else {}),
        **{key: first.spec[key] for key in _KEPT if first.spec.get(key) is not None},
        "licence": licence,
    }


def _require_same_benchmarks(
    entries: Mapping[str, Mapping[str, Any]], folder: Path, digests: Sequence[str], paths: DataPaths
) -> None:
    """Raise DataError unless the ``entries``, pointed to ``folder``, read benchmarks of these content digests."""
    read: list[str] = []
    for name, fields in entries.items():
        here = {key: value for key, value in fields.items() if key != "hub"} | {"path": folder}
        settings = LabelledSettings.model_validate(here)
        for words in settings.words or (None,):
            spec = BenchmarkSpec(name, words, settings)
            drawn = BUILDERS[settings.builder].draw(read_inputs(spec, paths).content, spec, "")
            if drawn.skipped:
                first = drawn.skipped[0]
                raise DataError(
                    f"{spec.name} cannot be handed on: {len(drawn.skipped)} of its texts would not be read back; the "
                    f"first, {first.location}: {first.reason}"
                )
            read.append(compute_content_digest(drawn.examples))
    if sorted(read) != digests:
        raise DataError(f"{', '.join(entries)}: what was written does not read back as the same benchmark")


def _list_origins(built: BuiltBenchmark) -> list[dict[str, Any]]:
    """List what a benchmark was built from, sources or places of rows: name, version, licences, dates, retrieved."""
    origins: list[dict[str, Any]] = []
    for entry in map(dict, built.manifest["provenance"]):
        if "licences" in entry:
            days = [str(entry["retrieved"][day]) for day in ("first", "last") if entry["retrieved"][day]]
            origin = {"name": entry["source"], "version": entry["version"], "licences": list(entry["licences"])}
            origin |= {"dates": ", ".join(entry["kinds of date"]), "retrieved": " to ".join(dict.fromkeys(days))}
        else:
            # The path of a file stays private, its digest identifies the content.
            digests = ", ".join(f"sha256 {digest}" for digest in entry.get("files", {}).values())
            named, state = entry.get("hub") or entry.get("package"), entry.get("commit") or entry.get("version")
            origin = {"name": named or "rows of a file", "version": (state if named else digests) or ""}
            origin |= {"licences": [entry.get("licence") or "not stated"], "retrieved": ""}
            origin |= {"dates": str(entry.get("kind of date", ""))}
        origins.append(origin)
    return origins


def _list_licences(benchmarks: Sequence[BuiltBenchmark]) -> list[str]:
    origins = [origin for built in benchmarks for origin in _list_origins(built)]
    return list(dict.fromkeys(licence for origin in origins for licence in origin["licences"]))


def _build_card(
    benchmarks: Mapping[BuiltBenchmark, pa.Table],
    files: Mapping[BuiltBenchmark, Mapping[str, str]],
    digests: Mapping[str, str],
    entries: Mapping[str, Mapping[str, Any]],
    place: str,
) -> str:
    """Build the card: its header, as the hub and `datasets` read it, and card.md.j2."""
    built = [*benchmarks]
    first, texts = built[0].manifest, sum(benchmark.examples.num_rows for benchmark in built)
    licences = _list_licences(built)
    names = to_hub_licences(licences)
    data = DatasetCardData(
        pretty_name=f"{first['family']}: a benchmark of membership in pretraining data",
        language=sorted({name for benchmark in built for name in benchmark.examples.column("language").to_pylist()}),
        license=names[0] if len(names) == 1 else names,
        task_categories=["text-classification"],
        tags=["membership-inference", "pretraining-data", "corpus-audit"],
        size_categories=[next((name for name, most in _SIZES.items() if texts < most), "1M<n<10M")],
        configs=[
            {
                "config_name": benchmark.name,
                "data_files": [{"split": split, "path": path} for split, path in of_splits.items()],
                **({"default": True} if benchmark is built[0] else {}),
            }
            for benchmark, of_splits in files.items()
        ],
        license_name=to_one_line("; ".join(licences))[:200] if OTHER in names else None,
    )
    origins = {
        (origin["name"], origin["version"]): origin for benchmark in built for origin in _list_origins(benchmark)
    }
    card = DatasetCard.from_template(
        data,
        template_path=str(Path(__file__).with_name("card.md.j2")),
        manifest=first,
        meaning=MEANINGS.get(first["design"], ""),
        columns={name: meaning for name, (_, meaning) in COLUMNS.items()},
        version=version("corpus-audit"),
        benchmarks=[_describe_benchmark(benchmark, quality) for benchmark, quality in benchmarks.items()],
        digests=digests,
        origins=list(origins.values()),
        unclear=[licence for licence in licences if not allows_redistribution(licence)],
        place=place,
        is_folder=place == FOLDER,
        entry=yaml.safe_dump(dict(entries), sort_keys=False, allow_unicode=True, width=100),
    )
    return str(card)


def _describe_benchmark(built: BuiltBenchmark, quality: pa.Table) -> dict[str, Any]:
    examples = built.examples.select(["split", "label"]).to_pylist()
    controls = [row for row in quality.to_pylist() if row["measure"] in ("blind_auroc", "worst_blind_auroc")]
    verdict = quality["split_verdict"][0].as_py()
    return {
        "name": built.name,
        "drawn_by": {key: built.spec[key] for key in _DRAWN_BY if built.spec.get(key) not in (None, "none")},
        "left_out": {**built.manifest["documents_left_out"], **built.manifest["texts_left_out"]},
        "splits": {
            split: [sum((row["split"], row["label"]) == (split, label) for row in examples) for label in (1, 0, None)]
            for split in sorted({row["split"] for row in examples})
        },
        "controls": [row for row in controls if row["value"] is not None],
        "verdict": f"{verdict}: {VERDICT_IN_WORDS[verdict]}",
    }

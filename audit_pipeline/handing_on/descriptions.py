"""The two descriptions of a benchmark that is handed on: the card, for people, and Croissant metadata, for programs.

What belongs here: what README.md says, with the header that the hub and `datasets` read, out of manifests, split
quality and origins; and the same in the form of Croissant 1.1 (https://docs.mlcommons.org/croissant/), which search
engines and loaders of data sets read. What does not: the card's wording and order (card.md.j2), and writing either
(export.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from html import escape
from importlib.metadata import version
from typing import Any

import jinja2
import pyarrow as pa
import yaml
from markupsafe import Markup

from audit_pipeline.benchmarks.built_benchmark import PLACED, SAID
from audit_pipeline.benchmarks.settings import MEANINGS
from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import to_one_line
from audit_pipeline.handing_on.contents import COLUMNS, OTHER, Origin, list_unclear_licences, to_hub_licences
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS

# Of a builder's entry what decides which texts were taken, in the card's words.
_HOW = {
    "member_before": "members are from before {}",
    "nonmember_from": "non-members are from {} or later",
    "words": "texts of {} words",
    "unit": "words as {} counts them",
    "windows_per_document": "at most {} windows of a document",
    "per_side": "at most {} texts a side",
    "balance": "the two sides are balanced by {}",
    "match": "sides chosen to be hard to tell apart: {}",
    "calibration_fraction": "share of the groups that is kept for calibration: {}",
    "seed": "seed of every random choice: {}",
}
_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|~$"})
FOLDER = "FOLDER"
"""The placeholder for the place of a data set that lies in a folder."""

# What makes a heading, a list or a rule of a line that begins with it.
_BLOCK = re.compile(r"^(\d*)([#+=.)-])")
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


@dataclass(frozen=True, eq=False)
class BenchmarkDescription:
    """One benchmark as the card and the metadata describe it.

    ``rows`` (SCHEMA of contents.py) are what is handed on; ``quality`` (schema SPLIT_QUALITY) is what is known of its
    sides; ``files`` are its splits' paths in the data set.
    """

    name: str
    manifest: Mapping[str, Any]
    content_digest: str
    rows: pa.Table
    quality: pa.Table
    origins: tuple[Origin, ...]
    files: Mapping[str, str]


def licences_of(benchmarks: Sequence[BenchmarkDescription]) -> list[str]:
    """Every licence of every source, each once, in order."""
    return list(dict.fromkeys(name for built in benchmarks for origin in built.origins for name in origin.licences))


def format_benchmark_card(
    benchmarks: Sequence[BenchmarkDescription],
    entries: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, str],
    hub: str | None,
) -> str:
    """The card of these benchmarks of one family, as Markdown with its header.

    ``entries`` read them back (export.py); ``files`` has the sha256 of every file of rows; ``hub`` is the data set's
    name there, None where it is a folder.
    """
    first = benchmarks[0].manifest
    family = str(first["family"])
    origins = {(origin.name, origin.version): origin for built in benchmarks for origin in built.origins}
    text = _load_card_template().render(
        title=_format_title(family),
        benchmarks=[_describe_benchmark(built) for built in benchmarks],
        design=first["design"],
        design_in_words=MEANINGS.get(first["design"], ""),
        stated_by=first["design_stated_by"],
        label_source=first.get("label_source"),
        sizes=[row for built in benchmarks for row in _iterate_split_sizes(built)],
        columns=COLUMNS,
        version=version("corpus-audit"),
        origins=[_describe_origin(origin) for origin in origins.values()],
        unclear=list_unclear_licences(licences_of(benchmarks)),
        quality=[_describe_quality(built) for built in benchmarks],
        verdicts=list(
            dict.fromkeys(f"{name}: {VERDICT_IN_WORDS[name]}" for name in map(_split_verdict_of, benchmarks))
        ),
        place=hub or FOLDER,
        is_folder=hub is None,
        entry=yaml.safe_dump(dict(entries), sort_keys=False, allow_unicode=True, width=100),
        said=[*SAID, *PLACED],
        files=files,
    )
    return f"---\n{_format_card_header(benchmarks)}---\n\n{text}"


def _format_card_header(benchmarks: Sequence[BenchmarkDescription]) -> str:
    """The card's YAML, as huggingface.co/docs/hub/datasets-cards has it."""
    family = str(benchmarks[0].manifest["family"])
    licences = licences_of(benchmarks)
    names = to_hub_licences(licences)
    languages = sorted({name for built in benchmarks for name in built.rows.column("language").to_pylist()})
    texts = sum(built.rows.num_rows for built in benchmarks)
    header: dict[str, Any] = {
        "pretty_name": _format_title(family),
        "language": languages,
        "license": names[0] if len(names) == 1 else names,
        **({"license_name": to_one_line("; ".join(licences))[:200]} if OTHER in names else {}),
        "task_categories": ["text-classification"],
        "tags": ["membership-inference", "pretraining-data", "corpus-audit"],
        "size_categories": [next((name for most, name in _SIZES if texts < most), "1M<n<10M")],
        "configs": [
            {
                "config_name": built.name,
                "data_files": [{"split": split, "path": path} for split, path in built.files.items()],
                **({"default": True} if place == 0 else {}),
            }
            for place, built in enumerate(benchmarks)
        ],
    }
    return yaml.safe_dump(header, sort_keys=False, allow_unicode=True)


def _format_title(family: str) -> str:
    return f"{family}: a benchmark of membership in pretraining data"


def _describe_benchmark(benchmark: BenchmarkDescription) -> Mapping[str, Any]:
    manifest, spec = benchmark.manifest, benchmark.manifest["spec"]
    how = [
        words.format(_format_setting(spec[key])) for key, words in _HOW.items() if spec.get(key) not in (None, "none")
    ]
    how += [f"as the entry had it: {key} {words}" for key, words in spec.get("relative", {}).items()]
    for counted in ("documents_left_out", "texts_left_out"):
        what = counted.removesuffix("_left_out")
        how += [f"{what} left out, {reason}: {count}" for reason, count in manifest[counted].items()]
    return {
        "name": benchmark.name,
        "description": manifest["description"],
        "builder": spec["builder"],
        "builder_version": manifest["builder_version"],
        "how": how,
        "content_digest": benchmark.content_digest,
    }


def _iterate_split_sizes(benchmark: BenchmarkDescription) -> Iterator[Mapping[str, Any]]:
    rows = benchmark.rows.select(["split", "label", "published"]).to_pylist()
    for split in benchmark.files:
        in_split = [row for row in rows if row["split"] == split]
        labels = [row["label"] for row in in_split]
        yield {
            "name": benchmark.name,
            "split": split,
            "members": labels.count(MEMBER),
            "nonmembers": labels.count(NON_MEMBER),
            "unlabelled": labels.count(None),
            "member_days": _format_date_range(row["published"] for row in in_split if row["label"] == MEMBER),
            "nonmember_days": _format_date_range(row["published"] for row in in_split if row["label"] == NON_MEMBER),
        }


def _format_date_range(dates: Iterator[date | None]) -> str:
    days = sorted(day for day in dates if day is not None)
    return f"{days[0]} to {days[-1]}" if days else "–"


def _describe_origin(origin: Origin) -> Mapping[str, str]:
    licences = (
        licence if count is None else f"{licence} ({count:,} documents)" for licence, count in origin.licences.items()
    )
    return {
        "name": origin.name,
        "version": origin.version,
        "licences_in_words": ", ".join(licences),
        "dates": origin.dates,
        "retrieved": origin.retrieved,
    }


def _split_verdict_of(benchmark: BenchmarkDescription) -> Any:
    return benchmark.quality.column("split_verdict")[0].as_py()


def _describe_quality(benchmark: BenchmarkDescription) -> Mapping[str, str]:
    rows = {(row["measure"], row["part"], row["side"]): row for row in benchmark.quality.to_pylist()}
    strongest = next((row for (measure, *_), row in rows.items() if measure == "worst_blind_auroc"), None)
    pairs = rows.get(("near_duplicate_pairs", "all", "between"))
    return {
        "name": benchmark.name,
        "blind": _format_auroc(rows.get(("blind_auroc", "words", "both"))),
        "strongest": _format_auroc(strongest) + (f" ({strongest['part']})" if strongest and strongest["value"] else ""),
        "pairs": "–" if pairs is None or pairs["value"] is None else f"{pairs['value']:.0f}",
        "verdict": _split_verdict_of(benchmark),
    }


def _format_auroc(row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return "not read" if row is None else f"not read: {row['method']}"
    if row["ci_low"] is None:
        return f"{row['value']:.3f}"
    return f"{row['value']:.3f} [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"


def _format_setting(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {part}" for key, part in value.items())
    return str(value)


def _escape_markdown(value: object) -> Markup:
    """A value that formats nothing: names, descriptions and licences are other people's."""
    plain = escape(to_one_line(str(value)), quote=False).translate(_MARKDOWN)
    return Markup(_BLOCK.sub(r"\1\\\2", plain))  # noqa: S704 - escaped here


@cache
def _load_card_template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["words"] = _escape_markdown
    return environment.get_template("card.md.j2")


CONFORMS_TO = "http://mlcommons.org/croissant/1.1"

# The standard context of the specification, key by key.
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "name": {"@container": "@language"},
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_TYPES: Mapping[pa.DataType, str] = {
    pa.string(): "sc:Text",
    pa.int8(): "sc:Integer",
    pa.int32(): "sc:Integer",
    pa.date32(): "sc:Date",
}


def build_croissant(
    benchmarks: Sequence[BenchmarkDescription],
    sizes: Mapping[str, int],
    digests: Mapping[str, str],
    today: date,
    url: str | None,
) -> dict[str, Any]:
    """The metadata of these benchmarks of one family; ``sizes`` (bytes) and ``digests`` (sha256) are by file.

    A file of rows is a record set of its own: one configuration's split. ``url`` is the data set's address on the hub.
    """
    first = benchmarks[0].manifest
    content = "; ".join(f"{built.name} {built.content_digest}" for built in benchmarks)
    return {
        "@context": dict(_CONTEXT),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": str(first["family"]),
        "description": f"{first['description']} Content digest: {content}.",
        "license": licences_of(benchmarks),
        **({"url": url} if url else {}),
        "version": "1.0.0",
        "datePublished": today.isoformat(),
        "keywords": ["membership inference", "pretraining data"],
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": path,
                "name": path,
                "contentUrl": path,
                "contentSize": f"{sizes[path]} B",
                "encodingFormat": "application/x-parquet",
                "sha256": digests[path],
            }
            for built in benchmarks
            for path in built.files.values()
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": f"{built.name}/{split}",
                "name": f"{built.name}/{split}",
                "description": f"The texts of {built.name} that are for {split}.",
                "field": list(_build_croissant_fields(f"{built.name}/{split}", path)),
            }
            for built in benchmarks
            for split, path in built.files.items()
        ],
    }


def list_data_files(metadata: object) -> set[str]:
    """The files of rows that such metadata lists; none where it is not of this form."""
    listed = metadata.get("distribution") if isinstance(metadata, dict) else None
    if not isinstance(listed, list):
        return set()
    return {str(file["contentUrl"]) for file in listed if isinstance(file, dict) and "contentUrl" in file}


def _build_croissant_fields(record_set: str, path: str) -> Iterable[dict[str, Any]]:
    for column in COLUMNS:
        yield {
            "@type": "cr:Field",
            "@id": f"{record_set}/{column.name}",
            "name": column.name,
            "description": column.meaning,
            "dataType": _TYPES[column.type],
            "source": {"fileObject": {"@id": path}, "extract": {"column": column.name}},
        }

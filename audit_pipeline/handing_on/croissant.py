"""Croissant metadata of a benchmark that is handed on: what search engines and loaders of data sets read.

What belongs here: the description in the form of Croissant 1.1 (https://docs.mlcommons.org/croissant/), as JSON values.
What does not: the card, which is for people (card.py), and writing it (export.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from audit_pipeline.handing_on.card import BenchmarkDescription, licences_of
from audit_pipeline.handing_on.table import COLUMNS

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


def croissant(
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
                "field": list(_fields(f"{built.name}/{split}", path)),
            }
            for built in benchmarks
            for split, path in built.files.items()
        ],
    }


def files_in(metadata: object) -> set[str]:
    """The files of rows that such metadata lists; none where it is not of this form."""
    listed = metadata.get("distribution") if isinstance(metadata, dict) else None
    if not isinstance(listed, list):
        return set()
    return {str(one["contentUrl"]) for one in listed if isinstance(one, dict) and "contentUrl" in one}


def _fields(record_set: str, path: str) -> Iterable[dict[str, Any]]:
    for column in COLUMNS:
        yield {
            "@type": "cr:Field",
            "@id": f"{record_set}/{column.name}",
            "name": column.name,
            "description": column.meaning,
            "dataType": _TYPES[column.type],
            "source": {"fileObject": {"@id": path}, "extract": {"column": column.name}},
        }

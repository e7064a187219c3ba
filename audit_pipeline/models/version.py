"""Whether a model is another one than it was: a version that is cheap enough to look at every minute.

What belongs here: the entry's fields that change a number, and size and time of its files. What does not: fingerprints
(fingerprint.py), for which every byte of the weights is read.
"""

from __future__ import annotations

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.errors import ModelError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.locate import locate

# What is known of a model changes what is written about it, and no number. On several devices it is the same model:
# sums are made in another order there, as in another batch or on another processor.
_CHANGES_NO_NUMBER = {
    **dict.fromkeys(["name", "title", "path", "release_date", "training_cutoff", "licence", "notes"], True),
    **dict.fromkeys(["devices", "tensor_parallel"], True),
    "endpoint": {"key_env", "concurrency", "timeout_seconds", "price_per_million", "max_tokens", "max_cost"},
}


def entry_version(entry: ModelEntry) -> str:
    """A digest that changes where the entry's way of scoring, or its files' names, sizes or times do.

    Of a hub model the entry decides alone: nothing is fetched. Of a model whose files are not there, too, so that it
    changes when they come.
    """
    said = entry.model_dump(mode="json", exclude=_CHANGES_NO_NUMBER)  # type: ignore[arg-type]
    if entry.endpoint is None:
        # As of an entry that was written before there were back ends: the sensor asks for nothing anew.
        said = {key: value for key, value in said.items() if key not in ("backend", "endpoint")}
    return digest(said, str(entry.path), _files(entry))[:16]


def _files(entry: ModelEntry) -> list[tuple[str, int, int]]:
    if entry.hub is not None:
        return []
    try:
        located = locate(entry)
    except ModelError:
        return []
    files = [located.gguf] if located.gguf is not None else sorted(located.folder.glob("*.*"))
    stats = [(file.name, file.stat()) for file in files if file.is_file()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]

"""The default reference model of a fine-tuned model: the model before fine-tuning.

The detectors ``reference`` and ``error_zone`` compare with it if the entry has no key ``reference_model``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from audit_pipeline.errors import ModelError
from audit_pipeline.models.model_files import ADAPTER_CONFIG, read_adapter_config, read_base_revision

if TYPE_CHECKING:
    from audit_pipeline.models.config import ModelEntry

# Keys that change neither the files of a base model nor its token statistics.
_IRRELEVANT_KEYS = {
    *("name", "title", "release_date", "training_cutoff", "licence", "notes"),
    *("adapter", "base", "reference_model", "reference_corpus", "devices"),
}


def find_default_reference(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> str | None:
    """Return the name of the default reference model of an entry, or None if it has none.

    - An entry with ``base``: the entry that ``base`` names.
    - An entry with an adapter: its base model. This is the entry with the same files and settings, or, if there is no
      such entry, the model of :func:`build_adapter_base`.
    - A checkpoint of a series: the first checkpoint of the series, unless the entry is the first checkpoint.

    Args:
        entry: The entry.
        models: All models of models.yaml.
    """
    if entry.base is not None:
        return entry.base
    if entry.adapter is not None:
        series = entry.name if entry.checkpoint is None else entry.checkpoint.series
        base = build_adapter_base(entry, f"base of {series}")
        files = base.model_dump(exclude=_IRRELEVANT_KEYS)
        for candidate in models.values():
            if candidate.adapter is None and candidate.model_dump(exclude=_IRRELEVANT_KEYS) == files:
                return candidate.name
        return base.name
    if entry.checkpoint is not None:
        for other in models.values():
            if other.checkpoint is not None and other.checkpoint.series == entry.checkpoint.series:
                return None if other.name == entry.name else other.name
    return None


def add_default_reference(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """Return the entry with its default reference model. An entry with the key ``reference_model`` has no default."""
    if "reference_model" in entry.model_fields_set:
        return entry
    return entry.model_copy(update={"default_reference": find_default_reference(entry, models)})


def is_adapter_base(name: str, entry: ModelEntry, models: Mapping[str, ModelEntry]) -> bool:
    """Return True if ``name`` is the default reference model of an adapter, and has no entry in models.yaml."""
    is_default = entry.reference_model is None and entry.base is None
    return is_default and entry.adapter is not None and name not in models


def build_adapter_base(entry: ModelEntry, name: str) -> ModelEntry:
    """Return the entry of an adapter's base model: the same entry without the adapter."""
    changes = dict.fromkeys(("title", "adapter", "checkpoint", "release_date", "training_cutoff", "licence", "notes"))
    return entry.model_copy(update={**changes, "name": name, "revision": _find_base_revision(entry)})


def _find_base_revision(entry: ModelEntry) -> str | None:
    """Return the revision of the base in the entry, or else in the folder of the adapter. Nothing is fetched."""
    if entry.hub is None or entry.revision is not None or entry.adapter is None or entry.adapter.path is None:
        return entry.revision
    folder = entry.adapter.path.expanduser()
    try:
        if (folder / ADAPTER_CONFIG).is_file() and read_adapter_config(folder)["base_model_name_or_path"] == entry.hub:
            return read_base_revision(folder)
    except (ModelError, KeyError):
        # The code that locates the adapter reports a damaged file.
        return None
    return None

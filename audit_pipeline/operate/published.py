"""What warehouse and report were made with besides the findings: the configuration, the code, whether texts are quoted.

What belongs here: keeping that with them, and what it is now. What does not: comparing the two (plan.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from audit_pipeline.catalogue.integrity import digest_of_files
from audit_pipeline.catalogue.lineage import code_digest, package_versions
from audit_pipeline.catalogue.paths import DataPaths, config_dir, texts_are_quoted
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json


def note_published(paths: DataPaths, *, include_text: bool) -> None:
    """Keep what warehouse and report, which have just been written, were made with."""
    write_json(paths.published, made_with_now(include_text=include_text))


def made_with(paths: DataPaths) -> Mapping[str, object] | None:
    """What warehouse and report were made with, each part by its name; None where nobody kept it."""
    return read_json_if_whole(paths.published)


def made_with_now(*, include_text: bool | None = None) -> Mapping[str, object]:
    """What they would be made with now; texts are quoted as the environment says, unless that is given."""
    config = config_dir()
    return {
        "configuration": digest_of_files(config, sorted(config.glob("*.yaml"))),
        "code": code_digest(),
        "packages": dict(package_versions()),
        "include_text": texts_are_quoted() if include_text is None else include_text,
    }

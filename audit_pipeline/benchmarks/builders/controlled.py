"""The controlled builder: members and held-out texts of a control, whose labels are certain.

A control is a pair of models that were trained on this machine on randomly drawn texts.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from audit_pipeline.benchmarks.builder_interface import (
    Builder,
    BuilderInputs,
    DrawnExamples,
    LabelledText,
    ReadDocuments,
    build_examples_table,
)
from audit_pipeline.benchmarks.settings import BenchmarkSpec, FamilySettings, LabelSource
from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import Text
from audit_pipeline.errors import ConfigError
from audit_pipeline.store.control_files import read_control, read_control_texts
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER, NON_MEMBER

_AUDITED_ROLES = ("member", "held_out")


class ControlledSettings(FamilySettings):
    """Settings of the members and held-out texts of a control (config/controls.yaml). Chance chose the members."""

    design_follows: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "training"
    references: ClassVar[tuple[EntryReference, ...]] = (EntryReference(("control",), "control"),)

    builder: Literal["controlled"]
    control: Text = Field(description="the control (config/controls.yaml) whose texts are used")
    on_request: bool = True
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0
    design: Literal["randomised"] = "randomised"

    @model_validator(mode="after")
    def _require_single_length(self) -> Self:
        if len(self.words or ()) != 1:
            raise ValueError("words: must be one length, the length of the control's texts")
        return self


def read_controlled_texts(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[pa.Table]:
    """Read the texts that the models of the control were trained on or that were held out from the training.

    Raises:
        DataError: If the models of the control are not trained.
        ConfigError: If the length or the word unit differs from the control's.
    """
    name = spec.require_settings(ControlledSettings).control
    manifest = read_control(name, paths)
    trained = manifest["settings"]
    if trained["words"] != spec.words or trained["unit"] != spec.settings.unit:
        raise ConfigError(
            f"{spec.name}: the texts of the control {name} have {trained['words']} {trained['unit']} words; "
            "set words and unit to that in config/benchmarks.yaml"
        )
    version = str(manifest["version"])
    provenance = {
        "control": name,
        "version": version,
        "sources": manifest["source_versions"],
        "roles": manifest["roles"],
        "models": manifest["models"],
    }
    return BuilderInputs(
        read_control_texts(name, paths), {f"controls/{name}": version}, (provenance,), origin=f"the control {name}"
    )


def draw_controlled(texts: pa.Table, spec: BenchmarkSpec, run_id: str) -> DrawnExamples:
    """Return members and held-out texts as examples. Texts of other roles are skipped."""
    audited: list[LabelledText] = []
    skipped_roles: Counter[str] = Counter()
    for row in texts.to_pylist():
        if row["role"] in _AUDITED_ROLES:
            label = MEMBER if row["exposed"] else NON_MEMBER
            audited.append(LabelledText.from_row(row, row["text"], label))
        else:
            skipped_roles[f"of the role {row['role']}"] += 1
    return DrawnExamples(build_examples_table(audited, spec, run_id), {}, dict(sorted(skipped_roles.items())))


BUILDER = Builder(1, ControlledSettings, read_controlled_texts, draw_controlled)

"""The members and held-out texts of a control that was trained here: labels that are certain."""

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
    """Members and held-out texts of a control (config/controls.yaml): chance decided what the model was trained on."""

    design_follows: ClassVar[bool] = True
    labels_from: ClassVar[LabelSource] = "training"
    references: ClassVar[tuple[EntryReference, ...]] = (EntryReference(("control",), "control"),)

    builder: Literal["controlled"]
    control: Text = Field(description="a control of controls.yaml, whose texts these are")
    on_request: bool = True
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = 0
    design: Literal["randomised"] = "randomised"

    @model_validator(mode="after")
    def _require_single_length(self) -> Self:
        if len(self.words or ()) != 1:
            raise ValueError("words: the length of the control's texts")
        return self


def read_controlled_texts(
    spec: BenchmarkSpec, paths: DataPaths, read_documents: ReadDocuments
) -> BuilderInputs[pa.Table]:
    """The texts of the control as it is trained; DataError where it is not, ConfigError where lengths disagree."""
    name = spec.require_settings(ControlledSettings).control
    manifest = read_control(name, paths)
    trained = manifest["settings"]
    if trained["words"] != spec.words or trained["unit"] != spec.settings.unit:
        raise ConfigError(
            f"{spec.name}: the texts of the control {name} have {trained['words']} {trained['unit']} words; "
            "say so in config/benchmarks.yaml"
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
    """Members and held-out texts as examples; the texts of the other roles are not audited."""
    rows = texts.to_pylist()
    audited = [
        LabelledText.from_row(row, row["text"], MEMBER if row["exposed"] else NON_MEMBER)
        for row in rows
        if row["role"] in _AUDITED_ROLES
    ]
    others = Counter(f"of the role {row['role']}" for row in rows if row["role"] not in _AUDITED_ROLES)
    return DrawnExamples(build_examples_table(audited, spec, run_id), {}, dict(sorted(others.items())))


BUILDER = Builder(1, ControlledSettings, read_controlled_texts, draw_controlled)

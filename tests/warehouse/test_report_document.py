"""The published JSON Schema is that of the report's data, and says what every field means."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from audit_pipeline.report.document import Estimate, report_schema, schema_text

PUBLISHED = Path(__file__).parents[2] / "docs" / "report.schema.json"


def test_the_published_schema_is_that_of_the_data() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text(), (
        "write it again: python -c 'from audit_pipeline.report.document import schema_text; "
        'print(schema_text(), end="")\' > docs/report.schema.json'
    )


def test_every_part_is_described_and_closed() -> None:
    schema = report_schema()
    parts = {"Report": schema, **schema["$defs"]}
    assert len(parts) > 30
    for name, part in parts.items():
        assert part["description"], name
        assert part["additionalProperties"] is False, name


def test_no_number_that_json_has_no_word_for() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValidationError):
            Estimate(value=value)
    with pytest.raises(ValidationError):
        Estimate.model_validate({"value": 0.5, "more": 1})

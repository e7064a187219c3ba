"""The JSON Schema of the copies is made of what the queries yield, and says what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from audit_pipeline.report.files import SCHEMA_VERSION, format_report_schema
from audit_pipeline.report.page import SectionFiles, query_rows, sections


def objects(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object of a schema, itself included."""
    inside = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    for one in inside:
        yield from objects(one)
    if "properties" in schema:
        yield schema


def all_sections(some: tuple[SectionFiles, ...]) -> Iterator[SectionFiles]:
    for section in some:
        yield section
        yield from all_sections(section.parts)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """As it is written beside the reports."""
    read: dict[str, Any] = json.loads(format_report_schema())
    return read


def test_every_section_is_in_the_schema_and_described(schema: dict[str, Any]) -> None:
    assert schema["properties"]["schema_version"] == {"const": SCHEMA_VERSION}
    for section in sections():
        assert schema["properties"][section.name]["description"] == section.description != ""
        of_rows = schema["properties"][section.name]["items"]["properties"]
        assert {part.name for part in section.parts} <= set(of_rows)
        assert all(of_rows[part.name]["description"] for part in section.parts)
    assert set(schema["properties"]["left_out"]["properties"]) == {section.name for section in sections()}


def test_every_object_is_closed_and_has_columns(schema: dict[str, Any]) -> None:
    found = list(objects(schema))
    assert len(found) > 40
    assert all(one["additionalProperties"] is False and one["required"] == list(one["properties"]) for one in found)


def test_what_the_head_of_a_query_describes_is_there(schema: dict[str, Any]) -> None:
    """A column that was renamed keeps no words of its old name."""
    described = {name for one in objects(schema) for name, of in one["properties"].items() if "description" in of}
    for section in all_sections(sections()):
        assert set(section.columns) <= described, section.name
    words = schema["properties"]["costs"]["items"]["properties"]
    assert words["model"]["description"].startswith("the model"), "as the warehouse's view says"
    assert (
        words["seconds"]["description"] == "from its start to its last rows; what was in the cache already took no time"
    )


def test_no_number_that_json_has_no_word_for() -> None:
    with duckdb.connect() as connection:
        (row,) = query_rows(
            connection, "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, {'c': '-inf'::DOUBLE} AS d"
        )
    assert row == {"a": None, "b": [None, 1.0], "d": {"c": None}}
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())

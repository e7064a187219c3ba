"""Suggestions of names, and families that stand for one benchmark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.config.problems import (
    did_you_mean,
    find_nearest_names,
    format_names,
    list_family_partitions,
    resolve_partition,
)
from audit_pipeline.errors import ConfigError

NAMES = ["ownshelf_16", "notes_32", "notes_64", "books", "books_of_2024"]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("ownshelf", "did you mean ownshelf_16?"),
        ("NOTES_32", "did you mean notes_32?"),
        ("notes", "did you mean notes_64 or notes_32?"),
        ("zzz", "there are: ownshelf_16, notes_32, notes_64, books, books_of_2024"),
    ],
)
def test_the_nearest_names_or_all_of_them(given: str, hint: str) -> None:
    assert did_you_mean(given, NAMES) == hint


def test_only_the_first_of_many_names_are_listed() -> None:
    assert format_names([]) == "none"
    assert format_names([f"m{number}" for number in range(25)]).endswith("m19 and 5 more")


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, unique_by=str.casefold))
def test_a_name_that_there_is_is_nearest_to_itself(names: list[str]) -> None:
    assert find_nearest_names(names[0], names)[:1] == [names[0]]


def test_the_only_benchmark_of_a_family_is_meant_by_its_name() -> None:
    assert resolve_partition("ownshelf", NAMES) == "ownshelf_16"
    assert resolve_partition("notes_64", NAMES) == "notes_64"
    # A family of texts of any length has its own name; another's may begin with it.
    assert resolve_partition("books", NAMES) == "books"
    assert list_family_partitions("books", NAMES) == ["books"]
    with pytest.raises(ConfigError, match=r"the family notes consists of several benchmarks.*: notes_32, notes_64"):
        resolve_partition("notes", NAMES)
    with pytest.raises(ConfigError, match=r"no benchmark 'ownself_16'; did you mean ownshelf_16\?"):
        resolve_partition("ownself_16", NAMES)

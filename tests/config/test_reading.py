"""YAML as it is read: lines, what stands twice, and files that nobody can mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.config.entries import MOST_BYTES, line_of, pairs_of, read_yaml
from audit_pipeline.config.problems import BrokenFileError, InvalidEntryError


def written(folder: Path, content: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def refused(folder: Path, content: str) -> str:
    with pytest.raises(BrokenFileError) as caught:
        read_yaml(written(folder, content), "it says what is read")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: " + "[" * 5000, "nested too deep"),
        ("# " + "x" * MOST_BYTES, f"is larger than {MOST_BYTES:,} bytes"),
        ("a: [", "not readable YAML: while parsing a flow node"),
        ("a: !!python/object/apply:os.system [echo]\nb: ]", "not readable YAML"),
    ],
)
def test_files_that_nobody_can_mean_are_refused(tmp_path: Path, content: str, told: str) -> None:
    assert told in refused(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: {b: 1, b: 2}", "key 'b' occurs twice"),
        ("a:\n  c: [{b: 1}, {b: 1, b: 2}]", "key 'b' occurs twice"),
        ("a: 2024-13-45", "a value cannot be read: month must be in 1..12"),
        ("a: 1000000000000000000", "a whole number has at most 18 digits"),
        (f"a: {'9' * 5000}", "a value cannot be read"),
        (f"a: 0x{'f' * 5000}", "a whole number has at most 18 digits"),
        ("a: !!python/object/apply:os.system [echo]", "could not determine a constructor"),
        ("a: {[1]: 2}", "unhashable key"),
        ("a: &a [*a]", "found unconstructable recursive node"),
        ("a: &a {b: {b: *a}}", "found unconstructable recursive node"),
    ],
)
def test_a_value_that_there_is_not_is_its_own_fault_alone(tmp_path: Path, content: str, told: str) -> None:
    file = read_yaml(written(tmp_path, f"{content}\ngood: [1]\n"), "")
    bad, good = pairs_of(file.root)
    assert file.value(good.value) == [1]
    with pytest.raises(InvalidEntryError, match=told):
        file.value(bad.value)


def test_lines_lead_to_the_value_through_lists_and_merged_mappings(tmp_path: Path) -> None:
    content = "one: &one\n  a: 1\n  b:\n    - x\n    - y\ntwo:\n  <<: *one\n  c: 3\n  a: 4\n"
    first, second = pairs_of(read_yaml(written(tmp_path, content), "").root)
    assert [line_of(first, keys) for keys in ([], ["a"], ["b", 1], ["b", 7], ["gone"])] == [1, 2, 5, 3, 1]
    assert [line_of(second, keys) for keys in (["c"], ["a"], ["b", 0])] == [8, 9, 4]


def test_what_overrides_a_merged_key_is_no_key_twice_wherever_an_alias_leads_to_it(tmp_path: Path) -> None:
    content = "one: &one {a: 1}\ntwo: &two {<<: *one, a: 2}\nthree: {x: *two}\n"
    file = read_yaml(written(tmp_path, content), "")
    assert [file.value(pair.value) for pair in pairs_of(file.root)] == [{"a": 1}, {"a": 2}, {"x": {"a": 2}}]


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text("abc: -#'\"{[&*", max_size=8) | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@max_examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.sampled_from("pqrs"), plain))
def test_what_is_read_is_what_yaml_reads(tmp_path: Path, content: dict[str, object]) -> None:
    file = read_yaml(written(tmp_path, yaml.safe_dump(content)), "")
    assert {pair.key.value: file.value(pair.value) for pair in pairs_of(file.root)} == content

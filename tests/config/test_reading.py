"""Reading YAML: values, lines, repeated keys, and invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.config.entries import EntryFile, read_yaml
from audit_pipeline.config.problems import BrokenFileError, Fault

FILE = EntryFile("file.yaml", None, "section", "it says what is read", lambda name, fields, folder: fields)


def written(folder: Path, content: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a:\n  [", ":2: cannot be read: it is not valid YAML: while parsing a flow node"),
        ("a: !!python/object/apply:os.system [echo]", ":1: .*could not determine a constructor"),
        ("a: &a [*a]", "found unconstructable recursive node"),
        ("a: 1\n---\na: 2", "expected a single document"),
        ("- a", ":1: the file must have one key per section"),
        ("a: {}\na: {}", ":2: key 'a' occurs twice"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = EntryFile("file.yaml", "a", "entry", "", FILE.read) if "twice" in message else FILE
    with pytest.raises(BrokenFileError, match=message) as caught:
        file.read_file(written(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_of_another_encoding(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match=r"file\.yaml is missing; it says what is read"):
        FILE.load(tmp_path)
    (tmp_path / "file.yaml").write_bytes(b"a: \xff")
    with pytest.raises(BrokenFileError, match="cannot be read: 'utf-8' codec"):
        FILE.load(tmp_path)


@pytest.mark.parametrize("content", ["bad: {b: 1, b: 2}", "bad:\n  c: [{b: 1}, {b: 1, b: 2}]", "bad: 1\nbad: {b: 1}"])
def test_a_repeated_key_breaks_its_own_entry_alone(tmp_path: Path, content: str) -> None:
    entries = FILE.read_file(written(tmp_path, f"{content}\ngood: [1]\n"))
    assert dict(entries) == {"good": [1]}
    [problem] = entries.problems
    assert str(problem).endswith("occurs twice; rename or remove one of them")
    assert problem.line == content.count("\n") + 1


def test_lines_lead_to_the_value_through_lists_and_merged_mappings(tmp_path: Path) -> None:
    content = "one: &one\n  a: 1\n  b:\n    - x\n    - y\ntwo:\n  <<: *one\n  c: 3\n  a: 4\n"
    entries = FILE.read_file(written(tmp_path, content))

    def lines(name: str, *places: tuple[str | int, ...]) -> list[int | None]:
        return [entries.build_problem(name, Fault(keys, "")).line for keys in places]

    assert lines("one", (), ("a",), ("b", 1), ("b", 7), ("gone",)) == [1, 2, 5, 3, 1]
    assert lines("two", ("c",), ("a",), ("b", 0)) == [8, 9, 4]


def test_overriding_a_merged_key_is_not_a_repeated_key(tmp_path: Path) -> None:
    content = "one: &one {a: 1}\ntwo: &two {<<: *one, a: 2}\nthree: {x: *two}\n"
    assert [*FILE.read_file(written(tmp_path, content)).values()] == [{"a": 1}, {"a": 2}, {"x": {"a": 2}}]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc: -#'\"{[&*", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@max_examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(st.sampled_from("pqrs"), plain))
def test_values_are_those_of_the_yaml_parser(tmp_path: Path, content: dict[str, object]) -> None:
    assert read_yaml(written(tmp_path, yaml.safe_dump(content)), "").value == content

"""From a YAML file to plain values and the lines that they stand on.

What belongs here: reading, and keys that stand twice. What does not: what the values mean (entries.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from audit_pipeline.config.problems import BrokenFileError, Fault, InvalidEntryError, Keys, Problem
from audit_pipeline.errors import one_line

MOST_BYTES = 1 << 20
_TOO_DEEP = "it is nested too deep"
_LARGEST = 10**18

_MERGE = "tag:yaml.org,2002:merge"


class KeyValue(NamedTuple):
    """A key and its value, as they stand in the file."""

    key: yaml.Node
    value: yaml.Node

    @property
    def line(self) -> int:
        return int(self.key.start_mark.line) + 1


@dataclass(frozen=True)
class YamlFile:
    """A file whose values are made one by one, so that a fault in one of them is its own alone."""

    path: Path
    root: yaml.Node | None
    _repeated_keys: Mapping[int, yaml.Node | None]

    def value(self, node: yaml.Node) -> Any:
        """The value that ``node`` stands for; raises InvalidEntryError where it stands for none."""
        repeated = self._repeated_keys[id(node)]
        if repeated is not None:
            raise InvalidEntryError([Fault((), f"key '{repeated.value}' occurs twice", repeated.start_mark.line + 1)])
        try:
            return _Values().construct_object(node, deep=True)
        except yaml.MarkedYAMLError as error:
            raise InvalidEntryError([Fault((), _describe_yaml_error(error), _line(error))]) from error
        except ValueError as error:
            # A date that no calendar has, a number that no setting needs.
            raise InvalidEntryError([Fault((), f"a value cannot be read: {one_line(error)}")]) from error
        except RecursionError as error:
            raise InvalidEntryError([Fault((), _TOO_DEEP)]) from error


def read_yaml(path: Path, purpose: str) -> YamlFile:
    """The file at ``path``; ``purpose`` says what it is for, where it is missing.

    Raises BrokenFileError, naming the file and the line, where it is missing, cannot be read, is no YAML, or is larger
    than any configuration.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise BrokenFileError(Problem(path, None, f"is missing; {purpose}")) from error
    except OSError as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {one_line(error)}")) from error
    if len(content) > MOST_BYTES:
        raise BrokenFileError(Problem(path, None, f"is larger than {MOST_BYTES:,} bytes: it must hold settings alone"))
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
        # Before a value is made: that writes what is merged into the nodes.
        repeated_keys: dict[int, yaml.Node | None] = {}
        if root is not None:
            _find_repeated_keys(root, repeated_keys)
        return YamlFile(path, root, repeated_keys)
    except yaml.MarkedYAMLError as error:
        raise BrokenFileError(Problem(path, _line(error), f"cannot be read: {_describe_yaml_error(error)}")) from error
    except (yaml.YAMLError, ValueError) as error:
        words = f"cannot be read: it is not readable YAML: {one_line(error)}"
        raise BrokenFileError(Problem(path, None, words)) from error
    except RecursionError as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {_TOO_DEEP}")) from error


def pairs_of(node: yaml.Node | None) -> list[KeyValue]:
    """The keys and values of a mapping, with those that are merged into it (<<); none of anything else.

    Raises InvalidEntryError where what is merged is no mapping.
    """
    if not isinstance(node, yaml.MappingNode):
        return []
    try:
        # Does nothing the second time.
        yaml.constructor.SafeConstructor().flatten_mapping(node)
    except yaml.MarkedYAMLError as error:
        raise InvalidEntryError([Fault((), _describe_yaml_error(error), _line(error))]) from error
    return [KeyValue(*pair) for pair in node.value]


def line_of(entry: KeyValue, keys: Keys) -> int:
    """The line of the value that ``keys`` lead to from ``entry``, or of as much of the way as there is."""
    line, node = entry.line, entry.value
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line + 1
            continue
        found = [pair for pair in pairs_of(node) if pair.key.value == str(key)]
        if not found:
            break
        # What an entry says itself stands behind what is merged into it.
        line, node = found[-1].line, found[-1].value
    return line


class _Values(yaml.constructor.SafeConstructor):
    """Whole numbers are those that every library takes."""


def _whole_number(values: Any, node: Any) -> int:
    number = int(values.construct_yaml_int(node))
    if abs(number) >= _LARGEST:
        raise ValueError(f"a whole number has at most 18 digits, and this one begins with {node.value[:20]}")
    return number


_Values.add_constructor("tag:yaml.org,2002:int", _whole_number)


def _find_repeated_keys(node: yaml.Node, found: dict[int, yaml.Node | None]) -> yaml.Node | None:
    """The first key under ``node`` that stands twice in its mapping, and in ``found`` those of all nodes below.

    A copied entry that was not renamed would vanish otherwise. What is merged belongs to the entry that it is merged
    from.
    """
    if id(node) in found:
        return found[id(node)]
    # For an alias within what it stands for.
    found[id(node)] = None
    repeated: list[yaml.Node] = []
    below: list[yaml.Node | None] = []
    if isinstance(node, yaml.SequenceNode):
        below = [_find_repeated_keys(child, found) for child in node.value]
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            of_pair = [_find_repeated_keys(child, found) for child in (key, value)]
            if key.tag == _MERGE:
                continue
            below += of_pair
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    repeated.append(key)
                seen.add((key.tag, key.value))
    found[id(node)] = next((key for key in (*repeated, *below) if key is not None), None)
    return found[id(node)]


def _describe_yaml_error(error: yaml.MarkedYAMLError) -> str:
    said = ", ".join(one for one in (error.context, error.problem) if one)
    return f"it is not readable YAML: {one_line(said)}"


def _line(error: yaml.MarkedYAMLError) -> int | None:
    return None if error.problem_mark is None else int(error.problem_mark.line) + 1

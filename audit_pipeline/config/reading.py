"""From a YAML file to plain values and the lines that they stand on.

What belongs here: reading, keys that stand twice, and the bounds that keep a file from taking the machine with it. What
does not: what the values mean (entries.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from audit_pipeline.config.problems import BrokenFileError, Fault, InvalidEntryError, Keys, Problem
from audit_pipeline.errors import one_line

MOST_BYTES = 1 << 20
MOST_VALUES = 50_000
"""Of a file; an alias counts as all that it stands for."""
MOST_DEEP = 50

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
class _Measure:
    """What hangs on a node: how many values, how deep, and the first key that stands twice in its mapping."""

    values: int
    depth: int
    twice: yaml.Node | None


@dataclass
class YamlFile:
    """A file whose values are made one by one, so that a fault in one of them is its own alone."""

    path: Path
    root: yaml.Node | None
    _measured: dict[int, _Measure | None] = field(default_factory=dict)

    def value(self, node: yaml.Node) -> Any:
        """The value that ``node`` stands for; raises InvalidEntryError where it stands for none."""
        twice = _measure(node, self._measured).twice
        if twice is not None:
            raise InvalidEntryError([Fault((), f"key '{twice.value}' occurs twice", twice.start_mark.line + 1)])
        try:
            return _Values().construct_object(node, deep=True)
        except yaml.MarkedYAMLError as error:
            raise InvalidEntryError([Fault((), _not_yaml(error), _line(error))]) from error
        except ValueError as error:
            # A date that no calendar has, a number that no setting needs.
            raise InvalidEntryError([Fault((), f"a value cannot be read: {one_line(error)}")]) from error


def read_yaml(path: Path, purpose: str) -> YamlFile:
    """The file at ``path``; ``purpose`` says what it is for, where it is missing.

    Raises BrokenFileError, naming the file and the line, where it is missing, cannot be read, is no YAML, or is larger
    than any configuration, be it by its aliases.
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
        file = YamlFile(path, yaml.compose(content.decode("utf-8"), Loader=_Bounded))
        if file.root is not None:
            _measure(file.root, file._measured)
    except yaml.MarkedYAMLError as error:
        words = str(error.problem) if isinstance(error, _BeyondBoundsError) else _not_yaml(error)
        raise BrokenFileError(Problem(path, _line(error), f"cannot be read: {words}")) from error
    except (yaml.YAMLError, ValueError) as error:
        words = f"cannot be read: it is not readable YAML: {one_line(error)}"
        raise BrokenFileError(Problem(path, None, words)) from error
    except RecursionError as error:
        raise BrokenFileError(Problem(path, None, f"cannot be read: {_TOO_DEEP}")) from error
    return file


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
        raise InvalidEntryError([Fault((), _not_yaml(error), _line(error))]) from error
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


_TOO_DEEP = f"it is nested more than {MOST_DEEP} deep"


class _BeyondBoundsError(yaml.MarkedYAMLError):
    """It is YAML, but more than any configuration."""


class _Values(yaml.constructor.SafeConstructor):
    """Whole numbers are those that every library takes."""


def _whole_number(values: Any, node: Any) -> int:
    number = int(values.construct_yaml_int(node))
    if abs(number) >= _LARGEST:
        raise ValueError(f"a whole number has at most 18 digits, and this one begins with {node.value[:20]}")
    return number


_Values.add_constructor("tag:yaml.org,2002:int", _whole_number)


class _Bounded(yaml.SafeLoader):
    """Stops where a file has more values than any configuration; what aliases stand for is counted later."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._composed += 1
        if self._composed > MOST_VALUES:
            mark = self.get_mark()
            raise _BeyondBoundsError(None, None, f"it holds more than {MOST_VALUES:,} values", mark)
        return super().compose_node(parent, index)


def _measure(node: yaml.Node, known: dict[int, _Measure | None]) -> _Measure:
    """What hangs on ``node``, itself counted; raises _BeyondBoundsError where no configuration holds so much."""
    if id(node) in known:
        measured = known[id(node)]
        if measured is None:
            raise _refused(node, "an alias stands for what it is a part of")
        return measured
    known[id(node)] = None
    values, depth, twice = 1, 1, _key_twice(node)
    for child, is_merged in _children(node):
        below = _measure(child, known)
        values, depth = values + below.values, max(depth, below.depth + 1)
        # What is merged belongs to the entry that it is merged from.
        twice = twice if twice is not None or is_merged else below.twice
    if values > MOST_VALUES:
        raise _refused(node, f"with its aliases written out it holds more than {MOST_VALUES:,} values")
    if depth > MOST_DEEP:
        raise _refused(node, _TOO_DEEP)
    measured = known[id(node)] = _Measure(values, depth, twice)
    return measured


def _children(node: yaml.Node) -> list[tuple[yaml.Node, bool]]:
    """The nodes right below, and whether each is merged into it."""
    if isinstance(node, yaml.SequenceNode):
        return [(child, False) for child in node.value]
    if isinstance(node, yaml.MappingNode):
        return [(child, key.tag == _MERGE) for key, value in node.value for child in (key, value)]
    return []


def _key_twice(node: yaml.Node) -> yaml.Node | None:
    """The key of a mapping that stands twice in it: a copied entry that was not renamed would vanish otherwise."""
    seen: set[tuple[str, str]] = set()
    keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    for key in keys:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if (key.tag, key.value) in seen:
                return key
            seen.add((key.tag, key.value))
    return None


def _refused(node: yaml.Node, words: str) -> yaml.MarkedYAMLError:
    return _BeyondBoundsError(None, None, words, node.start_mark)


def _not_yaml(error: yaml.MarkedYAMLError) -> str:
    said = ", ".join(one for one in (error.context, error.problem) if one)
    return f"it is not readable YAML: {one_line(said)}"


def _line(error: yaml.MarkedYAMLError) -> int | None:
    return None if error.problem_mark is None else int(error.problem_mark.line) + 1

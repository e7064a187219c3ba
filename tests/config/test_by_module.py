"""Collected plug-ins have unique names."""

from __future__ import annotations

from types import ModuleType

import pytest

from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.errors import ConfigError


def module(name: str, **values: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(values)
    return made


def found(*modules: ModuleType) -> dict[str, str]:
    """Collect strings, named by their last word."""
    return collect_by_name(
        modules,
        label="things",
        is_wanted=lambda one: isinstance(one, str) and one.startswith("a thing"),
        name_of=lambda one: one.split()[-1],
    )


def test_a_value_that_several_modules_hold_is_one() -> None:
    shared = "a thing called x"
    assert found(module("m1", one=shared, other=3), module("m2", one=shared, two="a thing called y")) == {
        "x": shared,
        "y": "a thing called y",
    }


def test_two_of_one_name_are_an_error_with_both_modules() -> None:
    with pytest.raises(ConfigError, match=r"there are two things named 'x', in m1 and in m2\. Rename one of them\."):
        found(module("m1", one="a thing called x"), module("m2", one="a thing also called x"))

"""A template that loops, repeats or pads without end is refused before it has taken time or memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from audit_pipeline.benchmarks import template_limits
from audit_pipeline.benchmarks.row_template import RowTemplate
from audit_pipeline.benchmarks.template_limits import TemplateLimitError

ROW: dict[str, Any] = {
    "text": "Abc, defg hi. " * 20,
    "items": ["one", "two", "three"],
    "n": 3,
    "nested": {"a": [1, 2.5], "b": "x"},
}
TOO_MUCH = [
    "{% for i in range(10 ** 9) %}x{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{{ i }}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}" + "x" * 2000 + "{% endfor %}",
    "{{ range(10 ** 9)|list }}",
    "{{ range(10 ** 8) }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 * 'a' }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ 2 ** (2 ** 40) }}",
    "{{ 'a'|center(10 ** 10) }}",
    "{{ text|indent(10 ** 9) }}",
    "{{ [1]|batch(10 ** 9, 0)|list }}",
    "{{ lipsum(n=10 ** 9) }}",
    "{% filter center(10 ** 9) %}a{% endfilter %}",
    "{{ 'x'.ljust(10 ** 10) }}",
    "{{ 'a'.zfill(10 ** 12) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (10 ** 9, 1) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '{:>10000000000}'.format(1) }}",
    "{{ '{0:{1}}'.format('a', 10 ** 9) }}",
    "{{ text|replace('', text)|replace('', text)|replace('', text) }}",
    "{{ ('a' * 100000)|list|join('b' * 100000) }}",
    "{{ range(100000)|map('center', 10000)|list|length }}",
    "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are met at once; which of them is met is the same."""
    monkeypatch.setattr(template_limits, "MOST_STEPS", 2_000)
    monkeypatch.setattr(template_limits, "MOST_CHARACTERS", 500_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("template", TOO_MUCH)
def test_what_would_never_end_is_refused(template: str) -> None:
    compiled = RowTemplate(template)
    with pytest.raises(TemplateLimitError):
        compiled.fill(ROW)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("a\n{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "line 2: a row's template has no macros"),
        ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "line 1: a row's template has no recursive loops"),
        ("{% include 'other' %}", "no macros, blocks, imports or includes"),
        ("{% import 'other' as other %}", "no macros, blocks, imports or includes"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion"),
    ],
)
def test_what_could_call_itself_is_refused_when_it_is_read(template: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RowTemplate(template)


def test_processor_time_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 1.0, 3.0])
    monkeypatch.setattr(template_limits.time, "thread_time", lambda: next(clock))
    with pytest.raises(TemplateLimitError, match="more than 2 seconds"):
        RowTemplate("{{ text|upper }}{{ text|lower }}").fill(ROW)


def test_every_text_has_bounds_of_its_own(small: None) -> None:
    template = RowTemplate("{% for i in range(1500) %}x{% endfor %}")
    for _ in range(5):
        assert template.fill(ROW) == ("x" * 1500, None)


USUAL = [
    "{{ text }} {{ n }} {{ nested.a[1] }} {{ nested['b'] }}",
    "{% for one in items %}({{ loop.index }}) {{ one }}\n{% endfor %}",
    "{% for one in items if one != 'two' %}{{ one|upper }}{% else %}none{% endfor %}",
    "{{ 'yes' if n == 3 else 'no' }}{{ text|replace('Abc', 'x')|truncate(30) }}",
    "{{ 'a' ~ n ~ items[0] ~ (n ~ 'b') }}{{ n + 1 }}{{ 'x' + 'y' }}{{ n * 2 }}{{ '=' * 10 }}{{ 2 ** 8 }}{{ 7 % 4 }}",
    "{{ '%s: %5d' % ('a', n) }}{{ '{:>5}'.format(n) }}{{ '%s'|format(n) }}",
    "{{ items|join(', ') }}{{ items|map('upper')|join }}{{ items|sort|first }}{{ nested|tojson }}",
    "{% set ns = namespace(x=0) %}{% for one in items %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}",
    "{% set words = text.split(' ') %}{{ words|length }} {{ words[:3]|join(' ') }}",
    "{% filter upper %}abc{% endfilter %}{% set x %}{{ n }}{% endset %}{{ x }}{% if text is defined %}y{% endif %}",
    "{{ text|wordwrap(20) }}{{ text|indent(4) }}{{ range(3)|list }}{{ dict(a=1) }}",
]


@pytest.mark.parametrize("template", USUAL)
def test_what_is_not_refused_is_what_jinja_makes(template: str) -> None:
    plain = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    assert RowTemplate(template).fill(ROW) == (plain.from_string(template).render(**ROW, row=ROW), None)


@given(st.lists(st.text(max_size=5) | st.integers() | st.floats(allow_nan=False), max_size=5))
def test_bounded_concatenation_is_concatenation(values: list[object]) -> None:
    names = [f"v{place}" for place in range(len(values))]
    row = dict(zip(names, values, strict=True))
    text, problem = RowTemplate("{{ " + " ~ ".join(["''", *names]) + " }}").fill(row)
    assert (text, problem) == ("".join(map(str, values)), None)

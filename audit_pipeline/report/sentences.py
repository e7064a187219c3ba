"""The kinds of answer and their sentences, read from answers.yaml, and the other sentences of the report (notes.yaml).

What belongs here: loading both files, and writing a sentence from facts. What does not: the rules that give kind and
facts (answer_rules.py, document_answers.py, summary.py), layout (sections/).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import jinja2
import yaml

from audit_pipeline.report.number_format import FILTERS, capitalise_first, format_count_with_noun
from audit_pipeline.statistics.claims import (
    AUROC_OF_INTEREST,
    BEST_OF_SEVERAL,
    FEW_TEXTS,
    REPRODUCED_FROM,
    TOO_SHORT,
    is_user,
)

Sign = Literal["found", "stands out", "nothing found", "no conclusion"]
"""What an answer comes to: seen directly; higher than chance; the comparison would have found an effect that matters
(statistics/claims.py) and did not; it could hardly have found anything, or what differs may not be training."""

SIGNS: tuple[Sign, ...] = get_args(Sign)
"""What matters most first."""

P_LEVEL = Q_LEVEL = 0.05
SENTENCES = ("headline", "explanation", "how_sure", "what_would_change")
"""The sentences of an answer, without its question."""

Other = Literal["search", "twins"]
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of answer, as answers.yaml declares it: see the head of that file."""

    name: str
    sign: Sign
    place: int
    worth: Literal["sound", "evidence", "look"] | None = None
    helped_by: Literal["texts that are alike", "more texts"] | None = None
    others: Sequence[Other] = ()


@cache
def read_kinds() -> Mapping[str, Kind]:
    """Every kind of answer by its name, which is the ``outcome`` of an answer."""
    declared = _read("answers")["kinds"]
    return {
        name: Kind(name, **{key: value for key, value in kind.items() if key not in SENTENCES})
        for name, kind in declared.items()
    }


def find_kind(outcome: str) -> Kind:
    """The kind of that name."""
    return read_kinds()[outcome]


def render_answer(outcome: str, facts: Facts, *, question: str) -> dict[str, str]:
    """The answer of that kind in sentences, with its sign; ``question``: the phrase that says what was asked."""
    parts = {part: render_phrase(f"{outcome}.{part}", facts) for part in SENTENCES}
    return {"outcome": outcome, "sign": find_kind(outcome).sign, "question": render_phrase(question, facts), **parts}


def _strip_verdict(headline: str) -> str:
    """Return a headline without the verdict in front, as a sentence."""
    for sign in SIGNS:
        headline = headline.removeprefix(f"{capitalise_first(sign)}: ")
    return capitalise_first(headline)


def address_third_party(text: str) -> str:
    """Return a sentence for readers who did not run the audit: the user is no longer addressed as *you*."""
    return text.replace(" you named as ", " the user named as ")


def suggest_methods(outcome: str, done: Collection[Other]) -> str:
    """What may find what such an answer does not show, as a sentence; empty where all of it is ``done``."""
    remaining = [other for other in find_kind(outcome).others if other not in done]
    comma = "," if "twins" in remaining else ""
    named = " and ".join(render_phrase(other, {}) for other in remaining)
    return f"{capitalise_first(named)}{comma} can find what scores do not show." if named else ""


def render_phrase(name: str, facts: Facts) -> str:
    """A phrase, or the sentence ``kind.part`` of an answer, of these facts, on one line."""
    return re.sub(r"[ \n]+", " ", _environment().get_template(name).render(facts)).strip()


def render_list(name: str, facts: Facts) -> list[str]:
    """The same of a phrase of several paragraphs, each on one line; empty ones are left out."""
    paragraphs = _environment().get_template(name).render(facts).split("\n\n")
    return [line for line in (re.sub(r"[ \n]+", " ", paragraph).strip() for paragraph in paragraphs) if line]


def list_limits() -> list[dict[str, str]]:
    """The limits that hold for every number, each as its title and its text."""
    return [{"title": title, "text": text} for title, text in _read("notes")["limits"].items()]


@cache
def _read(name: str) -> Mapping[str, Any]:
    text = (resources.files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")
    known: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return known


@cache
def _environment() -> jinja2.Environment:
    answers = _read("answers")
    parts = {f"{kind}.{part}": declared[part] for kind, declared in answers["kinds"].items() for part in SENTENCES}
    sources = {**parts, **answers["phrases"], **_read("notes")["phrases"]}
    # Plain text: what is shown on a page is escaped there.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.DictLoader(sources),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        FILTERS,
        teller=lambda stated_by: "you" if is_user(stated_by) else stated_by,
        without_verdict=_strip_verdict,
    )
    environment.globals.update(
        things=format_count_with_noun,
        best_of_several=BEST_OF_SEVERAL,
        few_texts=FEW_TEXTS,
        of_interest=AUROC_OF_INTEREST,
        p_level=P_LEVEL,
        q_level=Q_LEVEL,
        accident=f"{Q_LEVEL:.0%}",
        reproduced_from=REPRODUCED_FROM,
        too_short=TOO_SHORT,
    )
    return environment

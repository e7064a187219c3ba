"""The catalogue of sentences: kinds of answers (answers.yaml) and other sentences of the report (notes.yaml).

A sentence is a Jinja template over facts. answer_rules.py, document_answers.py and summary.py decide kinds and facts.
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
    MIN_TEXTS_PER_SIDE,
    REPRODUCED_FROM,
    TOO_SHORT,
    is_stated_by_user,
)

Sign = Literal["found", "stands out", "nothing found", "no conclusion"]
"""The verdict of an answer.

"found" was observed directly. "stands out" exceeds chance. "nothing found" means that the comparison would have found
an effect that matters (statistics/claims.py). "no conclusion" is everything else.
"""

SIGNS: tuple[Sign, ...] = get_args(Sign)
"""All signs, the most important first."""

P_LEVEL = Q_LEVEL = 0.05
SENTENCES = ("headline", "explanation", "how_sure", "what_would_change")
"""The sentences of an answer except its question."""

Other = Literal["search", "twins"]
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of answer. The comment at the top of answers.yaml describes the fields."""

    name: str
    sign: Sign
    place: int
    worth: Literal["sound", "evidence", "look"] | None = None
    helped_by: Literal["texts that are alike", "more texts"] | None = None
    others: Sequence[Other] = ()


@cache
def read_kinds() -> Mapping[str, Kind]:
    """Return every kind of answer by its name, which is the ``outcome`` of an answer."""
    kinds = {}
    for name, declared in _read("answers")["kinds"].items():
        settings = dict(declared)
        for part in SENTENCES:
            settings.pop(part, None)
        kinds[name] = Kind(name, **settings)
    return kinds


def find_kind(outcome: str) -> Kind:
    """Return the kind of answer with the name ``outcome``."""
    return read_kinds()[outcome]


def render_answer(outcome: str, facts: Facts, *, question: str) -> dict[str, str]:
    """Render an answer: its verdict (``sign``), its question and its sentences.

    ``question`` is the name of the phrase with the question.
    """
    answer = {"outcome": outcome, "sign": find_kind(outcome).sign, "question": render_phrase(question, facts)}
    for part in SENTENCES:
        answer[part] = render_phrase(f"{outcome}.{part}", facts)
    return answer


def _strip_verdict(headline: str) -> str:
    """Return a headline without its leading verdict, as a sentence."""
    for sign in SIGNS:
        headline = headline.removeprefix(f"{capitalise_first(sign)}: ")
    return capitalise_first(headline)


def address_third_party(text: str) -> str:
    """Return a sentence for readers who did not run the audit: "you named as" becomes "the user named as"."""
    return text.replace(" you named as ", " the user named as ")


def suggest_methods(outcome: str, done: Collection[Other]) -> str:
    """Return a sentence with methods that can find more than scores show, or an empty text if all were done."""
    phrases = []
    comma = ""
    for method in find_kind(outcome).others:
        if method in done:
            continue
        phrases.append(render_phrase(method, {}))
        if method == "twins":
            comma = ","
    if not phrases:
        return ""
    methods = " and ".join(phrases)
    return f"{capitalise_first(methods)}{comma} can find what scores do not show."


def render_phrase(name: str, facts: Facts) -> str:
    """Render a phrase, or the sentence ``kind.part`` of an answer, on one line."""
    return re.sub(r"[ \n]+", " ", _environment().get_template(name).render(facts)).strip()


def render_list(name: str, facts: Facts) -> list[str]:
    """Render a phrase of several paragraphs as a list of lines. Empty paragraphs are skipped."""
    lines = []
    for paragraph in _environment().get_template(name).render(facts).split("\n\n"):
        line = re.sub(r"[ \n]+", " ", paragraph).strip()
        if line:
            lines.append(line)
    return lines


def list_limits() -> list[dict[str, str]]:
    """Return the limits of every result, each with a title and a text."""
    limits = []
    for title, text in _read("notes")["limits"].items():
        limits.append({"title": title, "text": text})
    return limits


@cache
def _read(name: str) -> Mapping[str, Any]:
    text = (resources.files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return content


@cache
def _environment() -> jinja2.Environment:
    answers = _read("answers")
    sources = {**answers["phrases"], **_read("notes")["phrases"]}
    for kind, declared in answers["kinds"].items():
        for part in SENTENCES:
            sources[f"{kind}.{part}"] = declared[part]
    # Sentences are plain text. The templates of a page escape them.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.DictLoader(sources),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        FILTERS,
        teller=lambda stated_by: "you" if is_stated_by_user(stated_by) else stated_by,
        without_verdict=_strip_verdict,
    )
    environment.globals.update(
        things=format_count_with_noun,
        best_of_several=BEST_OF_SEVERAL,
        few_texts=MIN_TEXTS_PER_SIDE,
        of_interest=AUROC_OF_INTEREST,
        p_level=P_LEVEL,
        q_level=Q_LEVEL,
        accident=f"{Q_LEVEL:.0%}",
        reproduced_from=REPRODUCED_FROM,
        too_short=TOO_SHORT,
    )
    return environment

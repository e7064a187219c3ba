"""The sentences of the report: kinds of answers (answers.yaml) and other sentences (notes.yaml).

A sentence is a Jinja template over facts. answer_rules.py, document_answers.py and summary.py decide the kinds and
facts of answers. The functions ``describe_…`` of this module pass rows of queries to the other sentences: claim levels,
labels, attempts and error rates.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby, takewhile
from typing import Any, Literal, get_args

import jinja2
import yaml

from audit_pipeline.report.number_format import FILTERS, capitalise_first, format_count_with_noun, format_day
from audit_pipeline.statistics import claims
from audit_pipeline.store.paths import EXPOSED, TWIN

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
Row = Mapping[str, Any]

MOSTLY_FOUND = 0.9
"""A number of readings is sufficient if the search finds at least this share of the control's texts."""

RULE_IN_WORDS: Mapping[str, str] = {
    "largest_accuracy": "largest accuracy",
    "marginal": "marginal: aimed at on average",
    "certified": "certified: exceeded in 5% of calibrations at most",
}
TEST_IN_WORDS: Mapping[str, str] = {
    "dataset_inference": "dataset inference",
    "twins": "rank of the published versions",
    "sharded_permutation": "order of the test set (sharded permutation)",
}
STEP_IN_WORDS: Mapping[str, str] = {
    "token_statistics": "passes of the model",
    "scores": "detectors",
    "evaluations": "evaluation",
}


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


def describe_claim_level(level: claims.ClaimLevel, stated_by: str | None = None) -> str:
    """Describe what a claim level allows. ``stated_by`` is the person whose statement it depends on, or None."""
    if level == "sound test" and stated_by is not None:
        return claims.AS_STATED_IN_WORDS.format(who=stated_by)
    return claims.CLAIM_IN_WORDS[level]


def describe_verdict(verdict: claims.SplitVerdict, stated_by: str | None = None) -> str:
    """Describe a split verdict. ``stated_by`` is the person whose statement it depends on, or None."""
    sentences = claims.VERDICT_IN_WORDS[verdict]
    if stated_by is None:
        return sentences
    return f"As stated by {stated_by}: {sentences[:1].lower()}{sentences[1:]}"


def describe_label_origin(builder: str | None, origin: str | None, stated_by: str | None) -> str | None:
    """Describe who states which texts are members, or return None if the benchmark does not record its builder.

    Args:
        builder: Builder of the benchmark.
        origin: Origin of the labelled rows.
        stated_by: Person who stated the design, or None.
    """
    if builder is None:
        return None
    return render_phrase("labels_by", {"builder": builder, "origin": origin, "design_stated_by": stated_by})


def describe_design(
    design: str | None, builder: str | None, stated_by: str | None, *, phrase: str = "design"
) -> str | None:
    """Describe how the two sides were chosen and who states it, or return None if the benchmark does not record it.

    ``phrase`` is the name in notes.yaml: ``design``, or ``held_out_by`` for a text that follows words such as
    "19 documents, ".
    """
    if design is None:
        return None
    return render_phrase(phrase, {"design": design, "builder": builder, "stated_by": stated_by})


def describe_blind_control(blind: Row | None) -> str:
    """Describe how well the blind control separates the two sides, or why it was not computed."""
    return render_phrase("blind_control", {"blind": blind})


def describe_text_counts(split_counts: Sequence[Row]) -> str:
    """Describe how many texts were evaluated and how many calibrate. Return an empty text if that is unknown."""
    counts: dict[str, Row | None] = dict.fromkeys(("evaluation", "calibration"))
    for row in split_counts:
        counts[row["split"]] = row
    return render_phrase("text_counts", counts)


def describe_attempts(attempted: Row | None) -> str | None:
    """Describe how many settings were tried in how many runs, or return None if no lineage entry records it."""
    if attempted is None or attempted["tried"] is None:
        return None
    return render_phrase("attempts", {"attempted": attempted})


def describe_plan(attempted: Row | None) -> str | None:
    """Describe whether results were planned in a sealed plan, and what came before it, or return None if unknown."""
    if attempted is None:
        return None
    return render_phrase("plan", {"attempted": attempted})


def describe_dose(points: Sequence[Row], reproduced: int | None = None) -> str | None:
    """Describe how often a control model had to read a text before the search found it, or return None without points.

    Args:
        points: Shares of texts that the search found, ordered by the number of readings.
        reproduced: Number of documents that a search of an audited model found. If it is not None, the description
            includes what a result of 0 means.
    """
    if not points:
        return None
    # The smallest number of readings from which on every number suffices.
    sufficient = list(takewhile(lambda point: point["reached"]["value"] >= MOSTLY_FOUND, reversed(points)))
    facts = {
        "enough": sufficient[-1] if sufficient else points[-1],
        "least": points[0],
        "reproduced": reproduced,
        "mostly_found": bool(sufficient),
    }
    if reproduced is None:
        return render_phrase("dose", facts)
    return render_phrase("absence", facts)


def describe_error_rates(page: Row) -> list[dict[str, Any]]:
    """Return the parts of the section on error rates, in the order of a court's questions.

    Each part has a ``heading`` and its ``sentences``. Parts without sentences are skipped.
    """
    controls = groupby(page["doses"], key=lambda point: (point["control"], point["benchmark"]))
    facts = {
        **page,
        "searches": list(map(_describe_run, page["searches"])),
        "answers": list(map(_describe_answer_run, page["answers"])),
        "controls": [_summarise_control(name, points) for (name, _), points in controls],
    }
    parts: list[dict[str, Any]] = []
    for sentence in render_list("error_rates", facts):
        if sentence.startswith("# "):
            parts.append({"heading": sentence.removeprefix("# "), "sentences": []})
        else:
            parts[-1]["sentences"].append(sentence)
    return [part for part in parts if part["sentences"]]


def _describe_run(result: Row) -> dict[str, Any]:
    """Add the columns ``made`` (time and code version), ``tried`` (attempts) and ``planned`` (sealed plan)."""
    made = ""
    if result["finished_at"] is not None:
        made = f"; ready on {format_day(result['finished_at'])}, code version {result['code_version']}"
    attempted = result["attempted"]
    return {**result, "made": made, "tried": describe_attempts(attempted), "planned": describe_plan(attempted)}


def _describe_answer_run(answer: Row) -> dict[str, Any]:
    labels_by = describe_label_origin(answer["builder"], answer["origin"], answer["design_stated_by"])
    return {**_describe_run(answer), "labels_by": labels_by, "words_alone": describe_blind_control(answer["blind"])}


def _summarise_control(name: str, points: Iterable[Row]) -> dict[str, Any]:
    exposed = []
    finish_times = []
    n_twin_texts = 0
    n_twin_found = 0
    for point in points:
        if point["role"] == EXPOSED:
            exposed.append(point)
            if point["finished_at"]:
                finish_times.append(point["finished_at"])
        elif point["role"] == TWIN:
            n_twin_texts += point["documents"]
            n_twin_found += point["n_reached"]
    return {
        "name": name,
        "points": exposed,
        "dose": describe_dose(exposed),
        "checked_at": max(finish_times, default=None),
        "twin_texts": n_twin_texts,
        "twin_found": n_twin_found,
    }


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
        teller=lambda stated_by: "you" if claims.is_stated_by_user(stated_by) else stated_by,
        without_verdict=_strip_verdict,
    )
    environment.globals.update(
        things=format_count_with_noun,
        best_of_several=claims.BEST_OF_SEVERAL,
        few_texts=claims.MIN_TEXTS_PER_SIDE,
        of_interest=claims.AUROC_OF_INTEREST,
        p_level=P_LEVEL,
        q_level=Q_LEVEL,
        accident=f"{Q_LEVEL:.0%}",
        reproduced_from=claims.REPRODUCED_FROM,
        too_short=claims.TOO_SHORT,
    )
    return environment


def _strip_verdict(headline: str) -> str:
    """Return a headline without its leading verdict, as a sentence."""
    for sign in SIGNS:
        headline = headline.removeprefix(f"{capitalise_first(sign)}: ")
    return capitalise_first(headline)

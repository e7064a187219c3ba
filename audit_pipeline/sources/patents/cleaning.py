"""Cleaning of Chinese texts before they are audited: what is taken out of a text, and which texts are left out.

Zhang et al. 2024 (section 2.2) clean their patents with "several preprocessing and cleaning steps similar to those used
in ChineseWebText" and do not list them. The rules and their thresholds here are those that ChineseWebText's tool chain
EvalWeb applies before its models (Chen et al. 2023: length, share of Chinese characters, repetition within a text).
The steps that mend a text are ours; docs/benchmarks/patentmia.md lists both, and what is not done.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from typing import Annotated

from pydantic import Field

from audit_pipeline.sources.base import SourceSection

Share = Annotated[float, Field(ge=0, le=1)]

_MOST_ROUNDS = 8

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HAN_CHARACTER = re.compile(f"[{_HAN}]")
# Chinese punctuation and full-width forms: around them a space is an artefact as well.
_CHINESE = rf"{_HAN}\u3001-\u301f\uff01-\uff5e\u201c\u201d\u2018\u2019\u2014\u2026"
_SPACE_IN_CHINESE = re.compile(f"(?<=[{_CHINESE}]) +(?=[{_CHINESE}])")

_LINE_END = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_COMMENT = re.compile(r"<!--[^<>]*-->")
# Names of elements only: patents compare quantities, as in a<b且c>d.
_BLOCK_TAG = re.compile(r"</?(?:p|br|div|li|ul|ol|tr|table|h[1-6]|section)(?:\s[^<>]{0,2000})?/?>", re.IGNORECASE)
_INLINE_TAG = re.compile(
    r"</?(?:span|sub|sup|b|i|u|em|strong|font|a|img|td|th|tbody|thead|maths|math|mi|mo|mn|mrow|msub|msup"
    r"|figure|figref|patent-text|abstract|para-num|claim-text|claim-ref)(?:\s[^<>]{0,2000})?/?>",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[^\S\n]+")
_PARAGRAPH_NUMBER = re.compile(r"^ ?[\[［【]\d{4,5}[\]］】] ?", re.MULTILINE)
_PAGE_FURNITURE = re.compile(
    r"^ ?(?:CN ?\d{7,12} ?[A-Z]\d?"  # the publication number at the head of a printed page
    r"|(?:说 ?明 ?书(?: ?附 ?图)?(?: ?摘 ?要)?|权 ?利 ?要 ?求 ?书) ?\d{1,3} ?/ ?\d{1,3} ?页?"  # 说明书 1/5 页
    r"|第? ?\d{1,3} ?/ ?\d{1,3} ?页) ?$\n?",
    re.MULTILINE,
)
# Control, format (zero-width, direction), private-use and surrogate characters, and the mark of a lost character.
_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cs"))
_KEPT_CONTROLS = "\n\t"
_LOST_CHARACTER = 0xFFFD


class CleaningRules(SourceSection):
    """Parameters of the cleaning; the defaults of the thresholds are EvalWeb's."""

    repeated_line_from: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=10, description="a line of so many characters or more is kept once in a text; None: all are kept"
    )
    more_than_characters: Annotated[int, Field(ge=0, strict=True)] = Field(
        default=200, description="a text of so many characters or fewer is left out"
    )
    mean_line: Annotated[float, Field(ge=0)] = Field(
        default=10, description="a text whose lines have fewer characters on average is left out"
    )
    chinese_share: Share = Field(
        default=0.3, description="a text with a smaller share of Chinese characters is left out"
    )
    repeated_share: Share = Field(
        default=0.5, description="a text is left out where more of its 13-character sequences occur twice or more"
    )


class NestedMarkupError(Exception):
    """A text whose markup is escaped over and over, so that cleaning it does not end."""


class _KeptCharacters(dict[int, int | None]):
    """A table for str.translate that drops characters by category, filled as they are met."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        dropped = code == _LOST_CHARACTER or (
            character not in _KEPT_CONTROLS and unicodedata.category(character) in _DROPPED_CATEGORIES
        )
        self[code] = None if dropped else code
        return self[code]


_KEPT = _KeptCharacters()


def remove_markup(text: str) -> str:
    """Without the remains of HTML: entities become their characters, tags of blocks line ends, others nothing.

    Only names of elements count as tags: a<b is a comparison. One layer of escaping comes off at a time.
    """
    text = _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)
    return _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", _COMMENT.sub("", text)))


def normalise_spaces(text: str) -> str:
    """Any run of white space within a line as one space, none at its ends nor between Chinese characters; no blank
    lines.
    """
    lines = (_SPACE_IN_CHINESE.sub("", line).strip() for line in _SPACES.sub(" ", text).split("\n"))
    return "\n".join(line for line in lines if line)


def remove_repeated_lines(text: str, minimum_length: int | None) -> str:
    """Return each line of ``minimum_length`` characters or more once, at its first place; shorter lines always."""
    if minimum_length is None:
        return text
    seen: set[str] = set()
    kept: list[str] = []
    for line in text.split("\n"):
        if len(line) >= minimum_length:
            if line in seen:
                continue
            seen.add(line)
        kept.append(line)
    return "\n".join(kept)


def clean(text: str, rules: CleaningRules) -> str:
    """``text`` after every step, over again until none of them changes anything; so cleaning twice is cleaning once.

    Line ends become line feeds. Markup goes; so do control, zero-width, direction and private-use characters, lone
    surrogates and U+FFFD, numbers before paragraphs ([0001]), and lines with a publication or page number alone.
    Traditional characters, full-width forms, digits and Latin words stay as they are. Raises NestedMarkupError where
    that takes more than 8 rounds.
    """
    for _ in range(_MOST_ROUNDS):
        before = text
        text = remove_markup(_LINE_END.sub("\n", text)).translate(_KEPT)
        text = _PAGE_FURNITURE.sub("", _PARAGRAPH_NUMBER.sub("", normalise_spaces(text)))
        text = remove_repeated_lines(text, rules.repeated_line_from)
        if text == before:
            return text
    raise NestedMarkupError(f"markup within markup: more than {_MOST_ROUNDS} layers")


def find_broken_rule(text: str, rules: CleaningRules, body: str | None = None) -> str | None:
    """Return which rule the cleaned ``text`` breaks, as 'rule: detail'; None where it breaks none.

    Repetition is looked for in ``body`` where one is given: a patent's claims restate its description by law, which is
    not the noise that the rule is after.
    """
    length = len(text)
    if length <= rules.more_than_characters:
        return f"{rules.more_than_characters} characters or fewer: {length}"
    mean = length / (text.count("\n") + 1)
    if mean < rules.mean_line:
        return f"lines of fewer than {rules.mean_line:g} characters on average: {mean:.1f}"
    chinese = chinese_share(text)
    if chinese < rules.chinese_share:
        return f"fewer than {rules.chinese_share:.0%} Chinese characters: {chinese:.0%}"
    repeated = repeated_share(text if body is None else body)
    if repeated > rules.repeated_share:
        return f"more than {rules.repeated_share:.0%} of its 13-character sequences repeat: {repeated:.0%}"
    return None


def chinese_share(text: str) -> float:
    """Return the share of Han characters among all characters of ``text``, in [0, 1]; 0 for an empty text."""
    return len(_HAN_CHARACTER.findall(text)) / len(text) if text else 0.0


def repeated_share(text: str, size: int = 13) -> float:
    """Return the share, in [0, 1], of sequences of ``size`` characters that occur more than once, all counted.

    White space does not count and case makes no difference, as in EvalWeb; its code forgets the last sequence, this
    does not. 0 for a text shorter than ``size``.
    """
    joined = "".join(text.lower().split())
    counts = Counter(joined[start : start + size] for start in range(len(joined) - size + 1))
    total = counts.total()
    return sum(count for count in counts.values() if count > 1) / total if total else 0.0

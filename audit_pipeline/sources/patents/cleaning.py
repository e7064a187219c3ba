"""Cleaning of Chinese texts before an audit: removal of characters and lines, and rules for skipping texts.

Zhang et al. 2024 (section 2.2) clean their patents with "several preprocessing and cleaning steps similar to those used
in ChineseWebText" and do not list the steps. The rules and thresholds here are those of EvalWeb, the tool chain of
ChineseWebText (Chen et al. 2023): length, share of Chinese characters, repetition within a text. The steps that change
a text are not from EvalWeb. docs/benchmarks/patentmia.md lists the rules and the steps.
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

_MAX_ROUNDS = 8

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_HAN_CHARACTER = re.compile(f"[{_HAN}]")
# Spaces next to Han characters, Chinese punctuation and full-width forms are artefacts of conversion.
_CHINESE = rf"{_HAN}\u3001-\u301f\uff01-\uff5e\u201c\u201d\u2018\u2019\u2014\u2026"
_SPACE_IN_CHINESE = re.compile(f"(?<=[{_CHINESE}]) +(?=[{_CHINESE}])")

_LINE_END = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_COMMENT = re.compile(r"<!--[^<>]*-->")
# Only names of elements count as tags, because patents compare quantities, as in a<b且c>d.
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
# The cleaning removes control, format (zero-width, direction), private-use and surrogate characters. It also removes
# U+FFFD, which replaces a lost character.
_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cs"))
_KEPT_CONTROLS = "\n\t"
_LOST_CHARACTER = 0xFFFD


class CleaningRules(SourceSection):
    """The settings of the cleaning of Chinese texts. The default thresholds are those of EvalWeb."""

    repeated_line_from: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=10,
        description="minimum length of lines whose repetitions are removed, in characters; None: none is removed",
    )
    more_than_characters: Annotated[int, Field(ge=0, strict=True)] = Field(
        default=200, description="a text is skipped if it has at most this number of characters"
    )
    mean_line: Annotated[float, Field(ge=0)] = Field(
        default=10, description="a text is skipped if its lines have fewer characters on average"
    )
    chinese_share: Share = Field(
        default=0.3, description="a text is skipped if its share of Chinese characters is smaller (0 to 1)"
    )
    repeated_share: Share = Field(
        default=0.5,
        description="a text is skipped if a larger share of its 13-character sequences is repeated (0 to 1)",
    )


class NestedMarkupError(Exception):
    """An error for a text that eight rounds of cleaning do not finish, because its markup is escaped several times."""


class _KeptCharacters(dict[int, int | None]):
    """A table for str.translate that removes characters by Unicode category. Entries are computed on demand."""

    def __missing__(self, code: int) -> int | None:
        is_dropped = code == _LOST_CHARACTER
        if chr(code) not in _KEPT_CONTROLS and unicodedata.category(chr(code)) in _DROPPED_CATEGORIES:
            is_dropped = True
        self[code] = None if is_dropped else code
        return self[code]


_KEPT = _KeptCharacters()


def remove_markup(text: str) -> str:
    """Remove the remains of HTML. Entities become characters, block tags become line ends, other tags are removed.

    Only names of elements count as tags, because a<b is a comparison. Each call removes one layer of escaping.
    """
    text = _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)
    return _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", _COMMENT.sub("", text)))


def normalise_spaces(text: str) -> str:
    """Normalise white space: single spaces within lines, no spaces between Chinese characters, no blank lines."""
    lines = [_SPACE_IN_CHINESE.sub("", line).strip() for line in _SPACES.sub(" ", text).split("\n")]
    return "\n".join(filter(None, lines))


def remove_repeated_lines(text: str, minimum_length: int | None) -> str:
    """Remove repetitions of lines with ``minimum_length`` characters or more. None removes nothing."""
    if minimum_length is None:
        return text
    seen: set[str] = set()
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) >= minimum_length:
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines)


def clean(text: str, rules: CleaningRules) -> str:
    """Clean a text. The steps are repeated until they change nothing, so that a second call changes nothing.

    Line ends become line feeds. These parts are removed: markup; control, zero-width, direction and private-use
    characters; lone surrogates and U+FFFD; paragraph numbers ([0001]); lines with only a publication or page number.
    Traditional characters, full-width forms, digits and Latin words stay unchanged.

    Raises:
        NestedMarkupError: If more than 8 rounds are necessary.
    """
    for _ in range(_MAX_ROUNDS):
        before = text
        text = remove_markup(_LINE_END.sub("\n", text)).translate(_KEPT)
        text = _PAGE_FURNITURE.sub("", _PARAGRAPH_NUMBER.sub("", normalise_spaces(text)))
        text = remove_repeated_lines(text, rules.repeated_line_from)
        if text == before:
            return text
    raise NestedMarkupError(f"the text still contains markup within markup after {_MAX_ROUNDS} rounds of cleaning")


def find_broken_rule(text: str, rules: CleaningRules, body: str | None = None) -> str | None:
    """Return a message about the first rule that a cleaned text breaks, or None if it breaks no rule.

    Args:
        text: The cleaned text.
        rules: The rules.
        body: The part of the text that is searched for repetitions. By default the whole text. By law, the claims of a
            patent repeat its description. So they should not be part of ``body``.
    """
    length = len(text)
    if length <= rules.more_than_characters:
        return f"the text has only {length} characters; more than {rules.more_than_characters} are required"
    mean = length / (text.count("\n") + 1)
    if mean < rules.mean_line:
        return f"the lines have only {mean:.1f} characters on average; at least {rules.mean_line:g} are required"
    chinese = compute_chinese_share(text)
    if chinese < rules.chinese_share:
        return f"only {chinese:.0%} of the characters are Chinese; at least {rules.chinese_share:.0%} are required"
    repeated = compute_repeated_share(text if body is None else body)
    if repeated > rules.repeated_share:
        return (
            f"{repeated:.0%} of the 13-character sequences are repeated; at most {rules.repeated_share:.0%} are allowed"
        )
    return None


def compute_chinese_share(text: str) -> float:
    """Return the share of Han characters among all characters of ``text``, in [0, 1]; 0 for an empty text."""
    return len(_HAN_CHARACTER.findall(text)) / len(text) if text else 0.0


def compute_repeated_share(text: str, size: int = 13) -> float:
    """Return the share of sequences of ``size`` characters that occur more than once, in [0, 1].

    White space and case are ignored, as in EvalWeb. EvalWeb's code omits the last sequence, and this function
    includes it. The share is 0 for a text shorter than ``size``.
    """
    joined = "".join(text.lower().split())
    counts = Counter(joined[start : start + size] for start in range(len(joined) - size + 1))
    if not counts:
        return 0.0
    return sum(count for count in counts.values() if count > 1) / counts.total()

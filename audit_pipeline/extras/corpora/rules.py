"""The rules by which a text counts as found in a corpus, each with the work that it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from audit_pipeline.errors import ConfigError

FEWEST_WORDS = 4
Measure = Literal["evidence", "any", "runs", "words"]


@dataclass(frozen=True)
class OverlapRule:
    """When a text counts as contaminated.

    ``n``: words on end that are looked for. ``measure``: what the share is of: ``any`` (one run is enough), ``runs``
    (the text's runs of n words) or ``words`` (its words that lie in such a run). ``share``: the least that counts. Of
    the rule of ``evidence`` (evidence_rule.py) runs of n words are where an alignment begins, and ``share`` of its
    words have to be equal.
    """

    name: str
    n: int
    measure: Measure
    share: float
    source: str

    @property
    def shortest(self) -> int:
        """The fewest words of a text that can be looked for."""
        return min(self.n, FEWEST_WORDS) if self.measure == "evidence" else self.n

    def is_contaminated(self, share_of_runs: float, share_of_words: float) -> bool:
        """Return whether a text of which these shares were found counts."""
        if self.measure == "any":
            return share_of_runs > 0
        return (share_of_runs if self.measure == "runs" else share_of_words) >= self.share


RULES: Mapping[str, OverlapRule] = {
    rule.name: rule
    for rule in (
        OverlapRule("evidence", 5, "evidence", 0.8, "docs/overlap.md: more than chance explains"),
        OverlapRule("gpt-3", 13, "any", 0.0, "Brown et al. 2020, appendix C: a run of 13 words in common"),
        OverlapRule("palm", 8, "runs", 0.7, "Chowdhery et al. 2022, section 8: 70% of the 8-grams in common"),
        OverlapRule(
            "llama-2", 11, "words", 0.8, "Touvron et al. 2023, A.6: 80% of it in runs longer than 10, here words"
        ),
        OverlapRule("tulu-3", 8, "words", 0.5, "Lambert et al. 2024, section 3.2: half of it in 8-grams in common"),
    )
}
DEFAULT_RULE = "evidence"


def choose_rule(name: str = DEFAULT_RULE, n: int | None = None) -> OverlapRule:
    """The rule of this name, with other words on end where ``n`` is given; raises ConfigError where there is none."""
    if name not in RULES:
        raise ConfigError(f"there is no rule {name}: use one of {', '.join(RULES)}")
    rule = RULES[name]
    if n is None or n == rule.n:
        return rule
    if n < FEWEST_WORDS:
        raise ConfigError(f"{n} words on end are in every corpus: look for at least {FEWEST_WORDS}")
    return OverlapRule(f"{name}, {n} words", n, rule.measure, rule.share, rule.source)

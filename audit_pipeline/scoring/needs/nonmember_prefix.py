"""The text behind a prefix of known non-members.

What belongs here: which side the prefix is of. What does not: all else, which both sides share (scoring/prefixes.py).
"""

from __future__ import annotations

from audit_pipeline.detectors.recall import NONMEMBER_PREFIX
from audit_pipeline.scoring import prefixes


class NonmemberPrefixProvider(prefixes.PrefixProvider):
    """Prefixes of known non-members."""

    need = NONMEMBER_PREFIX
    side = prefixes.NON_MEMBERS

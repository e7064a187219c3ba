"""The text behind a prefix of known members.

What belongs here: which side the prefix is of. What does not: all else, which both sides share (scoring/prefixes.py).
"""

from __future__ import annotations

from audit_pipeline.scoring import prefixes
from audit_pipeline.scoring.known_texts import MEMBERS


class MemberPrefixProvider(prefixes.PrefixProvider):
    """Prefixes of known members."""

    need = MEMBERS.need
    side = MEMBERS

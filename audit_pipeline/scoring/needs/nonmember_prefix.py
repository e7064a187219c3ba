"""The text behind a prefix of known non-members.

What belongs here: which side the prefix is of. What does not: all else, which both sides share (scoring/prefixes.py).
"""

from __future__ import annotations

from audit_pipeline.scoring import prefixes
from audit_pipeline.scoring.known_texts import NON_MEMBERS


class NonmemberPrefixProvider(prefixes.PrefixProvider):
    """Prefixes of known non-members."""

    need = NON_MEMBERS.need
    side = NON_MEMBERS

"""The sensor that looks at the hub for new models, and proposes them. Off until somebody turns it on.

What belongs here: the tick. What does not: asking the hub, and what becomes a proposal (models/watch.py).
"""

import dagster as dg

from audit_pipeline.models.config import load_models
from audit_pipeline.models.watch import list_candidates, load_watched, proposals_path, propose, write_proposals


@dg.sensor(
    minimum_interval_seconds=6 * 3600,
    description="Looks at the organisations and collections of config/watch.yaml on the hub and writes the models that "
    "are not configured yet to config/models.proposed.yaml. It audits nothing: moving an entry to models.yaml does.",
)
def hub_watcher(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """One look at the hub; raises TransientError where it cannot be reached, and looks again at the next tick."""
    listed = load_watched()
    watched = listed.named("hub") if "hub" in listed.names else ()
    if not watched:
        return dg.SkipReason("config/watch.yaml names no organisation or collection to watch")
    candidates = [candidate for name in watched for candidate in list_candidates(name)]
    proposals = propose(candidates, load_models())
    changed = write_proposals(proposals_path(), proposals)
    state = "written to" if changed else "as before in"
    return dg.SkipReason(f"{len(proposals.entries)} of {len(candidates)} models proposed, {state} {proposals_path()}")

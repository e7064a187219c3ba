"""The sensor that watches the hub, and the sensors of extras, found in their modules ``sensors``."""

from collections.abc import Mapping, Sequence

import dagster as dg
from huggingface_hub import ModelInfo

from audit_pipeline import extras
from audit_pipeline.config.plugins import collect_by_name
from audit_pipeline.models import model_proposals
from audit_pipeline.models.config import load_models


@dg.sensor(
    minimum_interval_seconds=6 * 3600,
    description="Looks up the owners in config/watch.yaml on the hub and writes their models that are not configured "
    "yet to config/models.proposed.yaml. It audits nothing. To audit a model, move its entry to models.yaml.",
)
def hub_watcher(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Write the models of watched owners that are not configured yet to config/models.proposed.yaml.

    Raises:
        TransientError: If the hub cannot be reached. The next tick tries again.
    """
    listed = model_proposals.load_watched()
    watched: Sequence[str] = ()
    if "hub" in listed.names:
        watched = listed.get_entry("hub")
    if not watched:
        return dg.SkipReason("config/watch.yaml names no owner to watch")
    candidates: list[ModelInfo] = []
    for owner in watched:
        candidates += model_proposals.list_candidates(owner)
    proposals = model_proposals.propose_entries(candidates, load_models())
    model_proposals.write_proposals(model_proposals.proposals_path(), proposals)
    return dg.SkipReason(f"{len(proposals)} of {len(candidates)} models proposed in {model_proposals.proposals_path()}")


_OF_EXTRAS: Mapping[str, dg.SensorDefinition] = collect_by_name(
    extras.find_modules("sensors"),
    label="sensors",
    is_wanted=lambda value: isinstance(value, dg.SensorDefinition),
    name_of=lambda sensor: sensor.name,
)
SENSORS = [*_OF_EXTRAS.values(), hub_watcher]

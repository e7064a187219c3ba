"""What assets are told of time and of what comes before them: automation conditions and freshness policies.

What belongs here: the two, where several assets share them. What does not: schedules and sensors.
"""

from datetime import timedelta

import dagster as dg

from audit_pipeline.operate.dagster.groups import REPORTS

REBUILT = (
    dg.AutomationCondition.any_deps_match(dg.AutomationCondition.newly_updated()).since(
        dg.AutomationCondition.newly_requested()
    )
    & ~dg.AutomationCondition.in_progress()
).with_label("rebuilt when anything upstream was")
"""For what is rebuilt whole, however much is missing upstream: eager() would wait for every partition, so for ever.

Not any_deps_updated().since_last_handled() either: the two are made of "and" and "or", which forget when a thing
happened, so that what is updated while a rebuild runs would be taken for handled by it. Without them the later of
update and request decides, and the last pair of an audit is never left out.
"""

FOLLOWS = (
    dg.AutomationCondition.any_deps_updated().since_last_handled() & ~dg.AutomationCondition.in_progress()
).with_label("rebuilt with what it is made of")
"""For what is made of one asset, in the same run as that."""

WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=15), warn_window=timedelta(days=8))
"""For what every weekly audit materialises, sources, warehouse and report: late after a week and a day."""

QUARTERLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=184), warn_window=timedelta(days=92))
"""For findings, which are materialised only where something was new: so long without any, somebody should look why."""

publish_sensor = dg.AutomationConditionSensorDefinition(
    "publish_what_is_new",
    target=dg.AssetSelection.groups(REPORTS),
    minimum_interval_seconds=30,
    description="Rebuilds the warehouse after any audit, and then the report.",
)

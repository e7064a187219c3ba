"""The Dagster side of audits: assets, partitions, resources, jobs, sensors, and the runner of commands."""

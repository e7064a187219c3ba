"""Dagster's other half: partitions, resources, jobs and the in-process runner of the command line."""

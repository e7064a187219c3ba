"""The HTTP client of the whole project: limits, retries, pauses, redaction of keys, and the errors of requests.

Model servers, chat, timestamps, alerts, the package index, crawls and the hub use it. From this project,
the package imports only audit_pipeline.errors.
"""

"""One HTTP client for everything: limits, retries, redaction of keys, pauses, and one vocabulary of errors.

Model servers, chat, timestamps, alerts, the package index, crawls and the hub use it. It imports nothing else of ours
except the errors that a user can act on.
"""

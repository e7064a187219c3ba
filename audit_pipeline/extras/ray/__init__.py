"""The back end for one model on several machines: workers of a Ray cluster run the texts in shards."""

"""Running one model on several machines: the workers of a Ray cluster hold it and run texts in shards."""

"""Running one model on several machines: texts in shards, workers that hold the model, and what becomes of both."""

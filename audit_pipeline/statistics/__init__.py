"""Arrays in, numbers out: metrics, intervals, and all that is concluded from scores."""

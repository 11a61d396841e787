"""One simulated Spark: the outside world of the demo and of tests, seen through the real adapters."""

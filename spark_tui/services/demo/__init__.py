"""A simulated Spark: the same ports, fed with recorded data, so that the program can be tried without one."""

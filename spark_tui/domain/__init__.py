"""What is true about serving a model on a Spark: frozen values and pure functions, with msgspec alone."""

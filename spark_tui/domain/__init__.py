"""What is true about serving a model on a Spark: frozen values and pure functions, standard library only."""

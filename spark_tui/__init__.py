"""spark-tui: the terminal control centre for serving language models on an NVIDIA DGX Spark."""

__version__ = "0.10.0"

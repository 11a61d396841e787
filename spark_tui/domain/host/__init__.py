"""The machine: memory, GPU, identity."""

"""The serving engine: its container, its log, its state."""

"""Checkpoints: what their files say, and what that costs in memory and time."""

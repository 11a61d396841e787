"""Presets, their flags, and the container they become."""

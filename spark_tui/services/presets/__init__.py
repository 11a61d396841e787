"""The presets of services."""

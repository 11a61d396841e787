"""The rules of presets."""

"""Launches over several machines."""

"""Widgets that each paint one thing."""

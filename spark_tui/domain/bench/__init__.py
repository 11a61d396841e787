"""Benchmarks: what is asked, what was measured, what it means, and what it may be compared with."""

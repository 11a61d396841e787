"""What scripts rely on, recorded: the commands with their options, the JSON of each, and every shipped launch.

Record them again, after a change that is meant: .venv/bin/python -m tests.golden.record
"""

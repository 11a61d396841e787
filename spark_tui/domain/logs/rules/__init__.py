"""The rules of logs."""

"""The causes of logs."""

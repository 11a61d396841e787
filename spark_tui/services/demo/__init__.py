"""The world of the simulated Spark, for which `spark_tui.simulator` answers on the wire, and the ports that are
simulated as such: host, models, Hub, load, history."""

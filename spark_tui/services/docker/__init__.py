"""The Docker daemon, through its SDK; the memory guard's own way to it is `socket`."""

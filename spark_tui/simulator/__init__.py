"""One simulated Spark on the wire: what the real adapters ask of Docker and of engines is answered over HTTP/1.1 on a
private unix socket, from a world that depends on its clock alone."""

"""Workers that run maps: a pool of processes on this machine, or of Ray workers on a cluster."""

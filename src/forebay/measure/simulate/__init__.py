"""Simulation of feeds on a cluster: their speed, the bottleneck, and the lost GPU hours.

scenario.py       the description: data, training, maps, hosts, store, remote nodes
scenario_file.py  reads a scenario from TOML, with changes from the command line and speeds from a probe
server.py         a resource that processes batches: a disk, a link, a pool of workers
route.py          the servers that a batch passes, in order
simulate.py       the training steps of all ranks
outcome.py        the bottleneck, the gain of doubling each part, and the lost GPU hours
"""

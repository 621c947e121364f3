"""Simulation of a feed on a cluster: its speed, its bottleneck, and the cost of waiting.

scenario.py       the description: data, training, maps, hosts, store, remote nodes
scenario_file.py  reads a scenario from TOML, with changes from the command line and speeds from a probe
server.py         something that serves one batch after the other: a disk, a link, a pool of workers
route.py          the servers that a batch passes, in order
simulate.py       the training steps of all ranks
outcome.py        the bottleneck, the gain of doubling each part, and the GPU hours lost
"""

"""Clusters that are not there, on paper: how a feed would run on them, what would hold it back, what that costs.

scenario.py    what is described: data, training, maps, hosts, store, remote nodes
described.py   the description read from TOML, changed by a word on the command line, filled in by a probe
station.py     something that serves one batch after the other: a disk, a link, a pool of workers
way.py         the stations that a batch passes, in order
simulate.py    steps of all ranks over those stations
outcome.py     the pace, what sets it, what doubling each part would win, what it costs
"""

"""`forebay bench`: compare Forebay with other data loaders on this machine.

A case is one workload. Its entries are the contenders that run this workload. Each entry runs in a separate process,
because frameworks clash in one process. The processes of a case run in turn, round after round, so that other load on
the machine affects all of them alike.

cases/               the workloads, their entries and the targets of this project
contenders/          one file per framework: how each contender loads the data
consumers/           one file per framework: what receives the batches on a device
meters/              how a number is measured
steps/               training steps that run between the batches
run.py               runs the entries of a case in turn
contender_main.py    the program of a contender's process
contender_process.py the runner's handle of that process
results.py           samples, medians and ratios; `results_file.py` saves them, `table.py` prints them
"""

"""`forebay bench`: compare Forebay with other data loaders on this machine.

A case is one workload with several entries. An entry is a contender, which is a loader that runs the workload, with its
options. Each entry runs in a separate process, because frameworks clash in one process. The processes of a case run in
turn, round after round, so that other load on the machine affects all of them equally.

cases/               the workloads, their entries and performance targets
contenders/          one file per framework: functions that load the data
consumers/           one file per framework: code that receives the batches on a device
meters/              one file per kind of measurement
steps/               training steps that a consumer runs between the batches
run.py               runs the entries of a case in turn
contender_main.py    the program of a contender process
contender_process.py starts and ends such a process, and sends requests to it
results.py           samples, medians and ratios; `results_file.py` saves them, `table.py` prints them
"""

"""Timelines of equal steps, and their simulated step time. All times are in seconds."""

from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, simulate_steps

__all__ = ["READ", "STEPS", "UPLOAD", "median_step", "steps", "uploads"]

STEPS = 20
UPLOAD, READ = 3, 7  # line numbers


def steps(make, count=STEPS):
    """Return a timeline of equal steps.

    `make(first)` returns the actions and operations of a step, numbered from `first`.
    """
    actions, operations = [], []
    for _ in range(count):
        step_actions, step_operations = make(len(operations))
        actions += step_actions
        operations += step_operations
    return Timeline(tuple(actions), tuple(operations))


def median_step(timeline):
    lengths = sorted(simulate_steps(timeline))
    return lengths[len(lengths) // 2]


def uploads(first):
    """Copy for 3 s while the host is blocked, then compute for 4 s."""
    actions = [
        HostAction(0.5, (first,), line=UPLOAD, kind="upload"),
        HostAction(0.0, awaited_operations=(first,), line=UPLOAD, kind="upload"),
        HostAction(0.5, (first + 1,), kind="launch"),
        HostAction(0.0, awaited_operations=(first + 1,), ends_step=True),
    ]
    return actions, [DeviceOperation(3.0, engine="host to device", line=UPLOAD, nbytes=300), DeviceOperation(4.0)]

"""What can go wrong, as one tree.

    ForebayError
    ├── SpecError (ValueError)            shapes, dtypes or trees that do not fit together
    ├── PipelineError (ValueError)        a verb that makes no sense where it stands
    ├── SourceError (ValueError)          data that cannot be read as what it claims to be
    │   ├── SourceChangedError (OSError)  a file that vanished, shrank or was replaced while it was being read
    │   └── StoreError (OSError)          a store that cannot be reached, refuses, or fails
    ├── TransformError (ValueError)       a map that returned what it must not
    ├── StateError (ValueError)           a state that belongs to another pipeline, or is damaged
    ├── BudgetError (ValueError)          a byte budget too small for a single batch
    ├── FrameworkError (ImportError)      a framework that is unknown or not installed
    ├── DeviceError (RuntimeError)        a device that is not there, or fails
    │   └── DeviceMemoryError (MemoryError)
    ├── FeedError (RuntimeError)          a feed used in a way it cannot be
    │   └── FeedClosedError
    ├── WorkerError (RuntimeError)        a worker process that died
    │   └── ClusterError (ConnectionError)  a cluster that cannot be reached, or whose nodes do not fit
    ├── CaptureError (ValueError)         a capture of the doctor's that cannot be read
    └── ScenarioError (ValueError)        a cluster described in a way that cannot be simulated

Each also is the built-in error a caller would think of catching. An error raised by the user's own code
(a map, a generator) keeps its type and its traceback; where it happened is added as a note.
"""

__all__ = [
    "BudgetError",
    "CaptureError",
    "ClusterError",
    "DeviceError",
    "DeviceMemoryError",
    "FeedClosedError",
    "FeedError",
    "ForebayError",
    "FrameworkError",
    "PipelineError",
    "ScenarioError",
    "SourceChangedError",
    "SourceError",
    "SpecError",
    "StateError",
    "StoreError",
    "TransformError",
    "WorkerError",
]


class ForebayError(Exception):
    """The root of every error Forebay raises by itself."""


class SpecError(ForebayError, ValueError):
    """Shapes, dtypes or trees that do not fit together."""


class PipelineError(ForebayError, ValueError):
    """A verb that makes no sense where it stands in the pipeline."""


class SourceError(ForebayError, ValueError):
    """Data that cannot be read as what it claims to be."""


class SourceChangedError(SourceError, OSError):
    """A file that vanished or shrank while it was being read."""


class StoreError(SourceError, OSError):
    """A store that cannot be reached, refuses, or fails."""


class TransformError(ForebayError, ValueError):
    """A map that returned something the pipeline cannot carry."""


class StateError(ForebayError, ValueError):
    """A state that belongs to another pipeline, or is damaged."""


class BudgetError(ForebayError, ValueError):
    """A byte budget that is too small for the work asked for."""


class FrameworkError(ForebayError, ImportError):
    """A framework that is unknown to Forebay, or not installed."""


class DeviceError(ForebayError, RuntimeError):
    """A device that is not there, or fails."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device that has no memory left to give."""


class FeedError(ForebayError, RuntimeError):
    """A feed used in a way it cannot be used."""


class FeedClosedError(FeedError):
    """A feed that was closed while somebody waited for it, or before."""


class WorkerError(ForebayError, RuntimeError):
    """A worker process that died before it gave its answer."""


class ClusterError(WorkerError, ConnectionError):
    """A cluster that cannot be reached, has no room, or whose nodes do not fit together."""


class CaptureError(ForebayError, ValueError):
    """A file that is not a capture, or one of another version."""


class ScenarioError(ForebayError, ValueError):
    """A cluster described in a way that cannot be simulated."""

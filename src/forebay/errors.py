"""All exceptions that Forebay raises.

    ForebayError
    ├── SpecError (ValueError)              shapes, dtypes or trees do not match
    ├── PipelineError (ValueError)          a pipeline method got invalid arguments or was called in the wrong order
    ├── SourceError (ValueError)            data cannot be read in its declared format
    │   ├── SourceChangedError (OSError)    a file was removed, truncated or replaced during a read
    │   └── StoreError (OSError)            an object store is unreachable, denies access or fails
    ├── TransformError (ValueError)         a map returned data that the pipeline cannot accept
    ├── StateError (ValueError)             a state dict is damaged or belongs to another pipeline
    ├── BudgetError (ValueError)            a byte budget is too small for the data that it must hold
    ├── FrameworkError (ImportError)        a framework is unknown or not installed
    ├── DeviceError (RuntimeError)          a device is missing or fails
    │   └── DeviceMemoryError (MemoryError) a device has too little free memory
    ├── FeedError (RuntimeError)            a feed is used incorrectly
    │   └── FeedClosedError                 a feed is used after close(), or closed while a thread waits
    ├── WorkerError (RuntimeError)          a worker process died
    │   └── ClusterError (ConnectionError)  a Ray cluster is unreachable, has too few CPUs or mixed versions
    ├── CaptureError (ValueError)           the doctor cannot run a script, read a capture or write a report
    └── ScenarioError (ValueError)          a scenario of `forebay scale` cannot be simulated

Each class also inherits the built-in exception shown in parentheses, so `except ValueError` works. An exception from
user code (a map or a generator) keeps its type and traceback. Forebay adds a note that says where it happened.
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
    """Base class of every exception that Forebay raises itself."""


class SpecError(ForebayError, ValueError):
    """Shapes, dtypes or trees do not match."""


class PipelineError(ForebayError, ValueError):
    """A pipeline method got invalid arguments or was called in the wrong order."""


class SourceError(ForebayError, ValueError):
    """Data cannot be read in its declared format."""


class SourceChangedError(SourceError, OSError):
    """A file was removed, truncated or replaced during a read."""


class StoreError(SourceError, OSError):
    """An object store is unreachable, denies access or fails."""


class TransformError(ForebayError, ValueError):
    """A map returned data that the pipeline cannot accept."""


class StateError(ForebayError, ValueError):
    """A state dict is damaged or belongs to another pipeline."""


class BudgetError(ForebayError, ValueError):
    """A byte budget is too small for the data that it must hold."""


class FrameworkError(ForebayError, ImportError):
    """A framework is unknown to Forebay or not installed."""


class DeviceError(ForebayError, RuntimeError):
    """A device is missing or fails."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has too little free memory."""


class FeedError(ForebayError, RuntimeError):
    """A feed is used incorrectly."""


class FeedClosedError(FeedError):
    """A feed is used after close(), or was closed while a thread waited for it."""


class WorkerError(ForebayError, RuntimeError):
    """A worker process died before it returned its result."""


class ClusterError(WorkerError, ConnectionError):
    """A Ray cluster is unreachable, has too few CPUs, or mixes software versions.

    All nodes need the same versions of Python, Ray and Forebay.
    """


class CaptureError(ForebayError, ValueError):
    """The doctor cannot run a script, read a capture or write a report."""


class ScenarioError(ForebayError, ValueError):
    """A scenario of `forebay scale` cannot be simulated."""

"""The exceptions of Forebay.

    ForebayError
    ├── SpecError (ValueError)              shapes, dtypes, trees or field names are invalid or do not match
    ├── PipelineError (ValueError)          a pipeline method got invalid arguments or was called in the wrong order
    │   └── UnknownNameError (AttributeError)  a pipeline, a feed or `forebay` lacks an attribute of other libraries
    ├── SourceError (ValueError)            a source cannot be opened or read, or has no rows
    │   ├── SourceChangedError (OSError)    a file was deleted or changed after the pipeline opened it
    │   └── StoreError (OSError)            an object store is unreachable, denies access or fails
    ├── TransformError (ValueError)         a map returned invalid data or failed too often, or one_hot got
    │                                       invalid labels
    ├── StateError (ValueError)             a feed cannot resume: the state is damaged or of another pipeline
    ├── BudgetError (ValueError)            a budget is too small for the data that it must hold
    ├── FrameworkError (ImportError)        a framework is unknown, or a needed package is not installed
    ├── DeviceError (RuntimeError)          a device is missing or fails
    │   └── DeviceMemoryError (MemoryError) a device has too little free memory
    ├── FeedError (RuntimeError)            a feed is used incorrectly
    │   └── FeedClosedError                 a feed is used after close(), or was closed while a thread waited for it
    ├── WorkerError (RuntimeError)          a worker process cannot start, or died
    │   └── ClusterError (ConnectionError)  a Ray cluster is unreachable, has too few CPUs or mixes software versions
    ├── CaptureError (ValueError)           the doctor cannot run a script, read a capture or write a report
    └── ScenarioError (ValueError)          a scenario of `forebay scale` cannot be simulated

Each class also inherits the built-in exception shown in parentheses, so `except ValueError` works. An exception from
user code (a map or a generator) keeps its type and traceback. Forebay adds a note that says which map or rows failed.
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
    "UnknownNameError",
    "WorkerError",
]


def escape_control_characters(text: str) -> str:
    """Return the text with its control characters, except line feeds, as Python escapes."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1] for character in text
    )


class ForebayError(Exception):
    """Base class of the exceptions of Forebay."""

    def __str__(self) -> str:
        """Return the message with escaped control characters.

        A message may quote a name from a file. Control characters in this name could manipulate the user's terminal.
        """
        return escape_control_characters(super().__str__())


class SpecError(ForebayError, ValueError):
    """Shapes, dtypes, trees or field names are invalid or do not match."""


class PipelineError(ForebayError, ValueError):
    """A pipeline method got invalid arguments or was called in the wrong order."""


class UnknownNameError(PipelineError, AttributeError):
    """A pipeline, a feed or the module `forebay` lacks an attribute of other libraries.

    The message says what to write instead.
    """


class SourceError(ForebayError, ValueError):
    """A source cannot be opened or read, or has no rows."""


class SourceChangedError(SourceError, OSError):
    """A file was deleted or changed after the pipeline opened it."""


class StoreError(SourceError, OSError):
    """An object store is unreachable, denies access or fails."""


class TransformError(ForebayError, ValueError):
    """A map returned invalid data or failed too often, or one_hot got invalid labels."""


class StateError(ForebayError, ValueError):
    """A feed cannot resume, because the state is damaged or of another pipeline."""


class BudgetError(ForebayError, ValueError):
    """A budget is too small for the data that it must hold."""


class FrameworkError(ForebayError, ImportError):
    """A framework is unknown to Forebay, or a needed package is not installed."""


class DeviceError(ForebayError, RuntimeError):
    """A device is missing or fails."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has too little free memory."""


class FeedError(ForebayError, RuntimeError):
    """A feed is used incorrectly."""


class FeedClosedError(FeedError):
    """A feed is used after close(), or was closed while a thread waited for it."""


class WorkerError(ForebayError, RuntimeError):
    """A worker process cannot start, or died before it returned its result."""


class ClusterError(WorkerError, ConnectionError):
    """A Ray cluster is unreachable, has too few CPUs, or mixes software versions.

    All nodes need the same versions of Python, Ray and Forebay.
    """


class CaptureError(ForebayError, ValueError):
    """The doctor cannot run a script, read a capture or write a report."""


class ScenarioError(ForebayError, ValueError):
    """A scenario of `forebay scale` cannot be simulated."""

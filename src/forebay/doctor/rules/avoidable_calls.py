"""Calls that most steps of a loop do not need, such as saving and printing."""

from dataclasses import dataclass

from forebay.doctor.rules.step_edits import without_counter

__all__ = ["AVOIDABLE_CALLS", "DRAWING", "EMPTY_CACHE", "PRINTING", "SAVING", "AvoidableCall"]

# Functions that free the device memory that PyTorch keeps for reuse.
EMPTY_CACHE = ("torch.cuda.memory.empty_cache", "torch.cuda.empty_cache")


@dataclass(frozen=True, slots=True)
class AvoidableCall:
    """Calls of one kind that most steps do not need, and their cure."""

    verb: str  # what the loop does with these calls
    names: tuple[str, ...]  # names of functions; a name with "." at its end stands for all functions of a module
    cure: str  # title of the cure
    code: str  # code of the cure; `{}` stands for the source text of the line with the call
    is_needed_at_end: bool = False  # whether the script needs the call after its last step

    def includes(self, function: str) -> bool:
        """Whether a function is one of these calls."""
        return any(function.startswith(name) if name.endswith(".") else function == name for name in self.names)


SAVING = AvoidableCall(
    "saves files",
    (
        "torch.save",
        "torch.serialization.",
        "torch.distributed.checkpoint.",
        "numpy.save",
        "numpy.lib._npyio_impl.save",
        "pickle.dump",
        "json.dump",
        "joblib.",
        "safetensors.",
        "orbax.",
        "flax.training.checkpoints.",
        "keras.src.saving.",
        "keras.src.callbacks.model_checkpoint.",
        "keras.src.models.model.Model.save",
        "keras.src.models.model.Model.save_weights",
        "tensorflow.python.checkpoint.",
    ),
    "save only every 1000th step, and at the end",
    without_counter("{}", 1000) + "\n# after the loop: save once more",
    is_needed_at_end=True,
)
PRINTING = AvoidableCall(
    "prints", ("builtins.print", "logging."), "print only every 100th step", without_counter("{}", 100)
)
DRAWING = AvoidableCall(
    "draws figures or images",
    ("matplotlib.", "PIL.Image.Image.save"),
    "draw figures only every 1000th step",
    without_counter("{}", 1000),
)
AVOIDABLE_CALLS = (
    SAVING,
    AvoidableCall("waits", ("time.sleep",), "remove the wait", "# remove this line: {}"),
    AvoidableCall(
        "collects garbage",
        ("gc.collect", *EMPTY_CACHE),
        "leave this to Python and to the framework",
        "# remove this line: {}",
    ),
    PRINTING,
    DRAWING,
)

"""Facts about tf.data pipelines, collected while the script creates their datasets."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.input_stages import dataset_facts

__all__ = ["API", "Pipelines", "api_of"]

API = "tf.data"

MAX_DATASETS = 100  # only this many datasets of a pipeline are examined


class Pipelines:
    """Facts about the datasets of pipelines.

    The first dataset of a pipeline is its root. Each further stage is a dataset made from earlier datasets.
    """

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # by dataset
        self._root_details: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # root -> detail of its event
        self._descriptions: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # by last dataset

    def add_root(self, dataset: Any, detail: dict[str, Any], **facts: Any) -> None:
        """Add a root. `add_stage` later adds the facts of further stages to `detail`."""
        self._root_details[dataset] = detail
        self._facts[dataset] = facts

    def add_stage(self, dataset: Any, **facts: Any) -> None:
        """Add the facts of a stage, also to the events of its roots.

        The facts "works" and "map_line" are only for `describe`, so the events do not get them.
        """
        self._facts[dataset] = facts
        event_facts = {name: value for name, value in facts.items() if name not in ("works", "map_line")}
        for ancestor in _with_ancestors(dataset):
            self._root_details.get(ancestor, {}).update(event_facts)

    def describe(self, dataset: Any) -> dict[str, Any]:
        """Return the detail of an input event for the last dataset of a pipeline.

        The hooks call this in every step, so it computes the detail only once.
        """
        description = self._descriptions.get(dataset)
        if description is None:
            description = self._descriptions[dataset] = self._describe(dataset)
        return dict(description)

    def _describe(self, dataset: Any) -> dict[str, Any]:
        """Return the detail of an input event.

        A prefetch counts only if no later stage does work, because it does not hide the time of later stages.
        """
        detail: dict[str, Any] = {"loader": "tf.data", "prefetch": 0}
        does_later_stage_work = False
        for stage in _with_ancestors(dataset):  # from the last stage to the first
            facts = self._facts.get(stage, {}) | dataset_facts.get(stage)
            prefetch = facts.pop("prefetch", None)
            if prefetch is not None and not does_later_stage_work:
                detail["prefetch"] = prefetch
            map_line = facts.pop("map_line", None)
            if map_line is not None and "batch_rows" in detail:  # a later stage makes the batches
                detail.setdefault("row_map", map_line)
            does_later_stage_work = facts.pop("works", False) or does_later_stage_work
            detail |= {name: value for name, value in facts.items() if name == "loader" or name not in detail}
        if detail["loader"] == "arrays":
            for name in ("workers", "row_map"):  # Keras chose these values, not the user
                detail.pop(name, None)
        return detail


def api_of(detail: dict[str, Any]) -> str:
    """Return the API name of an input event with this detail."""
    return "keras arrays" if detail.get("loader") == "arrays" else API


def _with_ancestors(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all datasets from which it is made, nearest first."""
    pending, visited_count = [dataset], 0
    while pending and visited_count < MAX_DATASETS:
        stage = pending.pop(0)
        yield stage
        pending += stage._inputs()
        visited_count += 1

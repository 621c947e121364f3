"""Facts about tf.data pipelines, collected while their datasets are created."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.input_stages import dataset_facts

__all__ = ["API", "Pipelines", "api_of"]

API = "tf.data"

MAX_DATASETS = 100  # of a chain


class Pipelines:
    """Facts about datasets and the datasets they are made from."""

    def __init__(self) -> None:
        self._facts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._root_details: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # of the events of roots

    def add_root(self, dataset: Any, detail: dict[str, Any], **facts: Any) -> None:
        """Add the first dataset of a chain. `detail` of its event is extended when the chain grows."""
        self._root_details[dataset] = detail
        self._facts[dataset] = facts

    def add_stage(self, dataset: Any, **facts: Any) -> None:
        self._facts[dataset] = facts
        shown = {name: value for name, value in facts.items() if name != "works"}
        for link in _chain(dataset):
            self._root_details.get(link, {}).update(shown)

    def describe(self, dataset: Any) -> dict[str, Any]:
        """Return the detail of an input event. A prefetch counts only if no stage after it does work."""
        found: dict[str, Any] = {"loader": "tf.data", "prefetch": 0}
        has_worked = False  # a stage that does work was found, starting from the end of the chain
        for link in _chain(dataset):
            facts = self._facts.get(link, {}) | dataset_facts.get(link)
            prefetch = facts.pop("prefetch", None)
            if prefetch is not None and not has_worked:
                found["prefetch"] = prefetch
            has_worked = facts.pop("works", False) or has_worked
            found |= {name: value for name, value in facts.items() if name == "loader" or name not in found}
        if found["loader"] == "arrays":
            found.pop("workers", None)  # threads that Keras started without a request of the user
        return found


def api_of(detail: dict[str, Any]) -> str:
    """Return the API name of an input event."""
    return "keras arrays" if detail.get("loader") == "arrays" else API


def _chain(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and all datasets it is made from, nearest first."""
    pending, visited = [dataset], 0
    while pending and visited < MAX_DATASETS:
        link = pending.pop(0)
        yield link
        pending += link._inputs()
        visited += 1

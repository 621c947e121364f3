"""What is known of a pipeline of tf.data: how it was put together, as its parts tell when they are made."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from forebay.doctor.capture.hooks.input_stages import loaders

__all__ = ["API", "Pipelines", "api_of"]

API = "tf.data"

DEEPEST = 100  # links of a chain


class Pipelines:
    """Facts of datasets, and of everything they are made from."""

    def __init__(self) -> None:
        self._parts: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
        self._roots: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # what was written down of them

    def add_root(self, dataset: Any, detail: dict[str, Any], **facts: Any) -> None:
        """A chain begins; `detail` is completed as it grows."""
        self._roots[dataset] = detail
        self._parts[dataset] = facts

    def add_part(self, dataset: Any, **facts: Any) -> None:
        self._parts[dataset] = facts
        told = {name: value for name, value in facts.items() if name != "works"}
        for link in _links(dataset):
            self._roots.get(link, {}).update(told)

    def of(self, dataset: Any) -> dict[str, Any]:
        """As an input event tells it; without a prefetch where the last work of the chain is not done ahead."""
        found: dict[str, Any] = {"loader": "tf.data", "prefetch": 0}
        worked = False  # whether a link that does work was met, going up from the end
        for link in _links(dataset):
            facts = self._parts.get(link, {}) | loaders.of(link)
            ahead = facts.pop("prefetch", None)
            if ahead is not None and not worked:
                found["prefetch"] = ahead
            worked = facts.pop("works", False) or worked
            found |= {name: value for name, value in facts.items() if name == "loader" or name not in found}
        if found["loader"] == "arrays":
            found.pop("workers", None)  # threads of Keras's own, which nobody has asked for
        return found


def api_of(detail: dict[str, Any]) -> str:
    """What an input event is called."""
    return "keras arrays" if detail.get("loader") == "arrays" else API


def _links(dataset: Any) -> Iterator[Any]:
    """A dataset, and all those it is made from, nearest first."""
    coming, met = [dataset], 0
    while coming and met < DEEPEST:
        link = coming.pop(0)
        yield link
        coming += link._inputs()
        met += 1

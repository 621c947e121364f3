"""Which kind of loader a dataset came from, where that does not show: told by whoever made it, asked by who waits."""

from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Fits", "Loaders", "fits", "loaders"]


class Loaders:
    """Holds no dataset alive."""

    def __init__(self) -> None:
        self._told: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def tell(self, dataset: Any, **facts: Any) -> None:
        self._told.setdefault(dataset, {}).update(facts)

    def of(self, dataset: Any) -> dict[str, Any]:
        return self._told.get(dataset, {})


class Fits:
    """Counts them, so that iterators of one `fit`, which makes one for every epoch, are told from those of many."""

    def __init__(self) -> None:
        self.begun = 0


fits = Fits()  # told by Keras, asked where TensorFlow makes an iterator
loaders = Loaders()  # between Keras, which makes datasets of arrays, and TensorFlow, which waits for them

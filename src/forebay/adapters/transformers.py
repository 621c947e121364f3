"""The Trainer of Hugging Face transformers, which also takes loaders where it takes datasets.

    from forebay.adapters.transformers import Trainer

    Trainer(model, arguments, train_dataset=pipeline.feed("loader")).train()

`TakesLoaders` does the same for other trainers that inherit from it: `class MyTrainer(TakesLoaders, SFTTrainer)`.
"""

from typing import Any

from forebay.errors import FrameworkError

try:
    import transformers
except ModuleNotFoundError as error:
    raise FrameworkError(
        "forebay.adapters.transformers needs transformers, which is not installed. Run: pip install transformers.",
        name="transformers",
    ) from error

from torch.utils.data import DataLoader

from forebay.adapters.loader.feed_loader import FeedLoader

__all__ = ["TakesLoaders", "Trainer"]


class TakesLoaders:
    """The methods of a trainer that return DataLoaders. A loader is returned as it is, and a dataset gets its own."""

    train_dataset: Any
    eval_dataset: Any

    def get_train_dataloader(self) -> DataLoader:
        if isinstance(self.train_dataset, FeedLoader):
            return self.train_dataset
        return super().get_train_dataloader()  # type: ignore[misc]  # of the trainer

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """Return the loader of an evaluation. `eval_dataset` may be a name in a dict of loaders and datasets."""
        found = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.eval_dataset[found] if isinstance(found, str) else found
        if isinstance(found, FeedLoader):
            return found
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]  # of the trainer

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        if isinstance(test_dataset, FeedLoader):
            return test_dataset
        return super().get_test_dataloader(test_dataset)  # type: ignore[misc]  # of the trainer


class Trainer(TakesLoaders, transformers.Trainer):  # type: ignore[misc]  # transformers is untyped here
    """`transformers.Trainer` that takes loaders for training, evaluation and prediction."""

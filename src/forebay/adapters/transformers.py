"""`Trainer`: the Trainer of Hugging Face transformers, which here accepts loaders in place of datasets.

    from forebay.adapters.transformers import Trainer

    Trainer(model, arguments, train_dataset=pipeline.feed("loader")).train()

The mixin `TakesLoaders` lets any subclass of that Trainer accept loaders: `class MyTrainer(TakesLoaders, SFTTrainer)`.
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
    """Mixin that makes a trainer use a loader of `feed("loader")` unchanged.

    For a dataset, the trainer's own method makes a DataLoader.
    """

    train_dataset: Any
    eval_dataset: Any

    def get_train_dataloader(self) -> DataLoader:
        if isinstance(self.train_dataset, FeedLoader):
            return self.train_dataset
        return super().get_train_dataloader()  # type: ignore[misc]  # the trainer has this method

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """Return the loader for an evaluation.

        `eval_dataset` is a loader, a dataset, or a key if `self.eval_dataset` is a dict. None selects
        `self.eval_dataset`.
        """
        found = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.eval_dataset[found] if isinstance(found, str) else found
        if isinstance(found, FeedLoader):
            return found
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]  # the trainer has this method

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        if isinstance(test_dataset, FeedLoader):
            return test_dataset
        return super().get_test_dataloader(test_dataset)  # type: ignore[misc]  # the trainer has this method


class Trainer(TakesLoaders, transformers.Trainer):  # type: ignore[misc]  # transformers is untyped here
    """`transformers.Trainer` that takes loaders for training, evaluation and prediction."""

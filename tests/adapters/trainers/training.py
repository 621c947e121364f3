"""The rows, the model and the loaders that all cases of PyTorch trainers share."""

import re

import numpy as np
import torch
from tests.support.paths import ROOT

import forebay as fb

ROWS, BATCH, STEPS, EPOCHS = 70, 16, 5, 3  # five steps per epoch; the last batch is shorter


def make_pipeline(rows=ROWS, *, shuffle=True, shard=None):
    random = np.random.default_rng(0)
    pipeline = fb.from_arrays(
        {
            "x": random.normal(size=(rows, 4)).astype("float32"),
            "labels": random.normal(size=(rows, 1)).astype("float32"),
            "row": np.arange(rows),
        }
    )
    pipeline = pipeline.shuffle(seed=3) if shuffle else pipeline
    return (pipeline if shard is None else pipeline.shard(*shard)).batch(BATCH)


def make_loader(**options):
    return make_pipeline(**options).feed("loader")


def make_endless_loader():
    return make_pipeline().repeat().feed("loader")


def single_rows(rows=ROWS):
    """Return the rows in their order, as dicts of arrays."""
    with make_pipeline(rows, shuffle=False).feed("numpy") as feed:
        return [
            {name: np.array(value[row]) for name, value in batch.items()}
            for batch in feed
            for row in range(len(batch["row"]))
        ]


def make_stream_loader():
    """Return a loader without a length, of the rows in their order."""
    rows = single_rows()
    return fb.from_generator(lambda: iter(rows)).batch(BATCH).feed("loader")


class Net(torch.nn.Module):
    """A linear model that records the rows and the losses of its training steps."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.rows, self.losses, self.validated = [], [], []

    def forward(self, x, labels, row=None):
        loss = torch.nn.functional.mse_loss(self.layer(x), labels)
        if self.training:
            self.rows.append(row.tolist())
            self.losses.append(loss.item())
        else:
            self.validated.append(row.tolist())
        return {"loss": loss, "logits": self.layer(x)}

    @property
    def weights(self):
        return [parameter.tolist() for parameter in self.parameters()]


class RunStoppedError(Exception):
    """Ends a run as a crash would."""


def flatten(batches):
    """Return the rows of all batches."""
    return [row for rows in batches for row in rows]


def expected_rows(epochs=EPOCHS):
    """Return the rows of each step of an uninterrupted run, from a plain feed."""
    with make_pipeline().feed("torch") as feed:
        return [batch["row"].tolist() for _ in range(epochs) for batch in feed]


def train_by_hand(epochs=EPOCHS):
    """Train without a trainer and without a loader, and return the model."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with make_pipeline().feed("torch") as feed:
        for _ in range(epochs):
            for batch in feed:
                optimizer.zero_grad()
                model(**batch)["loss"].backward()
                optimizer.step()
    return model


def run_example(title):
    """Run the example of a section of docs/trainers.md, and return its variables."""
    sections = re.split(r"^## ", (ROOT / "docs" / "trainers.md").read_text(), flags=re.MULTILINE)
    found = [sections[0], *(section for section in sections if section.startswith(f"{title}\n"))]
    variables = {"__name__": "__main__"}
    for section in found:
        exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], variables)
    assert len(found) == 2
    return variables

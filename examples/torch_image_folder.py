"""PyTorch: train on a folder of JPEG files, one subfolder for each class, with augmentation."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import forebay as fb

FILES, EPOCHS = (20, 1) if "--quick" in sys.argv else (400, 3)  # files of each class
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def write_images(folder: Path) -> None:
    """Write dark and bright images. Use your own folder instead."""
    random = np.random.default_rng(0)
    for name, brightness in (("bright", 160), ("dark", 60)):
        (folder / name).mkdir()
        for number in range(FILES):
            pixels = random.integers(brightness - 50, brightness + 50, (90, 120, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder)
        images = fb.from_images(folder / "*" / "*.jpg", size=(64, 64), resize="crop", label="folder")
        print(f"classes: {', '.join(images.class_names)}; {2 * FILES} images")
        pipeline = (
            images.shuffle(seed=0)
            .batch(20)
            .map(fb.flip(fields="image"))
            .map(fb.normalize(mean=0.5, std=0.25, fields="image"))
        )
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64 * 3, 2)).to(DEVICE)
        with pipeline.feed("torch") as feed:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            for epoch in range(EPOCHS):
                for batch in feed:
                    scores = model(batch["image"])
                    loss = torch.nn.functional.cross_entropy(scores, batch["label"])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                right = (scores.argmax(1) == batch["label"]).float().mean()
                print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.3f}, {right:.0%} of the last batch right")
            print(feed.explain())
    print("Look at the lines about images and maps. They say which library decodes images, and where each map runs.")
    if DEVICE == "cpu":
        print("PyTorch found no GPU. On a GPU, the maps run there, and uint8 pixels cross the link instead of float32.")


if __name__ == "__main__":
    main()

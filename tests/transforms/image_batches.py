"""Images and augmentations for tests of pixels."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import forebay as fb
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.random_keys import draw_uniform

__all__ = ["AUGMENTATIONS", "augmentations", "host_batch", "image_batches", "parameters_of"]

AUGMENTATIONS = {
    "crop": fb.random_resized_crop((9, 7)),
    "large crop": fb.random_resized_crop((40, 33), scale=(0.5, 1), ratio=(0.2, 5)),
    "centre": fb.center_crop(1),
    "flip": fb.flip(0.5, 0.5),
    "jitter": fb.color_jitter(0.6, 0.6, 0.6, 0.4),
    "contrast": fb.color_jitter(contrast=0.9),
    "hue": fb.color_jitter(hue=0.5),
    "normalize": fb.normalize(0.45, 0.22),
}
augmentations = st.sampled_from(list(AUGMENTATIONS.values()))


@st.composite
def image_batches(draw, channels=(1, 3), dtypes=("uint8", "float32")):
    """Draw a batch of images, most of them with random values."""
    sides = st.integers(1, 20)
    shape = draw(st.tuples(st.integers(1, 3), sides, sides, st.sampled_from(channels)))
    values = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.sampled_from(dtypes)) == "float32":
        return values.random(shape, np.float32)
    if draw(st.booleans()):
        return draw(hnp.arrays(np.uint8, shape))
    return values.integers(0, 256, shape, np.uint8)


def parameters_of(augmentation, images, seed=0):
    """Return the parameters of each image."""
    uniform = draw_uniform(seed, BatchContext.of_sample(len(images)), augmentation.uniform_count)
    return augmentation.parameters(uniform, images.shape[1:])


def host_batch(augmentation, images, seed=0):
    return augmentation.host_pixels(images, parameters_of(augmentation, images, seed))

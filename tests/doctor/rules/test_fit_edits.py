"""A Keras `fit` with a feed keeps its batch size, its order, its validation data and its other arguments."""

import pytest
from tests.doctor.applied_cures import apply_cure

from forebay.doctor.analyse.script_code import ScriptCode
from forebay.doctor.rules.edits import format_edits
from forebay.doctor.rules.fit_edits import feed_of_fit


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            "model.fit(x_train, y_train, batch_size=64, epochs=3)",
            'feed = fb.from_arrays((x_train, y_train)).shuffle(seed=0).batch(64).feed("keras")\n'
            "model.fit(feed, epochs=3)",
        ),
        (
            "h = model.fit(x, y, BATCH, 5, shuffle=False, callbacks=[stop])",
            'feed = fb.from_arrays((x, y)).batch(BATCH).feed("keras")\nh = model.fit(feed, epochs=5, callbacks=[stop])',
        ),
        (
            "model.fit(x, y, validation_data=None, validation_split=0.1)",
            "split = int(len(x) * (1 - 0.1))\n"
            'feed = fb.from_arrays((x[:split], y[:split])).shuffle(seed=0).batch(32).feed("keras")\n'
            "model.fit(feed, validation_data=(x[split:], y[split:]))",
        ),
        (
            "model.fit([a, b], y, sample_weight=w)",
            'feed = fb.from_arrays(((a, b,), y, w)).shuffle(seed=0).batch(32).feed("keras")\nmodel.fit(feed)',
        ),
        (
            "model.fit(x, y, None, 1, 0, None, 0.0, None, True, weights)",
            'feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(32).feed("keras")\n'
            "model.fit(feed, epochs=1, verbose=0, class_weight=weights)",
        ),
        (
            "model.fit(x, y, validation_split=0.1, validation_data=(v, w))",
            'feed = fb.from_arrays((x, y)).shuffle(seed=0).batch(32).feed("keras")\n'
            "model.fit(feed, validation_data=(v, w))",
        ),
        (
            "model.fit(feed, split, validation_split=0.1)",
            "split_ = int(len(feed) * (1 - 0.1))\n"
            'feed_ = fb.from_arrays((feed[:split_], split[:split_])).shuffle(seed=0).batch(32).feed("keras")\n'
            "model.fit(feed_, validation_data=(feed[split_:], split[split_:]))",
        ),
        (
            "model.fit(x=noise)",
            'feed = fb.from_arrays((noise,)).shuffle(seed=0).batch(32).feed("keras")\nmodel.fit(feed)',
        ),
    ],
)
def test_fit_gets_a_feed_of_its_arrays(source, wanted):
    text = apply_cure(source, format_edits(feed_of_fit(ScriptCode(source), 1, 32)))
    assert text.replace("import forebay as fb\n", "") == wanted


@pytest.mark.parametrize(
    "source",
    [
        "model.fit(*data)",
        "for part in parts:\n    model.fit(x, y)",
        "model.fit(x, y, steps_per_epoch=4)",
        "model.fit([a, b], y, validation_split=0.2)",
        "train(x, y)",
        "model.fit(x, y, batch_size=32, **options)",
        "model.fit(x, y, shuffle=is_training)",
        "model.fit(x, y, validation_split=share)",
    ],
)
def test_a_fit_that_a_feed_cannot_serve_gets_no_feed(source):
    assert feed_of_fit(ScriptCode(source), source.count("\n") + 1, 32) == []

"""`pack()`: the rows that it makes, resume, other sources and transports, and wrong arguments."""

import json

import h5py
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import forebay as fb
from forebay.errors import ForebayError, PipelineError, SourceError
from forebay.testing import SimulatedEngine

LENGTHS = [3, 9, 0, 5, 5, 1, 14, 2, 7, 4, 4, 1, 1, 6]
texts_of = st.lists(st.integers(0, 20), min_size=1, max_size=40).filter(any)


def ragged(lengths, dtype="int32"):
    """Return a pipeline of texts. All tokens are different, and no token is 0."""
    offsets = np.cumsum([0, *lengths])
    return fb.from_ragged(np.arange(1, offsets[-1] + 1).astype(dtype), offsets)


def items(lengths):
    ends = np.cumsum(lengths)
    return [np.arange(end - length, end) + 1 for end, length in zip(ends, lengths, strict=True)]


def rows_of(pipeline, batch=3, state=None, **options):
    """Return the packed rows of an epoch as lists of (token, segment id, position)."""
    with pipeline.batch(batch).feed("numpy", **options) as feed:
        if state is not None:
            feed.load_state_dict(json.loads(json.dumps(state)))
        return [
            list(zip(*row, strict=True))
            for batch in feed
            for row in zip(*(batch[name].tolist() for name in ("tokens", "segment_ids", "positions")), strict=True)
        ]


def texts_in(rows):
    """Return the texts of packed rows. Check that ids and positions describe them."""
    texts = []
    for row in rows:
        segments = [segment for _, segment, _ in row]
        count = max(segments)
        assert segments == sorted(segments[: len(row) - segments.count(0)]) + [0] * segments.count(0)
        for number in range(1, count + 1):
            text = [(token, position) for token, segment, position in row if segment == number]
            assert [position for _, position in text] == list(range(len(text)))
            texts.append([token for token, _ in text])
        assert all(token == position == 0 for token, segment, position in row if segment == 0)
    return texts


@given(lengths=texts_of, length=st.integers(1, 25), seed=st.integers(0, 3), shuffled=st.booleans())
def test_split_rows_contain_every_token_once(lengths, length, seed, shuffled):
    pipeline = ragged(lengths).pack(length, seed=seed)
    rows = rows_of(pipeline.shuffle(seed=seed) if shuffled else pipeline)
    assert {len(row) for row in rows} == {length}
    found = sorted(token for text in texts_in(rows) for token in text)
    assert found == list(range(1, sum(lengths) + 1))


@given(lengths=texts_of, length=st.integers(1, 25))
def test_texts_that_fit_stay_whole_and_others_are_cut_at_multiples_of_the_length(lengths, length):
    expected = [
        text[start : start + length].tolist() for text in items(lengths) for start in range(0, len(text), length)
    ]
    assert sorted(texts_in(rows_of(ragged(lengths).pack(length)))) == sorted(expected)


@given(lengths=texts_of, length=st.integers(1, 25))
def test_truncated_texts_keep_their_first_tokens(lengths, length):
    expected = [text[:length].tolist() for text in items(lengths) if len(text)]
    assert sorted(texts_in(rows_of(ragged(lengths).pack(length, long="truncate")))) == sorted(expected)


@given(lengths=texts_of, length=st.integers(1, 25), seed=st.integers(0, 3))
def test_every_source_and_every_device_has_the_same_rows(lengths, length, seed):
    packed = ragged(lengths, "int64").pack(length, seed=seed)
    expected = rows_of(packed)
    texts = items(lengths)
    assert rows_of(fb.from_source(texts).pack(length, seed=seed)) == expected
    assert rows_of(fb.from_source(texts).pack(length, seed=seed, lengths=lengths)) == expected
    assert rows_of(packed, device=SimulatedEngine()) == expected


@given(lengths=texts_of, data=st.data(), counts=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_state_resumes_on_another_number_of_shards(lengths, data, counts):
    pipeline = ragged(lengths).pack(6).shuffle(seed=1)
    whole = rows_of(pipeline)
    steps = data.draw(st.integers(0, max(0, len(whole) // counts[0] - 1)))
    if len(whole) < max(counts):
        return
    with pipeline.shard(0, counts[0]).batch(1).feed("numpy") as feed:
        for _, _batch in zip(range(steps), feed, strict=False):
            pass
        state = feed.state_dict()
    rest = whole[steps * counts[0] :]
    for index in range(min(counts[1], len(rest))):
        assert rows_of(pipeline.shard(index, counts[1]), 1, state) == rest[index :: counts[1]]


@given(lengths=st.lists(st.integers(6, 9), min_size=20, max_size=60), ranks=st.integers(2, 4), batch=st.integers(1, 4))
def test_all_ranks_take_the_same_number_of_steps(lengths, ranks, batch):
    packed = ragged(lengths).pack(10).shuffle(seed=0)
    steps = {len(packed.shard(index, ranks).batch(batch, drop_remainder=True).feed("numpy")) for index in range(ranks)}
    assert len(steps) == 1


@given(lengths=texts_of, chosen=st.data())
def test_chosen_rows_are_packed(lengths, chosen):
    numbers = chosen.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=20))
    if not any(lengths[number] for number in numbers):
        return
    assume(len(numbers) < len(lengths) or max(numbers) > 1)  # select() refuses zeros and ones that look like a mask
    expected = [items(lengths)[number].tolist() for number in numbers if lengths[number]]
    for pipeline in (ragged(lengths), fb.from_source(items(lengths))):
        assert sorted(texts_in(rows_of(pipeline.select(numbers).pack(20)))) == sorted(expected)
        assert sorted(texts_in(rows_of(pipeline.skip(0).take(len(lengths)).pack(20)))) == sorted(
            text.tolist() for text in items(lengths) if len(text)
        )


def test_all_fields_of_one_length_are_packed_alike():
    tokens, offsets = np.arange(1, 10), [0, 2, 5, 9]
    pipeline = fb.from_ragged({"tokens": tokens, "labels": tokens * 10}, offsets).pack(6, pad={"labels": -100})
    for batch in pipeline.batch(1).feed("numpy"):
        is_text = batch["segment_ids"] > 0
        assert (batch["labels"] == np.where(is_text, batch["tokens"] * 10, -100)).all()
        assert (batch["tokens"][~is_text] == 0).all()


def test_fields_that_cannot_be_packed_are_named_and_can_be_dropped():
    rows = [{"id": number, "x": np.arange(number + 1)} for number in range(4)]
    with pytest.raises(PipelineError, match=r"'id' has int64\[\].*drop='id'"):
        fb.from_source(rows).pack(5)
    (batch,) = fb.from_source(rows).pack(5, drop="id").batch(2).feed("numpy")
    assert set(batch) == {"x", "segment_ids", "positions"}
    assert sorted(batch["x"][batch["segment_ids"] > 0].tolist()) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]


def test_the_lengths_of_the_chosen_field_count():
    rows = [{"x": np.arange(2), "y": np.arange(3)}]
    (batch,) = fb.from_source(rows).pack(4, field="y", drop="x").batch(1).feed("numpy")
    assert batch["y"].tolist() == [[0, 1, 2, 0]]


def test_rows_of_combined_sources_are_packed():
    first, second = ragged([3, 2]), ragged([4, 1])
    assert len(texts_in(rows_of(fb.concat(first, second).pack(5)))) == 4
    zipped = fb.zip_rows(
        fb.from_ragged({"a": np.arange(5)}, [0, 3, 5]), fb.from_ragged({"b": np.arange(5) * 2}, [0, 3, 5])
    ).pack(5)
    (batch,) = zipped.batch(1).feed("numpy")
    assert (batch["b"] == batch["a"] * 2).all()


def test_a_dataset_of_variable_length_in_an_hdf5_file_is_packed(tmp_path):
    with h5py.File(tmp_path / "texts.h5", "w") as file:
        dataset = file.create_dataset("tokens", len(LENGTHS), h5py.vlen_dtype("int32"))
        for row, text in enumerate(items(LENGTHS)):
            dataset[row] = text
        assert rows_of(fb.from_source(dataset).pack(10)) == rows_of(ragged(LENGTHS).pack(10))


def test_packed_pipelines_are_concatenated_and_mixed():
    parts = [ragged(LENGTHS).pack(10, seed=seed) for seed in (0, 1)]
    rows = [rows_of(part) for part in parts]
    assert rows_of(fb.concat(*parts)) == rows[0] + rows[1]
    assert sorted(rows_of(fb.interleave(*parts, stop="all"))) == sorted(rows[0] + rows[1])


def test_two_packings_are_not_zipped_row_by_row():
    first, second = (fb.from_ragged({name: np.arange(9)}, [0, 2, 9]).pack(4, seed=1) for name in "ab")
    other = fb.from_ragged({"c": np.arange(9)}, [0, 7, 9]).pack(4, seed=2)
    with pytest.raises(PipelineError, match="different orders"):
        fb.zip_rows(first, other)
    with pytest.raises(PipelineError, match="segment_ids"):
        fb.zip_rows(first, second)


def test_lists_of_numbers_are_texts():
    assert sorted(texts_in(rows_of(fb.from_source([[1, 2], [3], [4, 5, 6]]).pack(4)))) == [[1, 2], [3], [4, 5, 6]]


def test_rows_that_do_not_fit_in_the_budget_are_refused():
    with pytest.raises(ForebayError, match="host_bytes"):
        ragged(LENGTHS).pack(2**30).batch(1).feed("numpy")


def test_rows_of_an_array_are_texts_of_one_length():
    rows = rows_of(fb.from_arrays({"tokens": np.arange(1, 10).reshape(3, 3)}).pack(6))
    assert sorted(texts_in(rows)) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert len(rows) == 2


def test_a_map_after_pack_receives_packed_rows():
    packed = ragged(LENGTHS).pack(10).map(lambda row: row["tokens"].sum()).batch(99)
    assert sum(next(packed.feed("numpy")).tolist()) == sum(range(1, sum(LENGTHS) + 1))


def test_the_fingerprint_depends_on_everything_that_changes_the_rows():
    texts = ragged(LENGTHS)
    pipelines = [
        texts.pack(10),
        texts.pack(11),
        texts.pack(10, seed=1),
        texts.pack(10, long="truncate"),
        texts.skip(1).pack(10),
        ragged([*LENGTHS[1:], LENGTHS[0]]).pack(10),
        texts.pack(10).shuffle(seed=0),
    ]
    assert len({pipeline.batch(1).fingerprint for pipeline in pipelines}) == len(pipelines)
    assert (
        texts.pack(10).batch(1).fingerprint
        == fb.from_ragged(np.zeros(sum(LENGTHS), "int32"), np.cumsum([0, *LENGTHS]))
        .pack(10, lengths=np.array(LENGTHS, "uint8"))
        .batch(1)
        .fingerprint
    )


@pytest.mark.parametrize("labels", [3, 5, 9, 10])
def test_fields_of_different_length_are_refused_also_where_a_text_is_cut(labels):
    texts = fb.from_source([{"tokens": np.arange(8), "labels": np.arange(labels)}])
    with pytest.raises(SourceError, match=rf"row 0 has {labels} values in 'labels'"):
        next(texts.pack(4, long="truncate").batch(1).feed("numpy"))


@pytest.mark.parametrize("shuffled", [False, True])
def test_explain_says_how_full_the_rows_are(shuffled):
    packed = ragged([5, 5, 10]).pack(10)
    with (packed.shuffle() if shuffled else packed).batch(1).feed("numpy") as feed:
        assert "3 texts packed into 2 rows of 10 tokens, 100.0% full" in feed.explain()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda texts: texts.pack(0), "at least 1"),
        (lambda texts: texts.pack(2.5), "whole number"),
        (lambda texts: texts.pack(2**31), "32 bits"),
        (lambda texts: texts.pack(4, long="drop"), "unknown"),
        (lambda texts: texts.pack(4, long="error"), "text 6 has 14 tokens"),
        (lambda texts: texts.pack(4, seed="a"), "whole number"),
        (lambda texts: texts.pack(4, pad=0.5), "int32"),
        (lambda texts: texts.pack(4, pad=None), "cannot store"),
        (lambda texts: texts.pack(4, pad=[0, 0]), "cannot store"),
        (lambda texts: texts.pack(4, pad={"labels": 0}), "'labels'"),
        (lambda texts: texts.pack(4, field="x"), "no field 'x'"),
        (lambda texts: texts.pack(4, drop=["x"]), "no field 'x'"),
        (lambda texts: texts.pack(4, lengths=[1, 2]), "2 lengths for 14 rows"),
        (lambda texts: texts.pack(4, lengths=np.ones(14)), "float64"),
        (lambda texts: texts.pack(4, lengths=[-1] * 14), "length -1"),
        (lambda texts: texts.pack(4, lengths=[0] * 14), "no token"),
        (lambda texts: texts.pack(4, lengths=[[1, 2], [3]]), "one whole number for each row"),
        (lambda texts: texts.pack(4, lengths=np.full(14, 2**63, "uint64")), "length 9223372036854775808 for row 0"),
        (lambda texts: texts.pack(4, drop=3), "a list of names"),
        (lambda texts: texts.shuffle().pack(4), "before them"),
        (lambda texts: texts.repeat().pack(4), "never ends"),
        (lambda texts: texts.map(lambda row: row).pack(4), "stored rows"),
        (lambda texts: texts.batch(4, pad=0).pack(4), "before batch"),
        (lambda texts: texts.pack(4).pack(4), "'segment_ids'"),
        (lambda texts: texts.pack(4).window(2), "consecutive rows"),
        (lambda texts: fb.from_generator(lambda: iter([np.arange(3)])).pack(4), "stream"),
        (lambda texts: fb.from_arrays(np.arange(4)).pack(4), "one value per token"),
        (lambda texts: fb.from_arrays(np.zeros((4, 2, 2))).pack(4), "one value per token"),
        (lambda texts: fb.from_arrays((np.zeros((4, 2)), np.zeros((4, 2)))).pack(4), "dict"),
        (lambda texts: fb.from_arrays({"a": {"b": np.zeros((4, 2))}}).pack(4), "dict"),
        (lambda texts: fb.from_arrays({"positions": np.zeros((4, 2))}).pack(4), "Rename"),
        (lambda texts: fb.from_arrays({"a": np.zeros((4, 2))}).pack(4, drop="a"), "at least one"),
    ],
)
def test_wrong_arguments_and_calls_in_a_wrong_order_are_refused(make, message):
    with pytest.raises(PipelineError, match=message):
        make(ragged(LENGTHS))


def test_a_pass_over_the_rows_reports_its_progress(monkeypatch, caplog):
    monkeypatch.setattr("forebay.pipeline.row_lengths._REPORT_SECONDS", 0.0)
    with caplog.at_level("INFO"):
        fb.from_source(items([2] * 3000)).pack(4)
    assert "lengths of 128 of 3000 rows" in caplog.text


def test_packed_rows_have_one_length_and_cannot_be_ragged():
    packed = fb.from_source([np.arange(3)] * 4).pack(6)
    with pytest.raises(PipelineError, match="all rows have one shape"):
        packed.batch(2, ragged=True).feed("numpy")

"""Words of other loaders, and what to write instead: the tables of `familiar_words`."""

__all__ = [
    "ARGUMENTS",
    "ATTRIBUTES",
    "FIELDS_AS_ARGUMENTS",
    "NO_ARGUMENT",
    "SPLIT",
    "SYNONYMS",
    "TOO_MANY_ARGUMENTS",
    "VALUES",
]

_PREFETCH = "Forebay prefetches batches by itself; `explain()` of a feed shows how many. Leave prefetch() out."
_TO_DEVICE = "A feed brings batches to the device. Write pipeline.feed('torch', device='cuda')."
_THREADS = "Forebay chooses the number of threads; `explain()` of a feed shows it. Leave the argument out."
_WORKERS = f"{_THREADS} For a map of pure Python code, write map(function, where='process', workers=4)."
_WORKERS_OF_MAP = (
    "Forebay prefetches batches by itself. Leave mp_prefetch() out. For a map of pure Python code, write map(function, "
    "where='process', workers=4)."
)
_PINNED = "Forebay page-locks host memory by itself if batches go to a GPU. Leave the argument out."
_SHUFFLE = "Forebay shuffles all rows, not a buffer. Write shuffle(seed=0); for a stream, shuffle(window='64MB')."
_DESCRIBE_FIRST = "It is a method of pipelines. Call it before feed(): pipeline"
SPLIT = "Split the rows before batch(): train, validation = pipeline.split(0.9, 0.1)."
_SPLIT_WORDS = "Pass the share of each part: train, validation = pipeline.split(0.9, 0.1)."
_ROWS = "Set the batch size before feed(): pipeline.batch({value})."
_STATE = (
    "Only a feed has a state: feed = pipeline.feed('torch'). Call feed.state_dict() and feed.load_state_dict(state)."
)
_PLAN = "Only a feed has a plan. Call pipeline.feed('torch').explain()."
_COLLATE = "Leave collate_fn= out. Convert batches with batch(32).map(function); pad rows with batch(32, pad=0)."
_GRAIN_ROWS = "Begin with fb.from_source(source) for rows by index, or fb.from_generator(function) for a stream."
_STREAM_SPEC = "Pass spec=fb.ArraySpec(shape, dtype), or leave it out: Forebay then reads it from the first row."

# Names that an object lacks (words of other libraries, or words of Forebay for another object) -> what to write.
_MODULE = {
    "DataLoader": "Begin with fb.from_source(dataset) or fb.from_arrays(...), then .batch(32).feed('torch').",
    "Dataset": "A dataset is a pipeline here. Begin with fb.from_arrays(...) or fb.from_files(...).",
    "ImageFolder": "Write fb.from_images('images/*/*.jpg', size=(224, 224), label='folder').",
    "IterDataset": _GRAIN_ROWS,
    "MapDataset": _GRAIN_ROWS,
    "PyGrainDataset": _GRAIN_ROWS,
    "TensorDataset": "Write fb.from_arrays((x, y)).",
    "concatenate": "Write fb.concat(first, second).",
    "doctor": "It is a module of its own. Write `import forebay.doctor`, or run `forebay doctor train.py`.",
    "from_dataset": "Write fb.from_source(dataset) for rows, or fb.from_batches(loader) for batches of another loader.",
    "from_numpy": "Write fb.from_arrays(array).",
    "from_pandas": "Write fb.from_frame(frame).",
    "from_tensor_slices": "Write fb.from_arrays((x, y)).",
    "image_dataset_from_directory": "Write fb.from_images('images/*/*.jpg', size=(256, 256), label='folder').",
    "load_dataset": "Write fb.from_files('*.parquet'), or fb.from_source(dataset) for a loaded dataset.",
    "random_split": "Write train, test = pipeline.split(0.8, 0.2), before batch().",
    "sample_from_datasets": "Write fb.interleave(first, second, weights=(7, 3)).",
    "text_dataset_from_directory": "Write fb.from_source(texts), and tokenize them in map().",
    "timeseries_dataset_from_array": "Write fb.from_arrays(series).window(length, horizon=1): windows with a target.",
    "watch": "It is in the module of the doctor. Write `from forebay.doctor import watch`.",
    "zip": "Write fb.zip_rows(first, second).",
}
_PIPELINE = {
    "apply": "Call the function with the pipeline: function(pipeline).",
    "as_numpy_iterator": "Iterate pipeline.feed('numpy').",
    "backup_and_restore": "Write feed = pipeline.feed('keras'), then feed.backup_and_restore('backup').",
    "cardinality": "Write len(pipeline), which counts rows before batch() and batches after it.",
    "concatenate": "Write fb.concat(first, second).",
    "cuda": _TO_DEVICE,
    "element_spec": "Read pipeline.specs for rows of the source, or feed.specs for rows after all transforms.",
    "enumerate": "Add the row numbers as a field: fb.from_arrays({'row': np.arange(len(x)), 'x': x}).",
    "explain": _PLAN,
    "flat_map": "Write fb.from_generator(function), whose function yields the rows.",
    "from_generator": "Write fb.from_generator(function).",
    "from_tensor_slices": "Write fb.from_arrays((x, y)).",
    "get_state": _STATE,
    "interleave": "Write fb.interleave(first, second), or fb.from_files('*.tfrecord') for many files.",
    "load_state_dict": _STATE,
    "make_one_shot_iterator": "Iterate pipeline.feed('tensorflow').",
    "map_with_index": "Add the row numbers as a field: fb.from_arrays({'row': np.arange(len(x)), 'x': x}).",
    "mp_prefetch": _WORKERS_OF_MAP,
    "numpy": "Iterate pipeline.feed('numpy').",
    "padded_batch": "Write batch(32, pad=0).",
    "plan": _PLAN,
    "prefetch": _PREFETCH,
    "random_map": "Write map(function), whose parameter rng receives a NumPy generator: map(lambda row, rng: ...).",
    "rename_column": "Write rename({'image': 'mask'}).",
    "rename_columns": "Write rename({'image': 'mask'}).",
    "resume": _STATE,
    "set_format": "Choose the framework of the batches: pipeline.feed('torch').",
    "set_state": _STATE,
    "state_dict": _STATE,
    "stats": "Only a feed has statistics: feed = pipeline.feed('torch'). Call feed.stats().",
    "to": _TO_DEVICE,
    "to_iter_dataset": "Write pipeline.feed('jax'), or another framework, and iterate the feed.",
    "train_test_split": "Write train, test = pipeline.split(0.8, 0.2).",
    "unbatch": "A pipeline has rows until batch(). Call the methods for rows before batch().",
    "validation_split": _SPLIT_WORDS.replace("Pass the share of each part", "Write split() before batch()"),
    "with_format": "Choose the framework of the batches: pipeline.feed('torch').",
    "with_options": "Forebay chooses threads and buffers; `explain()` of a feed shows them. Leave with_options() out.",
    "zip": "Write fb.zip_rows(first, second).",
}
_FEED = {
    "as_numpy_iterator": "Iterate pipeline.feed('numpy').",
    "backup_and_restore": "It is for fit() of Keras: pipeline.feed('keras').backup_and_restore('backup').",
    "batch": f"{_DESCRIBE_FIRST}.batch(32).feed(...).",
    "batch_size": "Read feed.batch_rows.",
    "cache": f"{_DESCRIBE_FIRST}.cache('8GB').batch(32).feed(...).",
    "cardinality": "Write len(feed).",
    "cuda": _TO_DEVICE,
    "element_spec": "Read feed.specs.",
    "feed": "It is a feed already. Call feed() once: feed = pipeline.feed('keras').",
    "get_state": "Write feed.state_dict().",
    "map": f"{_DESCRIBE_FIRST}.map(function).batch(32).feed(...).",
    "prefetch": _PREFETCH,
    "repeat": f"{_DESCRIBE_FIRST}.repeat().batch(32).feed(...). Each loop over a feed is the next epoch.",
    "resume": "Write feed.load_state_dict(state), with a state from feed.state_dict().",
    "set_state": "Write feed.load_state_dict(state), with a state from feed.state_dict().",
    "shuffle": f"{_DESCRIBE_FIRST}.shuffle(seed=0).batch(32).feed(...).",
    "take": f"{_DESCRIBE_FIRST}.batch(32).take(10).feed(...).",
    "to": _TO_DEVICE,
}
_READBACK = {
    "get": "Write readback.ready() for the results that have arrived, or readback.drain() to wait for all of them.",
    "result": "Write readback.ready() for the results that have arrived, or readback.drain() to wait for all of them.",
    "wait": "Write readback.drain(), which waits for all results and returns them.",
}
ATTRIBUTES = {"module 'forebay'": _MODULE, "a pipeline": _PIPELINE, "a feed": _FEED, "a Readback": _READBACK}

# Function of Forebay -> arguments that users of other libraries pass to it -> what to do. {value} stands for the value.
ARGUMENTS = {
    "batch": {
        "collate_fn": _COLLATE,
        "deterministic": "The order of batches is always the same. Leave the argument out.",
        "num_parallel_calls": _THREADS,
        "num_workers": _WORKERS,
        "pin_memory": _PINNED,
        "shuffle": "Set the order before batch(): pipeline.shuffle(seed=0).batch(32).",
    },
    "cache": {"filename": "Write cache('folder') to keep rows on disk, or cache('8GB') to keep them in RAM."},
    "feed": {
        "batch_size": _ROWS,
        "collate_fn": _COLLATE,
        "drop_last": "Set it before feed(): pipeline.batch(32, drop_remainder=True).",
        "num_workers": _WORKERS,
        "persistent_workers": "Workers stay alive until feed.close(). Leave the argument out.",
        "pin_memory": _PINNED,
        "prefetch_factor": _PREFETCH.replace("prefetch()", "prefetch_factor="),
        "sampler": "Choose rows before feed(): pipeline.sample(...), .select(...) or .shard('auto').",
        "sharding": "Write feed('jax', device=sharding).",
        "shuffle": "Set the order before feed(): pipeline.shuffle(seed=0).batch(32).",
        "transform": "Transform rows before feed(): pipeline.map(function).batch(32).",
        "validation_split": f"{SPLIT} Make a feed of each part. Pass the feed of the second part as validation_data=.",
    },
    "from_arrays": {
        "batch_size": "Write from_arrays(arrays).batch({value}).",
        "shuffle": "Write from_arrays(arrays).shuffle(seed=0).",
    },
    "from_generator": {
        "args": "Pass a function without arguments: from_generator(lambda: generate(argument)).",
        "output_shapes": _STREAM_SPEC,
        "output_signature": _STREAM_SPEC,
        "output_types": _STREAM_SPEC,
    },
    "from_images": {
        "batch_size": "Write from_images(...).batch(32).",
        "color_mode": "Write channels=1 for gray images, 3 for RGB (the default) or 4 for RGBA.",
        "crop_to_aspect_ratio": "Write resize='crop'.",
        "image_size": "Write size=(height, width).",
        "label_mode": "Write label='folder', which gives class numbers; map(fb.one_hot({'label': 10})) encodes them.",
        "labels": "Write label='folder', label='labels.csv' for a table, or a function of the path for label=.",
        "shuffle": "Write from_images(...).shuffle(seed=0).",
        "validation_split": SPLIT,
    },
    "map": {
        "batched": "Call map() after batch() for a function of batches.",
        "deterministic": "The order of rows is always the same. Leave the argument out.",
        "num_parallel_calls": _WORKERS,
        "num_proc": "Write map(function, where='process', workers=4).",
        "num_workers": _WORKERS,
    },
    "sample": {
        "class_weight": "Write sample(balance='label') to draw all classes equally often, or fit(class_weight=...).",
        "num_samples": "Write sample(..., rows={value}).",
    },
    "shuffle": {
        "buffer_size": _SHUFFLE,
        "reshuffle_each_iteration": "Every epoch has another order. Leave the argument out.",
    },
    "split": {
        "lengths": "Pass the parts one after another: split(0.9, 0.1), or numbers of rows such as split(900, 100).",
        "random_state": "Write split(0.9, 0.1, seed={value}).",
        "test_size": _SPLIT_WORDS,
        "train_size": _SPLIT_WORDS,
        "validation_split": _SPLIT_WORDS,
    },
    "window": {
        "block_size": "Write window({value}, horizon=1) for inputs of {value} tokens, and their targets.",
        "sequence_length": "Write window({value}).",
        "sequence_stride": "Write stride={value}.",
        "shift": "Write stride={value}.",
        "size": "Write window({value}).",
    },
}
# Function and argument of Forebay, and a value that users of other libraries pass -> what to do.
VALUES = {("from_images", "label", "inferred"): "Write label='folder': the folder of a file is its class."}
# What to do if a call has more positional arguments than the function takes, or no argument.
TOO_MANY_ARGUMENTS = {"shuffle": _SHUFFLE, "from_arrays": "Pass all arrays as one value: from_arrays((x, y))."}
NO_ARGUMENT = {"cache": "Write cache('8GB') to keep up to 8 GB in RAM, or cache('folder') to keep rows on disk."}
# What to write instead of fields as keyword arguments. {fields} stands for a dict of these fields.
FIELDS_AS_ARGUMENTS = {"from_arrays": "Pass all arrays as one value: from_arrays({fields})."}
# Function of Forebay, and an argument of other libraries with the same meaning as one of Forebay -> Forebay's name.
SYNONYMS = {("batch", "batch_size"): "rows", ("batch", "drop_last"): "drop_remainder"}

"""Edits of the input of a script: DataLoader and iterables of batches.

Functions that return edits return an empty list if the code has a form for which they know no edit.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace

from forebay.doctor.analyse.loop_code import names_changed_in_place
from forebay.doctor.analyse.script_code import Patch, ScriptCode, last_name, names_in, own_nodes, root_name
from forebay.doctor.rules.edits import Edit, import_lines, module_import, outermost_definition

__all__ = [
    "batches_at",
    "call_at",
    "change_batch_size",
    "change_loader",
    "copy_without_wait",
    "feed_call",
    "feed_of_batches",
    "feed_of_dataset",
    "is_array_text",
    "map_elsewhere",
    "outer_loop",
    "patch_statement",
    "resolve",
    "set_keywords",
    "tree_text",
    "workers_of_dataset",
]

# Functions and methods that yield no batches.
_NO_BATCHES = frozenset({"range", "trange", "zip", "items", "keys", "values", "glob", "listdir"})
_LOADER_PARAMETERS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
_GUARD = '# Worker processes import this script. Put the code that trains under `if __name__ == "__main__":`.'
_WRAPPERS = ("enumerate", "tqdm", "trange", "iter")  # functions that iterate over their first argument


def set_keywords(code: ScriptCode, call: ast.Call, **keywords: str) -> list[Edit]:
    """Return the edit that sets keyword arguments of a call; none if the call sets them already."""
    current = {keyword.arg: code.text(keyword.value) for keyword in call.keywords}
    changed = {name: value for name, value in keywords.items() if current.get(name) != value}
    return patch_statement(code, code.statement_of(call), *code.set_keywords(call, changed)) if changed else []


def change_loader(code: ScriptCode, number: int, generators: Sequence[str] = (), **keywords: str) -> list[Edit]:
    """Return the edits that set arguments of the DataLoader that a line builds or iterates.

    `generators` are the generators of random numbers that the dataset holds, such as "transform.rng: Generator". New
    code gives each worker process its own generators.
    """
    call = call_at(code, number, "DataLoader")
    if call is None:
        batches = batches_at(code, code.statement_at(number))
        value = resolve(code, batches[0]) if batches else None
        call = value if isinstance(value, ast.Call) and last_name(value) == "DataLoader" else None
    if call is None or any(keyword.arg is None for keyword in call.keywords):
        return []
    if {*keywords} & {*_LOADER_PARAMETERS[: len(call.args)]}:
        return []  # the script passes the argument by position
    if not generators or any(keyword.arg == "worker_init_fn" for keyword in call.keywords):
        return set_keywords(code, call, **keywords)
    name, place = code.new_name("seed_worker"), outermost_definition(code, code.statement_of(call))
    return [
        Edit.before(place, *_seeding_function(code, name, generators)),
        *set_keywords(code, call, **keywords, worker_init_fn=name),
    ]


def _seeding_function(code: ScriptCode, name: str, generators: Sequence[str]) -> list[str]:
    """Return the lines of a function that gives a worker process its own `generators`."""
    numpy, (random, random_lines) = code.module_alias("numpy", "np"), module_import(code, "random")
    seeds = {
        "Generator": f"{numpy}.random.default_rng(seed)",
        "RandomState": f"{numpy}.random.RandomState(seed % 2**32)",
        "Random": f"{random}.Random(seed)",
        "torch.Generator": "torch.Generator().manual_seed(seed)",
    }
    classes = {path: kind for path, _, kind in (each.partition(": ") for each in generators)}
    kinds = {*classes.values()}
    needs_numpy, needs_random = kinds - {"Random", "torch.Generator"}, "Random" in kinds
    return [
        "import torch",
        *(["import numpy as np"] if needs_numpy and not code.imports("numpy") else []),
        *(random_lines if needs_random else []),
        f"def {name}(worker):   # without it, all workers draw the same random numbers",
        "    seed, dataset = torch.initial_seed(), torch.utils.data.get_worker_info().dataset",
        *(f"    dataset.{path} = {seeds.get(kind, seeds['Generator'])}" for path, kind in classes.items()),
    ]


def change_batch_size(code: ScriptCode, rows: int, new_rows: int) -> list[Edit]:
    """Return the edit of the only place that sets a batch size of `rows`."""
    keywords = [k.value for node in ast.walk(code.tree) if isinstance(node, ast.Call) for k in node.keywords]
    sizes = [value for value in keywords if getattr(code.parents[value], "arg", "") == "batch_size"]
    sizes += [call.args[0] for call in code.calls("batch") if call.args]
    places = [resolve(code, size) for size in sizes]
    constants = [node for node in dict.fromkeys(places) if isinstance(node, ast.Constant) and node.value == rows]
    if len(constants) != 1:
        return []
    return patch_statement(code, code.statement_of(constants[0]), code.replace(constants[0], str(new_rows)))


def copy_without_wait(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that copies the tensors of a line with `non_blocking=True`."""
    statement = code.statement_at(number)
    if statement is None:
        return []
    copies = [node for node in own_nodes(statement) if isinstance(node, ast.Call) and last_name(node) in ("to", "cuda")]
    blocking = [copy for copy in copies if all(keyword.arg != "non_blocking" for keyword in copy.keywords)]
    blocking = [copy for copy in blocking if not _has_setting_or_host(code, copy)]
    patches = [code.set_keyword(copy, "non_blocking", "True") for copy in blocking]
    return patch_statement(code, statement, *patches) if patches else []


def _has_setting_or_host(code: ScriptCode, copy: ast.Call) -> bool:
    """Whether a copy passes `non_blocking` by position, or goes to the host, which may read incomplete data."""
    arguments = [*copy.args, *(keyword.value for keyword in copy.keywords)]
    values = [
        node.value for each in arguments for node in ast.walk(resolve(code, each)) if isinstance(node, ast.Constant)
    ]
    return "cpu" in values or any(isinstance(value, bool) for value in values)


def feed_of_batches(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that let a feed prefetch the batches of a `fit` or loop."""
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    if statement is None or batches is None:
        return []
    iterable, _ = batches
    source = _restartable_text(code, iterable)
    is_one_pass = source is None
    if is_one_pass and len(code.loops_around(statement)) > 1:
        return []  # a generator object has only one pass, but each epoch needs a pass
    outer = outer_loop(code, statement)
    if names_in(iterable) & (_names_assigned_in(outer) | names_changed_in_place(outer)):
        return []  # the outer loop makes or changes the iterable in each epoch
    name, shuffle = code.new_name("feed"), _shuffle_of_fit(code, iterable)
    text = code.new_name("batches") if shuffle else source or code.text(iterable)
    lines = [*import_lines(code, numpy=bool(shuffle)), *shuffle]
    lines.append(f"{name} = fb.from_batches({text}){feed_call(code, statement, framework)}")
    edit = patch_statement(code, statement, code.replace(iterable, name))
    return [Edit.before(outer, *lines), *edit] if edit else []


def _shuffle_of_fit(code: ScriptCode, iterable: ast.expr) -> list[str]:
    """Return a function that shuffles the batches of a PyDataset of the script, as `fit` does by default."""
    value, user = resolve(code, iterable), code.parents[iterable]
    call = code.parents[user] if isinstance(user, ast.keyword) else user
    owner = code.class_named(last_name(value)) if isinstance(value, ast.Call) else None
    if owner is None or not {*map(last_name, owner.bases)} & {"PyDataset", "Sequence"} or last_name(call) != "fit":
        return []
    if not isinstance(call, ast.Call) or any(keyword.arg in ("shuffle", None) for keyword in call.keywords):
        return []
    is_name = isinstance(iterable, ast.Name)
    data = code.text(iterable) if is_name else code.new_name("data")
    ends = any(isinstance(node, ast.FunctionDef) and node.name == "on_epoch_end" for node in owner.body)
    return [
        *([] if is_name else [f"{data} = {code.text(iterable)}"]),
        f"def {code.new_name('batches')}():   # fit() shuffles the batches of a PyDataset, but not those of a feed",
        f"    for index in {code.module_alias('numpy', 'np')}.random.permutation(len({data})):",
        f"        yield {data}[int(index)]",
        *([f"    {data}.on_epoch_end()"] if ends else []),
    ]


def feed_of_dataset(code: ScriptCode, number: int, framework: str = "torch", *, stored_rows: str = "") -> list[Edit]:
    """Return the edits that replace the DataLoader of a loop by a feed.

    The list is empty if the loader has its own sampler or collate function, which a feed would not call, or no batch
    size. If `stored_rows` is not empty, it is a comment. New code below this comment then makes all rows once, and the
    feed takes the rows from arrays.
    """
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    loader = resolve(code, batches[0]) if batches else None
    if statement is None or batches is None or not isinstance(loader, ast.Call) or last_name(loader) != "DataLoader":
        return []
    arguments = dict(zip(_LOADER_PARAMETERS, loader.args, strict=False))
    arguments |= {keyword.arg or "**": keyword.value for keyword in loader.keywords}
    if "dataset" not in arguments or {*arguments} & {"**", "sampler", "batch_sampler", "collate_fn"}:
        return []
    shuffle = arguments.get("shuffle")
    if shuffle is not None and not isinstance(shuffle, ast.Constant):
        return []
    size = resolve(code, arguments["batch_size"]) if "batch_size" in arguments else None
    if isinstance(size, ast.Constant) and size.value is None:
        return []  # the dataset makes the batches
    order = ".shuffle(seed=0)" if shuffle is not None and shuffle.value else ""
    rows = code.text(arguments["batch_size"]) if "batch_size" in arguments else "1"
    drop = arguments.get("drop_last")
    rows += f", drop_remainder={code.text(drop)}" if drop is not None else ""
    name, outer = code.new_name("feed"), outer_loop(code, statement)
    dataset, lines = code.text(arguments["dataset"]), import_lines(code, numpy=bool(stored_rows))
    source = f"fb.from_source({dataset})"
    if stored_rows:
        is_one_row = rows == "1"  # if a batch is one row, rows may differ in shape
        if is_one_row or not _unpacks_batches(statement) or not _is_before_epochs(code, statement, loader, arguments):
            return []
        if not isinstance(arguments["dataset"], ast.Name):
            dataset, text = code.new_name("dataset"), dataset
            lines += [f"{dataset} = {text}"]
        lines.append(stored_rows)
        numpy = code.module_alias("numpy", "np")
        every_row = f"({dataset}[row] for row in range(len({dataset})))"  # makes each row once
        source = f"fb.from_arrays(tuple(map({numpy}.stack, zip(*{every_row}))))"
    lines += [f"{name} = {source}{order}.batch({rows}){feed_call(code, statement, framework)}"]
    return [Edit.before(outer, *lines), *patch_statement(code, statement, code.replace(batches[0], name))]


def _unpacks_batches(statement: ast.stmt) -> bool:
    """Whether a loop assigns the parts of a batch to several names."""
    if not isinstance(statement, ast.For):
        return False
    target = statement.target
    if any(isinstance(node, ast.Call) and last_name(node) == "enumerate" for node in ast.walk(statement.iter)):
        target = target.elts[-1] if isinstance(target, ast.Tuple) else target
    return isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts)


def _is_before_epochs(code: ScriptCode, statement: ast.stmt, loader: ast.Call, arguments: dict[str, ast.expr]) -> bool:
    """Whether code before the loop of epochs can use the dataset of a loader."""
    if len(code.loops_around(statement)) < 2:
        return False  # a function may run this loop once per epoch
    assigned = _names_assigned_in(outer_loop(code, statement))
    is_known = code.function_around(loader) in (None, code.function_around(statement))
    return is_known and not names_in(arguments["dataset"]) & assigned


def map_elsewhere(code: ScriptCode, where: str) -> list[Edit]:
    """Return the edit that sets the argument `where` of the only map of a feed."""
    forebay = code.module_alias("forebay", "forebay")
    calls = [call for call in code.calls("map") if root_name(call) == forebay]
    if len(calls) != 1:
        return []
    edits = set_keywords(code, calls[0], where=f'"{where}"')
    if where == "process" and edits and not code.has_main_guard:
        edits = [replace(edits[0], text=f"{_GUARD}\n{edits[0].text}"), *edits[1:]]
    return edits


def workers_of_dataset(code: ScriptCode, number: int, workers: int) -> list[Edit]:
    """Return the edits that give worker processes to the PyDataset of a `fit`."""
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    if statement is None or batches is None or batches[1] is None:
        return []
    if isinstance(batches[0], ast.Name):
        name, lines, edits = batches[0].id, [], []
    else:
        name = code.new_name("dataset")
        lines = [f"{name} = {code.text(batches[0])}"]
        edits = patch_statement(code, statement, code.replace(batches[0], name))
    lines.append(f"{name}.workers, {name}.use_multiprocessing = {workers}, True")
    return [Edit.before(statement, *lines), *edits]


def feed_call(code: ScriptCode, loop: ast.stmt, framework: str) -> str:
    """Return the call of `feed` for the batches of a loop.

    A loop of PyTorch that moves nothing to a device computes on the CPU, so the call then names the CPU.
    """
    moves = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and last_name(node) in ("to", "cuda")]
    targets = [resolve(code, argument) for move in moves for argument in move.args[:1]]
    is_on_cpu = not moves or any(isinstance(target, ast.Constant) and target.value == "cpu" for target in targets)
    return '.feed("torch", device="cpu")' if framework == "torch" and is_on_cpu else f'.feed("{framework}")'


def patch_statement(code: ScriptCode, statement: ast.stmt, *patches: Patch) -> list[Edit]:
    """Return the edit that changes a statement, or the header of a loop or block."""
    if not hasattr(statement, "body"):
        return [Edit.instead(statement, code.rewrite(statement, *patches))]
    text = code.rewrite_header(statement, *patches)
    return [Edit.header(code, statement, text)] if text is not None else []


def call_at(code: ScriptCode, number: int, name: str) -> ast.Call | None:
    """Return the call of a function with this last name in the statement of a line."""
    statement = code.statement_at(number)
    nodes = own_nodes(statement) if statement is not None else ()
    return next((node for node in nodes if isinstance(node, ast.Call) and last_name(node) == name), None)


def is_array_text(node: ast.expr | None) -> bool:
    """Whether an argument of `fit` names arrays, alone or in a list, tuple or dict."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(is_array_text, node.elts))
    if isinstance(node, ast.Dict):
        return all(map(is_array_text, node.values))
    return node is None or isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def tree_text(code: ScriptCode, node: ast.expr) -> str:
    """Return the text of arrays for a feed, which takes tuples instead of lists."""
    if isinstance(node, ast.List):
        return f"({', '.join(tree_text(code, element) for element in node.elts)},)"
    return code.text(node)


def batches_at(code: ScriptCode, statement: ast.stmt | None) -> tuple[ast.expr, ast.Call | None] | None:
    """Return the expression that yields the batches of a statement, and its `fit`.

    For a loop, the second value is None. Return None instead of both for a loop over numbers, for a `fit` with separate
    labels, and for a statement without loop or `fit`.
    """
    if isinstance(statement, ast.For):
        iterable = statement.iter
        while isinstance(iterable, ast.Call) and last_name(iterable) in _WRAPPERS and iterable.args:
            iterable = iterable.args[0]
        is_other = isinstance(iterable, ast.Call) and last_name(iterable) in _NO_BATCHES
        return None if is_other or isinstance(iterable, ast.List | ast.Tuple) else (iterable, None)
    if statement is None:
        return None
    for node in own_nodes(statement):
        if isinstance(node, ast.Call) and last_name(node) == "fit":
            data = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "x"), None)
            has_labels = len(node.args) > 1 or any(keyword.arg == "y" for keyword in node.keywords)
            return (data, node) if data is not None and not has_labels else None
    return None


def resolve(code: ScriptCode, node: ast.expr) -> ast.expr:
    """Return the expression that the script assigns to a name; else the node itself."""
    value = code.value_of(node.id) if isinstance(node, ast.Name) else None
    return value if value is not None else node


def _restartable_text(code: ScriptCode, iterable: ast.expr) -> str | None:
    """Return code for an iterable that each epoch can iterate; None for a generator object."""
    value = resolve(code, iterable)
    function = code.function(last_name(value)) if isinstance(value, ast.Call) else None
    if function is None or not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return code.text(iterable)
    if not isinstance(value, ast.Call):
        return None
    has_arguments = bool(value.args or value.keywords)
    return f"lambda: {code.text(value)}" if has_arguments else code.text(value.func)


def outer_loop(code: ScriptCode, statement: ast.stmt) -> ast.stmt:
    """Return the outermost loop around a statement or, without one, the statement."""
    return [statement, *code.loops_around(statement)][-1]


def _names_assigned_in(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, ast.For | ast.While):
        return set()
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

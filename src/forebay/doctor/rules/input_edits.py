"""Edits of the input of a script: `fit`, DataLoader, tf.data and generators, in the script's own terms."""

import ast

from forebay.doctor.analyse.script_code import Patch, ScriptCode, last_name, names_in, own_nodes
from forebay.doctor.rules.edits import Edit, import_lines

__all__ = [
    "feed_call",
    "feed_of_batches",
    "feed_of_dataset",
    "feed_of_fit",
    "map_in_parallel",
    "patch_statement",
    "prefetch_dataset",
    "set_keywords",
]

_FIT_DATA = ("x", "y", "batch_size")  # parameters of `fit` that a feed replaces
_WRAPPERS = ("enumerate", "tqdm", "trange", "iter")


def set_keywords(code: ScriptCode, call: ast.Call, **keywords: str) -> list[Edit]:
    """Return the edit that sets keyword arguments of a call; an empty list if they have these values already."""
    current = {keyword.arg: code.text(keyword.value) for keyword in call.keywords}
    changed = [(name, value) for name, value in keywords.items() if current.get(name) != value]
    if not changed:
        return []
    return patch_statement(code, code.statement_of(call), *(code.set_keyword(call, *pair) for pair in changed))


def feed_of_fit(code: ScriptCode, number: int, batch_rows: int) -> list[Edit]:
    """Return the edits that let a feed prefetch the arrays of a Keras `fit`; empty if they do not fit."""
    call = _call_at(code, number, "fit")
    if call is None or code.loops_around(call) or any(isinstance(argument, ast.Starred) for argument in call.args):
        return []
    arguments = _fit_arguments(call)
    data = [arguments.get(name) for name in ("x", "y", "sample_weight")]
    if data[0] is None or "steps_per_epoch" in arguments or not all(map(_is_array_text, data)):
        return []
    split = arguments.pop("validation_split", None)
    texts = [_tree_text(code, part) for part in data if part is not None]
    rest = {name: code.text(node) for name, node in arguments.items() if name not in (*_FIT_DATA, "sample_weight")}
    lines = import_lines(code)
    if split is not None:
        if not all(isinstance(part, ast.Name | ast.Attribute) for part in data if part is not None):
            return []
        lines.append(f"split = int(len({texts[0]}) * (1 - {code.text(split)}))")
        rest["validation_data"] = f"({', '.join(f'{text}[split:]' for text in texts)})"
        texts = [f"{text}[:split]" for text in texts]
    shuffle = rest.pop("shuffle", "True")
    rows = code.text(arguments["batch_size"]) if "batch_size" in arguments else str(batch_rows)
    order = "" if shuffle == "False" else ".shuffle(seed=0)"
    tree = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    lines.append(f'feed = fb.from_arrays({tree}){order}.batch({rows}).feed("keras")')
    new_call = f"{code.text(call.func)}({', '.join(['feed', *(f'{name}={text}' for name, text in rest.items())])})"
    statement = code.statement_of(call)
    return [Edit.before(statement, *lines), *patch_statement(code, statement, code.replace(call, new_call))]


def feed_of_batches(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that prefetch the ready-made batches of a `fit` or of a loop; empty if they do not fit."""
    statement = code.statement_at(number)
    batches = _batches_at(code, statement)
    if statement is None or batches is None:
        return []
    iterable, _ = batches
    source = _restartable(code, iterable)
    is_one_pass = source is None
    if is_one_pass and len(code.loops_around(statement)) > 1:
        return []  # a generator object has only one pass, but each epoch needs one
    outer = _outer_loop(code, statement)
    if names_in(iterable) & _names_assigned_in(outer):
        return []  # each epoch has another iterable
    name = code.new_name("feed")
    text = source or code.text(iterable)
    lines = [*import_lines(code), f"{name} = fb.from_batches({text}){feed_call(code, statement, framework)}"]
    edit = patch_statement(code, statement, code.replace(iterable, name))
    return [Edit.before(outer, *lines), *edit] if edit else []


def feed_of_dataset(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that replace the DataLoader of a loop by a feed of its dataset; empty if they do not fit.

    A feed makes batches as the loader does, unless the loader has its own sampler or collation.
    """
    statement = code.statement_at(number)
    batches = _batches_at(code, statement)
    loader = _resolve(code, batches[0]) if batches else None
    if statement is None or batches is None or not isinstance(loader, ast.Call) or last_name(loader) != "DataLoader":
        return []
    arguments = dict(zip(("dataset", "batch_size", "shuffle"), loader.args, strict=False))
    arguments |= {keyword.arg or "**": keyword.value for keyword in loader.keywords}
    if "dataset" not in arguments or {*arguments} & {"**", "sampler", "batch_sampler", "collate_fn"}:
        return []
    shuffle = arguments.get("shuffle")
    if shuffle is not None and not isinstance(shuffle, ast.Constant):
        return []
    order = ".shuffle(seed=0)" if shuffle is not None and shuffle.value else ""
    rows = code.text(arguments["batch_size"]) if "batch_size" in arguments else "1"
    drop = arguments.get("drop_last")
    rows += f", drop_remainder={code.text(drop)}" if drop is not None else ""
    name, outer = code.new_name("feed"), _outer_loop(code, statement)
    pipeline = f"fb.from_source({code.text(arguments['dataset'])}){order}.batch({rows})"
    lines = [*import_lines(code), f"{name} = {pipeline}{feed_call(code, statement, 'torch')}"]
    return [Edit.before(outer, *lines), *patch_statement(code, statement, code.replace(batches[0], name))]


def prefetch_dataset(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that prefetches the tf.data pipeline of a `fit` or of a loop; empty if it does not fit."""
    statement = code.statement_at(number)
    batches = _batches_at(code, statement)
    if statement is None or batches is None or _has_call(_resolve(code, batches[0]), "prefetch", last=True):
        return []
    return patch_statement(code, statement, code.append(batches[0], f".prefetch({_autotune(code)})"))


def map_in_parallel(code: ScriptCode, map_number: int | None, number: int) -> list[Edit]:
    """Return the edits that let maps of tf.data run in parallel, and prefetch; empty if they do not fit.

    `map_number` is the line of the map, or None for all maps. `number` is the line that takes the batches.
    """
    patches: dict[ast.stmt, list[Patch]] = {}
    for call in code.calls("map"):
        has_setting = len(call.args) > 1 or any(keyword.arg == "num_parallel_calls" for keyword in call.keywords)
        statement = code.statement_of(call)
        if isinstance(call.func, ast.Attribute) and call.args and not has_setting and _has_line(statement, map_number):
            patches.setdefault(statement, []).append(code.set_keyword(call, "num_parallel_calls", _autotune(code)))
    user = code.statement_at(number)
    batches = _batches_at(code, user)
    if user is not None and batches is not None and not _has_call(_resolve(code, batches[0]), "prefetch", last=True):
        patches.setdefault(user, []).append(code.append(batches[0], f".prefetch({_autotune(code)})"))
    return [edit for statement, changes in patches.items() for edit in patch_statement(code, statement, *changes)]


def feed_call(code: ScriptCode, loop: ast.stmt, framework: str) -> str:
    """Return the call of `feed`. A loop of PyTorch that moves nothing to a device computes on the CPU."""
    moves = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and last_name(node) in ("to", "cuda")]
    targets = [_resolve(code, argument) for move in moves for argument in move.args[:1]]
    is_on_cpu = not moves or any(isinstance(target, ast.Constant) and target.value == "cpu" for target in targets)
    return '.feed("torch", device="cpu")' if framework == "torch" and is_on_cpu else f'.feed("{framework}")'


def _autotune(code: ScriptCode) -> str:
    return f"{code.module_alias('tensorflow', 'tf')}.data.AUTOTUNE"


def patch_statement(code: ScriptCode, statement: ast.stmt, *patches: Patch) -> list[Edit]:
    """Return the edit that changes a statement, or the header of a loop or block."""
    if not hasattr(statement, "body"):
        return [Edit.instead(statement, code.rewrite(statement, *patches))]
    text = code.rewrite_header(statement, *patches)
    return [Edit.header(code, statement, text)] if text is not None else []


def _has_line(statement: ast.stmt, number: int | None) -> bool:
    return number is None or statement.lineno <= number <= (statement.end_lineno or statement.lineno)


def _call_at(code: ScriptCode, number: int, name: str) -> ast.Call | None:
    statement = code.statement_at(number)
    nodes = own_nodes(statement) if statement is not None else ()
    return next((node for node in nodes if isinstance(node, ast.Call) and last_name(node) == name), None)


def _fit_arguments(call: ast.Call) -> dict[str, ast.expr]:
    """Return the arguments of a `fit` by name."""
    names = ("x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split", "validation_data", "shuffle")
    arguments = dict(zip(names, call.args, strict=False))
    return arguments | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _is_array_text(node: ast.expr | None) -> bool:
    """Whether an argument of `fit` names arrays, alone or in a list, tuple or dict."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_array_text, node.elts))
    if isinstance(node, ast.Dict):
        return all(map(_is_array_text, node.values))
    return node is None or isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def _tree_text(code: ScriptCode, node: ast.expr) -> str:
    """Return the text of arrays for a feed, which takes tuples instead of lists."""
    if isinstance(node, ast.List):
        return f"({', '.join(_tree_text(code, element) for element in node.elts)},)"
    return code.text(node)


def _batches_at(code: ScriptCode, statement: ast.stmt | None) -> tuple[ast.expr, ast.Call | None] | None:
    """Return the expression that yields the batches of a statement, and the `fit` that receives it, if any."""
    if isinstance(statement, ast.For):
        iterable = statement.iter
        while isinstance(iterable, ast.Call) and last_name(iterable) in _WRAPPERS and iterable.args:
            iterable = iterable.args[0]
        return iterable, None
    if statement is None:
        return None
    for node in own_nodes(statement):
        if isinstance(node, ast.Call) and last_name(node) == "fit":
            data = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "x"), None)
            return (data, node) if data is not None else None
    return None


def _resolve(code: ScriptCode, node: ast.expr) -> ast.expr:
    """Return the expression that a name stands for, or the expression itself."""
    value = code.value_of(node.id) if isinstance(node, ast.Name) else None
    return value if value is not None else node


def _restartable(code: ScriptCode, iterable: ast.expr) -> str | None:
    """Return the text of an iterable that can be iterated once per epoch; None if it is one generator object."""
    value = _resolve(code, iterable)
    function = code.function(last_name(value)) if isinstance(value, ast.Call) else None
    if function is None or not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return code.text(iterable)
    if not isinstance(value, ast.Call):
        return None
    has_arguments = bool(value.args or value.keywords)
    return f"lambda: {code.text(value)}" if has_arguments else code.text(value.func)


def _outer_loop(code: ScriptCode, statement: ast.stmt) -> ast.stmt:
    return [statement, *code.loops_around(statement)][-1]


def _names_assigned_in(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, ast.For | ast.While):
        return set()
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _has_call(node: ast.expr, name: str, *, last: bool) -> bool:
    """Whether a chain of calls ends with this call (`last`), or contains it."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == name:
            return True
        if last:
            return False
        node = node.func.value
    return False

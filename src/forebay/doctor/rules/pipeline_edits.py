"""Edits of the tf.data pipelines of a script.

Each edit function returns an empty list if the pipeline at line `number` has a form for which it knows no edit.
"""

import ast

from forebay.doctor.analyse.loop_code import numpy_names
from forebay.doctor.analyse.script_code import Patch, ScriptCode, last_name, names_in
from forebay.doctor.rules.edits import Edit, import_lines
from forebay.doctor.rules.input_edits import (
    batches_at,
    is_array_text,
    outer_loop,
    patch_statement,
    resolve,
    tree_text,
)

__all__ = ["batch_before_map", "feed_of_files", "feed_of_rows", "feed_of_slices", "map_in_parallel", "prefetch_dataset"]

# Functions of TensorFlow that give the same numbers for whole batches as for single rows.
_ELEMENTWISE = frozenset({"cast", "divide", "multiply", "subtract", "add", "truediv", "one_hot", "to_float", "abs"})
# Stages of a pipeline of `.npz` files that a feed of files replaces.
_FILE_STAGES = frozenset({"prefetch", "shuffle", "batch", "unbatch", "map", "take", "from_tensor_slices", "list_files"})
# Stages of a pipeline that a feed of arrays replaces.
_PLAIN_STAGES = frozenset({"prefetch", "cache", "shuffle", "batch", "from_tensor_slices"})


def feed_of_slices(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that replace a tf.data pipeline of plain arrays by a feed.

    The list is empty if the pipeline has a map, a filter or a limit, which a feed of plain arrays would lose.
    """
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    stages = _stages(code, batches[0]) if batches else {}
    if statement is None or batches is None or {*stages} - _PLAIN_STAGES:
        return []
    if "from_tensor_slices" not in stages or "batch" not in stages or not stages["batch"].args:
        return []
    if _follows(stages, "shuffle", "batch"):
        return []  # the pipeline shuffles whole batches
    arrays = stages["from_tensor_slices"].args[:1]
    if not all(map(is_array_text, arrays)) or not names_in(*arrays) <= numpy_names(code):
        return []
    drop = next((code.text(k.value) for k in stages["batch"].keywords if k.arg == "drop_remainder"), "")
    rows = code.text(stages["batch"].args[0]) + (f", drop_remainder={drop}" if drop else "")
    order = ".shuffle(seed=0)" if "shuffle" in stages else ""
    name, outer = code.new_name("feed"), outer_loop(code, statement)
    tree = tree_text(code, arrays[0])
    tree = f"({tree},)" if framework == "keras" and not isinstance(arrays[0], ast.Tuple) else tree
    lines = [*import_lines(code), f'{name} = fb.from_arrays({tree}){order}.batch({rows}).feed("{framework}")']
    return [Edit.before(outer, *lines), *patch_statement(code, statement, code.replace(batches[0], name))]


def feed_of_rows(code: ScriptCode, number: int, framework: str, *, in_batches: bool) -> list[Edit]:
    """Return the edits that let a feed call the generator of `from_generator`.

    The generator yields rows. With `in_batches`, new code assembles the rows into batches. The user can change this
    code so that it makes whole batches.
    """
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    stages = _stages(code, batches[0]) if batches else {}
    known = {"prefetch", "batch", "from_generator", "take"}
    if statement is None or batches is None or {*stages} - known or not {"batch", "from_generator"} <= {*stages}:
        return []
    make, rows = stages["from_generator"].args[:1], stages["batch"].args[:1]
    if _follows(stages, "batch", "take") or stages["batch"].keywords or _has_arguments(stages["from_generator"]):
        return []
    if not make or not rows or not isinstance(make[0], ast.Name | ast.Lambda | ast.Attribute):
        return []
    name, outer, size = code.new_name("feed"), outer_loop(code, statement), code.text(rows[0])
    limit = f".take({code.text(stages['take'].args[0])})" if "take" in stages and stages["take"].args else ""
    if in_batches:
        lines = _batching_code(code, code.text(make[0]), size)
        lines.append(f'{name} = fb.from_batches({code.new_name("batches")}){limit}.feed("{framework}")')
    else:
        lines = [f'{name} = fb.from_generator({code.text(make[0])}).batch({size}){limit}.feed("{framework}")']
    before = Edit.before(outer, *import_lines(code, numpy=in_batches), *lines)
    return [before, *patch_statement(code, statement, code.replace(batches[0], name))]


def feed_of_files(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that let a feed read the `.npz` files of a tf.data pipeline.

    The pipeline must map a function with `np.load` over the files, and then split the files into rows.
    """
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    stages = _stages(code, batches[0]) if batches else {}
    if not isinstance(statement, ast.For) or batches is None or not {"map", "unbatch", "batch"} <= {*stages}:
        return []
    if {*stages} - _FILE_STAGES or _follows(stages, "batch", "take") or stages["batch"].keywords:
        return []  # the feed would lose a stage or an argument
    members, files = (
        _loaded_members(code, stages["map"]),
        [call for call in code.calls("glob") if ".npz" in code.text(call)],
    )
    targets = statement.target.elts if isinstance(statement.target, ast.Tuple) else []
    if not members or len(files) != 1 or len(targets) != len(members) or not stages["batch"].args:
        return []
    order = ".shuffle(seed=0)" if "shuffle" in stages else ""
    limit = f".take({code.text(stages['take'].args[0])})" if "take" in stages and stages["take"].args else ""
    name, batch = code.new_name("feed"), code.new_name("batch")
    pipeline = f"fb.from_files(sorted({code.text(files[0])}), members={members}){order}"
    pipeline += f'.batch({code.text(stages["batch"].args[0])}){limit}.feed("{framework}")'
    fields = ", ".join(f'{batch}["{member}"]' for member in members)
    if code.rewrite_header(statement) is None:
        return []  # the body follows on the line of the header
    return [
        Edit.before(outer_loop(code, statement), *import_lines(code), f"{name} = {pipeline}"),
        Edit.header(code, statement, f"for {batch} in {name}:"),
        Edit.before(statement.body[0], f"{code.text(statement.target)} = {fields}"),
    ]


def _loaded_members(code: ScriptCode, call: ast.Call) -> list[str]:
    """Return the names of the arrays that a mapped function reads from an `.npz` file.

    They are in the order of the function's result. The list is empty if the code does not show them.
    """
    functions = [code.function(name) for name in sorted(names_in(call))]
    for function in functions:
        if function is None or not any(last_name(node) == "load" for node in ast.walk(function)):
            continue
        results = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        parts = results[0].elts if len(results) == 1 and isinstance(results[0], ast.Tuple) else []
        slices = [part.slice for part in parts if isinstance(part, ast.Subscript)]
        keys = [part.value for part in slices if isinstance(part, ast.Constant)]
        if keys and len(keys) == len(parts) and all(isinstance(key, str) for key in keys):
            return [str(key) for key in keys]
    return []


def _batching_code(code: ScriptCode, make: str, size: str) -> list[str]:
    """Return the lines of a generator of batches that calls a generator of rows."""
    is_tuple = any(isinstance(n, ast.Yield) and isinstance(n.value, ast.Tuple) for n in ast.walk(code.tree))
    numpy, taken = code.module_alias("numpy", "np"), code.new_name("taken")
    whole = f"tuple(map({numpy}.stack, zip(*{taken})))" if is_tuple else f"{numpy}.stack({taken})"
    return [
        "from itertools import islice",
        f"def {code.new_name('batches')}():   # faster: compute all rows of a batch in one call of NumPy",
        f"    source = {make}()",
        f"    while {taken} := list(islice(source, {size})):",
        f"        yield {whole}",
    ]


def _stages(code: ScriptCode, node: ast.expr) -> dict[str, ast.Call]:
    """Return the calls of a tf.data pipeline by name, the last stage first.

    If the script assigns a stage to a name, the search continues at the assignment.
    """
    stages: dict[str, ast.Call] = {}
    for _ in range(20):  # at most 20 stages of a pipeline
        node = resolve(code, node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr in stages:
            break
        stages[node.func.attr] = node
        node = node.func.value
    return stages


def _follows(stages: dict[str, ast.Call], name: str, earlier: str) -> bool:
    """Whether a pipeline has both stages, and the first one follows the other."""
    names = [*stages]  # the last stage first
    return {name, earlier} <= stages.keys() and names.index(name) < names.index(earlier)


def _has_arguments(call: ast.Call) -> bool:
    """Whether `from_generator` passes arguments to its generator."""
    return len(call.args) > 3 or any(keyword.arg == "args" for keyword in call.keywords)


def prefetch_dataset(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that prefetches the tf.data pipeline of a `fit` or a loop."""
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    if statement is None or batches is None or _has_call(resolve(code, batches[0]), "prefetch", last=True):
        return []
    return patch_statement(code, statement, code.append(batches[0], f".prefetch({_autotune(code)})"))


def batch_before_map(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that map whole batches of a tf.data pipeline instead of rows.

    The mapped function must only cast and calculate, so that it accepts batches too.
    """
    statement = code.statement_at(number)
    batches = batches_at(code, statement)
    stages = _stages(code, batches[0]) if batches else {}
    if not {"map", "batch"} <= {*stages} or [*stages].index("map") < [*stages].index("batch"):
        return []  # `_stages` lists the last stage first
    mapped, batch = stages["map"], stages["batch"]
    if not isinstance(mapped.func, ast.Attribute) or not mapped.args or not _is_elementwise(code, mapped.args[0]):
        return []
    arguments = ", ".join(map(code.text, mapped.args))
    patches: dict[ast.stmt, list[Patch]] = {}
    patches.setdefault(code.statement_of(mapped), []).append(code.replace(mapped, code.text(mapped.func.value)))
    patches.setdefault(code.statement_of(batch), []).append(code.append(batch, f".map({arguments})"))
    return [edit for changed, changes in patches.items() for edit in patch_statement(code, changed, *changes)]


def _is_elementwise(code: ScriptCode, mapped: ast.expr) -> bool:
    """Whether a mapped function only casts and calculates."""
    function = code.function(mapped.id) if isinstance(mapped, ast.Name) else mapped
    if not isinstance(function, ast.FunctionDef | ast.Lambda):
        return False
    body = function.body if isinstance(function.body, list) else [function.body]
    nodes = [node for part in body for node in ast.walk(part)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    has_indices = any(isinstance(node, ast.Subscript | ast.If | ast.While | ast.For) for node in nodes)
    return not has_indices and all(last_name(call) in _ELEMENTWISE for call in calls)


def map_in_parallel(code: ScriptCode, map_number: int | None, number: int) -> list[Edit]:
    """Return the edits that let maps of tf.data run in parallel, and prefetch.

    `map_number` is the line of the map, or None for all maps. `number` is the line that takes the batches.
    """
    patches: dict[ast.stmt, list[Patch]] = {}
    for call in code.calls("map"):
        has_setting = len(call.args) > 1 or any(keyword.arg == "num_parallel_calls" for keyword in call.keywords)
        statement = code.statement_of(call)
        if isinstance(call.func, ast.Attribute) and call.args and not has_setting and _has_line(statement, map_number):
            patches.setdefault(statement, []).append(code.set_keyword(call, "num_parallel_calls", _autotune(code)))
    user = code.statement_at(number)
    batches = batches_at(code, user)
    if user is not None and batches is not None and not _has_call(resolve(code, batches[0]), "prefetch", last=True):
        patches.setdefault(user, []).append(code.append(batches[0], f".prefetch({_autotune(code)})"))
    return [edit for statement, changes in patches.items() for edit in patch_statement(code, statement, *changes)]


def _autotune(code: ScriptCode) -> str:
    if not code.imports("tensorflow") and (data := code.imported_name("tensorflow", "data")):
        return f"{data}.AUTOTUNE"
    return f"{code.module_alias('tensorflow', 'tf')}.data.AUTOTUNE"


def _has_line(statement: ast.stmt, number: int | None) -> bool:
    return number is None or statement.lineno <= number <= (statement.end_lineno or statement.lineno)


def _has_call(node: ast.expr, name: str, *, last: bool) -> bool:
    """Whether a chain of calls contains the call `name` or, if `last`, ends with it."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == name:
            return True
        if last:
            return False
        node = node.func.value
    return False

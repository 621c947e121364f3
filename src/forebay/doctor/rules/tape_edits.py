"""Edits that move the gradient step of a TensorFlow loop into a `tf.function`."""

import ast
from collections.abc import Collection, Iterable, Sequence

from forebay.doctor.analyse.loop_code import is_numpy, names_changed_in_place, numpy_names
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, last_name, names_in, root_name, stored_names
from forebay.doctor.rules.block_names import names_outside, names_read_first
from forebay.doctor.rules.called_code import (
    called_functions,
    changed_by_functions,
    executed_lines,
    free_names,
    keeps_old_values,
)
from forebay.doctor.rules.compile_edits import HOST_CALLS, can_compile, stays_on_device
from forebay.doctor.rules.edits import Edit

__all__ = ["compile_tape"]

_PACKAGES = ("tensorflow", "keras", "tf_keras")
_BUILTINS = ("enumerate", "isinstance", "len", "list", "range", "reversed", "sum", "tuple", "zip")
# Methods of tapes, optimizers and metrics that a `tf.function` can call.
_METHODS = ("apply_gradients", "gradient", "jacobian", "stop_recording", "update_state", "watch")
_VARIABLES = ("trainable_variables", "trainable_weights", "variables", "weights")
_DATASET_CALLS = ("batch", "from_tensor_slices", "map", "padded_batch", "prefetch", "repeat", "shuffle", "take")
_FACTS = ("dtype", "name", "ndim", "shape")  # attributes of tensors that are values of Python
# Calls that a `tf.function` must not repeat, or whose values it would keep.
_REFUSED_CALLS = (
    *("Variable", "add_weight", "numpy_function", "py_function", "set_random_seed", "set_seed"),
    *("convert_to_numpy", "get_static_value", "get_value"),
)
_WRAPPERS = ("enumerate", "tqdm", "trange")
# Parts of a step whose meaning could change in a `tf.function`, or that autograph would have to rewrite.
_REFUSED = (
    *(ast.If, ast.While, ast.Try, ast.Match, *FUNCTIONS, ast.ClassDef, ast.Return, ast.Break, ast.Continue),
    *(ast.Global, ast.Nonlocal, ast.Delete, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr),
    *(ast.JoinedStr, ast.IfExp, ast.AugAssign, ast.Assert),
)


def compile_tape(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that move part of a loop into a `tf.function`.

    The part reaches from the `GradientTape` of the loop through the last `apply_gradients`. `number` is a line of the
    loop. The arguments of the new function are the tensors that the loop assigns, and it
    returns the values that the script reads after the step. The list is empty if the loop assigns other values that the
    step uses, because a `tf.function` would trace again for each new number, or would keep the first one.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    block = _tape_block(loops[0]) if loops else []
    if not block or not _can_move(code, block):
        return []
    outer = loops[-1]
    if _runs_repeatedly(code, outer) or _reads_entries(code, block):
        return []
    changed = stored_names(*loops) | changed_by_functions(code, names_in(outer))
    called = {node.func.id for node in _calls_in(block) if isinstance(node.func, ast.Name)}
    free = list(names_read_first(block))
    parameters = [name for name in free if name in changed]
    tapes = stored_names(*(item.optional_vars for node in block for item in _items(node) if item.optional_vars))
    outputs = sorted(stored_names(*block) & names_outside(code, block))
    if called & changed or tapes & set(outputs) or not set(parameters) <= _tensors(code, loops):
        return []
    if _uses_changed_objects(code, block, outer) or any(_is_host_value(each) for each in _values(block, outputs)):
        return []
    name = "train_step" if "train_step" not in code.all_names else code.new_name("compiled_step")
    results = ", ".join(outputs)
    body = [f"    {line}".rstrip() for each in block for line in code.text(each).split("\n")]
    body += [f"    return {results}"] if results else []
    call = f"{name}({', '.join(parameters)})"
    last = block[-1].end_lineno or block[-1].lineno
    return [
        Edit.before(
            outer, f"@{_alias(code)}.function(reduce_retracing=True)", f"def {name}({', '.join(parameters)}):", *body
        ),
        Edit("instead", block[0].lineno, last, f"{results} = {call}" if results else call),
    ]


def _runs_repeatedly(code: ScriptCode, outer: ast.stmt) -> bool:
    """Whether the function of a loop is called in a loop, which would compile again, or declares names of others."""
    function = code.function_around(outer)
    if function is None:
        return False
    declares = any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function))
    return declares or any(code.loops_around(call) for call in code.calls(function.name))


def _reads_entries(code: ScriptCode, block: Sequence[ast.stmt]) -> bool:
    """Whether the step reads an entry such as `config["w"]` and the script sets entries; the function would keep it."""
    parts = [node for node in ast.walk(code.tree) if isinstance(node, ast.Subscript)]
    sets = any(not isinstance(part.ctx, ast.Load) for part in parts)
    inside = [node for each in (*block, *_functions_of(code, block)) for node in ast.walk(each)]
    return sets and any(isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) for node in inside)


def _alias(code: ScriptCode) -> str:
    return code.module_alias("tensorflow", "tf")


def _tape_block(loop: ast.For | ast.While) -> list[ast.stmt]:
    """Return the statements of a loop from its only tape to the last statement that applies gradients."""
    tapes = [index for index, each in enumerate(loop.body) if _makes_tape(each)]
    applying = [index for index, each in enumerate(loop.body) if _calls(each, "apply_gradients")]
    if len(tapes) != 1 or not applying or applying[0] < tapes[0]:
        return []
    return loop.body[tapes[0] : applying[-1] + 1]


def _makes_tape(statement: ast.stmt) -> bool:
    return any(last_name(item.context_expr) == "GradientTape" for item in _items(statement))


def _items(statement: ast.stmt) -> list[ast.withitem]:
    return statement.items if isinstance(statement, ast.With) else []


def _calls(statement: ast.stmt, name: str) -> bool:
    return any(last_name(call) == name for call in _calls_in([statement]))


def _calls_in(block: Iterable[ast.stmt]) -> list[ast.Call]:
    return [node for each in block for node in ast.walk(each) if isinstance(node, ast.Call)]


def _can_move(code: ScriptCode, block: Sequence[ast.stmt]) -> bool:
    """Whether a `tf.function` computes what these statements compute."""
    nodes = [node for each in block for node in ast.walk(each)]
    if any(isinstance(node, _REFUSED) or not _is_unrolled(node, block) for node in nodes):
        return False
    if any(isinstance(node, ast.comprehension) and node.ifs for node in nodes):
        return False
    if any(code.replace_in_lines(each, "") is not None for each in block):
        return False
    functions = _functions_of(code, block)
    calls = [*_calls_in(block), *_calls_in(functions)]
    if any(last_name(call) in _REFUSED_CALLS for call in calls) or not _layers_compile(code):
        return False
    if not all(can_compile(code, each, "tensorflow") and not _keeps_state(code, each) for each in functions):
        return False
    modules = _imported_names(code)
    return all(_can_call(code, call, modules) for call in calls) and not _reads_changed_attributes(
        code, nodes, functions
    )


def _functions_of(code: ScriptCode, block: Sequence[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of the script that the statements of a block may call."""
    lines = executed_lines(code, block)
    return [each for each in code.statements if isinstance(each, FUNCTIONS) and each.lineno in lines]


def _keeps_state(code: ScriptCode, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function changes objects or names of other scopes, or reads such values when they have changed."""
    declares = any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(function))
    changes = names_changed_in_place(*function.body) - stored_names(*function.body)
    return declares or bool(changes) or keeps_old_values(code, function)


def _reads_changed_attributes(code: ScriptCode, nodes: Sequence[ast.AST], functions: Sequence[ast.AST]) -> bool:
    """Whether the step reads an attribute that the script sets anywhere, such as `config.weight`."""
    attributes = [node for node in ast.walk(code.tree) if isinstance(node, ast.Attribute)]
    changed = {node.attr for node in attributes if not isinstance(node.ctx, ast.Load)}
    inside = [*nodes, *(node for function in functions for node in ast.walk(function))]
    read = {node.attr for node in inside if isinstance(node, ast.Attribute)}
    return bool(read & changed) or bool(code.calls("setattr", "globals", "locals", "vars"))


def _uses_changed_objects(code: ScriptCode, block: Sequence[ast.stmt], outer: ast.stmt) -> bool:
    """Whether the loop changes an object that the step uses, or the script deletes a name that the step assigns.

    A `tf.function` would keep the attributes and elements that it read first, such as `model.rate` or `rows[0]`.
    """
    used = names_in(*block).union(*map(free_names, _functions_of(code, block)))
    looped = [outer, *called_functions(code, names_in(outer))]
    parts = [node for each in looped for node in ast.walk(each) if isinstance(node, ast.Attribute)]
    if any(not isinstance(part.ctx, ast.Load) for part in parts):
        return True  # such as the rate of a layer in the model
    deleted = names_in(*(node for node in code.statements if isinstance(node, ast.Delete)))
    return bool(used & names_changed_in_place(outer) or deleted & stored_names(*block))


def _values(block: Sequence[ast.stmt], names: Collection[str]) -> list[ast.expr]:
    """Return the values that a block assigns to these names."""
    nodes = [node for each in block for node in ast.walk(each) if isinstance(node, ast.Assign)]
    return [node.value for node in nodes if stored_names(*node.targets) & set(names)]


def _is_host_value(value: ast.expr) -> bool:
    """Whether a value is of Python. As the result of a `tf.function`, it would become a tensor."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in _BUILTINS
    is_fact = isinstance(value, ast.Attribute) and value.attr in _FACTS
    return is_fact or isinstance(value, ast.Constant | ast.JoinedStr | ast.Compare | ast.BoolOp)


def _is_unrolled(node: ast.AST, block: Sequence[ast.stmt]) -> bool:
    """Whether a node is no loop, or a loop over a list that the block makes, such as that of the gradients."""
    return not isinstance(node, ast.For) or (isinstance(node.iter, ast.Name) and node.iter.id in stored_names(*block))


def _can_call(code: ScriptCode, call: ast.Call, modules: set[str]) -> bool:
    """Whether a `tf.function` can make a call: of the framework, a model, a loss, or a function of the script."""
    path = code.text(call.func).split(".")
    if last_name(call) in HOST_CALLS or is_numpy(call, numpy_names(code)) or {"summary", "layers"} & {*path[:-1]}:
        return False  # a new layer would make its variables again in each call
    if root_name(call.func) in modules:
        return True
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _METHODS
    if not isinstance(call.func, ast.Name):
        return False
    name = call.func.id
    return name in _BUILTINS or code.function(name) is not None or _is_of_framework(code, name, modules)


def _is_of_framework(code: ScriptCode, name: str, modules: set[str]) -> bool:
    """Whether a name is probably a model, a layer, a loss or a metric.

    True if the script creates it with TensorFlow, Keras or a subclass of their classes, or reads its variables.
    """
    value = code.value_of(name)
    made = root_name(value.func) if isinstance(value, ast.Call) else ""
    own_class = code.class_named(made)
    if made in modules or (own_class is not None and any(root_name(base) in modules for base in own_class.bases)):
        return True
    attributes = [node for node in ast.walk(code.tree) if isinstance(node, ast.Attribute) and node.attr in _VARIABLES]
    return any(root_name(node) == name for node in attributes)


def _imported_names(code: ScriptCode) -> set[str]:
    """Return the names that the script imports from TensorFlow and Keras."""
    found: set[str] = set()
    for node in code.statements:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if alias.name.partition(".")[0] in _PACKAGES]
            found |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _PACKAGES:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def _layers_compile(code: ScriptCode) -> bool:
    """Whether the methods of the script's models and layers keep no state in Python, and read no value on the host.

    Methods that build a layer may do so.
    """
    classes = [node for node in code.statements if isinstance(node, ast.ClassDef)]
    bases = {last_name(base) for each in classes for base in each.bases}
    layers = [each for each in classes if each.bases or each.name in bases]
    methods = [node for each in layers for node in each.body if isinstance(node, ast.FunctionDef)]
    return all(_method_compiles(code, each) for each in methods if each.name not in ("__init__", "build"))


def _method_compiles(code: ScriptCode, method: ast.FunctionDef) -> bool:
    parts = [node for node in ast.walk(method) if isinstance(node, ast.Attribute | ast.Subscript)]
    changes = any(isinstance(part.ctx, ast.Store | ast.Del) for part in parts)
    known = {"self", "super", *_BUILTINS, *_imported_names(code), *stored_names(*method.body)}
    known |= {node.arg for node in ast.walk(method.args) if isinstance(node, ast.arg)}
    calls = _calls_in([method])
    are_known = all(root_name(call.func) in known or code.function(root_name(call.func)) for call in calls)
    makes = any(last_name(call) in _REFUSED_CALLS for call in calls)
    return stays_on_device(method) and not changes and not makes and are_known


def _tensors(code: ScriptCode, loops: Sequence[ast.For | ast.While]) -> set[str]:
    """Return names that are tensors: batches of a tf.data loop, and results of TensorFlow in the loop."""
    alias = _alias(code)
    found: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.For) and _is_dataset(code, loop.iter):
            if "enumerate" not in _wrappers(loop.iter):
                found |= stored_names(loop.target)
            elif isinstance(loop.target, ast.Tuple):
                found |= stored_names(*loop.target.elts[1:])
    assigned = [node for node in loops[0].body if isinstance(node, ast.Assign)]
    for node in assigned:
        is_made = isinstance(node.value, ast.Call) and root_name(node.value.func) == alias
        if is_made and last_name(node.value) not in _REFUSED_CALLS:
            found |= stored_names(*node.targets)
        else:
            found -= stored_names(*node.targets)
    return found


def _wrappers(value: ast.expr) -> list[str]:
    """Return the names of the functions, such as `enumerate`, that wrap an iterable."""
    if isinstance(value, ast.Call) and last_name(value) in _WRAPPERS and value.args:
        return [last_name(value), *_wrappers(value.args[0])]
    return []


def _is_dataset(code: ScriptCode, value: ast.expr | None, depth: int = 5) -> bool:
    """Whether an expression is a pipeline of tf.data. `depth` limits how many assignments are followed."""
    if isinstance(value, ast.Call) and last_name(value) in _WRAPPERS and value.args:
        return _is_dataset(code, value.args[0], depth)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if root_name(value.func) == _alias(code):
            return ".data." in code.text(value.func)
        return last_name(value) in _DATASET_CALLS and _is_dataset(code, value.func.value, depth)
    if isinstance(value, ast.Name) and depth:
        assigned = [node for node in code.statements if isinstance(node, ast.Assign)]
        values = [node.value for node in assigned if value.id in stored_names(*node.targets)]
        made = [each for each in values if root_name(each) != value.id]
        return bool(made) and all(_is_dataset(code, each, depth - 1) for each in made)
    return False

"""Edits that move the gradient step of a TensorFlow loop into a `tf.function`."""

import ast
from collections.abc import Iterable, Sequence

from forebay.doctor.analyse.loop_code import is_numpy, numpy_names
from forebay.doctor.analyse.script_code import FUNCTIONS, ScriptCode, last_name, names_in, root_name, stored_names
from forebay.doctor.rules.block_names import names_outside, names_read_first
from forebay.doctor.rules.called_code import changed_by_functions, executed_lines
from forebay.doctor.rules.compile_edits import HOST_CALLS, can_compile, stays_on_device
from forebay.doctor.rules.edits import Edit

__all__ = ["compile_tape"]

_PACKAGES = ("tensorflow", "keras", "tf_keras")
_BUILTINS = ("enumerate", "isinstance", "len", "list", "range", "reversed", "sum", "tuple", "zip")
# Methods of tapes, optimizers and metrics that a `tf.function` can call.
_METHODS = ("apply_gradients", "gradient", "jacobian", "stop_recording", "update_state", "watch")
_VARIABLES = ("trainable_variables", "trainable_weights", "variables", "weights")
_DATASET_CALLS = ("batch", "from_tensor_slices", "map", "padded_batch", "prefetch", "repeat", "shuffle", "take")
_BASES = ("Layer", "Loss", "Metric", "Model", "Module")  # of classes that TensorFlow calls
_WRAPPERS = ("enumerate", "tqdm", "trange")
# Parts of a step whose meaning could change in a `tf.function`, or that autograph would have to rewrite.
_REFUSED = (
    *(ast.If, ast.While, ast.Try, ast.Match, *FUNCTIONS, ast.ClassDef, ast.Return, ast.Break, ast.Continue),
    *(ast.Global, ast.Nonlocal, ast.Delete, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr),
    *(ast.JoinedStr, ast.IfExp, ast.AugAssign),
)


def compile_tape(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that move the statements from a `GradientTape` to the last `apply_gradients` of a loop.

    `number` is a line of the loop. The arguments of the new function are the tensors that the loop assigns, and it
    returns the values that the script reads after the step. The list is empty if the loop assigns other values that the
    step uses, because a `tf.function` would trace again for each new number, or would keep the first one.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    block = _tape_block(loops[0]) if loops else []
    if not block or not _can_move(code, block):
        return []
    outer = loops[-1]
    changed = stored_names(*loops) | changed_by_functions(code, names_in(outer))
    called = {node.func.id for node in _calls_in(block) if isinstance(node.func, ast.Name)}
    free = list(names_read_first(block))
    parameters = [name for name in free if name in changed]
    tapes = stored_names(*(item.optional_vars for node in block for item in _items(node) if item.optional_vars))
    outputs = sorted(stored_names(*block) & names_outside(code, block))
    if called & changed or tapes & set(outputs) or not set(parameters) <= _tensors(code, loops):
        return []
    name = "train_step" if "train_step" not in code.all_names else code.new_name("compiled_step")
    results = ", ".join(outputs)
    body = [f"    {line}".rstrip() for each in block for line in code.text(each).split("\n")]
    body += [f"    return {results}"] if results else []
    call = f"{name}({', '.join(parameters)})"
    last = block[-1].end_lineno or block[-1].lineno
    return [
        Edit.before(outer, f"@{_alias(code)}.function", f"def {name}({', '.join(parameters)}):", *body),
        Edit("instead", block[0].lineno, last, f"{results} = {call}" if results else call),
    ]


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
    if any(code.replace_in_lines(each, "") is not None for each in block):
        return False
    lines = executed_lines(code, block)
    functions = [each for each in code.statements if isinstance(each, FUNCTIONS) and each.lineno in lines]
    if not all(can_compile(code, function, "tensorflow") for function in functions) or not _layers_compile(code):
        return False
    modules = _imported_names(code)
    return all(_can_call(code, call, modules) for call in _calls_in(block))


def _is_unrolled(node: ast.AST, block: Sequence[ast.stmt]) -> bool:
    """Whether a node is no loop, or a loop over a list that the block makes, such as that of the gradients."""
    return not isinstance(node, ast.For) or (isinstance(node.iter, ast.Name) and node.iter.id in stored_names(*block))


def _can_call(code: ScriptCode, call: ast.Call, modules: set[str]) -> bool:
    """Whether a `tf.function` can make a call: of the framework, a model, a loss, or a function of the script."""
    if last_name(call) in HOST_CALLS or is_numpy(call, numpy_names(code)) or "summary" in code.text(call.func):
        return False
    if root_name(call.func) in modules:
        return True
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _METHODS
    if not isinstance(call.func, ast.Name):
        return False
    name = call.func.id
    return name in _BUILTINS or code.function(name) is not None or _is_of_framework(code, name, modules)


def _is_of_framework(code: ScriptCode, name: str, modules: set[str]) -> bool:
    """Whether a name is a model, a layer, a loss or a metric: the script makes it so, or reads its variables."""
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
    """Whether no method of the script's models and layers reads a value on the host, except those that build them."""
    classes = [node for node in code.statements if isinstance(node, ast.ClassDef)]
    layers = [each for each in classes if any(last_name(base) in _BASES for base in each.bases)]
    methods = [node for each in layers for node in each.body if isinstance(node, ast.FunctionDef)]
    return all(stays_on_device(method) for method in methods if method.name not in ("__init__", "build"))


def _tensors(code: ScriptCode, loops: Sequence[ast.For | ast.While]) -> set[str]:
    """Return names that are tensors: batches of a tf.data loop, and results of TensorFlow in the loop."""
    alias = _alias(code)
    found: set[str] = set()
    for loop in loops:
        if isinstance(loop, ast.For) and _is_dataset(code, loop.iter):
            is_counted = last_name(loop.iter) in _WRAPPERS[:1] and isinstance(loop.target, ast.Tuple)
            targets = loop.target.elts[1:] if is_counted and isinstance(loop.target, ast.Tuple) else [loop.target]
            found |= stored_names(*targets)
    assigned = [node for node in loops[0].body if isinstance(node, ast.Assign)]
    for node in assigned:
        if isinstance(node.value, ast.Call) and root_name(node.value.func) == alias:
            found |= stored_names(*node.targets)
        else:
            found -= stored_names(*node.targets)
    return found


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

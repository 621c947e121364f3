"""Edits that keep a loop from building objects, or compiling functions, again in every step.

Each function returns an empty list if the code at line `number` has a form for which it knows no edit.
"""

import ast

from forebay.doctor.analyse.loop_code import names_changed_in_place, numpy_names
from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, own_nodes, root_name, stored_names
from forebay.doctor.rules.edits import Edit, argument_texts
from forebay.doctor.rules.input_edits import patch_statement

__all__ = ["build_once", "call_on_batch", "keep_iterator", "pass_arrays", "pass_constants"]

# Framework -> call that makes an array of the framework from a Python number.
_NUMBERS = {
    "tensorflow": "{tf}.constant({value}, {tf}.float32)",
    "jax": "jnp.float32({value})",
    "torch": "torch.tensor({value})",
}
# Framework -> its module, and a call that makes an array. `{}` stands for the module, then for the data.
_CONSTANTS = {"tensorflow": ("tensorflow", "{}.constant({})"), "jax": ("jax.numpy", "{}.asarray({})")}
# Options of compilers that refer to no positions of arguments.
_NAMED_OPTIONS = {"static_argnames", "donate_argnames", "inline", "jit_compile", "autograph", "reduce_retracing"}
# Functions of JAX whose arguments may decide the shape of their results.
_CONCRETE = {"arange", "broadcast_to", "full", "nonzero", "ones", "repeat", "reshape", "split", "unique", "zeros"}
_PYTHON_NUMBERS = {"int", "float", "bool", "range", "len"}

# Method of a Keras model -> method that handles one batch without a pipeline.
_ON_BATCH = {"fit": "train_on_batch", "predict": "predict_on_batch", "evaluate": "test_on_batch"}
_PIPELINE_ARGUMENTS = {"batch_size", "epochs", "shuffle", "verbose"}  # the methods for one batch need none of these
_BATCH_ARGUMENTS = {"x", "y", "sample_weight", "class_weight"}  # of the methods for one batch


def build_once(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that build an object once, before the loop."""
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if not isinstance(statement, ast.Assign) or not loops or len(statement.targets) != 1:
        return []
    parameters = {node.arg for node in ast.walk(statement.value) if isinstance(node, ast.arg)}  # not names of the loop
    if (names_in(statement.value) - parameters) & (stored_names(loops[-1]) | names_changed_in_place(loops[-1])):
        return []
    if last_name(statement.value) in ("iter", "enumerate", "zip"):
        return []  # an iterator has only one pass
    if statement not in loops[0].body or _is_used_above(loops[-1], statement):
        return []  # some steps use an earlier value of the name
    return [Edit.before(loops[-1], code.text(statement)), Edit.remove(code, statement)]


def _is_used_above(loop: ast.stmt, statement: ast.Assign) -> bool:
    """Whether a loop reads the names of an assignment above or in it, or assigns them elsewhere."""
    names, end = stored_names(*statement.targets), statement.end_lineno or statement.lineno
    own = {*ast.walk(statement)}
    uses = [node for node in ast.walk(loop) if isinstance(node, ast.Name) and node.id in names and node not in own]
    return any(node.lineno <= end or not isinstance(node.ctx, ast.Load) for node in uses)


def keep_iterator(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that replace `next(iter(loader))` in a loop by one endless iterator.

    Line `number` takes the batch, or builds the loader in the same loop.
    """
    line = code.statement_at(number)
    loops = code.loops_around(line) if line is not None else []
    found = [(other, node) for other in (loops[0].body if loops else []) for node in _next_calls(other)]
    if len(found) != 1:
        return []
    statement, call = found[0]
    source = call.args[0].args[0] if isinstance(call.args[0], ast.Call) else call.args[0]
    assigned = stored_names(loops[-1])
    local = names_in(source) & assigned
    builds = [node for node in loops[0].body if isinstance(node, ast.Assign) and stored_names(*node.targets) & local]
    if local and (len(builds) != 1 or names_in(builds[0].value) & assigned):
        return []
    name, built = code.new_name("batches"), [code.text(build) for build in builds]
    lines = [*built, "def endless(loader):", "    while True:", "        yield from loader"]
    before = Edit.before(loops[-1], *lines, f"{name} = endless({code.text(source)})")
    return [
        before,
        *(Edit.remove(code, build) for build in builds),
        *patch_statement(code, statement, code.replace(call, f"next({name})")),
    ]


def pass_constants(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that pass a global NumPy array to a function as an argument."""
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    nodes = own_nodes(statement) if statement is not None else ()
    call = next((node for node in nodes if isinstance(node, ast.Call) and _calls_own_function(code, node)), None)
    function = code.function(last_name(call)) if call is not None and isinstance(call.func, ast.Name) else None
    if statement is None or call is None or function is None or not loops or framework not in _CONSTANTS:
        return []
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    used = names_in(*function.body) & numpy_names(code) - parameters - stored_names(*function.body)
    module, converter = _CONSTANTS[framework]
    header = code.rewrite_header(function)
    if len(used - stored_names(loops[-1])) != 1 or len(used) != 1 or not code.imports(module) or header is None:
        return []
    name = used.pop()
    if not _accepts_first_argument(code, function) or _is_used_on_host(code, function, name):
        return []
    on_device = code.new_name(f"{name}_on_device")
    new_call = f"{code.text(call.func)}({', '.join([on_device, *argument_texts(code, call)])})"
    converted = converter.format(code.module_alias(module, module), name)
    return [
        Edit.before(loops[-1], f"{on_device} = {converted}"),
        Edit.header(code, function, header.replace("(", f"({name}, " if parameters else f"({name}", 1)),
        *patch_statement(code, statement, code.replace(call, new_call)),
    ]


def _accepts_first_argument(code: ScriptCode, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function can get a new first parameter.

    It must be no method, the script must use it only once, and its decorators must not refer to positions of arguments.
    """
    uses = [node for node in code.parents if isinstance(node, ast.Name) and node.id == function.name]
    calls = [each for each in function.decorator_list if isinstance(each, ast.Call)]
    compilers = [argument for call in calls if last_name(call) == "partial" for argument in call.args[:1]]
    compilers += [each for each in function.decorator_list if last_name(each) != "partial"]
    options = {keyword.arg for call in calls for keyword in call.keywords}
    is_compiled_only = all(last_name(each) in ("jit", "function") for each in compilers) and options <= _NAMED_OPTIONS
    has_types = bool(getattr(function, "type_params", []))  # such as `def step[T](x: T)`, which Python 3.12 added
    return (
        is_compiled_only
        and not has_types
        and len(uses) == 1
        and not isinstance(code.parents.get(function), ast.ClassDef)
    )


def _is_used_on_host(code: ScriptCode, function: ast.stmt, name: str) -> bool:
    """Whether a function passes an array to NumPy or Python, which need its values.

    An argument of a compiled function has no values.
    """
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    around = [parent for node in uses for parent in code.ancestors(node)]
    calls = [node for node in around if isinstance(node, ast.Call) and node in ast.walk(function)]
    numpy = code.module_alias("numpy", "np")
    attributes = {parent.attr for node in uses if isinstance(parent := code.parents[node], ast.Attribute)}
    tests = [node.test for node in ast.walk(function) if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert)]
    is_host_call = any(root_name(call.func) == numpy or last_name(call) in _PYTHON_NUMBERS for call in calls)
    is_index = any(node in ast.walk(part.slice) for part in around if isinstance(part, ast.Subscript) for node in uses)
    if is_index or any(last_name(call) in _CONCRETE for call in calls):
        return True  # a mask, a shape or a count
    return is_host_call or not attributes <= {"shape", "ndim"} or name in names_in(*tests)


def pass_arrays(code: ScriptCode, number: int, framework: str) -> list[Edit]:
    """Return the edits that pass Python numbers that change in the loop as arrays.

    A compiled function compiles again for a new number, but not for a new array of equal shape and dtype.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if statement is None or not loops or framework not in _NUMBERS:
        return []
    call = next((node for node in own_nodes(statement) if _calls_own_function(code, node)), None)
    if not isinstance(call, ast.Call):
        return []
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    numbers = [node for node in arguments if _is_changing_float(code, node, loops[0])]
    statics = _static_arguments(code, call)
    if statics and not statics <= set(numbers):
        return []  # other static arguments must remain static
    texts = {"tf": code.module_alias("tensorflow", "tf")}
    patches = [code.replace(n, _NUMBERS[framework].format(value=code.text(n), **texts)) for n in numbers]
    edits = patch_statement(code, statement, *patches) if patches else []
    return [*edits, *_without_static_arguments(code, call)] if edits else []


def _is_changing_float(code: ScriptCode, node: ast.expr, loop: ast.For | ast.While) -> bool:
    """Whether an expression computes a `float` of Python from names that the loop assigns.

    An integer may be an index, and arrays have their own dtype.
    """
    parts = [*ast.walk(node)]
    is_float = any(isinstance(part, ast.Div) or type(getattr(part, "value", None)) is float for part in parts)
    if not isinstance(node, ast.BinOp) or not is_float or any(isinstance(part, ast.Subscript) for part in parts):
        return False
    arrays = set(numpy_names(code))
    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Tuple):
        counted = loop.target.elts[:1] if last_name(loop.iter) == "enumerate" else []
        arrays |= names_in(loop.target) - names_in(*counted)
    return bool(names_in(node) & stored_names(loop)) and not names_in(node) & arrays


def _static_arguments(code: ScriptCode, call: ast.Call) -> set[ast.expr | None]:
    """Return the arguments of a call that a decorator of its function names as static.

    The set contains None if it is not known which arguments these are.
    """
    function = code.function(last_name(call))
    if function is None:
        return set()
    keywords = [each for node in function.decorator_list if isinstance(node, ast.Call) for each in node.keywords]
    values = [each.value for each in keywords if each.arg in ("static_argnames", "static_argnums")]
    parts = [part for value in values for part in (value.elts if isinstance(value, ast.Tuple | ast.List) else [value])]
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    given: dict[object, ast.expr] = dict(zip(names, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords}
    found: set[ast.expr | None] = set()
    for part in parts:
        key = part.value if isinstance(part, ast.Constant) else None
        name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
        found.add(given.get(name))
    return found


def _without_static_arguments(code: ScriptCode, call: ast.Call) -> list[Edit]:
    """Return the edit that removes static arguments from `jax.jit`, because arrays cannot be static."""
    function = code.function(last_name(call))
    for decorator in function.decorator_list if function is not None else []:
        if isinstance(decorator, ast.Call):
            names = [
                keyword.arg for keyword in decorator.keywords if keyword.arg in ("static_argnames", "static_argnums")
            ]
            patches = [patch for name in names if name and (patch := code.remove_keyword(decorator, name)) is not None]
            if patches:
                text = f"@{code.rewrite(decorator, *patches)}"
                return [Edit("instead", decorator.lineno, decorator.end_lineno or decorator.lineno, text)]
    return []


def call_on_batch(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that replaces `fit`, `predict` or `evaluate` by its method for one batch.

    The list is empty if the call has arguments that this method does not accept, or if the script uses the result of
    `fit` or `evaluate`, which the method for one batch returns in another form.
    """
    statement = code.statement_at(number)
    calls = [node for node in own_nodes(statement) if isinstance(node, ast.Call)] if statement is not None else []
    calls = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _ON_BATCH]
    if statement is None or len(calls) != 1:
        return []
    (call,) = calls
    assert isinstance(call.func, ast.Attribute)
    model, method = code.text(call.func.value), call.func.attr
    kept = [keyword for keyword in call.keywords if keyword.arg not in _PIPELINE_ARGUMENTS]
    epochs = [keyword.value for keyword in call.keywords if keyword.arg == "epochs"]
    is_one_epoch = all(isinstance(value, ast.Constant) and value.value == 1 for value in epochs)
    is_used = method != "predict" and not (isinstance(statement, ast.Expr) and statement.value is call)
    most = 1 if method == "predict" else 2  # positional arguments of the method for one batch
    if len(call.args) > most or not is_one_epoch or is_used or any(each.arg not in _BATCH_ARGUMENTS for each in kept):
        return []
    arguments = [*map(code.text, call.args), *(f"{each.arg}={code.text(each.value)}" for each in kept)]
    text = f"{model}.{_ON_BATCH[method]}({', '.join(arguments)})"
    return patch_statement(code, statement, code.replace(call, text))


def _next_calls(statement: ast.stmt) -> list[ast.Call]:
    """Return the calls `next(iter(...))` of a statement."""
    calls = [node for node in own_nodes(statement) if isinstance(node, ast.Call) and last_name(node) == "next"]
    return [call for call in calls if call.args and last_name(call.args[0]) == "iter"]


def _calls_own_function(code: ScriptCode, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and code.function(last_name(node)) is not None

"""Edits that compile the step of a script, or change how it is compiled.

Functions that return edits return an empty list if the code at line `number` has a form for which they know no edit.
"""

import ast
from collections.abc import Collection, Sequence

from forebay.core.parsing import first_line
from forebay.doctor.analyse.loop_code import is_numpy, numpy_names, step_loop
from forebay.doctor.analyse.script_code import (
    FUNCTIONS,
    ScriptCode,
    last_name,
    names_in,
    own_nodes,
    root_name,
    stored_names,
)
from forebay.doctor.rules.called_code import executed_lines, keeps_old_values
from forebay.doctor.rules.edits import Edit
from forebay.doctor.rules.input_edits import patch_statement, set_keywords

__all__ = [
    "HOST_CALLS",
    "can_compile",
    "compile_function",
    "compile_keras",
    "compile_statement",
    "compile_torch_model",
    "compiled_lines",
    "is_compiled",
    "jit_name",
    "makes_generator",
    "retrace_less",
    "stays_on_device",
    "step_function",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef
_TRAINING_CALLS = ("fit", "train_on_batch")
_COMPILERS = frozenset({"function", "jit", "pmap", "compile", "filter_jit"})  # last names of compiling decorators
# Calls that read a value on the host, which no compiled function can do.
HOST_CALLS = frozenset({"item", "tolist", "numpy", "float", "int", "bool", "print", "append", "device_get"})


def step_function(code: ScriptCode, number: int, anchor: int | None = None) -> Function | None:
    """Return the function of the step; None if there is none.

    If line `number` is in a function, return this function or its caller, whichever a loop calls. If the line is in no
    function, return the function that the line calls. `anchor` is the line that ends a step. A function that contains
    the loop around this line is the whole training, not the step.
    """
    statement = code.statement_at(number)
    if statement is None:
        return None
    inner = code.function_around(statement)
    if inner is None:
        called = [code.function(last_name(call)) for call in ast.walk(statement) if isinstance(call, ast.Call)]
        return next((function for function in called if function is not None), None)
    function = _caller_in_loop(code, inner)
    end = code.statement_at(anchor) if anchor is not None else None
    if end is not None and code.function_around(end) is function and code.loops_around(end):
        return None
    return function


def compile_function(code: ScriptCode, number: int, framework: str, anchor: int | None = None) -> list[Edit]:
    """Return the edit that compiles the function of the step."""
    function = step_function(code, number, anchor)
    if function is None or framework not in ("jax", "tensorflow") or not can_compile(code, function, framework):
        return []
    if is_compiled(function) or not all(map(_is_transform, function.decorator_list)):
        return []  # an unknown decorator may need to run in each step
    if keeps_old_values(code, function) or (framework == "jax" and _passes_arguments_to_numpy(code, function)):
        return []
    name, imports = jit_name(code) if framework == "jax" else (f"{_tf(code)}.function", _tf_imports(code))
    return [Edit.before(function, *imports, f"@{name}")]


def jit_name(code: ScriptCode) -> tuple[str, list[str]]:
    """Return the name of `jax.jit` in the script, and the imports for this name."""
    if code.imports("jax"):
        return f"{code.module_alias('jax', 'jax')}.jit", []
    name = code.imported_name("jax", "jit")
    return (name, []) if name else ("jax.jit", [] if "jax" in code.all_names else ["import jax"])


def _passes_arguments_to_numpy(code: ScriptCode, function: Function) -> bool:
    """Whether a function passes its arguments to NumPy, which cannot compute with arguments of a jitted function."""
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls = [call for call in calls if root_name(call.func) == code.module_alias("numpy", "np")]
    return any(isinstance(each, ast.Name) and each.id in parameters for call in calls for each in call.args)


def compile_statement(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edits that compute an assigned value in a new `tf.function`.

    The arguments of this function are the names in the value that the loop assigns.
    """
    statement = code.statement_at(number)
    loops = code.loops_around(statement) if statement is not None else []
    if not loops or not isinstance(statement, ast.Assign) or code.function_around(statement) is not None:
        return []
    nodes = list(ast.walk(statement.value))
    local = stored_names(*(node.target for node in nodes if isinstance(node, ast.comprehension)))
    names = names_in(statement.value) & stored_names(*loops) - local
    if not _computes_on_tensors(code, statement) or names & _host_values(code, loops[-1]):
        return []
    name, arguments = code.new_name("compute"), ", ".join(sorted(names))
    targets = " = ".join(code.text(target) for target in statement.targets)
    decorator, value = f"@{_tf(code)}.function", code.text(statement.value)
    value = f"({value})" if "\n" in value else value
    return [
        Edit.before(loops[-1], decorator, f"def {name}({arguments}):", f"    return {value}"),
        Edit.instead(statement, f"{targets} = {name}({arguments})"),
    ]


def _computes_on_tensors(code: ScriptCode, statement: ast.Assign) -> bool:
    """Whether a `tf.function` can compute an assigned value.

    Neither the value nor the functions of the script that it calls may read tensors on the host or call NumPy.
    """
    nodes = list(ast.walk(statement.value))
    if any(isinstance(node, ast.NamedExpr | ast.Await | ast.Lambda) for node in nodes):
        return False
    lines = executed_lines(code, [statement])
    functions = [each for each in code.statements if isinstance(each, FUNCTIONS) and each.lineno in lines]
    calls = [node for each in (statement, *functions) for node in ast.walk(each) if isinstance(node, ast.Call)]
    is_on_host = any(last_name(call) in HOST_CALLS or is_numpy(call, numpy_names(code)) for call in calls)
    return not is_on_host and all(can_compile(code, function, "tensorflow") for function in functions)


def _host_values(code: ScriptCode, loop: ast.For | ast.While) -> set[str]:
    """Return the names of numbers, NumPy arrays and context managers in a loop.

    They must not be arguments of a `tf.function`. It traces again for each new number, gets a NumPy array as a tensor
    of another dtype, and records no gradients on a tape of the loop.
    """
    found = set(numpy_names(code))
    for node in ast.walk(loop):
        if isinstance(node, ast.With):
            found |= stored_names(*(item.optional_vars for item in node.items if item.optional_vars is not None))
        elif isinstance(node, ast.Assign | ast.AugAssign) and _is_number(node.value):
            found |= stored_names(*(node.targets if isinstance(node, ast.Assign) else [node.target]))
        elif isinstance(node, ast.For):
            counts = last_name(node.iter) in ("range", "trange") or is_numpy(node.iter, found)
            is_pair = last_name(node.iter) == "enumerate" and isinstance(node.target, ast.Tuple)
            target = node.target.elts[0] if is_pair and isinstance(node.target, ast.Tuple) else node.target
            found |= stored_names(target) if counts or is_pair else set()
    return found


def _is_number(value: ast.expr) -> bool:
    is_call = isinstance(value, ast.Call) and last_name(value) in (*HOST_CALLS, "len", "time", "perf_counter")
    return is_call or isinstance(value, ast.Constant)


def retrace_less(code: ScriptCode, number: int, name: str, **keywords: str) -> list[Edit]:
    """Return the edit that sets arguments of a decorator such as `@tf.function`.

    The decorator compiles the function `name` or, if the script defines no such function, the function of the step.
    """
    function = code.function(name.rpartition(".")[2]) or step_function(code, number)
    decorators = function.decorator_list if function is not None else []
    for decorator in decorators:
        if last_name(decorator) in ("function", "compile"):
            call = decorator if isinstance(decorator, ast.Call) else None
            text = ", ".join(f"{key}={value}" for key, value in keywords.items())
            new = f"{code.text(decorator)}({text})"
            if call is not None:
                new = code.rewrite(call, *code.set_keywords(call, keywords))
            return [Edit("instead", decorator.lineno, decorator.end_lineno or decorator.lineno, f"@{new}")]
    return []


def _is_transform(decorator: ast.expr) -> bool:
    """Whether a decorator belongs to a framework, as `@jax.checkpoint` or `@partial(jax.grad, argnums=1)`."""
    nodes = (decorator, *getattr(decorator, "args", ()))
    return any(root_name(node) in ("jax", "nnx", "tf", "tensorflow", "keras", "eqx", "optax") for node in nodes)


def _tf(code: ScriptCode) -> str:
    return code.module_alias("tensorflow", "tf")


def _tf_imports(code: ScriptCode) -> list[str]:
    is_known = code.imports("tensorflow") or "tf" in code.all_names
    return [] if is_known else ["import tensorflow as tf"]


def compile_keras(code: ScriptCode, number: int, **keywords: str) -> list[Edit]:
    """Return the edit that removes `run_eagerly` from `model.compile` and sets other arguments.

    If the script compiles several models, edit the call for the model that line `number` trains.
    """
    calls = [call for call in code.calls("compile") if isinstance(call.func, ast.Attribute) and _is_keras(call)]
    if len(calls) > 1:
        trained = _objects_of_calls(code, code.statement_at(number), _TRAINING_CALLS)
        calls = [call for call in calls if _objects_of_calls(code, call, ("compile",)) & trained]
    if len(calls) != 1:
        return []
    call = calls[0]
    if all(keyword.arg != "run_eagerly" for keyword in call.keywords):
        return set_keywords(code, call, **keywords)
    return patch_statement(code, code.statement_of(call), *code.set_keywords(call, keywords, instead_of="run_eagerly"))


def _objects_of_calls(code: ScriptCode, node: ast.AST | None, methods: Collection[str]) -> set[str]:
    """Return the objects whose `methods` a node calls, such as "model" for `model.fit(x)`."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)] if node is not None else []
    return {code.text(each.value) for each in calls if isinstance(each, ast.Attribute) and each.attr in methods}


def compile_torch_model(code: ScriptCode, number: int) -> list[Edit]:
    """Return the edit that compiles the model of a training loop.

    This is the only object whose method `parameters` the script calls, usually to make an optimizer.
    """
    statement = code.statement_at(number)
    loop = step_loop(code, statement) if statement is not None else None
    if loop is None or code.calls("compile", "make_graphed_callables", "CUDAGraph"):
        return []
    models = {code.text(call.func.value) for call in code.calls("parameters") if isinstance(call.func, ast.Attribute)}
    models = {model for model in models if model.isidentifier()}
    if len(models) != 1:
        return []
    outer = code.loops_around(loop)[-1]
    if not models & names_in(outer, *(node for node in code.statements if isinstance(node, FUNCTIONS))):
        return []
    if any(not _is_visible(code, model, outer) for model in models):
        return []  # the function of the loop knows the model by another name
    return [Edit.before(outer, f'{models.pop()}.compile(mode="reduce-overhead")')]


def _is_visible(code: ScriptCode, name: str, node: ast.AST) -> bool:
    """Whether the module, or a function around a node, assigns a name."""
    functions = [parent for parent in code.ancestors(node) if isinstance(parent, FUNCTIONS)]
    parameters = {part.arg for function in functions for part in ast.walk(function.args) if isinstance(part, ast.arg)}
    own = [statement for statement in code.statements if code.function_around(statement) in (None, *functions)]
    return name in parameters | stored_names(*(part for statement in own for part in own_nodes(statement)))


def _is_keras(call: ast.Call) -> bool:
    """Whether a call `x.compile(...)` may compile a Keras model."""
    return isinstance(call.func, ast.Attribute) and last_name(call.func.value) not in ("torch", "re", "regex")


def _caller_in_loop(code: ScriptCode, function: Function) -> Function | None:
    """Return the function if a loop calls it, else its caller that a loop calls.

    The caller may call the function directly, through other functions, or through a transform such as `jax.grad`.
    Return None if no loop calls such a caller.
    """
    seen = {function}
    for _ in range(5):  # at most five functions from the loop to `function`
        calls = code.calls(function.name)
        if any(code.loops_around(call) and code.function_around(call) is not function for call in calls):
            return function
        callers = [caller for call in calls if (caller := code.function_around(call)) is not None]
        transforms = [caller for name in _references(code, function) if (caller := code.function_around(name))]
        unseen = [caller for caller in (*callers, *transforms) if caller not in seen]
        if not unseen:
            return None
        function = unseen[0]
        seen.add(function)
    return None


def _references(code: ScriptCode, function: Function) -> list[ast.Name]:
    """Return the places that use a function by name, such as `loss` in `jax.grad(loss)`."""
    return [node for node in ast.walk(code.tree) if isinstance(node, ast.Name) and node.id == function.name]


def compiled_lines(code: ScriptCode, edits: Sequence[Edit]) -> set[int]:
    """Return the lines of the script that run inside of compiled functions after these edits.

    The edits replace statements by a call of a compiled function, or decorate functions.
    """
    decorated = {edit.first for edit in edits if edit.place == "before" and edit.text.split("\n")[-1].startswith("@")}
    nodes: list[ast.stmt] = [
        node for node in code.statements if isinstance(node, FUNCTIONS) and first_line(node) in decorated
    ]
    replaced = [edit for edit in edits if edit.place == "instead" and edit.text]
    numbers = {number for edit in replaced for number in range(edit.first, edit.last + 1)}
    return executed_lines(code, [*nodes, *filter(None, map(code.statement_at, numbers))])


def is_compiled(function: Function) -> bool:
    """Whether a decorator compiles a function: `@jax.jit` or, for example, `@partial(jax.jit, ...)`."""
    nodes = [node for decorator in function.decorator_list for node in (decorator, *getattr(decorator, "args", ()))]
    return any(last_name(node) in _COMPILERS for node in nodes)


def can_compile(code: ScriptCode, function: Function, framework: str) -> bool:
    """Whether a framework can compile a function.

    The function must be neither a method nor a generator, and must read no value on the host. For JAX, it also must not
    branch on its arguments or assign names of other scopes.
    """
    nodes = list(ast.walk(function))
    parameters = {argument.arg for argument in function.args.args}
    branches = [node for node in nodes if isinstance(node, ast.If | ast.While | ast.IfExp)]
    if framework == "jax" and any(names_in(node.test) & parameters for node in branches):
        return False
    if framework == "jax" and any(isinstance(node, ast.Global | ast.Nonlocal) for node in nodes):
        return False
    return stays_on_device(function) and not isinstance(code.parents.get(function), ast.ClassDef)


def stays_on_device(function: Function) -> bool:
    """Whether a function is no generator, and reads no value on the host."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return not any(last_name(call) in HOST_CALLS for call in calls) and not makes_generator(function)


def makes_generator(function: Function) -> bool:
    """Whether a call of a function only makes a generator, without running the body."""
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))

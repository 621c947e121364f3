"""What the source code of a loop converts, slices and counts."""

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from forebay.doctor.analyse.script_code import ScriptCode, last_name, names_in, own_nodes, root_name, stored_names

__all__ = [
    "Conversion",
    "conversions_in",
    "counter_of",
    "depends_on_lines",
    "is_constant_conversion",
    "is_invariant",
    "is_numpy",
    "listed_conversion",
    "loaded_names",
    "names_changed_in_place",
    "numpy_names",
    "sliced_arrays",
    "step_loop",
]

# Names of functions that make an array of a framework from host data.
_CONVERSIONS = frozenset(
    {"as_tensor", "asarray", "array", "constant", "convert_to_tensor", "device_put", "from_numpy", "tensor", "identity"}
    | {"FloatTensor", "LongTensor", "IntTensor", "DoubleTensor", "BoolTensor"}
)
# Methods of tensors that often follow a conversion: they return the same data, for example on a device or in another
# dtype.
_METHODS = frozenset({"to", "cuda", "float", "double", "half", "long", "pin_memory", "contiguous", "requires_grad_"})
_MOVES = frozenset({"to", "cuda"})  # those of _METHODS that copy to a device
# Methods and functions that change an object: the one with the method, or the first argument.
_CHANGING_METHODS = frozenset(
    {"append", "clear", "extend", "fill", "insert", "itemset", "partition", "pop", "popitem", "put", "remove", "resize"}
    | {"appendleft", "extendleft", "popleft", "reverse", "rotate", "setdefault", "sort", "update"}
)
_CHANGING_FUNCTIONS = frozenset(
    {"copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask", "shuffle", "readinto", "recv_into"}
    | {"heapify", "heappop", "heappush", "heappushpop", "heapreplace", "insort", "insort_left", "insort_right"}
    | {"all_reduce", "broadcast"}
    | {"at"}  # of a ufunc: `np.add.at`
)
_CHANGED_KEYWORDS = ("out", "dst")  # names of parameters that get an object to change
_MODULES = frozenset({"torch", "nn", "init", "F", "dist", "np", "numpy", "jnp", "jax", "tf", "random"})
_LOCAL_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_HOST_MODULES = frozenset({"np", "numpy", "onp"})
# Functions of any module whose results are NumPy arrays, by the last part of their names.
_HOST_RESULTS = frozenset({"load_data", "numpy", "to_numpy", "astype", "train_test_split", "to_categorical"})


@dataclass(frozen=True, slots=True)
class Conversion:
    """An expression that converts host data, such as `torch.from_numpy(x[rows]).to(device)`."""

    node: ast.expr
    data: ast.expr  # the host data, such as `x[rows]`


def conversions_in(statement: ast.stmt) -> Iterator[Conversion]:
    """Yield the outermost conversions of a statement, except inside comprehensions and lambdas."""
    inner: set[ast.AST] = set()
    for node in own_nodes(statement):
        if isinstance(node, _LOCAL_SCOPES):
            inner.update(ast.walk(node))
        data = _converted(node) if isinstance(node, ast.Call) and node not in inner else None
        if data is not None and isinstance(node, ast.Call):
            inner.update(ast.walk(node))
            yield Conversion(node, data)


def listed_conversion(statement: ast.stmt) -> tuple[ast.ListComp, Conversion] | None:
    """Return a list comprehension whose element is a conversion, and this conversion.

    Return None if the statement has no such list comprehension.
    """
    for node in own_nodes(statement):
        data = _converted(node.elt) if isinstance(node, ast.ListComp) else None
        if isinstance(node, ast.ListComp) and data is not None:
            return node, Conversion(node.elt, data)
    return None


def _converted(node: ast.expr) -> ast.expr | None:
    """Return the host data that an expression converts; None for other expressions."""
    if not isinstance(node, ast.Call):
        return None
    name, data = last_name(node), None
    if isinstance(node.func, ast.Attribute) and name in _METHODS:
        data = node.func.value
        if name not in _MOVES and _converted(data) is None:
            return None  # the method changes a tensor, not host data
    elif name in _CONVERSIONS and root_name(node.func) not in _HOST_MODULES and node.args:
        data = node.args[0]
    if data is None or isinstance(data, ast.Starred):
        return None
    deeper = _converted(data)
    return data if deeper is None else deeper


def step_loop(code: ScriptCode, node: ast.AST) -> ast.For | ast.While | None:
    """Return the innermost loop around a node, or the only loop that calls its function.

    If the function of the node has no loop around the node, return the loop that calls this function. Return None if no
    loop calls the function, or if several loops do.
    """
    loops = code.loops_around(node)
    function = code.function_around(node)
    if loops or function is None:
        return loops[0] if loops else None
    around = [code.loops_around(call)[:1] for call in code.calls(function.name)]
    found = [loops[0] for loops in around if loops]
    return found[0] if len(set(found)) == 1 else None


def loaded_names(*nodes: ast.AST, without: ast.AST | None = None) -> set[str]:
    """Return the names that nodes read, except inside the node `without`."""
    inner = set(ast.walk(without)) if without is not None else set()
    found = (node for root in nodes for node in ast.walk(root) if isinstance(node, ast.Name) and node not in inner)
    return {node.id for node in found if isinstance(node.ctx, ast.Load)}


def names_changed_in_place(*nodes: ast.AST) -> set[str]:
    """Return the names of objects that nodes change, as in `w[0] = 1`, `w.add_(1)` or `np.add(w, 1, out=w)`.

    Changes inside the functions that nodes call do not count, except for some functions of frameworks.
    """
    changed: list[ast.expr] = [
        each.target for node in nodes for each in ast.walk(node) if isinstance(each, ast.AugAssign)
    ]
    for call in (each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call)):
        name, first = last_name(call), call.args[:1]
        is_in_place = name.endswith("_") and not name.endswith("__")
        is_method = isinstance(call.func, ast.Attribute) and root_name(call.func) not in _MODULES
        if is_method and (is_in_place or name in _CHANGING_METHODS):
            changed.append(call.func)
        if name in _CHANGING_FUNCTIONS or (is_in_place and not is_method):
            changed += first
        changed += [keyword.value for keyword in call.keywords if keyword.arg in _CHANGED_KEYWORDS]
    parts = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.Subscript | ast.Attribute)]
    changed += [part for part in parts if not isinstance(part.ctx, ast.Load)]
    tuples = [element for each in changed if isinstance(each, ast.Tuple) for element in each.elts]
    return {*map(root_name, [*changed, *tuples])} - {""}


def is_invariant(expression: ast.expr, loop: ast.stmt) -> bool:
    """Whether an expression has names, and the loop assigns or changes none of them."""
    return bool(names_in(expression)) and not names_in(expression) & (stored_names(loop) | names_changed_in_place(loop))


def is_constant_conversion(part: Conversion, loop: ast.stmt) -> bool:
    """Whether a conversion has the same result in every step.

    The result may change if the loop assigns a name of the conversion, or if its data comes from a call, such as
    `rng.random()`. The result is also False for a tensor that requires gradients, because it collects them.
    """
    nodes = [*ast.walk(part.node)]
    is_plain = not any(isinstance(node, ast.Call) for node in ast.walk(part.data))
    settings = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "requires_grad"]
    has_gradients = any(not isinstance(value, ast.Constant) or value.value for value in settings)
    has_gradients = has_gradients or any(last_name(node) == "requires_grad_" for node in nodes)
    return is_plain and not has_gradients and is_invariant(part.node, loop)


def depends_on_lines(code: ScriptCode, statement: ast.stmt, numbers: Set[int]) -> bool:
    """Whether the data that a statement converts depends on results of these lines.

    `numbers` are line numbers; only lines of the outermost loop around the statement count. The results may be those of
    the previous step: for example, the observation of an environment depends on the last action.
    """
    loops = code.loops_around(statement)
    inside = [node for node in ast.walk(loops[-1]) if isinstance(node, ast.stmt)] if loops else []
    sources = names_in(*(part.data for part in conversions_in(statement)))
    for _ in range(10):  # follow at most ten assignments from the conversion back to the result
        computed = [node for node in inside if sources & stored_names(*_own_targets(node))]
        if any(set(range(node.lineno, _last_line(node) + 1)) & numbers for node in computed):
            return True
        sources = sources | names_in(*(node for each in computed for node in own_nodes(each)))
    return False


def _own_targets(statement: ast.stmt) -> list[ast.expr]:
    """Return the targets of a statement's own assignment, without the statements inside it."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For) else []


def _last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement, or of the header of a `for` loop."""
    end = statement.iter.end_lineno if isinstance(statement, ast.For) else statement.end_lineno
    return end or statement.lineno


def numpy_names(code: ScriptCode) -> frozenset[str]:
    """Return the names to which the excerpt of the script assigns NumPy arrays."""
    if code not in _numpy_names:
        _numpy_names[code] = _find_numpy_names(code)
    return _numpy_names[code]


_numpy_names: WeakKeyDictionary[ScriptCode, frozenset[str]] = WeakKeyDictionary()


def _find_numpy_names(code: ScriptCode) -> frozenset[str]:
    found: set[str] = set()
    assignments = [node for node in code.statements if isinstance(node, ast.Assign) and node.value is not None]
    for _ in range(4):  # four rounds follow chains of assignments, such as `b = a[:10]` and `c = b / 255`
        for node in assignments:
            if is_numpy(node.value, found):
                found |= stored_names(*node.targets)
    return frozenset(found)


def is_numpy(value: ast.expr, known: Set[str]) -> bool:
    """Whether an expression is a NumPy array. The names in `known` are NumPy arrays."""
    if isinstance(value, ast.Tuple):
        return all(is_numpy(element, known) for element in value.elts)
    if isinstance(value, ast.BinOp):
        return is_numpy(value.left, known) or is_numpy(value.right, known)
    if isinstance(value, ast.Name):
        return value.id in known
    if not isinstance(value, ast.Call | ast.Subscript | ast.Attribute):
        return False
    root = root_name(value)
    return root in _HOST_MODULES or root in known or last_name(value) in _HOST_RESULTS


def sliced_arrays(expression: ast.expr) -> list[ast.Subscript]:
    """Return the innermost slices of named arrays in an expression, such as `x[start:end]`."""
    return [
        node
        for node in ast.walk(expression)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load)
    ]


def counter_of(code: ScriptCode, loop: ast.For | ast.While) -> tuple[str, str | None] | None:
    """Return an expression that grows by 1 in each iteration, and a new header for the loop.

    The expression is a name or a quotient of a name, such as `i // 32`. The new header defines the name. The header is
    None if the loop already defines the name. Return None if no change of the header lets the loop count.
    """
    if isinstance(loop, ast.While):
        name = _counter_of_while(loop)
        return (name, None) if name else None
    function, target = last_name(loop.iter) if isinstance(loop.iter, ast.Call) else "", loop.target
    # A body that assigns the name of the counter, as in `_, best = x.max(1)`, changes its value.
    changed, read = stored_names(*loop.body), loaded_names(*loop.body)
    if function == "enumerate" and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        return (target.elts[0].id, None) if target.elts[0].id not in changed else None
    if function in ("range", "trange") and isinstance(target, ast.Name) and isinstance(loop.iter, ast.Call):
        if target.id in changed and (target.id != "_" or "_" in read):
            return None
        if target.id != "_" or "_" in read:
            return _count_of_range(code, loop.iter, target.id), None
        name = _step_name(code)
        header = code.rewrite_header(loop, code.replace(target, name))
        return (_count_of_range(code, loop.iter, name), header) if header is not None else None
    name, is_tuple = _step_name(code), isinstance(target, ast.Tuple)
    text = code.text(target)
    text = f"({text})" if is_tuple and not text.startswith("(") else text
    patches = code.replace(target, f"{name}, {text}"), code.replace(loop.iter, f"enumerate({code.text(loop.iter)})")
    header = code.rewrite_header(loop, *patches)
    return (name, header) if header is not None else None


def _count_of_range(code: ScriptCode, call: ast.Call, name: str) -> str:
    """Return an expression that grows by 1 in each iteration over a range.

    `name` is the loop variable. The expression is `name`, or `(name - start) // step` if the range has a step.
    """
    if len(call.args) < 3 or (isinstance(call.args[2], ast.Constant) and call.args[2].value == 1):
        return name
    first, step = call.args[0], call.args[2]
    divisor = code.text(step) if isinstance(step, ast.Name | ast.Constant | ast.Attribute) else f"({code.text(step)})"
    if isinstance(first, ast.Constant) and first.value == 0:
        return f"{name} // {divisor}"
    start = code.text(first) if isinstance(first, ast.Name | ast.Constant | ast.Attribute) else f"({code.text(first)})"
    return f"({name} - {start}) // {divisor}"


def _counter_of_while(loop: ast.While) -> str:
    """Return the name that a loop changes only by adding 1, or ""."""
    for node in loop.body:
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and _is_one(node.value):
            others = stored_names(*(other for other in loop.body if other is not node))
            if isinstance(node.target, ast.Name) and node.target.id not in others:
                return node.target.id
    return ""


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 1


def _step_name(code: ScriptCode) -> str:
    names = ("step", "iteration", "step_number")
    return next((name for name in names if name not in code.all_names), code.new_name("step"))

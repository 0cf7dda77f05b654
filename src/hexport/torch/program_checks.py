"""What a saved program may hold. Loading one runs whatever its file says, unless somebody looked first.

torch.export.load (2.13) unpickles weights, constants and example inputs that ask for it, loads compiled
libraries, gives formulas of sizes to sympy's ``eval``, executes guards, imports the modules that containers
name, and writes names of inputs into Python code. Each of these is looked at here, by rules for what torch
itself writes for a plain program; the first thing that keeps to none of them is what the file is refused for.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_RECORDS = re.compile(
    r"data/weights/(weight_\d+|model_weights_config\.json)|data/constants/(tensor_\d+|model_constants_config\.json)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/[\w.-]+|archive_format|archive_version|byteorder"
    r"|version|\.data/\w+"
)
_OPERATORS = re.compile(
    r"torch\.ops\.(aten|prims)\.\w+\.\w+"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|map_impl|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.(sym_\w+|_sym_sqrt)|math\.\w+"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|getitem)"
)
_QUANTISING = re.compile(
    r"torch\.ops\.quantized_decomposed\.\w+\.\w+"
    r"|torch\.ops\.torchao\.(quantize_affine|dequantize_affine|choose_qparams_affine)\.\w+"
)
_OF_FILES = re.compile(r"torch\.ops\.aten\.(from_file|save)\.\w+")
"""One maps any file, and the other, of TorchScript, writes one."""
_NAME = re.compile(r"\w*")
_PATH = re.compile(r"[\w.@]*")
_KEY = re.compile(r"[\w .:-]*")
_BY_NAME = frozenset(["tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"])
"""What has names of the user's for keys."""
_CONTAINERS = frozenset(
    ["builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.namedtuple"]
)
_IN_FORMULAS = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
_IN_GUARDS = (*_IN_FORMULAS, ast.Subscript, ast.Attribute)
_NEVER_IN_FORMULAS = re.compile(r"[\n\r\f\\#]")
"""sympy joins lines before it evaluates them; what it reads must be what was read here."""
_OF_TENSORS = frozenset(["size", "stride", "storage_offset", "ndim", "dim"])


class Suspicious(Exception):
    """What is in the file, and is nothing that torch writes there for a plain program."""


def check_records(names: Iterable[str]) -> None:
    """The files in the archive."""
    for name in names:
        if not _RECORDS.fullmatch(name):
            raise Suspicious(f"it holds {name}: a compiled library, a pickled object, or something unknown")


def check_payload(config: Any) -> None:
    """How weights or constants are stored: as plain bytes."""
    for name, meta in config["config"].items():
        if meta["use_pickle"] is not False:
            raise Suspicious(f"{name} is stored as a pickle, which may run any code when it is loaded")
        _match(_PATH, name, "the name of a weight")
        _match(re.compile(r"(weight|tensor)_\d+"), meta["path_name"], "the place of a weight")


def check_program(program: Any, *, quantised: bool = False) -> frozenset[str]:
    """The graph and all that is said of it; gives the operators that it calls.

    ``quantised``: those that quantise may be among them.
    """
    operators = set()
    for key in program["range_constraints"]:
        _formula(key, _IN_FORMULAS)
    for guard in program.get("guards_code", ()):
        _formula(guard, _IN_GUARDS)
    for key, value in _pairs({k: v for k, v in program.items() if k != "guards_code"}):
        if key == "target":
            _operator(str(value), quantised)
            operators.add(str(value))
        else:
            _check(key, value)
    return frozenset(operators)


def _operator(name: str, quantised: bool) -> None:
    plain = _OPERATORS.fullmatch(name) and not _OF_FILES.fullmatch(name)
    if not plain and not (quantised and _QUANTISING.fullmatch(name)):
        raise Suspicious(f"it calls {name[:80]}, which is no operator of a plain graph")


def _check(key: str, value: Any) -> None:
    if key == "inputs":
        _constants(value)
    elif key == "constant_input":
        _constants([value["value"]])
    elif key == "expr_str":
        _formula(value, _IN_FORMULAS)
    elif key in ("name", "as_name"):
        _match(_NAME, value, "a name")
    elif key in ("parameter_name", "buffer_name", "tensor_constant_name", "fqn"):
        _match(_PATH, value, "the name of a weight")
    elif key in ("in_spec", "out_spec"):
        _container(json.loads(value)[1])
    elif key in _BY_NAME:
        for name in value:
            _match(_NAME, name, "a name")
    elif key == "forward_arg_names":
        for name in value or ():
            _match(_NAME, name, "a name")
    elif key in ("as_custom_obj", "as_operator", "custom_obj_values", "as_opaque") and value:
        raise Suspicious(f"it holds an object of a class of its own ({key})")


def _constants(inputs: Any) -> None:
    """Inputs that were fixed: torch writes a text among them into the code of guards, as it is."""
    for argument in inputs:
        for value in argument.values():
            if isinstance(value, str):
                _match(_KEY, value, "an input")


def _pairs(thing: Any) -> Iterator[tuple[str, Any]]:
    """Every key of torch's with its value, at any depth; tensors may be named like these keys."""
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield key, value
            named = key in _BY_NAME and isinstance(value, Mapping)
            yield from _pairs(list(value.values()) if named else value)
    elif isinstance(thing, list):
        for item in thing:
            yield from _pairs(item)


def _container(spec: Any) -> None:
    """A tree of tuples, lists and dicts. Others have their own code, or import it."""
    if spec["type"] is None:
        return
    context = spec["context"]
    if spec["type"] not in _CONTAINERS:
        raise Suspicious(f"its inputs or outputs are in a {str(spec['type'])[:80]}")
    keys = json.loads(context) if isinstance(context, str) else context
    for key in keys if isinstance(keys, list) else [keys]:
        if isinstance(key, str):
            _match(_KEY, key, "a key")
        elif key is not None and not isinstance(key, int):
            raise Suspicious("its inputs or outputs have keys of a class of their own")
    for child in spec["children_spec"]:
        _container(child)


def _formula(text: Any, allowed: tuple[type[ast.AST], ...]) -> None:
    """Sums, comparisons and calls by plain names: nothing that reaches an attribute, but sizes of inputs."""
    said = str(text)[:80]
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise Suspicious(f"{said!r} is no formula") from error
    fine = not _NEVER_IN_FORMULAS.search(text)
    if not fine or not all(_plain(node, allowed) for node in ast.walk(tree)):
        raise Suspicious(f"{said!r} is more than a formula")


def _plain(node: ast.AST, allowed: tuple[type[ast.AST], ...]) -> bool:
    if isinstance(node, ast.Name):
        return not node.id.startswith("_")
    if isinstance(node, ast.Attribute):
        return isinstance(node, allowed) and node.attr in _OF_TENSORS
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return isinstance(node.value, str) and bool(_KEY.fullmatch(node.value))
    if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
        # sympy's and torch's functions of sizes; no built-in has a capital
        return isinstance(node.func, ast.Name) and node.func.id[:1].isupper()
    return isinstance(node, allowed)


def _match(form: re.Pattern[str], value: Any, what: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Suspicious(f"{str(value)[:80]!r} cannot be {what}")

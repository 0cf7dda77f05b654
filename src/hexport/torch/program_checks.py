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
_OF_FILES = re.compile(r"torch\.ops\.aten\.from_file\.\w+")
_NAME = re.compile(r"\w*")
_PATH = re.compile(r"[\w.@]*")
_KEY = re.compile(r"[\w .:-]*")
_CONTAINERS = frozenset(
    ["builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.namedtuple"]
)
_IN_FORMULAS = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
_IN_GUARDS = (*_IN_FORMULAS, ast.Subscript, ast.Attribute)
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


def check_program(program: Any) -> None:
    """The graph and all that is said of it."""
    for key in program["range_constraints"]:
        _formula(key, _IN_FORMULAS)
    for guard in program.get("guards_code", ()):
        _formula(guard, _IN_GUARDS)
    for key, value in _pairs({k: v for k, v in program.items() if k != "guards_code"}):
        _check(key, value)


def _check(key: str, value: Any) -> None:
    if key == "target":
        if not _OPERATORS.fullmatch(str(value)) or _OF_FILES.fullmatch(str(value)):
            raise Suspicious(f"it calls {str(value)[:80]}, which is no operator of a plain graph")
    elif key == "expr_str":
        _formula(value, _IN_FORMULAS)
    elif key in ("name", "as_name"):
        _match(_NAME, value, "a name")
    elif key in ("parameter_name", "buffer_name", "tensor_constant_name", "fqn"):
        _match(_PATH, value, "the name of a weight")
    elif key in ("in_spec", "out_spec"):
        _container(json.loads(value)[1])
    elif key in ("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values"):
        for name in value:
            _match(_NAME, name, "a name")
    elif key == "forward_arg_names":
        for name in value or ():
            _match(_NAME, name, "a name")
    elif key in ("as_custom_obj", "as_operator", "custom_obj_values", "as_opaque") and value:
        raise Suspicious(f"it holds an object of a class of its own ({key})")


def _pairs(thing: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth. ``metadata`` only describes: traces of the source, paths."""
    if isinstance(thing, Mapping):
        for key, value in thing.items():
            yield key, value
            if key != "metadata":
                yield from _pairs(value)
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
    for node in ast.walk(tree):
        fine = isinstance(node, allowed)
        if isinstance(node, ast.Name):
            fine = not node.id.startswith("_")
        elif isinstance(node, ast.Attribute):
            fine = node.attr in _OF_TENSORS
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            fine = isinstance(node.value, str) and bool(_KEY.fullmatch(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            fine = node.func.id[
                :1
            ].isupper()  # sympy's and torch's functions of sizes; no built-in has a capital
        if not fine:
            raise Suspicious(f"{said!r} is more than a formula")


def _match(form: re.Pattern[str], value: Any, what: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Suspicious(f"{str(value)[:80]!r} cannot be {what}")

"""What is known of chips, versions, options, error codes and causes, from the data files beside this.

Imports nothing heavy: it is asked before onnxruntime is loaded, and when onnxruntime cannot be.
"""

from __future__ import annotations

from hexport.facts.codes import error_code, explain
from hexport.facts.faults import Fault, faults
from hexport.facts.integer_ops import (
    IntegerForm,
    IntegerOp,
    IntegerRule,
    integer_forms,
    integer_ops,
    integer_refusal,
    integer_rules,
)
from hexport.facts.load import (
    Advice,
    Combination,
    ErrorCode,
    FactsError,
    Option,
    Release,
    Rule,
    Soc,
    advice,
    combinations,
    error_codes,
    options,
    releases,
    rules,
    targets,
)
from hexport.facts.naming import UnknownTarget, find_target, float_twin, names_of, select_targets
from hexport.facts.placement import advise
from hexport.facts.versions import (
    broken_rules,
    current_platform,
    find_release,
    installed_release,
    newest_release_for,
    on_platform,
    parse_version,
    sdk_of,
)

__all__ = [
    "Advice",
    "Combination",
    "ErrorCode",
    "FactsError",
    "Fault",
    "IntegerForm",
    "IntegerOp",
    "IntegerRule",
    "Option",
    "Release",
    "Rule",
    "Soc",
    "UnknownTarget",
    "advice",
    "advise",
    "broken_rules",
    "combinations",
    "current_platform",
    "error_code",
    "error_codes",
    "explain",
    "faults",
    "find_release",
    "find_target",
    "float_twin",
    "installed_release",
    "integer_forms",
    "integer_ops",
    "integer_refusal",
    "integer_rules",
    "names_of",
    "newest_release_for",
    "on_platform",
    "options",
    "parse_version",
    "releases",
    "rules",
    "sdk_of",
    "select_targets",
    "targets",
]

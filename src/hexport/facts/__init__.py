"""What is known of chips, versions, options, error codes and causes, from the data files beside this.

Imports nothing heavy: it is asked before onnxruntime is loaded, and when onnxruntime cannot be.
"""

from __future__ import annotations

from hexport.facts.backends import QnnBackend, backends, find_backend, simulates_npu
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
from hexport.facts.losses import Loss, find_loss, losses
from hexport.facts.naming import UnknownTarget, find_target, float_twin, names_of, select_targets
from hexport.facts.option_uses import OptionUse, option_uses, use_of
from hexport.facts.placement import advise
from hexport.facts.toolchains import (
    ExecutorchRelease,
    Plugin,
    executorch_releases,
    find_plugin,
    plugin_for,
    plugins,
)
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
    "ExecutorchRelease",
    "FactsError",
    "Fault",
    "IntegerForm",
    "IntegerOp",
    "IntegerRule",
    "Loss",
    "Option",
    "OptionUse",
    "Plugin",
    "QnnBackend",
    "Release",
    "Rule",
    "Soc",
    "UnknownTarget",
    "advice",
    "advise",
    "backends",
    "broken_rules",
    "combinations",
    "current_platform",
    "error_code",
    "error_codes",
    "executorch_releases",
    "explain",
    "faults",
    "find_backend",
    "find_loss",
    "find_plugin",
    "find_release",
    "find_target",
    "float_twin",
    "installed_release",
    "integer_forms",
    "integer_ops",
    "integer_refusal",
    "integer_rules",
    "losses",
    "names_of",
    "newest_release_for",
    "on_platform",
    "option_uses",
    "options",
    "parse_version",
    "plugin_for",
    "plugins",
    "releases",
    "rules",
    "sdk_of",
    "select_targets",
    "simulates_npu",
    "targets",
    "use_of",
]

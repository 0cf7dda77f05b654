"""What every rule's test does: apply, compare on the CPU, ask the backend before and after, run on HTP."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from hexport import check, facts
from hexport.backend.running import run_on_htp
from hexport.observe.verdict import Verdict
from hexport.rewrite.applying import Application, apply_rules
from hexport.rewrite.rule import Rule

Feeds = Mapping[str, np.ndarray]
TARGET = "SM8650"


def rewritten(proto: onnx.ModelProto, *rules: Rule) -> tuple[onnx.ModelProto, tuple[Application, ...]]:
    """The model after the rules, and what they did. The result is checked by ONNX's own checker."""
    model = ir.from_proto(proto)
    done = apply_rules(model, rules)
    after = ir.to_proto(model)
    onnx.checker.check_model(after, full_check=True)
    assert [i.name for i in after.graph.input] == [i.name for i in proto.graph.input]
    assert [o.name for o in after.graph.output] == [o.name for o in proto.graph.output]
    return after, done


def cpu(proto: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    """The reference, with no optimisation."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def random_feeds(
    proto: onnx.ModelProto, seed: int = 0, low: float = -3.0, high: float = 3.0
) -> dict[str, np.ndarray]:
    """Uniform numbers for float inputs, small whole ones for integers, by the declared shapes."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = rng.uniform(low, high, shape).astype(dtype)
        elif dtype == np.bool_:
            feeds[value.name] = rng.random(shape) < 0.5
        else:
            feeds[value.name] = rng.integers(0, 3, shape).astype(dtype)
    return feeds


def assert_equivalent(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Sequence[Feeds],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """The two give the same on the CPU, dtypes and shapes included."""
    for feed in feeds:
        for old, new in zip(cpu(before, feed), cpu(after, feed), strict=True):
            assert old.dtype == new.dtype
            assert old.shape == new.shape
            np.testing.assert_allclose(new, old, rtol=rtol, atol=atol)


def verdict(proto: onnx.ModelProto, target: str = TARGET) -> Verdict:
    """What the real backend says of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        path.write_bytes(proto.SerializeToString())
        return check(path, target=target)


def cpu_ops(proto: onnx.ModelProto, target: str = TARGET) -> set[str]:
    """Operator types that the backend leaves to the CPU."""
    return {node.op for node in verdict(proto, target).cpu_nodes}


def htp_sqnr(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: Sequence[Feeds], target: str = TARGET
) -> float:
    """Worst signal-to-noise ratio, in dB, of ``after`` on the HTP against ``before`` on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        path.write_bytes(after.SerializeToString())
        results = run_on_htp(path, feeds, facts.find_target(target)).outputs
    worst = np.inf
    for feed, outputs in zip(feeds, results, strict=True):
        for expected, got in zip(cpu(before, feed), outputs.values(), strict=True):
            reference = expected.astype(np.float64)
            noise = np.sum((got.astype(np.float64) - reference) ** 2)
            signal = np.sum(reference**2)
            worst = min(worst, 10 * np.log10(signal / noise) if noise > 0 else np.inf)
    return float(worst)

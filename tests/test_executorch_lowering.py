"""Lowering real programs with the real ExecuTorch, and running what comes out on the simulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from hexport.environments.record import Toolchain
from hexport.executorch.lowering.failures import KernelMissing, NotDelegated, OverrideUnmatched, SdkUnusable
from hexport.executorch.lowering.options import SCHEMES, Compiling, LoweringOptions, Quantizing
from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.lowering.overrides import Override
from hexport.executorch.lowering.reference import reference
from hexport.executorch.lowering.session import Session
from hexport.executorch.lowering.training import Training
from hexport.executorch.lowering.verb import Source, lower
from hexport.executorch.pte.sidecar import find_sidecar
from hexport.executorch.running.loading import load_pte
from hexport.toolchain import Limits, WorkerTimeout
from torch_programs import FORMS, Saved, save

# The least dB against eager, on samples that nothing was fitted to: by bits, with room for a weak machine.
LEAST = {"fp16": 45, "8a8w": 25, "16a8w": 35, "16a16w": 50, "16a4w": 12, "16a4w_block": 12}
CHIP = "SM8650"


@pytest.fixture(scope="module")
def session(executorch: Toolchain) -> Iterator[Session]:
    with Session(executorch.name) as made:
        yield made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return save("small", tmp_path_factory.mktemp("small"))


def decibels(lowered: Lowered, program: Saved) -> float:
    ran = load_pte(lowered.output).run(program.held)
    found = np.concatenate([array.ravel() for outputs in ran.outputs for array in outputs.values()])
    wanted = program.expected()
    return float(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_right_on_the_simulator(
    scheme: str, small: Saved, session: Session, tmp_path: Path
) -> None:
    lowered = lower(
        small.path,
        tmp_path / "small.pte",
        target="snapdragon 8 gen 3",
        scheme=scheme,
        samples=None if scheme == "fp16" else list(small.samples),
        session=session,
    )
    (method,) = lowered.description.methods
    assert (len(method.partition.delegates), method.partition.cpu) == (1, ())
    assert method.partition.mac_share == 1
    assert decibels(lowered, small) >= LEAST[scheme]
    described = find_sidecar(lowered.output)
    assert described == lowered.description
    assert [(one.name, one.shape) for one in method.inputs] == [("x", (1, 16, 4, 4))]
    assert json.loads(json.dumps(lowered.to_json()))["description"]["scheme"] == scheme
    said = " ".join(lowered.notes)
    assert ("linear layers become convolutions" in said) == (scheme == "16a4w_block")
    assert ("one scale" in said) == (scheme == "16a16w")


def test_a_bias_beyond_the_products_does_not_overflow(small: Saved, executorch: Toolchain) -> None:
    """ExecuTorch's own quantiser gives -1 dB here: 32 bits of so small steps end below a bias of 4."""
    found = reference(
        small.path,
        small.held,
        target=CHIP,
        scheme="16a16w",
        samples=list(small.samples),
        toolchain=executorch.name,
    )
    wanted = small.expected()
    eager = np.concatenate([array.ravel() for one in found.eager for array in one.values()])
    quantised = np.concatenate([array.ravel() for one in found.quantised for array in one.values()])
    assert np.allclose(eager, wanted, atol=1e-5)
    assert 10 * np.log10((wanted**2).sum() / ((wanted - quantised) ** 2).sum()) > 50


def test_overrides_by_module_operator_and_node(small: Saved, session: Session, tmp_path: Path) -> None:
    overrides = (
        Override("module", "head.0", "fp16"),
        Override("op", "aten.tanh", "cpu"),
        Override("node", "relu", "8a8w"),
    )
    lowered = lower(
        small.path,
        tmp_path / "mixed.pte",
        target=CHIP,
        scheme="16a8w",
        samples=list(small.samples),
        overrides=overrides,
        session=session,
    )
    (method,) = lowered.description.methods
    (tanh,) = method.partition.cpu
    assert (tanh.op, tanh.module) == ("aten.tanh.default", "head.1")
    assert "asked to stay" in tanh.reason
    inside = [set(delegate.ops) for delegate in method.partition.delegates]
    assert {"aten.linear.default"} in inside  # the float layer, by itself
    assert decibels(lowered, small) >= LEAST["8a8w"]


def test_an_override_that_fits_nothing_names_what_is_near(
    small: Saved, session: Session, tmp_path: Path
) -> None:
    with pytest.raises(OverrideUnmatched, match="head") as caught:
        lower(
            small.path,
            tmp_path / "none.pte",
            target=CHIP,
            scheme="8a8w",
            samples=list(small.samples),
            overrides=(Override("module", "heads.0", "fp16"),),
            session=session,
        )
    assert "head.0" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_what_stays_on_the_cpu_is_told_with_module_line_and_reason(session: Session, tmp_path: Path) -> None:
    program = save("erf", tmp_path)
    lowered = lower(program.path, tmp_path / "erf.pte", target=CHIP, session=session)
    (method,) = lowered.description.methods
    (erf,) = method.partition.cpu
    assert (erf.op, erf.module) == ("aten.erf.default", "inner")
    assert erf.source.startswith("torch_programs.py:")  # no folders of whoever lowered it
    assert "no builder" in erf.reason
    assert len(method.partition.delegates) == 2
    assert method.partition.delegated_nodes == 2
    assert decibels(lowered, program) >= LEAST["fp16"]
    with pytest.raises(NotDelegated, match="some operators"):
        lower(
            program.path,
            tmp_path / "all.pte",
            target=CHIP,
            options=LoweringOptions(allow_cpu=False),
            session=session,
        )
    assert not (tmp_path / "all.pte").exists()


def test_operators_without_a_kernel_anywhere_are_refused(session: Session, tmp_path: Path) -> None:
    program = save("median", tmp_path)
    with pytest.raises(KernelMissing) as caught:
        lower(program.path, tmp_path / "median.pte", target=CHIP, session=session)
    assert "aten::median" in caught.value.why
    assert "torch_programs.py" in caught.value.why
    assert not (tmp_path / "median.pte").exists()


def test_recurrent_layers_are_written_out_and_exact(session: Session, tmp_path: Path) -> None:
    program = save("steps", tmp_path)
    lowered = lower(
        program.path,
        tmp_path / "steps.pte",
        target=CHIP,
        scheme="16a8w",
        samples=list(program.samples),
        session=session,
    )
    assert lowered.description.methods[0].partition.node_share == 1
    assert any("step by step" in note for note in lowered.notes)
    assert decibels(lowered, program) >= 30


class HalfDead(nn.Module):
    """Channels that training has left without weights, and with a bias: many are so after BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(16, 32, 1)
        self.last = nn.Conv2d(32, 8, 1)
        with torch.no_grad():
            self.mix.weight[::2] *= 1e-9
            self.mix.bias[::2] = 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.mix(x)))  # type: ignore[no-any-return]


def test_channels_without_weights_take_nothing_from_the_others(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMS, "half_dead", (HalfDead, (1, 16, 4, 4)))  # type: ignore[arg-type]
    program = save("half_dead", tmp_path)
    lowered = lower(
        program.path,
        tmp_path / "half_dead.pte",
        target=CHIP,
        scheme="16a8w",
        samples=list(program.samples),
        session=session,
    )
    assert decibels(lowered, program) >= LEAST["16a8w"]


class Counted(nn.Module):
    """Whole numbers that are reshaped, and then floats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = (x[:, :, 0] > 0).to(torch.int32)
        return (x * seen[:, :, None].to(x.dtype)).sum(1)


def test_whole_numbers_are_cast_before_they_are_reshaped(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMS, "counted", (Counted, (1, 8, 16)))  # type: ignore[arg-type]
    program = save("counted", tmp_path)
    lowered = lower(
        program.path,
        tmp_path / "counted.pte",
        target=CHIP,
        scheme="16a8w",
        samples=list(program.samples),
        session=session,
    )
    assert decibels(lowered, program) >= LEAST["16a8w"]


class Masked(nn.Module):
    """Attention twice: with the lowest float where a made mask says so, and PyTorch's own, causal."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (3 * self.parts(x)).chunk(3, -1)
        unseen = 1.0 - (torch.arange(x.shape[1]) < 6).to(x.dtype)
        scores = query @ key.transpose(1, 2) / 4 + unseen * torch.finfo(x.dtype).min
        value = scores.softmax(-1) @ value
        return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


@pytest.mark.parametrize("scheme", ["fp16", "8a8w", "16a8w"])
def test_masked_scores_keep_their_steps(
    scheme: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMS, "masked", (Masked, (1, 8, 16)))  # type: ignore[arg-type]
    program = save("masked", tmp_path)
    lowered = lower(
        program.path,
        tmp_path / "masked.pte",
        target=CHIP,
        scheme=scheme,
        samples=None if scheme == "fp16" else list(program.samples),
        session=session,
    )
    assert lowered.description.methods[0].partition.node_share == 1
    assert any("of softmax have -32" in note for note in lowered.notes)
    assert decibels(lowered, program) >= LEAST[scheme]


def test_products_of_16_bits_become_8_below_v73(session: Session, tmp_path: Path) -> None:
    program = save("products", tmp_path)
    lowered = lower(
        program.path,
        tmp_path / "products.pte",
        target="SM8450",
        scheme="16a8w",
        samples=list(program.samples),
        session=session,
    )
    assert lowered.description.methods[0].partition.node_share == 1
    assert any("2 matmul and LayerNorm operators are 8a8w" in note for note in lowered.notes)
    assert decibels(lowered, program) >= LEAST["8a8w"]


def test_methods_at_two_sizes_share_weights_or_run_here(session: Session, tmp_path: Path) -> None:
    small = save("small", tmp_path, rows=True)
    sources = {f"rows{count}": Source(small.path, {"x": (count, 16, 4, 4)}) for count in (1, 2)}
    apart = lower(sources, tmp_path / "apart.pte", target=CHIP, session=session)
    for count in (1, 2):
        arrays = np.concatenate([small.held[number]["x"] for number in range(count)])
        (outputs,) = load_pte(apart.output, method=f"rows{count}").run([{"x": arrays}]).outputs
        assert next(iter(outputs.values())).shape == (count, 8)
    options = LoweringOptions(compiling=Compiling(weight_sharing=True))
    shared = lower(sources, tmp_path / "shared.pte", target=CHIP, options=options, session=session)
    assert shared.bytes < apart.bytes
    assert not shared.description.runs_on_simulator
    assert any("simulator on x86 cannot" in note for note in shared.notes)


def test_training_by_steps_and_by_a_function(
    small: Saved, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuning.py").write_text(
        "import torch\n"
        "def train(module, samples, reference):\n"
        "    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)\n"
        "    for (x,) in samples:\n"
        "        loss = (module(x) - reference(x).detach()).square().mean()\n"
        "        optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
    )
    monkeypatch.chdir(tmp_path)
    for training in (Training(steps=24, lr=1e-4), Training("tuning.py:train")):
        lowered = lower(
            small.path,
            tmp_path / "trained.pte",
            target=CHIP,
            scheme="16a4w",
            samples=list(small.samples),
            training=training,
            session=session,
        )
        assert any(note.startswith("trained") for note in lowered.notes)
        assert decibels(lowered, small) >= LEAST["16a4w"]


def test_options_reach_the_file(small: Saved, session: Session, tmp_path: Path) -> None:
    compiling = Compiling(dlbc=True, performance="balanced", profile="detailed", conv_hmx=False)
    lowered = lower(
        small.path,
        tmp_path / "small.pte",
        target=CHIP,
        scheme="8a8w",
        samples=list(small.samples),
        options=LoweringOptions(Quantizing("histogram", act_symmetric=True), compiling),
        keep_quantised=True,
        session=session,
    )
    assert decibels(lowered, small) >= LEAST["8a8w"]
    assert lowered.description.options["compiling"]["performance"] == "balanced"
    assert lowered.quantised == {"forward": tmp_path / "small.qdq.pt2"}
    assert (tmp_path / "small.qdq.pt2").stat().st_size > 0


def test_the_saver_records_and_makes_no_file(small: Saved, session: Session, tmp_path: Path) -> None:
    lowered = lower(
        small.path,
        tmp_path / "small.pte",
        target=CHIP,
        options=LoweringOptions(compiling=Compiling(saver=True)),
        session=session,
    )
    assert not lowered.compiled
    assert lowered.output == tmp_path / "small.saver"
    assert {"saver_output.c", "params.bin"} <= {file.name for file in lowered.output.rglob("*")}
    assert not (tmp_path / "small.pte").exists()


def test_an_sdk_of_another_version_is_told(small: Saved, executorch: Toolchain, tmp_path: Path) -> None:
    import onnxruntime_qnn

    place = tmp_path / "sdk" / "lib" / "x86_64-linux-clang"
    place.parent.mkdir(parents=True)
    place.symlink_to(Path(onnxruntime_qnn.__file__).parent, target_is_directory=True)
    with pytest.raises(SdkUnusable, match="does not work with the QNN SDK") as caught:
        lower(
            small.path, tmp_path / "a.pte", target=CHIP, toolchain=executorch.name, qnn_sdk=tmp_path / "sdk"
        )
    assert "14001" in caught.value.why


def test_a_worker_that_is_too_slow_leaves_nothing(
    small: Saved, executorch: Toolchain, tmp_path: Path
) -> None:
    with pytest.raises(WorkerTimeout):
        lower(
            small.path,
            tmp_path / "late.pte",
            target=CHIP,
            toolchain=executorch.name,
            limits=Limits(seconds=0.2),
        )
    assert not list(tmp_path.iterdir())

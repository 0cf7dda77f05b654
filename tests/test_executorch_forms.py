"""Forms that users write every day, and that ExecuTorch or the compiler behind it fails on as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

from hexport.environments.record import Toolchain
from hexport.executorch.lowering.outcome import Lowered
from hexport.executorch.lowering.session import Session
from hexport.executorch.lowering.verb import lower
from hexport.executorch.running.loading import load_pte


class Pooled(nn.Module):
    """Strides that are the kernel's size, and so are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return functional.avg_pool2d(functional.max_pool2d(self.conv(image), 2), 2)


class Attention(nn.Module):
    """Queries, keys and values by one layer; in fp16 the compiler fails on what torch makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x)[0]
        return found


class Wave(nn.Module):
    """A weight that is computed at every call, and slopes a channel on tensors of three dims."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 8, 5, padding=2))
        self.slopes = nn.PReLU(8)
        with torch.no_grad():
            self.slopes.weight.uniform_()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.slopes(self.conv(x))
        return found


@pytest.fixture(scope="module")
def session(executorch: Toolchain) -> Iterator[Session]:
    with Session(executorch.name) as made:
        yield made


def lowered(
    module: nn.Module,
    samples: Sequence[Tensor],
    scheme: str,
    session: Session,
    folder: Path,
    *,
    target: str = "SM8650",
    min_sqnr: float | None = None,
) -> tuple[Lowered, float]:
    """The file, and its dB on the simulator on samples that come after those."""
    program = torch.export.export(module.eval(), (samples[0],), strict=True)
    torch.export.save(program, folder / "m.pt2")
    (name,) = program.graph_signature.user_inputs
    *fit, last = [{str(name): sample.numpy()} for sample in samples]
    found = lower(
        *(folder / "m.pt2", folder / "m.pte"),
        target=target,
        scheme=scheme,
        samples=fit,
        min_sqnr=min_sqnr,
        session=session,
    )
    (outputs,) = load_pte(found.output).run([last]).outputs
    (have,) = outputs.values()
    with torch.no_grad():
        want = module(samples[-1]).numpy()
    return found, float(10 * np.log10((want**2).sum() / ((want - have) ** 2).sum()))


@pytest.mark.parametrize(
    ("kind", "shape"), [(Pooled, (1, 3, 16, 16)), (Attention, (1, 8, 16)), (Wave, (1, 2, 32))]
)
def test_it_is_whole_on_the_npu_and_right(
    kind: type[nn.Module], shape: tuple[int, ...], session: Session, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    found, decibels = lowered(kind(), [torch.randn(shape) for _ in range(2)], "fp16", session, tmp_path)
    (method,) = found.description.methods
    assert method.partition.cpu == ()
    assert decibels > 40


def test_weights_make_up_for_each_others_rounding(session: Session, tmp_path: Path) -> None:
    """Kept because samples that were held out come closer so, which is told with both figures."""
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(3, 24, 3, bias=False), nn.BatchNorm2d(24), nn.ReLU6()),
        *(
            nn.Conv2d(24, 24, 3, groups=24),
            nn.ReLU6(),
            nn.Conv2d(24, 16, 1),
            nn.Flatten(),
            nn.Linear(16 * 64, 4),
        ),
    )
    samples = [torch.rand(1, 3, 12, 12) + torch.randn(1, 3, 1, 1) for _ in range(13)]
    found, decibels = lowered(module, samples, "16a8w", session, tmp_path)
    assert decibels > 40
    assert any("make up for each other" in note for note in found.notes)


class Coarse(nn.Module):
    """In `mix` the largest weights, for a faint input, leave few steps to all the others; in `last` not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.mix = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 64, 1)
        with torch.no_grad():
            self.first.weight[0] *= 1e-3
            self.mix.weight[:, 0] = 40.0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(functional.relu(self.mix(functional.relu(self.first(x)))))
        return found


def test_layers_that_8_bits_are_too_coarse_for_are_raised_for_a_goal(
    session: Session, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    module, samples = Coarse(), [torch.randn(1, 3, 12, 12) for _ in range(5)]
    _, without = lowered(module, samples, "16a8w", session, tmp_path)
    found, decibels = lowered(module, samples, "16a8w", session, tmp_path, min_sqnr=35)
    assert without < 35 < 38 < decibels
    assert any("16a16w and not 16a8w in mix: " in note for note in found.notes)
    older, _ = lowered(module, samples, "16a8w", session, tmp_path, target="SM8450", min_sqnr=35)
    assert any("1 layers would need 16-bit weights" in note for note in older.notes)


def test_what_relu6_cuts_off_takes_no_steps(session: Session, tmp_path: Path) -> None:
    """Before the cut the range is hundreds of times as wide: of 8 bits, relu6 would have one step."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU6(), nn.Conv2d(16, 8, 1), nn.ReLU6(), nn.Conv2d(8, 4, 1)
    )
    module.state_dict()["0.weight"][0].mul_(200)
    found, decibels = lowered(
        module, [torch.randn(1, 3, 12, 12) for _ in range(9)], "8a8w", session, tmp_path
    )
    assert decibels > 25
    assert (found.quantised_db["forward"] or 0) > 25


def test_a_norm_after_a_convolution_is_a_part_of_it_in_fp16(session: Session, tmp_path: Path) -> None:
    """What it takes away is a thousand times what it leaves: 16 bits between the two would be noise."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    learned = module.state_dict()
    learned["0.weight"].mul_(0.01)
    learned["0.bias"].add_(10)
    learned["1.running_mean"].add_(10)
    learned["1.running_var"].mul_(1e-4)
    _, decibels = lowered(module, [torch.randn(1, 3, 12, 12) for _ in range(2)], "fp16", session, tmp_path)
    assert decibels > 40

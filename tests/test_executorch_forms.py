"""Forms that users write every day, and that ExecuTorch or the compiler behind it fails on as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.nn import functional

import hexport
from hexport.environments.record import Toolchain


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


@pytest.mark.parametrize(
    ("kind", "shape"), [(Pooled, (1, 3, 16, 16)), (Attention, (1, 8, 16)), (Wave, (1, 2, 32))]
)
def test_it_is_whole_on_the_npu_and_right(
    kind: type[nn.Module], shape: tuple[int, ...], executorch: Toolchain, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    done = hexport.build_pte(
        kind(),
        (torch.randn(shape),),
        output=tmp_path / "m.pte",
        target="SM8650",
        scheme="fp16",
        min_sqnr=40,
        toolchain=executorch.name,
    )
    (method,) = done.lowered.description.methods
    assert (done.met, method.partition.cpu) == (True, ())


def test_weights_make_up_for_each_others_rounding(executorch: Toolchain, tmp_path: Path) -> None:
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
    samples = [(torch.rand(1, 3, 12, 12) + torch.randn(1, 3, 1, 1),) for _ in range(12)]
    done = hexport.build_pte(
        hexport.torch.TorchModel(module, samples[0], calibration=samples),
        output=tmp_path / "m.pte",
        target="SM8650",
        scheme="16a8w",
        min_sqnr=40,
        toolchain=executorch.name,
    )
    assert done.met
    assert any("make up for each other" in note for note in done.lowered.notes)


def test_what_relu6_cuts_off_takes_no_steps(executorch: Toolchain, tmp_path: Path) -> None:
    """Before the cut the range is hundreds of times as wide: of 8 bits, relu6 would have one step."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU6(), nn.Conv2d(16, 8, 1), nn.ReLU6(), nn.Conv2d(8, 4, 1)
    )
    module.state_dict()["0.weight"][0].mul_(200)
    samples = [(torch.randn(1, 3, 12, 12),) for _ in range(8)]
    done = hexport.build_pte(
        hexport.torch.TorchModel(module, samples[0], calibration=samples),
        output=tmp_path / "m.pte",
        target="SM8650",
        scheme="8a8w",
        min_sqnr=25,
        toolchain=executorch.name,
    )
    assert done.met
    assert (done.lowered.quantised_db["forward"] or 0) > 25


def test_a_norm_after_a_convolution_is_a_part_of_it_in_fp16(executorch: Toolchain, tmp_path: Path) -> None:
    """What it takes away is a thousand times what it leaves: 16 bits between the two would be noise."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    samples = [(torch.randn(1, 3, 12, 12),) for _ in range(4)]
    learned = module.state_dict()
    learned["0.weight"].mul_(0.01)
    learned["0.bias"].add_(10)
    learned["1.running_mean"].add_(10)
    learned["1.running_var"].mul_(1e-4)
    done = hexport.build_pte(
        hexport.torch.TorchModel(module, samples[0], calibration=samples),
        output=tmp_path / "m.pte",
        target="SM8650",
        scheme="fp16",
        min_sqnr=40,
        toolchain=executorch.name,
    )
    assert done.met

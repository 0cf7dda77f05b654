"""Small torch programs saved as .pt2, with samples: what lowering is tried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Sample = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Saved:
    """A program on disk, and data for it."""

    path: Path
    module: nn.Module
    samples: tuple[Sample, ...]
    held: tuple[Sample, ...]
    """Samples that nothing is fitted to."""

    def expected(self) -> NDArray[Any]:
        """What the module gives for those, one after the other."""
        with torch.no_grad():
            results = [self.module(torch.from_numpy(sample["x"])) for sample in self.held]
        return np.concatenate([result.numpy().ravel() for result in results])


class Small(nn.Module):
    """A 1x1 convolution with a bias far larger than its products, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(16, 32, 1)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 8))
        nn.init.constant_(self.mix.bias, 4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.mix(x)).mean((2, 3)))  # type: ignore[no-any-return]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.erf(self.fc(x))


class Erf(nn.Module):
    """An operator that ExecuTorch's Qualcomm backend does not have, and its CPU has."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x))  # type: ignore[no-any-return]


class Median(nn.Module):
    """An operator that neither has."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.median(self.fc(x), dim=-1)[0]


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(16, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]  # type: ignore[no-any-return]


class Products(nn.Module):
    """A matmul and a LayerNorm, which v69 has in 8 bits only."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return torch.matmul(y, y.transpose(1, 2))


FORMS: Mapping[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "small": (Small, (1, 16, 4, 4)),
    "erf": (Erf, (2, 16)),
    "median": (Median, (2, 16)),
    "steps": (Steps, (1, 4, 16)),
    "products": (Products, (1, 4, 16)),
}


def save(name: str, folder: Path, *, rows: bool = False) -> Saved:
    """The program of that name; ``rows``: its first dim may vary."""
    kind, shape = FORMS[name]
    torch.manual_seed(0)
    module = kind().eval()
    random = np.random.default_rng(0)
    made = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(24)]
    dims = {"x": {0: torch.export.Dim("rows", max=64)}} if rows else None
    # torch takes a dim whose example is 1 for a 1.
    example = (torch.from_numpy(np.concatenate([made[0]["x"]] * (2 if rows else 1))),)
    program = torch.export.export(module, example, dynamic_shapes=dims, strict=True)
    path = folder / f"{name}{'-rows' if rows else ''}.pt2"
    torch.export.save(program, path)
    return Saved(path, module, tuple(made[:16]), tuple(made[16:]))

"""Small PyTorch models as users write them: what goes through, and what stands in the way of an export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Any]


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.drop(self.bn(self.conv(x))))


class Cnn(nn.Module):
    """Convolutions, with statistics that differ from those of a new layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.stages = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(6, 5)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.uniform_(part.running_mean, -1, 1)  # type: ignore[arg-type]

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.stem(image)
        for stage in self.stages:
            x = stage(x)
        return {"logits": self.head(x.mean((2, 3)))}


class Encoder(nn.Module):
    """A transformer block over ids, with a table of positions that is as long as the longest input."""

    def __init__(self, longest: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 8)
        self.positions = nn.Parameter(torch.randn(1, longest, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, ids: Tensor, mask: Tensor, scale: float = 1.0) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x = self.tokens(ids) * scale + self.positions[:, : ids.shape[1]]
        y, weights = self.attention(x, x, x, key_padding_mask=mask)
        x = self.norm(x + y)
        return self.mlp(x), (x.mean(1), weights)


class Recurrent(nn.Module):
    """The three kinds of recurrent layers, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 5, num_layers=2, batch_first=True)
        self.lstm = nn.LSTM(5, 3, bidirectional=True, batch_first=True)
        self.rnn = nn.RNN(6, 4, nonlinearity="relu", bias=False, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, last = self.gru(x)
        x, (_, cell) = self.lstm(x)
        return self.rnn(x)[0], last, cell


class Tagger(nn.Module):
    """A layer after a recurrent one, for every step."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.gru(x)[0]))
        return scores


class Shared(nn.Module):
    """One layer that is called twice, a weight that two layers have, and an input that is given back."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.twice = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, batch: dict[str, Tensor], *, sure: bool = True) -> dict[str, Any]:
        x = self.twice(torch.tanh(self.twice(self.table(batch["ids"]))))
        chosen = torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))
        return {"scores": self.head(chosen if sure else x), "ids": batch["ids"], "nothing": None}


class LogOfSmall(nn.Module):
    """A number that keeps a logarithm from infinity."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.relu(x) + 1e-8)


class Branching(nn.Module):
    """Goes another way for other values."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(x)
        if y.sum() > 0:  # the line of the error
            y = -y
        return y


class WithSvd(nn.Module):
    """ONNX has no such operator."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.svd(x)[1]  # the line of the error


class Counting(nn.Module):
    """Remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))  # type: ignore[operator]  # the line of the error
        return x + self.seen


class Noisy(nn.Module):
    """Never gives the same."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Misspelt(nn.Module):
    """Fails in PyTorch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x[:, :3])  # the line of the error


class Wrapped(nn.Module):
    """Something inside of something."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Identity(), inner)

    def forward(self, x: Tensor) -> Tensor:
        print("a user's own words")  # noqa: T201 - what users do
        found: Tensor = self.parts(x)
        return found


def images(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, 3, 12, 12, generator=generator) for _ in range(count)]


def cnn() -> tuple[nn.Module, Any, dict[str, Any]]:
    """A factory with all that a build needs."""
    torch.manual_seed(0)
    return Cnn(), (images(1)[0],), {"calibration": lambda: ((image,) for image in images(6))}


def encoder() -> tuple[nn.Module, Any, dict[str, Any]]:
    """A factory with dims that vary; the example is as long as the table of positions."""
    torch.manual_seed(0)
    example = {
        "ids": torch.randint(0, 20, (1, 8)),
        "mask": torch.zeros(1, 8, dtype=torch.bool),
        "scale": 2.0,
    }
    axes = {0: "batch", 1: "seq"}
    return Encoder(), example, {"dynamic_shapes": {"ids": axes, "mask": axes}}


def branching() -> Made:
    return Wrapped(Branching()), (torch.ones(2, 4),)


def broken() -> Made:
    empty: dict[str, Made] = {}
    return empty["no such model"]  # the line of the error


def alone() -> nn.Module:
    return nn.Linear(2, 2)


def misdescribed() -> tuple[nn.Module, Any, dict[str, Any]]:
    return nn.Linear(2, 2), torch.ones(1, 2), {"calibrations": []}

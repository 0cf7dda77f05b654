"""Small tasks, and short training on them: models without a checkpoint get the ranges of trained ones.

A fresh nn.Module has weights of one size and signals that shrink from layer to layer: it quantises as nothing
that anybody ships does. So each is trained for some seconds on the CPU, always with the same seed. What came
of it is kept in bench/results/torch_route_weights under a hash of this file and of the model: both routes,
and all schemes, get the same weights, and no build pays for the training.

    images      gratings of 10 directions, of any colour and width, on a ground of another colour, with noise
    sequences   tones which come and go in 20 bands, with noise; wanted: at each step, which of the 8 has been
                heard most until then, so that a model has to remember
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

KEPT = Path(__file__).parent / "results" / "torch_route_weights"
DIRECTIONS, BANDS, TONES = 10, 20, 8
Task = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
"""So many inputs, and the class of each, or of each of its steps."""


def trained(name: str, model: nn.Module, task: Task, steps: int, batch: int = 16) -> nn.Module:
    """The model with its trained weights; trained now if no file has them."""
    file = KEPT / f"{name}-{_key(model, steps, batch)}.pt"
    if file.is_file():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()
    train(model, task, steps, batch)
    KEPT.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    torch.save(model.state_dict(), part)
    part.replace(file)
    return model.eval()


def _key(model: nn.Module, steps: int, batch: int) -> str:
    """Of what the weights come from: this file, the model's own classes, their sizes, the steps."""
    home = type(model).__module__
    own = {type(part) for part in model.modules() if type(part).__module__ == home}
    parts = [Path(__file__).read_text("utf-8"), str(model), f"{steps} {batch}"]
    parts += sorted(inspect.getsource(one) for one in own)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def train(model: nn.Module, task: Task, steps: int, batch: int) -> float:
    """Adam with a falling rate; the share of right answers in the last tenth of the steps."""
    torch.set_num_threads(
        1
    )  # sums in one order on every machine; and threads wait for each other on a busy one
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    model.train()
    right = count = 0
    for step in range(steps):
        inputs, wanted = task(batch, generator)
        scores = model(inputs)
        loss = nn.functional.cross_entropy(scores.flatten(0, -2), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step >= steps - max(1, steps // 10):
            right += int((scores.argmax(-1) == wanted).sum())
            count += wanted.numel()
    model.eval()
    return right / count


def images(side: int) -> Task:
    """Gratings, in the range of normalised photographs."""

    def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        direction = torch.randint(DIRECTIONS, (count,), generator=generator)
        angle = direction * torch.pi / DIRECTIONS
        waves, phase = torch.rand(2, count, 1, 1, generator=generator)
        place = torch.linspace(-1, 1, side)
        across = torch.cos(angle)[:, None, None] * place[None, None, :]
        across = across + torch.sin(angle)[:, None, None] * place[None, :, None]
        grating = torch.sin((6 + 14 * waves) * across + 6.3 * phase)
        colour, ground = 1.2 * torch.randn(2, count, 3, 1, 1, generator=generator)
        noise = 0.3 * torch.randn(count, 3, side, side, generator=generator)
        return colour * grating[:, None] + ground + noise, direction

    return draw


def sequences(length: int) -> Task:
    """Energies of bands, step by step."""

    def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        changes = torch.rand(count, length, generator=generator) < 0.25
        changes[:, 0] = True
        fresh = torch.randint(TONES, (count, length), generator=generator)
        begun = torch.where(changes, torch.arange(length), 0).cummax(1).values
        tone = fresh.gather(1, begun)
        centre = (tone + 0.5) * BANDS / TONES
        shape = torch.exp(-0.5 * (torch.arange(BANDS) - centre[..., None]) ** 2)
        loudness = 1 + 2 * torch.rand(count, length, 1, generator=generator)
        noise = 0.3 * torch.randn(count, length, BANDS, generator=generator)
        heard = nn.functional.one_hot(tone, TONES).cumsum(1)
        return loudness * shape + noise, heard.argmax(-1)

    return draw

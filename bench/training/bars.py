"""Training against torch: digits to the end, gradients of whole blocks, CPU time of a step and of a compile.

Run: python bench/training/bars.py [digits|gradients|step|compile]...   (all without arguments). Times are CPU seconds.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.pybuda import PyTorchModule, from_pybuda
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.core.trainer import Trainer

ARCH = "wormhole_b0"


def compiled(
    module: torch.nn.Module,
    sample: tuple[torch.Tensor, ...],
    kind: str = "sgd",
    microbatch: int = 1,
    df: DataFormat = DataFormat.Float32,
    training: bool = True,
    rate: float = 0.1,
) -> CompileResult:
    graph = from_pybuda(PyTorchModule("model", module), sample, training=training)
    plan = TrainingOptions(optimizer_options(kind, learning_rate=rate)) if training else None
    return compile_graph(graph, ARCH, CompileOptions(default_df_override=df, training=plan, microbatch=microbatch))


class BertLayer(torch.nn.Module):
    """One layer of BERT: attention, add and norm, feed-forward, add and norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (torch.nn.Linear(width, width) for _ in range(3))
        self.dense = torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(n, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        mixed = (scores @ v).transpose(1, 2).reshape(n, length, width)
        x = self.first(x + self.dense(mixed))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))


class ResNetBlock(torch.nn.Module):
    """Two convolutions with stored normalisation and a strided shortcut."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(cin, cout, 3, stride=2, padding=1)
        self.second = torch.nn.Conv2d(cout, cout, 3, padding=1)
        self.short = torch.nn.Conv2d(cin, cout, 1, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return torch.relu(self.second(y) + self.short(x))


def bert(layers: int = 2, width: int = 128, heads: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(BertLayer(width, heads) for _ in range(layers)))


def gradients() -> None:
    """PCC per parameter against torch autograd, the worst of each model."""
    torch.manual_seed(0)
    cases: list[tuple[str, torch.nn.Module, torch.Tensor]] = [
        ("BERT, 2 layers of 128, 64 tokens", bert(), torch.randn(1, 64, 128)),
        ("ResNet block, 16 -> 32 channels, 16 x 16", ResNetBlock(16, 32), torch.randn(1, 16, 16, 16)),
    ]
    for name, module, x in cases:
        seed = torch.randn(module(x).shape)
        module.zero_grad()
        module(x).backward(seed)
        for df in (DataFormat.Float32, DataFormat.Float16_b):
            result = compiled(module, (x,), df=df)
            trainer = Trainer(result, "golden" if df is DataFormat.Float32 else "device")
            trainer.forward({result.graph.inputs[0].name: x})
            trainer.backward({result.graph.outputs[0].name: seed})
            matches = trainer.gradients()
            worst = min(
                (float(np.corrcoef(matches[n].reshape(-1), p.grad.reshape(-1))[0, 1]), n)
                for n, p in module.named_parameters()
                if float(p.grad.abs().max()) > 1e-4  # the key's bias has no gradient but rounding
            )
            print(f"gradients  {name}, {df.name}: worst PCC {worst[0]:.7f} ({worst[1]})", flush=True)


def digits() -> None:
    """The same data in the same order here and in torch; test accuracy, and the largest difference of the losses."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.tensor(data.images / 16.0, dtype=torch.float32)
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    batch, steps = 32, 120

    def mlp() -> torch.nn.Module:
        layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        return torch.nn.Sequential(torch.nn.Flatten(), *layers)

    def cnn() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(128, 10),
        )

    optimizers: dict[str, tuple[float, Callable[..., torch.optim.Optimizer]]] = {
        "sgd": (0.3, torch.optim.SGD),
        "adamw": (0.01, torch.optim.AdamW),
    }
    for name, make in (("MLP", mlp), ("CNN", cnn)):
        for kind, (rate, theirs) in optimizers.items():
            torch.manual_seed(1)
            module = make()
            twin = copy.deepcopy(module)
            pixels = x[:, None]
            result = compiled(module, (pixels[:batch],), kind, batch, rate=rate)
            trainer, optimizer = Trainer(result), theirs(twin.parameters(), lr=rate)
            source, out = result.graph.inputs[0].name, result.graph.outputs[0].name
            ours: list[float] = []
            wanted: list[float] = []
            for step in range(steps):
                rows = train[torch.arange(step * batch, (step + 1) * batch) % len(train)]
                (logits,) = trainer.forward({source: pixels[rows]})
                leaf = logits.clone().requires_grad_()
                loss = torch.nn.functional.cross_entropy(leaf, y[rows])
                loss.backward()
                trainer.backward({out: leaf.grad})
                trainer.optimize()
                ours.append(loss.item())
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(twin(pixels[rows]), y[rows])
                loss.backward()
                optimizer.step()
                wanted.append(loss.item())
            with torch.no_grad():
                for n, p in module.named_parameters():
                    p.copy_(trainer.parameters()[n])
                mine = float((module(pixels[test]).argmax(1) == y[test]).float().mean())
                his = float((twin(pixels[test]).argmax(1) == y[test]).float().mean())
            apart = max(abs(a - b) / b for a, b in zip(ours[:50], wanted[:50], strict=True))
            text = f"accuracy {mine:.4f}, torch {his:.4f}; losses of 50 steps within {apart:.2%}"
            print(f"digits     {name} {kind}: {text}", flush=True)


def step() -> None:
    """CPU time of one step (forward, backward, optimizer), best of nine, against torch eager."""
    module = bert(2, 768, 12)
    x = torch.randn(1, 128, 768)
    result = compiled(module, (x,), rate=1e-4)  # at 0.1 it diverges into denormal numbers, which slow both
    trainer = Trainer(result)
    seed = torch.randn(module(x).shape)
    optimizer = torch.optim.SGD(module.parameters(), 1e-4)
    times: dict[str, list[float]] = {"ours": [], "torch": []}
    for _ in range(10):
        begin = time.process_time()
        trainer.forward({result.graph.inputs[0].name: x})
        trainer.backward({result.graph.outputs[0].name: seed})
        trainer.optimize()
        times["ours"].append(time.process_time() - begin)
        begin = time.process_time()
        optimizer.zero_grad()
        module(x).backward(seed)
        optimizer.step()
        times["torch"].append(time.process_time() - begin)
    ours, theirs = min(times["ours"][1:]), min(times["torch"][1:])
    print(f"step       2 BERT-base layers, 128 tokens: {ours:.3f} s, torch {theirs:.3f} s, ratio {ours / theirs:.2f}")


def compile_time(layers: int = 12) -> None:
    """CPU time of a compile for training against that for inference, Float16_b. No placement comes from disk."""
    os.environ["TBUDA_CACHE"] = "off"
    x = (torch.randn(1, 128, 768),)
    compiled(bert(1, 768, 12), x, df=DataFormat.Float16_b, training=False)  # torch.export imports much at first use
    module = bert(layers, 768, 12)
    times = {}
    for kind in ("inference", "sgd", "adamw"):
        begin = time.process_time()
        compiled(
            module, x, kind if kind != "inference" else "sgd", df=DataFormat.Float16_b, training=kind != "inference"
        )
        times[kind] = time.process_time() - begin
    least = times["inference"]
    shown = ", ".join(f"{kind} {seconds:.1f} s ({seconds / least:.2f} x)" for kind, seconds in times.items())
    print(f"compile    {layers} BERT-base layers: {shown}")


BARS: dict[str, Callable[[], None]] = {"gradients": gradients, "digits": digits, "step": step, "compile": compile_time}

if __name__ == "__main__":
    for bar in sys.argv[1:] or BARS:
        BARS[bar]()

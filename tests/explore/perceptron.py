"""A perceptron that is explored within seconds, as a session and as a file of a command."""

from pathlib import Path

import torch

from tbuda_lab.core.session import Session

SPACE = {"devices": ["n150", "n150+grid=2x2"], "batch": [1, 4], "format": ["Float16_b", "Bfp8_b"], "harvest": [0, 3]}


def mlp(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32)).eval()


def session(seed: int = 0, width: int = 64) -> Session:
    module = mlp(seed) if width == 64 else torch.nn.Linear(width, 32)
    return Session(module, (torch.ones(1, width),), name="mlp", cache=False)


def tiny_model(folder: Path, name: str = "tiny", width: int = 32) -> str:
    """A file that makes a linear layer, as the target of a command."""
    (folder / f"{name}.py").write_text(
        f"import torch\ndef make():\n    return torch.nn.Linear({width}, 32).eval(), (torch.ones(1, {width}),)\n"
    )
    return f"{folder / name}.py:make"

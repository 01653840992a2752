"""Models with one op that only the host has, through every door: a TTDevice, a session, the workbench's thread,
torch.compile, an image, and `tbuda compile` with `tbuda run`. `python -m tests.session.host_doors`: all of them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tbuda_lab import pybuda
from tbuda_lab.cli import main as command_line
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

FLOAT = CompileOptions(default_df_override=DataFormat.Float32)


def written(y: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    y = y.clone()
    y[mask] = value
    return y


def tens(y: torch.Tensor) -> torch.Tensor:
    """Whole numbers of some size, of both signs."""
    return (10 * y).long()


def square(y: torch.Tensor) -> torch.Tensor:
    """Symmetric, positive definite."""
    return y @ y.transpose(1, 2) + 8 * torch.eye(8)


MODELS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sort": lambda y: y.sort(-1)[0],
    "sort downwards, with places": lambda y: y.sort(-1, descending=True),
    "argsort": lambda y: y.argsort(-1),
    "topk": lambda y: y.topk(16, -1)[0],
    "topk with places": lambda y: y.topk(3, -1),
    "the third": lambda y: y.kthvalue(3, -1)[0],
    "median with places": lambda y: y.median(-1),
    "max with places": lambda y: y.max(-1),
    "min with places": lambda y: y.min(1),
    "places of the largest": lambda y: y.argmax(-1),
    "any": lambda y: (y > 1).any(-1),
    "all": lambda y: (y > -1).all(1),
    "any of all": lambda y: torch.any(y > 2),
    "where the mask is": lambda y: written(y, y < 0, 0.0),
    "numbers that are not finite": lambda y: written(y, y.isnan(), 1.0),
    "quotient": lambda y: y // 0.3,
    "quotient of whole numbers": lambda y: tens(y) // 3,
    "rest of whole numbers": lambda y: tens(y) % 7,
    "exclusive or": lambda y: tens(y) ^ 3,
    "bits": lambda y: tens(y) & 12,
    "shift": lambda y: tens(y).int() << 2,
    "half": lambda y: y.half().sort(-1)[0].float(),
    "bytes": lambda y: (tens(y) + 300).to(torch.uint8),
    "rounded": lambda y: y.round(decimals=1),
    "gather": lambda y: y.gather(-1, tens(y).abs() % 16),
    "scatter": lambda y: torch.zeros_like(y).scatter(-1, y.argsort(-1), y),
    "scatter sums": lambda y: torch.zeros_like(y).scatter_add(-1, tens(y).abs() % 16, y),
    "rows": lambda y: functional.embedding(y.argmax(-1), torch.arange(48.0).reshape(16, 3)),
    "one hot": lambda y: functional.one_hot(y.argmax(-1), 16),
    "buckets": lambda y: torch.bucketize(y, torch.tensor([-1.0, 0.0, 1.0])),
    "sums of whole numbers": lambda y: tens(y).cumsum(-1),
    "running largest": lambda y: y.cummax(-1)[0],
    "running products": lambda y: y.cumprod(-1),
    "inverse": lambda y: torch.linalg.inv(square(y)),
    "cholesky": lambda y: torch.linalg.cholesky(square(y)),
    "solve": lambda y: torch.linalg.solve(square(y), y),
    "determinant": lambda y: torch.linalg.det(square(y) / 16),
    "spectrum": lambda y: torch.fft.rfft(y).abs(),
    "there and back": lambda y: torch.fft.irfft(torch.fft.rfft(y), 16),
    "places of a pool": lambda y: functional.max_pool1d(y, 2, return_indices=True)[1],
    "turned by steps": lambda y: y.roll(3, -1).sort(-1)[0],
    "histogram": lambda y: torch.bincount((tens(y).abs() % 5).reshape(-1), minlength=5),
    "no elements": lambda y: (y[:, :0], y + 1),
    "gamma": lambda y: torch.lgamma(y.abs() + 1),
    "next number": lambda y: torch.nextafter(y, y + 1),
    "sign bit": lambda y: torch.signbit(y),
}


class OneHostOp(nn.Module):
    """Something of the host's between two layers of the device; what has another shape or type goes out."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(16, 16), nn.Linear(16, 16), function

    def forward(self, x: torch.Tensor) -> Any:
        y = self.function(self.first(x))
        plain = isinstance(y, torch.Tensor) and y.dtype == torch.float32 and y.shape[-1:] == (16,)
        return self.second(y) if plain else y


def model_and_input(name: str) -> tuple[OneHostOp, torch.Tensor]:
    torch.manual_seed(3)
    return OneHostOp(MODELS[name]).eval(), torch.randn(1, 8, 16)


def flat(outputs: Any) -> list[torch.Tensor]:
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


# -- doors -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def devices(folder: Path) -> Iterator[None]:
    """A world without other devices, which leaves its files in `folder`."""
    pybuda.pybuda_reset()
    before = os.environ.get("TBUDA_OUTPUT_DIR")
    os.environ["TBUDA_OUTPUT_DIR"] = str(folder)
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    try:
        yield
    finally:
        pybuda.pybuda_reset()
        del os.environ["TBUDA_OUTPUT_DIR"]
        os.environ.update({} if before is None else {"TBUDA_OUTPUT_DIR": before})


def device(name: str, folder: Path, image: Path | None = None) -> list[torch.Tensor]:
    model, x = model_and_input(name)
    with devices(folder):
        own = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("m", model))
        if image is not None:
            own.compile_to_image(img_path=image, sample_inputs=(x,))
            pybuda.set_device_pipeline([pybuda.TTDevice.load_image(img_path=image)])
        return [tensor.value() for tensor in pybuda.run_inference(inputs=[(x,)]).get(timeout=60)]


def image(name: str, folder: Path) -> list[torch.Tensor]:
    return device(name, folder, folder / "device.tti")


def image_of_a_session(name: str, folder: Path) -> list[torch.Tensor]:
    model, x = model_and_input(name)
    Session(model, (x,), options=FLOAT).export_tti(folder / "session.tti")
    with devices(folder):
        pybuda.TTDevice.load_image(img_path=folder / "session.tti")
        return [tensor.value() for tensor in pybuda.run_inference(inputs=[(x,)]).get(timeout=60)]


def session(name: str, folder: Path) -> list[torch.Tensor]:
    model, x = model_and_input(name)
    return Session(model, (x,), options=FLOAT).run()[0]


def workbench(name: str, folder: Path) -> list[torch.Tensor]:
    """A session as a workbench has it, in a thread of its own."""
    model, x = model_and_input(name)
    own = Session(model, (x,), options=FLOAT)
    own.compile_async()
    own.wait(120)
    return own.run()[0]


def torch_compile(name: str, folder: Path) -> list[torch.Tensor]:
    model, x = model_and_input(name)
    torch._dynamo.reset()
    with torch.no_grad():
        return flat(torch.compile(model, backend="tbuda", options={"options": FLOAT})(x))


def commands(name: str, folder: Path) -> list[torch.Tensor]:
    """`tbuda compile`, then `tbuda run` on its folder; outputs by a file."""
    root = Path(__file__).parents[2]
    script = folder / "model.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(root)!r})\nfrom tests.session.host_doors import model_and_input\n"
        f"def make():\n    model, x = model_and_input({name!r})\n    return model, (x,)\n"
    )
    with contextlib.redirect_stdout(io.StringIO()):
        codes = [
            command_line(["compile", f"{script}:make", "--df", "Float32", "--out", str(folder / "out")]),
            command_line(["run", str(folder / "out"), "--outputs", str(folder / "out.npz")]),
        ]
    if any(codes):
        return []  # what is wrong stands on stderr
    with np.load(folder / "out.npz") as file:
        return [torch.from_numpy(file[key]) for key in file.files]


DOORS: dict[str, Callable[[str, Path], list[torch.Tensor]]] = {
    "device": device,
    "image": image,
    "session": session,
    "image of a session": image_of_a_session,
    "workbench": workbench,
    "torch.compile": torch_compile,
    "commands": commands,
}


def differences(name: str, doors: tuple[str, ...] = tuple(DOORS)) -> list[str]:
    """What a door gives for a model that torch does not, or that the first door does not bit for bit."""
    model, x = model_and_input(name)
    with torch.no_grad():
        wants = flat(model(x))
    wrong: list[str] = []
    first: list[torch.Tensor] = []
    for door in doors:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the sections, and of arguments that are one
            try:
                got = DOORS[door](name, Path(folder))
            except TbudaError as error:
                wrong.append(f"{name}: {door}: {type(error).__name__}: {error}")
                continue
        first = first or got
        if len(got) != len(wants):
            wrong.append(f"{name}: {door}: {len(got)} outputs, not {len(wants)}")
        for have, want, same in zip(got, wants, first, strict=False):
            if have.shape != want.shape or have.dtype != want.dtype:
                wrong.append(f"{name}: {door}: {tuple(have.shape)} of {have.dtype}, not {want.dtype}")
            elif not torch.allclose(have.double(), want.double(), rtol=1e-4, atol=1e-4, equal_nan=True):
                wrong.append(f"{name}: {door}: differs by {(have.double() - want.double()).abs().max()}")
            elif not torch.equal(have, same):
                wrong.append(f"{name}: {door}: other bits than by the first door")
    return wrong


def main() -> int:
    os.environ["TBUDA_CACHE"] = "off"
    wrong = []
    for name in sys.argv[1:] or MODELS:
        wrong += (found := differences(name))
        print(f"{name}: {'; '.join(found) or 'equal'}", flush=True)
    print(f"{len(sys.argv[1:] or MODELS)} models by {len(DOORS)} doors, {len(wrong)} differences")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

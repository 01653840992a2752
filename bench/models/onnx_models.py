"""Ten whole models through ONNX and through torch, in Float32 on the grid: the same outputs, names of modules kept.

    python bench/models/onnx_models.py [NAME ...]

Each model, at small size with random weights, is exported by `torch.onnx.export` to a file; the file and the module are
compiled and run. PCC: the smallest over all outputs, of the file's run against the module's run, against torch, and of
the file's graph on the host against torch. Bar 0.9999. "modules": how many ops of the file's graph have a module of the
torch model as their origin, which all must, and weights whose names are those of the torch model.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from families import build, correlation
from machine import describe, one_thread

NAMES = (
    "Bert",
    "DistilBert",
    "Llama",
    "GPT2",
    "ViT",
    "ResNet",
    "MobileNetV3-small",
    "EfficientNet",
    "U-Net",
    "Swin",
    "ConvNext",
    "YOLO",
    "AlexNet",
)
BAR = 0.9999


def main(names: list[str]) -> None:
    one_thread()
    warnings.simplefilter("ignore")
    import torch

    from tbuda_lab.core import frontend
    from tbuda_lab.core.formats import DataFormat
    from tbuda_lab.core.frontend.onnx import from_onnx
    from tbuda_lab.core.graph import NodeKind
    from tbuda_lab.core.ops.evaluate import evaluate
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    print(
        f"{describe()}\n\n| model | file against module | against torch | on the host | modules | CPU s |\n"
        "|---|---:|---:|---:|---|---:|"
    )
    held = 0
    for name in names:
        start = time.process_time()
        module, inputs = build(name)
        named = inputs if isinstance(inputs, dict) else {}
        of_model = () if named else inputs
        tensors = tuple(x for x in named.values() if isinstance(x, torch.Tensor)) if named else inputs
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            torch.onnx.export(module, of_model, str(path), kwargs=named, dynamo=True, verbose=False)
            graph = from_onnx(path, tensors)
            options = CompileOptions(default_df_override=DataFormat.Float32)
            of_file = Session(str(path), tensors, options=options).run()[0]
        of_module = Session(module, inputs, options=options).run()[0]
        expected = frontend.reference(module, inputs)
        on_host = list(evaluate(graph, frontend.feeds(graph, tensors)).values())
        pccs = [
            min(correlation(a, b) for a, b in zip(one, other, strict=True))
            for one, other in ((of_module, of_file), (expected, of_file), (expected, on_host))
        ]
        modules = {m for m, _ in module.named_modules()}
        ops = [node.origin.module in modules for node in graph.ops]
        weights = {n for n, _ in module.named_parameters()} | {n for n, _ in module.named_buffers()}
        mine = [node.name in weights for node in graph if node.kind is NodeKind.PARAMETER]
        held += min(pccs) >= BAR and all(ops)
        print(
            f"| {name} | {pccs[0]:.6f} | {pccs[1]:.6f} | {pccs[2]:.6f} | {sum(ops)} of {len(ops)} ops, "
            f"{sum(mine)} of {len(mine)} weights | {time.process_time() - start:.1f} |",
            flush=True,
        )
    print(f"\n{held} of {len(names)} with PCC >= {BAR}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(NAMES))

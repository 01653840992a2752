"""A PopXL program that trains two linear layers on digits, against the same training in torch and the same step from
PyBuda's face: accuracy over equal weights and batches, segments and cycles of a step.

Run: python bench/training/popxl_mnist.py [SEEDS] [EPOCHS]
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import torch

import tbuda_lab.popxl as popxl
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.epochsim import simulated_cycles
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.pybuda import PyTorchModule, from_pybuda
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.popxl import ops, transforms

BATCH, RATE, HIDDEN = 8, 0.05, 32
Arrays = list[np.ndarray]


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's, three times as large in 28 x 28 pixels, normalised as MNIST's are: train and test."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.zeros((len(data.images), 28, 28), np.float32)
    images[:, 2:26, 2:26] = (data.images / 16).repeat(3, 1).repeat(3, 2)
    images = ((images - 0.1307) / 0.3081).reshape(-1, 784).astype(np.float32)
    labels = data.target.astype(np.int32)
    return images[:1472], labels[:1472], images[1472:1760], labels[1472:1760]


def weights(seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = ((784, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    return [rng.normal(0, 0.02, shape).astype(np.float32) for shape in shapes]


class Linear(popxl.Module):
    def build(self, x: popxl.Tensor, features: int) -> popxl.Tensor:
        self.w = popxl.graph_input((x.shape[-1], features), popxl.float32, "w")
        self.b = popxl.graph_input((features,), popxl.float32, "b")
        return ops.gelu(x @ self.w + self.b)


class Program:
    """A step of training as an Ir: loads images and labels, stores the loss, changes four variables."""

    def __init__(self, start: Arrays) -> None:
        self.ir = popxl.Ir()
        with self.ir.main_graph, popxl.in_sequence():
            self.images = popxl.h2d_stream((BATCH, 784), popxl.float32, "images")
            self.labels = popxl.h2d_stream((BATCH,), popxl.int32, "labels")
            x, labels = ops.host_load(self.images), ops.host_load(self.labels)
            self.variables = [popxl.variable(a, name=f"v{k}") for k, a in enumerate(start)]
            layers, graphs, sites = [], [], []
            for k, features in enumerate((HIDDEN, 10)):
                layer = Linear()
                graphs.append(self.ir.create_graph(layer, x, features=features))
                own = {layer.w: self.variables[2 * k], layer.b: self.variables[2 * k + 1]}
                sites.append(ops.call_with_info(graphs[-1], x, inputs_dict=own))
                (x,) = sites[-1].outputs[:1]
                layers.append(layer)
            loss, grad = ops.nll_loss_with_softmax_grad(ops.softmax(x, 1), labels)
            self.loss = popxl.d2h_stream(loss.shape, loss.dtype, "loss")
            ops.host_store(self.loss, loss)
            for k in (1, 0):
                layer, graph = layers[k], graphs[k]
                wanted = [*graph.inputs[:1], layer.w, layer.b] if k else [layer.w, layer.b]
                info = transforms.autodiff(graph, grads_required=wanted)
                call = ops.call_with_info(info.graph, grad, inputs_dict=info.inputs_dict(sites[k]))
                found = info.fwd_parent_ins_to_grad_parent_outs(sites[k], call)
                for v in self.variables[2 * k : 2 * k + 2]:
                    ops.scaled_add_(v, found[v], b=-RATE)
                grad = call.outputs[0]


class Plain(torch.nn.Module):
    def __init__(self, start: Arrays) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(784, HIDDEN), torch.nn.Linear(HIDDEN, 10)
        with torch.no_grad():
            for layer, (w, b) in zip((self.first, self.second), (start[:2], start[2:]), strict=True):
                layer.weight.copy_(torch.from_numpy(w.T))
                layer.bias.copy_(torch.from_numpy(b))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            x = torch.nn.functional.gelu(layer(x), approximate="tanh")
        return x


class WithLoss(Plain):
    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return -(torch.log_softmax(super().forward(x), -1) * rows).sum() / BATCH


def accuracy(parameters: Arrays, images: np.ndarray, labels: np.ndarray) -> float:
    with torch.no_grad():
        return float((Plain(parameters)(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


def trained(seed: int, epochs: int) -> tuple[float, float, float]:
    """Accuracy of the program's weights and of torch's, and the largest difference of the losses."""
    train, labels, test, wanted = digits()
    start = weights(seed)
    program, model = Program(start), Plain(start)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    order = np.random.default_rng(seed)
    off = 0.0
    with popxl.Session(program.ir, "ipu_model") as session:
        for _ in range(epochs):
            for batch in order.permutation(len(train)).reshape(-1, BATCH):
                got = session.run({program.images: train[batch], program.labels: labels[batch]})[program.loss]
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    model(torch.from_numpy(train[batch])), torch.from_numpy(labels[batch]).long()
                )
                loss.backward()
                optimizer.step()
                off = max(off, abs(float(got) - loss.item()))
        ours = [session.get_tensor_data(v) for v in program.variables]
    theirs = [p.detach().numpy().T.copy() for p in model.parameters()]
    return accuracy(ours, test, wanted), accuracy(theirs, test, wanted), off


@dataclasses.dataclass(frozen=True)
class Step:
    """What a step takes: parts that the host starts, epochs in them, cycles; epochs and cycles by PyBuda's face."""

    segments: int
    epochs: int
    cycles: int
    pybuda_epochs: int
    pybuda_cycles: int


def step() -> Step:
    """A step of training compiled for a wormhole_b0 in Float32 by both faces, cycles by the simulator of epochs."""
    start = weights(0)
    executable = popxl.Session(Program(start).ir, "ipu_model").executable
    assert executable.result is not None
    plan = TrainingOptions(optimizer_options("sgd", learning_rate=RATE))
    options = CompileOptions(default_df_override=DataFormat.Float32, training=plan)
    sample = torch.zeros(1, BATCH, 784), torch.zeros(1, BATCH, 10)
    graph = from_pybuda(PyTorchModule("digits", WithLoss(start)), sample, training=True)
    theirs = compile_graph(graph, "wormhole_b0", options)
    ours = executable.result
    return Step(
        len(executable.parts),
        len(ours.placement.epochs),
        simulated_cycles(ours),
        len(theirs.placement.epochs),
        simulated_cycles(theirs),
    )


if __name__ == "__main__":
    seeds, epochs = (int(a) for a in (*sys.argv[1:3], *("3", "3")[len(sys.argv) - 1 :]))
    s = step()
    print(f"PopXL: {s.segments} segment(s), {s.epochs} epoch(s), {s.cycles:,} cycles")
    ratio = s.cycles / s.pybuda_cycles
    print(f"PyBuda's face: {s.pybuda_epochs} epochs, {s.pybuda_cycles:,} cycles; ratio {ratio:.2f}")
    for seed in range(seeds):
        ours, theirs, off = trained(seed, epochs)
        print(f"seed {seed}: PopXL {100 * ours:.2f} %, torch {100 * theirs:.2f} %, losses differ by {off:.1e} at most")

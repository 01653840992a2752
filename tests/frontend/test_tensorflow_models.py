"""Keras models and TensorFlow functions through tf2onnx, against TensorFlow's own answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab import pybuda
from tbuda_lab.core.errors import InputError, ModelError, NotSupported
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda import TFGraphDefModule, TFModule

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
layers = tf.keras.layers


class Convolutions(tf.keras.Model):
    """Its shapes are those of what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = [
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]

    def call(self, x: Any) -> Any:
        for step in self.steps:
            x = step(x)
        return x


class Attention(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = layers.MultiHeadAttention(2, 16), layers.LayerNormalization()
        self.dense = layers.Dense(32, activation="relu")

    def call(self, x: Any) -> Any:
        return self.dense(self.norm(x + self.attention(x, x)))


class TwoInputs(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(16)

    def call(self, a: Any, b: Any) -> Any:
        return {"sum": self.dense(a) + b, "largest": tf.reduce_max(a, axis=-1)}


def functional() -> Any:
    """A Keras model that declares its shapes, the batch left open."""
    inputs = [tf.keras.Input((8, 32)), tf.keras.Input((8, 16))]
    return tf.keras.Model(inputs, layers.Dense(4)(layers.Concatenate()(inputs)))


MODELS: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "convolutions": (Convolutions, [(1, 16, 16, 3)]),
    "attention": (Attention, [(1, 8, 32)]),
    "two inputs, a dictionary of outputs": (TwoInputs, [(1, 8, 32), (1, 8, 16)]),
    "declared shapes": (functional, [(1, 8, 32), (1, 8, 16)]),
    "function": (lambda: tf.function(lambda a: tf.math.tanh(a) * 2), [(1, 8, 32)]),
}


def arrays(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", MODELS)
def test_the_grid_answers_as_tensorflow_does(name: str) -> None:
    tf.random.set_seed(0)
    make, shapes = MODELS[name]
    model, inputs = make(), arrays(shapes)
    session = Session(
        TFModule("m", model),
        tuple(map(torch.from_numpy, inputs)),
        "wormhole_b0",
        CompileOptions(default_df_override=DataFormat.Float32),
    )
    want = tf.nest.flatten(model(inputs) if name == "declared shapes" else model(*inputs))
    for have, expected in zip(session.run()[0], want, strict=True):
        torch.testing.assert_close(have, torch.from_numpy(expected.numpy()), rtol=2e-3, atol=2e-3)


def test_a_keras_model_is_a_model_and_a_device_runs_it() -> None:
    model, (x,) = Convolutions(), arrays([(1, 16, 16, 3)])
    want = torch.from_numpy(model(x).numpy())
    torch.testing.assert_close(Session(model, (torch.from_numpy(x),), "grayskull").run()[0][0], want, rtol=0, atol=0.01)
    device = pybuda.TTDevice("tt0")
    device.place_module(TFModule("m", model))
    answer = pybuda.run_inference(inputs=[(torch.from_numpy(x),)]).get()[0].value()
    pybuda.shutdown()
    torch.testing.assert_close(answer.float(), want, rtol=0, atol=0.01)


def test_a_graph_def() -> None:
    function = tf.function(lambda x: tf.nn.softmax(tf.matmul(x, tf.constant(np.eye(32, 16), tf.float32)), axis=-1))
    graph = function.get_concrete_function(tf.TensorSpec((1, 4, 32), tf.float32)).graph.as_graph_def()
    (x,) = arrays([(1, 4, 32)])
    session = Session(TFGraphDefModule("g", graph, output_names=["Identity"]), (torch.from_numpy(x),))
    torch.testing.assert_close(session.run()[0][0], torch.from_numpy(function(x).numpy()), rtol=0, atol=0.01)


def test_the_models_own_call() -> None:
    model, inputs = TwoInputs(), [tf.constant(x) for x in arrays([(1, 8, 32), (1, 8, 16)])]
    module = TFModule("m", model)
    for have, want in zip(module.call(*inputs), tf.nest.flatten(model(*inputs)), strict=True):
        np.testing.assert_array_equal(have.numpy(), want.numpy())
    with pytest.raises(NotSupported, match=r"tf\.GradientTape"):
        module.backward()


def test_what_a_model_lacks_is_said() -> None:
    with pytest.raises(InputError, match="needs sample inputs: Convolutions declares no shapes"):
        TFModule("m", Convolutions()).sample_inputs()
    with pytest.raises(ModelError, match=r"takes a Keras model, a tf.function or a tf.Module, not int"):
        TFModule("m", 3)

"""The demo's encoder without `transformers` is the one with it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import torch

from tbuda_lab.cli.demo import closing
from tbuda_lab.cli.demo_model import Encoder
from tbuda_lab.cli.output import summary
from tbuda_lab.core.epochsim import epoch_limits
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.session import Session
from tests.session.models import perceptron


def test_it_closes_with_what_how_fast_what_limits_how_right_and_what_next() -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    verdicts = session.verify()
    lines = closing(session, verdicts, Path("build/demo")).splitlines()
    assert [line.split()[0] for line in lines] == ["what", "fast", "limit", "PCC", "next"]
    assert f"{session.time().per_input:,.0f} cycles per input" in lines[1]
    limit = epoch_limits(session.compile().placement, session.time())[0]
    assert limit.bound.words in lines[2] and limit.text in lines[2]
    assert f"{min(v.pcc for v in verdicts):.6f}" in lines[3]
    assert "build/demo/report.html" in lines[4]


def test_notes_are_counted_and_warnings_listed() -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    result = session.compile()
    notes = tuple(Diagnostic("note", f"op{k}", "repair", "a nop was put in", "") for k in range(3))
    warning = Diagnostic("warning", "op", "rule", "too large", "make it smaller")
    text = summary(dataclasses.replace(result, diagnostics=(*notes, warning)))
    assert "3 notes" in text and "a nop was put in" not in text and "too large" in text


def test_its_model_traces_in_a_fresh_process() -> None:
    """The folder of the demo's model has modules of the command line, which must not stand before those of Python."""
    code = (
        "import sys, torch\n"
        "from tbuda_lab.cli import demo, target\n"
        "file = demo.Path(demo.__file__).with_name('demo_model.py')\n"
        "target.load_target(f'{file}:make_model')\n"
        "from tbuda_lab.core.frontend.torch_model.importer import from_torch\n"
        "print(len(from_torch(torch.nn.Linear(8, 8), (torch.randn(1, 8),), name='m').ops) > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["True"], done.stderr


def test_plain_encoder_calculates_what_bert_does() -> None:
    from transformers import BertConfig, BertModel  # a second, which every worker would spend

    theirs = BertModel(BertConfig(num_hidden_layers=2)).encoder.eval()
    ours = Encoder(layers=2).eval()
    names = {
        "attention.self.query": "attention.query",
        "attention.self.key": "attention.key",
        "attention.self.value": "attention.value",
        "attention.output.dense": "attention.dense",
        "attention.output.LayerNorm": "norm_1",
        "intermediate.dense": "feed_forward.0",
        "output.dense": "feed_forward.2",
        "output.LayerNorm": "norm_2",
    }
    state = {}
    for key, value in theirs.state_dict().items():
        _, layer, rest = key.split(".", 2)
        stem, kind = rest.rsplit(".", 1)
        state[f"layers.{layer}.{names[stem]}.{kind}"] = value
    ours.load_state_dict(state)
    for norm in (m for m in ours.modules() if isinstance(m, torch.nn.LayerNorm)):
        norm.eps = BertConfig().layer_norm_eps
    x = torch.randn(1, 32, 768)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x)[0], rtol=1e-4, atol=1e-4)

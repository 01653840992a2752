"""Reports for strangers: what is taken out is nowhere in the page, what stays still fits together."""

from __future__ import annotations

import base64
import json
import re

import pytest
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import export_report, report
from tbuda_lab.widgets.report import LEFT_OUT


class Zebra(torch.nn.Module):
    """A model whose every name can be searched for."""

    def __init__(self) -> None:
        super().__init__()
        self.walrus, self.otter = torch.nn.Linear(416, 352), torch.nn.Linear(352, 352)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.otter(torch.relu(self.walrus(x))), -1)


NAMES = re.compile("walrus|otter|zebra|test_redact", re.IGNORECASE)
SIZES = re.compile(r"416|352|\b13[x×, ]+11\b")


@pytest.fixture(scope="module")
def session() -> Session:
    torch.manual_seed(0)
    session = Session(Zebra().eval(), (torch.randn(1, 64, 416),), "n150", name="zebra")
    session.compile()
    op = next(n for n in session.result.placement.ops if "walrus" in n and "matmul" in n)
    session.apply(ResizeOp(op, (1, 1)))
    session.compile()
    return session


def frames_of(page: str) -> dict[str, Frame]:
    data = json.loads(re.search(r'id="tb-data">(.*?)</script>', page, re.DOTALL).group(1))
    return {f["header"]["key"]: Frame.unpack(f["header"], base64.b64decode(f["data"])) for f in data["frames"]}


def without_script(page: str) -> str:
    return page[: page.index('<script type="module">')]


@pytest.mark.parametrize(
    "what, gone, stays",
    [
        ("names", NAMES, SIZES),
        ("shapes", SIZES, NAMES),
        ("both", NAMES, None),
        ("both", SIZES, None),
        ("nothing", re.compile("(?!)"), NAMES),
    ],
)
def test_what_is_taken_out_is_gone(session: Session, what: str, gone: re.Pattern[str], stays: re.Pattern[str]) -> None:
    page = report.report_html(session, session.verify() if what == "names" else (), redact=what)
    text = without_script(page)
    frames = frames_of(page)
    strings = [s for f in frames.values() for s in (*f.strings, json.dumps(f.meta, ensure_ascii=False))]
    if gone is NAMES:
        assert not gone.search(text)
    assert not [s for s in strings if gone.search(s) and not s.startswith("{")]
    assert stays is None or any(stays.search(s) for s in strings)
    assert ("netlist" in frames) == (what == "nothing")
    if what in ("shapes", "both"):
        assert "memory" not in frames and not frames["ops"].columns["op_mblock_m"].any()


def test_views_stay_linked_and_words_of_the_compiler_stay(session: Session) -> None:
    plain, bare = (frames_of(report.report_html(session, redact=w)) for w in ("nothing", "names"))
    assert plain["ops"].text("op_type") == bare["ops"].text("op_type")
    assert plain["passes"].text("step_doc") == bare["passes"].text("step_doc")
    old, new = plain["ops"].text("op_name"), bare["ops"].text("op_name")
    renamed = dict(zip(old, new, strict=True))
    assert len(set(new)) == len(set(old))
    assert [renamed[n] for n in plain["memory"].text("op_name")] == bare["memory"].text("op_name")
    shown = dict(zip(plain["graph:lowered"].text("node_name"), bare["graph:lowered"].text("node_name"), strict=True))
    assert all(shown[n] == renamed[n] for n in old)
    assert LEFT_OUT in bare["problems"].strings or not plain["problems"].columns["severity"].size
    assert report.report_html(session, redact="names") == report.report_html(session, redact="names")


def test_pages_that_are_not_wanted_are_not_in_the_file(session: Session) -> None:
    whole, part = (frames_of(report.report_html(session, pages=p)) for p in ("all", "passes, epochs"))
    assert {"memory", "diff", "trace", "passes", "netlist", "graph:traced"} <= set(whole)
    assert {"passes", "passgraph", "graph:lowered", "ops"} <= set(part)
    assert not {"memory", "diff", "trace", "netlist"} & set(part)
    assert part["summary"].meta["pages"] == ["epochs", "passes"] and "pages" not in whole["summary"].meta
    bare = frames_of(report.report_html(session, pages="summary", redact="both"))
    assert bare["summary"].meta["pages"] == ["summary"]
    changed = [s.index for s in session.passes().steps if s.changes]
    assert whole["passgraph"].meta["index"] == changed[0]
    assert {f"passgraph:{k}:{side}" for k in changed[:2] for side in ("before", "after")} <= set(whole)


@pytest.mark.parametrize("settings", [{"pages": "summary,passports"}, {"pages": ""}, {"redact": "all"}])
def test_other_words_are_refused(session: Session, settings: dict[str, str], tmp_path: object) -> None:
    with pytest.raises(InputError):
        export_report(session, tmp_path / "r.html", **settings)  # type: ignore[operator]
    assert not list(tmp_path.iterdir())  # type: ignore[attr-defined]


def test_the_export_says_its_settings() -> None:
    session = Session(Zebra().eval(), (torch.randn(1, 64, 416),), "n150", name="zebra")
    export = session.export("report", pages="summary,epochs", redact="both")
    assert export.cli.endswith("--out zebra.report.html --pages summary,epochs --redact both")
    assert "pages='summary,epochs', redact='both'" in export.python

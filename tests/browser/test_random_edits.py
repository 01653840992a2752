"""Random edits by mouse in a bare page: what the drag showed before the button was released, held against the compile.

    python -m tests.browser.test_random_edits [--layers 48] [--edits 20] [--seed 1]

48 layers of a small encoder are 1,394 ops. Each edit drags the handle or the body of a random op of a random epoch to a
random place, and lets go either at once or when the tag has the exact answer. The suite makes a few of them with two
layers."""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tbuda_lab.core.session import Session
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import CHROMIUM, FLAGS, box_of, playwright_api
from tests.browser.editing import GRID, hear
from tests.session.models import encoder

SHOWN = """grid => {
  const view = document.querySelector(grid);
  const tag = view.querySelector('.tb-tag');
  const layer = view.querySelector('.tb-ghosts');
  const cores = text => text.split(',').map(Number);
  return {
    verdict: tag.hidden ? '' : tag.dataset.tbVerdict, text: tag.innerText, certain: layer?.dataset.tbCertain === 'true',
    lands: [...layer?.querySelectorAll('[data-tb-lands]') ?? []].map(e => cores(e.dataset.tbLands)),
    neighbours: [...layer?.querySelectorAll('[data-tb-displaced]') ?? []].map(
      e => [e.dataset.tbDisplaced, cores(e.dataset.tbCores)]),
  };
}"""
Places = dict[str, tuple[int, tuple[int, int, int, int]]]


def places(session: Session) -> Places:
    """Of every op: epoch; row, column, rows, columns."""
    return {n: (p.epoch, (*p.start, *p.size)) for n, p in session.compile().placement.ops.items()}


def short(cycles: float) -> str:
    """As the tag writes it, see `short` in `dom.ts`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if cycles >= size:
            return f"{cycles / size:.0f}{unit}" if cycles >= 100 * size else f"{cycles / size:.1f}{unit}"
    return str(round(cycles))


class RandomEdits:
    """Makes edits, and collects in `wrong` what came otherwise than shown; `ended` counts how they ended."""

    def __init__(self, bare: Bare, seed: int) -> None:
        self.bare, self.page, self.session = bare, bare.page, bare.hub.session
        self.rng = random.Random(seed)
        self.wrong: list[str] = []
        self.ended: Counter[str] = Counter()
        bare.sees(f"{GRID} .tb-tile")
        hear(self.page)

    def shown(self) -> dict[str, Any]:
        return dict(self.page.evaluate(SHOWN, GRID))

    def at_rest(self) -> None:
        """Until nothing is under way between the page and its kernel."""
        controller = self.bare.hub.edit_controller
        assert controller is not None
        controller.wait(300)
        self.bare.until(lambda: self.page.locator(f"{GRID}:not(:has([data-tb-stale]))").count())

    def grip(self, op: str) -> tuple[float, float, str]:
        """A point of the op to hold: one of its handles, or its body."""
        kind = self.rng.choice(["e", "s", "se", "body", "body"])
        body = box_of(self.page.locator(f"{GRID} .tb-tile[data-tb-op='{op}'] .tb-body"))
        at = body["x"] + body["width"] / 2, body["y"] + body["height"] / 2
        self.page.mouse.move(5, 5)
        self.page.mouse.move(*at)
        if kind != "body":
            box = box_of(self.page.locator(f"{GRID} [data-tb-handles-of='{op}'] [data-tb-handle={kind}]"))
            at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            self.page.mouse.move(*at)
        return *at, kind

    def one(self) -> bool:
        """Try one edit; False where the point is no edit (the same shape, an illegal one)."""
        page, rng = self.page, self.rng
        before, was = places(self.session), self.session.time().per_input
        op = rng.choice(list(before))
        epoch = before[op][0]
        if page.locator(GRID).get_attribute("data-tb-epoch") != str(epoch):
            self.bare.hub.select([op])
            page.evaluate("s => window.tell('selection', s)", self.bare.hub.selection)
            self.bare.sees(f"{GRID}[data-tb-epoch='{epoch}'] .tb-tile[data-tb-op='{op}']")
        x, y, kind = self.grip(op)
        plane = box_of(page.locator(f"{GRID} .tb-cores"))
        to = plane["x"] + rng.random() * plane["width"], plane["y"] + rng.random() * plane["height"]
        patient = rng.random() < 0.7
        page.mouse.down()
        page.mouse.move((x + to[0]) / 2, (y + to[1]) / 2, steps=3)
        page.mouse.move(*to, steps=3)
        self.bare.until(lambda: self.shown()["verdict"] not in ("", "WAITING"))
        shown = self.shown()
        stays = shown["lands"] and tuple(shown["lands"][0]) == before[op][1]
        if stays or not shown["lands"]:
            return self.no_edit()
        if patient:
            self.bare.until(lambda: "estimate" not in self.shown()["text"])
        shown = self.shown()
        if re.search(r"refused|cannot", shown["text"]):
            return self.no_edit()
        rev = self.session.rev
        page.mouse.up()
        self.bare.until(lambda: page.evaluate("() => window.answers.length"))
        self.at_rest()
        answers = page.evaluate("() => window.answers.splice(0)")
        where = f"{kind} of {op} in epoch {epoch}: {shown['text']!r}"
        if answers[-1]["what"] == "refused":
            self.ended["refused"] += 1
            if shown["certain"]:
                self.wrong.append(f"{where}: refused after an exact answer: {answers[-1]['text']}")
            return False
        if self.session.rev == rev:
            return False
        self.judge(where, op, epoch, shown, before, was)
        return True

    def no_edit(self) -> bool:
        self.page.keyboard.press("Escape")
        self.page.mouse.up()
        self.at_rest()
        self.page.evaluate("() => window.answers.splice(0)")
        return False

    def judge(self, where: str, op: str, epoch: int, shown: dict[str, Any], before: Places, was: float) -> None:
        """What was shown, against what the compile gave."""
        after, now = places(self.session), self.session.time().per_input
        if not shown["certain"]:
            self.ended["estimate"] += 1
            if "estimate" not in shown["text"]:
                self.wrong.append(f"{where}: neither exact nor called an estimate")
            return
        self.ended["exact"] += 1
        told = after[op] == (epoch, tuple(shown["lands"][0])) if shown["lands"] else after[op][0] != epoch
        if not told:
            self.wrong.append(f"{where}: shown at {shown['lands']}, stands at {after[op]}")
        outlined = {name: tuple(cores) for name, cores in shown["neighbours"]}
        moved = {n: at for n, (e, at) in after.items() if e == epoch and n != op and before.get(n) != (e, at)}
        if outlined != moved:
            self.wrong.append(f"{where}: outlines {outlined}, moved {moved}")
        old, new = short(round(was)), short(round(now))
        if old == new and round(was) != round(now):
            old, new = f"{was:,.0f}", f"{now:,.0f}"
        verdict = f"{new}, no gain" if round(was) == round(now) else f"{old} → {new}"
        if verdict not in shown["text"]:
            self.wrong.append(f"{where}: the compile gives {verdict}")

    def make(self, count: int) -> None:
        """Until `count` edits are made."""
        for _ in range(8 * count):
            if self.ended["exact"] + self.ended["estimate"] == count:
                return
            self.one()
        raise AssertionError(f"only {dict(self.ended)} of {count} edits could be made")


def test_what_a_drag_shows_is_what_the_compile_gives(browser: Any, shots: Path) -> None:
    session = Session(*encoder(2), "n150", name="encoder")
    session.compile()
    with bare_page(browser, session, (1600, 1300)) as bare:
        edits = RandomEdits(bare, seed=3)
        edits.make(4)
        assert edits.wrong == []
        assert edits.ended["exact"] >= 2
        bare.page.screenshot(path=shots / "random_edits_light.png")
        assert bare.page.errors == []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    session = Session(*encoder(arguments.layers), "n150", name="encoder")
    session.compile()
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        with bare_page(browser, session, (1600, 1300)) as bare:
            edits = RandomEdits(bare, arguments.seed)
            edits.make(arguments.edits)
            errors = bare.page.errors
        browser.close()
    placement = session.compile().placement
    print(
        f"{len(placement.ops):,} ops, {len(placement.epochs)} epochs: "
        f"{dict(edits.ended)}, {len(edits.wrong)} otherwise than shown, {len(errors)} errors of the page"
    )
    print("\n".join([*edits.wrong, *errors]))


if __name__ == "__main__":
    main()

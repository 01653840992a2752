"""A page that knows nothing of Jupyter: an anywidget host as small as can be, under the content policy of a strict one.
Only the model of anywidget's protocol is there; the kernel's side is real."""

from __future__ import annotations

import base64
import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Any

from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of
from tbuda_lab.widgets.protocol import dispatch
from tbuda_lab.widgets.views import workbench
from tests.browser.conftest import errors_of

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "frame-src 'self'"
)
PAGE = f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>host</title>
<meta http-equiv="Content-Security-Policy" content="{POLICY}"></head><body><main id="place"></main></body></html>"""
HOST = """async ([code, values]) => {
  const listeners = new Map();
  const emit = (name, ...a) => [...(listeners.get(name) ?? [])].forEach(f => f(...a));
  const model = {
    get: name => values[name],
    set: (name, value) => { values[name] = value; emit(`change:${name}`); },
    save_changes: () => window.toKernel({ values }),
    send: content => window.toKernel({ content }),
    on: (name, f) => listeners.set(name, [...(listeners.get(name) ?? []), f]),
    off: (name, f) => listeners.set(name, (listeners.get(name) ?? []).filter(g => g !== f)),
  };
  window.tell = (name, value) => { values[name] = value; emit(`change:${name}`); };
  window.deliver = messages => {
    const view = text => new DataView(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
    for (const [content, buffers] of messages) emit('msg:custom', content, buffers.map(view));
  };
  const url = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const widget = await (await import(url)).default();
  widget.initialize({ model });
  widget.render({ model, el: document.getElementById('place') });
}"""


class Bare:
    """A widget in a page, and its kernel's side in this thread."""

    def __init__(self, page: Any, hub: Hub, kind: str, values: dict[str, Any] | None = None) -> None:
        self.page, self.hub = page, hub
        self._out: queue.SimpleQueue[tuple[dict[str, Any], list[str]]] = queue.SimpleQueue()
        self._seq = 0
        page.set_content(PAGE)
        page.expose_function("toKernel", self._heard)
        hub.attach(self)
        code = workbench.BUNDLE.read_text(encoding="utf-8")
        self.told: dict[str, Any] = {}
        page.evaluate(HOST, [code, {"view": kind, "height": 0, "selection": hub.selection, **(values or {})}])

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self._seq += 1
        self._out.put(({**message, "seq": self._seq}, [base64.b64encode(b).decode() for b in buffers]))

    def selection_changed(self, selection: dict[str, Any]) -> None:
        """The page is not told here."""

    def wants(self, key: str) -> bool:
        return True

    def _heard(self, message: dict[str, Any]) -> None:
        content = message.get("content")
        if content is not None:
            dispatch(self.hub, self, content)
        elif content is None:
            self.told = message["values"]
            self.hub.select(message["values"]["selection"]["names"], "page")

    def until(self, holds: Callable[[], Any], seconds: float = 120) -> None:
        """Deliver what the kernel says until something holds."""
        for _ in range(int(seconds * 20)):
            waiting = []
            while not self._out.empty():
                waiting.append(self._out.get())
            if waiting:
                self.page.evaluate("m => window.deliver(m)", waiting)
            if holds():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not within {seconds} s")

    def sees(self, selector: str) -> None:
        self.until(lambda: self.page.locator(selector).count())


@contextlib.contextmanager
def bare_page(
    browser: Any, session: Session, size: tuple[int, int], theme: str = "light", values: dict[str, Any] | None = None
) -> Iterator[Bare]:
    """A workbench in an offline page of its own, which has `errors` and `theme`."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, offline=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.errors, page.theme = errors_of(page), theme
    try:
        yield Bare(page, hub_of(session), "bringup", values)
    finally:
        context.close()

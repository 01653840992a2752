"""`ExploreView`: an exploration while it runs and after: front, parallel coordinates, effects, table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.explore import plan_of, read
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.explore import Explore
from tbuda_lab.widgets.handlers.explore import Follower, exported, number_of
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.explore import explore_fragment, explore_script, folder_data, picture_of


class ExploreView(anywidget.AnyWidget):
    """`ExploreView(session.explore(...).start())` follows it; `ExploreView(folder)` shows one of a file.

    A click shows a trial and the command that makes it, two with Ctrl can be compared. "Open on the grid" makes
    `opened`, a session on that trial, and calls `on_open(session)`; comparing makes `diff` and calls `on_diff(diff)`;
    exporting writes `trial-N.json`, `explore.csv` or
    `explore.parquet` into the exploration's folder. `message` says what came of the last click.
    """

    picture = traitlets.Dict().tag(sync=True)
    message = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        source: Explore | str | os.PathLike[str],
        *,
        on_open: Callable[[Session], None] | None = None,
        on_diff: Callable[[Any], None] | None = None,
    ) -> None:
        self._esm = explore_script()
        self.exploration = source if isinstance(source, Explore) else None
        self.opened: Session | None = None
        self.diff: Any = None
        self._on_open, self._on_diff = on_open, on_diff
        self._folder = source.folder if isinstance(source, Explore) else Path(source)
        self._stop: Callable[[], None] = lambda: None
        super().__init__()
        if isinstance(source, Explore):
            self.refresh()
            self._stop = source.on_change(Follower(lambda _: self.refresh()))
        else:
            self.picture = folder_data(self._folder)
        self.on_msg(lambda _, content, __: self.receive(content))

    def refresh(self) -> None:
        """Show what there is now."""
        if self.exploration is not None:
            self.picture = picture_of(self.exploration)

    def _fragment(self) -> str:
        e = self.exploration
        if e is not None:
            return explore_fragment(e.plan, e.trials, e.session.name)
        record = read(self._folder)
        trials = [record.trials[n] for n in sorted(record.trials)]
        return explore_fragment(plan_of(record.header, str(self._folder)), trials, str(record.header["model"]))

    def __repr__(self) -> str:
        done = self.exploration.progress.done if self.exploration is not None else len(read(self._folder).trials)
        return f"ExploreView({done} trials)"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"], data["text/html"] = repr(self), fragments.stored_html(self._fragment())
        return bundle

    def close(self) -> None:
        """End the view; the exploration goes on."""
        self._stop()
        super().close()

    def receive(self, content: Any) -> None:
        """A message of the page; `message` says what came of it."""
        try:
            self.message = self.act(content)
        except TbudaError as error:
            self.message = str(error).split("\n")[0]

    def act(self, content: Any) -> str:
        """Do what a message of the page asks for; returns what came of it. Raises `TbudaError`s."""
        e = self.exploration
        if e is None or not isinstance(content, dict):
            return "a folder alone can be looked at: session.explore or Explore.resume opens its points"
        if content.get("do") == "cancel":
            e.cancel()
            return "cancelled"
        if content.get("do") == "open":
            opened = e.open(number_of(content, "n"))
            assert isinstance(opened, Session)  # as the exploration's own is
            self.opened = opened
            if self._on_open is not None:
                self._on_open(opened)
            return f"trial {content['n']} is view.opened"
        if content.get("do") == "compare":
            self.diff = e.compare(number_of(content, "a"), number_of(content, "b"))
            if self._on_diff is not None:
                self._on_diff(self.diff)
            return "the comparison is view.diff"
        if content.get("do") == "export":
            return exported(e, content)
        return f"unknown message {str(content)[:60]}"

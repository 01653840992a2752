"""Plots with Bokeh: how busy epochs are, what limits ops, how far the placement is from bounds, what edits brought.

Every function returns a Bokeh figure, to be shown with `bokeh.io.show` or laid out with others. `write_plots` writes
all of them into one page with BokehJS inside, which works offline. Bokeh is in the extra `lab`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.errors import OutputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.profile import SIMULATED, OpBar, bound_costs, epoch_costs, op_costs
from tbuda_lab.widgets.pictures.svg import short
from tbuda_lab.widgets.protocol import answers

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure

    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

KERNEL, LIMITER, GOOD, MUTED = "#2f6fd0", "#c2570c", "#2b8f63", "#8a94a3"
WIDTH, HEIGHT = 900, 300
LABELLED = 40  # epochs or steps whose names fit an axis


def _figure(title: str, **settings: Any) -> Figure:
    try:
        from bokeh.plotting import figure
    except ImportError:
        raise OutputError("plots need Bokeh: pip install 'tbuda_lab[lab]', or pip install bokeh") from None
    result = figure(
        title=title,
        width=WIDTH,
        height=settings.pop("height", HEIGHT),
        sizing_mode="stretch_width",
        tools="pan,wheel_zoom,box_zoom,reset,save",
        toolbar_location="right",
        **settings,
    )
    result.toolbar.logo = None
    result.frame_align = False  # in a column the longest names beside one figure would narrow all others
    result.ygrid.grid_line_color = "#e3e8ef"
    result.xgrid.grid_line_color = None
    return result


def _hover(figure: Figure, *tips: tuple[str, str], renderers: Any = "auto") -> None:
    from bokeh.models import HoverTool

    figure.add_tools(HoverTool(tooltips=list(tips), renderers=renderers))


def utilisation(session: Session) -> Figure:
    """Share of cores with an op, and share of core cycles in which kernels work, per epoch of the simulated batch."""
    from bokeh.models import ColumnDataSource, NumeralTickFormatter

    rows = epoch_costs(session.compile(), session.time())
    utilisation = _figure("Cores in use per epoch", x_axis_label="epoch", y_range=(0, 1.02))
    source = ColumnDataSource(
        {
            "epoch": [r.index for r in rows],
            "left": [r.index - 0.2 for r in rows],
            "right": [r.index + 0.2 for r in rows],
            "cores": [r.cores for r in rows],
            "busy": [r.busy for r in rows],
            "time": [r.time for r in rows],
            "bound": [r.bound for r in rows],
            "limits": [r.limits for r in rows],
        }
    )
    common: dict[str, Any] = {"source": source, "width": 0.38}
    utilisation.vbar(x="left", top="cores", color=MUTED, legend_label="cores with an op", **common)
    utilisation.vbar(x="right", top="busy", color=GOOD, legend_label="core cycles in which kernels work", **common)
    _hover(
        utilisation,
        ("epoch", "@epoch"),
        ("cores", "@cores{0.0%}"),
        ("busy", "@busy{0.0%}"),
        ("cycles / input", "@time{0,0}"),
        ("bound by", "@bound"),
        ("what limits it", "@limits"),
    )
    utilisation.yaxis.formatter = NumeralTickFormatter(format="0%")
    _whole(utilisation)
    _legend(utilisation)
    return utilisation


PARTS = (
    ("steady", LIMITER, "work at the rate of the slowest op"),
    ("fill", "#e0a458", "filling and emptying"),
    ("stall", "#8f4fb0", "full buffers"),
    ("switch", MUTED, "switching epochs"),
)
"""Parts of the simulated time of an epoch, as they are stacked."""


def epoch_cycles(session: Session) -> Figure:
    """Cycles per input of every epoch, simulated for the batch of the session, by what they are spent on; beside them
    those of the slowest kernel alone."""
    from bokeh.models import ColumnDataSource

    times = session.time()
    rows = epoch_costs(session.compile(), times)
    epoch_cycles = _figure(
        "Cycles per input by epoch",
        x_axis_label=f"epoch, simulated for a batch of {times.batch}",
        y_axis_label="cycles per input",
    )
    data: dict[str, Any] = {
        "epoch": [r.index for r in rows],
        "left": [r.index - 0.2 for r in rows],
        "right": [r.index + 0.2 for r in rows],
        "time": [r.time for r in rows],
        "kernel": [r.kernel for r in rows],
        "bound": [r.bound for r in rows],
        "limits": [r.limits for r in rows],
    }
    bottom = [0.0] * len(rows)
    for part, _, _ in PARTS:
        data[part] = [getattr(r, part) for r in rows]
        data[f"{part}_from"], bottom = bottom, [b + c for b, c in zip(bottom, data[part], strict=True)]
        data[f"{part}_to"] = bottom
    source = ColumnDataSource(data)
    for part, colour, text in PARTS:
        epoch_cycles.vbar(
            x="left",
            bottom=f"{part}_from",
            top=f"{part}_to",
            width=0.38,
            source=source,
            color=colour,
            legend_label=text,
        )
    epoch_cycles.vbar(
        x="right", top="kernel", width=0.38, source=source, color=KERNEL, legend_label="slowest kernel alone"
    )
    parts = [(text, f"@{part}{{0,0}}") for part, _, text in PARTS]
    _hover(
        epoch_cycles,
        ("epoch", "@epoch"),
        ("cycles / input", "@time{0,0}"),
        *parts,
        ("slowest kernel alone", "@kernel{0,0}"),
        ("bound by", "@bound"),
        ("what limits it", "@limits"),
    )
    _whole(epoch_cycles)
    _thousands(epoch_cycles)
    _legend(epoch_cycles)
    return epoch_cycles


def roofline(session: Session) -> Figure:
    """Ops by kernel cycles per byte of DRAM traffic, and by the share of time that the maths decides.

    The roof is what DRAM of one chip could feed if the op had all of it; ops that touch no DRAM stand at the right.
    """
    result = session.compile()
    rows = op_costs(result)
    device = result.device
    bandwidth = device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels
    finite = [r.intensity for r in rows if r.dram]
    edge = 3 * max([*finite, 1 / bandwidth])
    roofline = _figure(
        "Roofline per op",
        x_axis_type="log",
        height=360,
        y_range=(0, 1.06),
        x_axis_label="kernel cycles per byte of DRAM traffic",
        y_axis_label="kernel / slowest transfer",
    )
    least = min([*finite, 0.1 / bandwidth])
    along = np.geomspace(least / 2, edge * 1.4, 200)
    roofline.line(
        along,
        np.minimum(1.0, bandwidth * along),
        color=MUTED,
        line_width=2,
        legend_label=f"all of DRAM: {bandwidth:.0f} bytes per cycle",
    )
    points = _roofline_points(roofline, rows, edge)
    _hover(
        roofline,
        ("op", "@op"),
        ("epoch", "@epoch"),
        ("kernel", "@kernel{0,0}"),
        ("kernel or transfer", "@limiter{0,0} (@by)"),
        ("DRAM bytes", "@dram{0,0}"),
        renderers=points,
    )
    _legend(roofline)
    return roofline


def _roofline_points(roofline: Figure, rows: Sequence[OpBar], edge: float) -> list[Any]:
    """One scatter of points for each of what limits an op. edge: where ops stand that touch no DRAM."""
    from bokeh.models import ColumnDataSource

    kinds = (
        ("kernel", GOOD, [r for r in rows if r.limited_by == "kernel"]),
        ("DRAM or host", LIMITER, [r for r in rows if r.limited_by.endswith(("dram", "host"))]),
        ("NoC", KERNEL, [r for r in rows if r.limited_by.endswith("noc")]),
    )
    points: list[Any] = []
    for name, colour, members in kinds:
        if members:
            source = ColumnDataSource(
                {
                    "x": [min(r.intensity, edge) for r in members],
                    "y": [r.achieved for r in members],
                    "op": [r.op for r in members],
                    "epoch": [r.epoch for r in members],
                    "by": [r.limited_by for r in members],
                    "kernel": [r.kernel for r in members],
                    "limiter": [r.limiter for r in members],
                    "dram": [r.dram for r in members],
                }
            )
            points.append(
                roofline.scatter(
                    "x",
                    "y",
                    source=source,
                    size=8,
                    color=colour,
                    alpha=0.7,
                    legend_label=f"limited by {name}: {len(members)} ops",
                )
            )
    return points


def gap(session: Session) -> Figure:
    """Lower bounds on the cycles of any placement, and what this one takes."""
    from bokeh.models import ColumnDataSource, DataRange1d

    times = session.time()
    rows = bound_costs(session.compile(), times)[::-1]
    simulated = SIMULATED.format(batch=times.batch)
    names = [name for name, _ in rows]
    result = _figure(
        "Gap to bounds",
        y_range=names,
        x_axis_label="cycles per input, sum over epochs",
        height=280,
        x_range=DataRange1d(start=0, range_padding=0.12),
    )
    colours = [LIMITER if n == simulated else KERNEL if n.startswith("reached") else MUTED for n in names]
    source = ColumnDataSource(
        {"name": names, "cycles": [c for _, c in rows], "colour": colours, "text": [short(c) for _, c in rows]}
    )
    result.hbar(y="name", right="cycles", height=0.62, color="colour", source=source)
    result.text(
        x="cycles", y="name", text="text", source=source, x_offset=4, text_baseline="middle", text_font_size="11px"
    )
    _hover(result, ("", "@name"), ("cycles", "@cycles{0,0}"))
    result.ygrid.grid_line_color = None
    _thousands(result, result.xaxis)
    return result


def history(session: Session) -> Figure:
    """Cycles per input after every edit of the session."""
    from bokeh.models import ColumnDataSource, DataRange1d, FixedTicker

    rows = session.queries.history_costs()
    history = _figure(
        "Cost over the session", x_axis_label="edit", y_axis_label="cycles per input", y_range=DataRange1d(start=0)
    )
    steps = list(range(len(rows)))
    source = ColumnDataSource(
        {
            "step": steps,
            "label": [r.label for r in rows],
            "kernel": [r.kernel for r in rows],
            "time": [r.time for r in rows],
            "epochs": [r.epochs for r in rows],
        }
    )
    batch = f"simulated, batch of {session.options.microbatch}"
    history.step("step", "time", source=source, mode="after", color=LIMITER, line_width=2.5, legend_label=batch)
    history.step(
        "step", "kernel", source=source, mode="after", color=KERNEL, line_width=2, legend_label="slowest kernels alone"
    )
    dots = history.scatter("step", "time", source=source, size=8, color=LIMITER)
    _hover(
        history,
        ("", "@label"),
        ("cycles / input", "@time{0,0}"),
        ("slowest kernels alone", "@kernel{0,0}"),
        ("epochs", "@epochs"),
        renderers=[dots],
    )
    if len(rows) <= LABELLED:
        history.xaxis.ticker = FixedTicker(ticks=steps)
        history.xaxis.major_label_overrides = {k: _cut(r.label) for k, r in enumerate(rows)}
        history.xaxis.major_label_orientation = 0.35
    _thousands(history)
    _legend(history)
    return history


def training(session: Session) -> Figure:
    """Loss and learning rate of every step that the session trained. It needs no compile, so it may be asked for while
    the session trains."""
    from bokeh.models import ColumnDataSource, DataRange1d, LinearAxis

    steps = session.training_steps
    losses, learning = DataRange1d(), DataRange1d(start=0)
    figure = _figure("Training", x_axis_label="step", y_axis_label="loss (mean of the batch)", y_range=losses)
    rates = [s.learning_rate for s in steps]
    source = ColumnDataSource({"step": [s.step for s in steps], "loss": [s.loss for s in steps], "rate": rates})
    figure.extra_y_ranges = {"rate": learning}
    figure.add_layout(LinearAxis(y_range_name="rate", axis_label="learning rate"), "right")
    rate = figure.step(
        "step",
        "rate",
        source=source,
        mode="before",
        color=MUTED,
        line_width=1.5,
        y_range_name="rate",
        legend_label="learning rate",
    )
    loss = figure.line("step", "loss", source=source, color=LIMITER, line_width=2.5, legend_label="loss")
    losses.renderers, learning.renderers = [loss], [rate]
    _hover(figure, ("step", "@step"), ("loss", "@loss{0.0000}"), ("learning rate", "@rate{0.000000}"), renderers=[loss])
    _whole(figure)
    _legend(figure)
    return figure


def search_curve(session: Session) -> Figure:
    """What the search minimises (an estimate, in cycles per input) over the steps of `Session.optimise` that led to the
    current placement."""
    from bokeh.models import ColumnDataSource

    report = session.compile().placement.report
    curve = report.curve if report is not None else ()
    figure = _figure(
        "Search for a better placement", x_axis_label="step of the search", y_axis_label="estimate, cycles per input"
    )
    figure.y_range.default_span = 0.1 * max((c for _, c in curve), default=20.0)  # of a search without a gain
    source = ColumnDataSource({"step": [s for s, _ in curve], "cycles": [c for _, c in curve]})
    figure.step("step", "cycles", source=source, mode="after", color=LIMITER, line_width=2.5)
    dots = figure.scatter("step", "cycles", source=source, size=7, color=LIMITER)
    _hover(figure, ("step", "@step"), ("estimate, cycles per input", "@cycles{0,0}"), renderers=[dots])
    _whole(figure)
    _thousands(figure)
    return figure


def _cut(text: str, room: int = 34) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _thousands(figure: Figure, axis: Any = None) -> None:
    from bokeh.models import BasicTicker, NumeralTickFormatter

    axis = axis or figure.yaxis
    axis.formatter = NumeralTickFormatter(format="0,0")
    axis.ticker = BasicTicker(min_interval=1)  # else ticks that are less apart have the same number


def _legend(figure: Figure) -> None:
    """Above the picture, where it hides nothing; in two columns if one row would not fit a narrow cell."""
    legend = figure.legend[0]
    legend.orientation, legend.click_policy = "horizontal", "hide"
    legend.ncols = 2 if len(legend.items) > 3 else "auto"
    legend.label_text_font_size, legend.border_line_color = "11px", None
    figure.add_layout(legend, "above")


def _whole(figure: Figure) -> None:
    """Ticks at whole numbers only."""
    from bokeh.models import BasicTicker

    figure.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)


ALL = (epoch_cycles, utilisation, roofline, gap, history)


def all_plots(session: Session) -> list[Figure]:
    """Every figure there is something to show in, in the order of a report."""
    report = session.compile().placement.report
    trained = [training(session)] if session.training_steps else []
    searched = [search_curve(session)] if report is not None and report.curve else []
    return [*trained, *searched, *(make(session) for make in ALL)]


def plots_html(session: Session) -> str:
    """All figures as one page with BokehJS inside: it works from a file and without a network (about 1 MB)."""
    figures = all_plots(session)
    from bokeh.embed import file_html
    from bokeh.layouts import column
    from bokeh.resources import INLINE

    page: str = file_html(
        column(*figures, sizing_mode="stretch_width"),
        INLINE,
        title=f"{session.name} on {session.device.name}: plots",
    )
    return page


def write_plots(session: Session, path: str | pathlib.Path) -> pathlib.Path:
    """Write the page of plots, whole or not at all. Raises `OutputError` naming the path where that fails."""
    from tbuda_lab.widgets.report import write_page

    return write_page(plots_html(session), path)


DARK_GRID, DARK_LINE, DARK_TEXT, DARK_GROUND = "#333c48", "#5a6675", "#dfe4ea", "#1c222b"
DARK = {
    "attrs": {
        "Plot": {
            "background_fill_color": DARK_GROUND,
            "border_fill_color": DARK_GROUND,
            "outline_line_color": DARK_GRID,
        },
        "Axis": {
            "axis_line_color": DARK_LINE,
            "major_tick_line_color": DARK_LINE,
            "minor_tick_line_color": DARK_LINE,
            "major_label_text_color": DARK_TEXT,
            "axis_label_text_color": DARK_TEXT,
        },
        "Legend": {"label_text_color": DARK_TEXT, "background_fill_alpha": 0.0, "inactive_fill_alpha": 0.4},
        "Title": {"text_color": DARK_TEXT},
        "Text": {"text_color": DARK_TEXT},
    }
}
"""Colours of a dark page; sizes are those of the light one."""


def library_frame() -> Frame:
    """BokehJS (about 1 MB). Raises `OutputError` without Bokeh."""
    try:
        from bokeh.resources import Resources
    except ImportError:
        raise OutputError("plots need Bokeh: pip install 'tbuda_lab[lab]', or pip install bokeh") from None
    code = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return _text("bokehjs", code, {})


def plots_frame(session: Session, dark: bool = False, *, trains: bool = False) -> Frame:
    """A fragment of HTML that draws all plots once BokehJS is there. trains: only those of training, which are there
    while the session works. Raises `OutputError` without Bokeh."""
    figures = [training(session)] if trains else all_plots(session)
    from bokeh.embed import components
    from bokeh.layouts import column
    from bokeh.themes import Theme

    if dark:
        for figure in figures:
            for grid in figure.grid:
                grid.grid_line_color = DARK_GRID if grid.grid_line_color is not None else None
    page = column(*figures, sizing_mode="stretch_width")
    script, place = components(page, theme=Theme(json=DARK) if dark else None)
    return _text("plots", place + script, {"rev": session.rev, "dark": dark})


def _text(key: str, text: str, meta: dict[str, Any]) -> Frame:
    return Frame(key, meta, {"text": np.frombuffer(text.encode(), dtype="u1")})


@answers("plots")
def _plots(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """dark: for a dark page; library: the page has no BokehJS yet."""

    def refuse(text: str) -> None:
        view.post({"type": "refused", "key": "plots", "text": text}, [])

    def work() -> None:
        try:
            if content.get("library") is True:
                hub.send_frame(view, library_frame())
            trains = hub.run_controller is not None and hub.run_controller.training
            hub.send_frame(view, plots_frame(hub.session, content.get("dark") is True, trains=trains))
        except TbudaError as error:
            refuse(str(error).splitlines()[0])

    if hub.edit_controller is None:
        refuse("A file has no plots.")
    else:
        hub.edit_controller.submit(work)

"""Runs notebooks in clean kernels and stores their outputs, without what differs from run to run.

    python notebooks/render.py [NAME.ipynb ...]      (all of them by default; `make notebooks` does this)

Views are stored as their static twins, so that GitHub, nbconvert and a reader without a kernel see them. What a
notebook writes goes to a temporary folder.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

import nbclient
import nbformat

HERE = pathlib.Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"  # the number of a model that died with its kernel
AT_WORK = "The compile was still running when this was stored"  # says the twin of a view that has nothing to show yet
TIMEOUT = 1800  # s for a cell: a machine that does much else is a few times slower


def execute(path: pathlib.Path, folder: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a clean kernel that works in `folder`. Raises `CellExecutionError`."""
    notebook = nbformat.read(path, as_version=4)
    os.environ.setdefault("PYTHONPATH", str(HERE.parent))
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        startup_timeout=TIMEOUT,
        kernel_name="python3",
        store_widget_state=False,
        iopub_timeout=TIMEOUT,
        raise_on_iopub_timeout=True,  # on a busy machine outputs come long after the reply
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return settled(notebook)


def settled(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """In place: without times, ids of widgets and versions of the interpreter."""
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "tbuda_lab": {"tutorial": True},  # JupyterLab does not count as a change what its kernel says of itself
        }
    )
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(WIDGET, None)
        if "outputs" in cell:
            cell.outputs = joined(cell.outputs)
    finished(notebook)
    return notebook


def finished(notebook: nbformat.NotebookNode) -> None:
    """In place: a view that was still at work when its cell ended shows what the last cell with its twin does."""
    shown = [o for cell in notebook.cells for o in cell.get("outputs", ()) if "text/html" in o.get("data", {})]
    last = {o.data["text/plain"]: o.data["text/html"] for o in shown if AT_WORK not in o.data["text/html"]}
    for output in shown:
        if AT_WORK in output.data["text/html"]:
            output.data["text/html"] = last.get(output.data["text/plain"], output.data["text/html"])


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Neighbouring pieces of one stream as one: where it is cut depends on the machine's load."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.output_type == "stream" == found[-1].output_type and output.name == found[-1].name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def main(names: list[str]) -> None:
    for path in [HERE / name for name in names] or sorted(HERE.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, pathlib.Path(folder))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])

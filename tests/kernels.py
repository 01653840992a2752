"""Kernels that start at once: forks of a process that has imported what notebooks import.

A kernel takes three seconds of processor time to import torch and the compiler, and the tests start forty of them. A
`Template` is a process that has done so, and a kernel specification, which Jupyter finds on a path. What Jupyter then
starts is this file as a script, without any import of the package: it asks the template for a fork, hands signals on to
it, and lives as long as it does. Where no template answers, it becomes a kernel as usual.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path

ADDRESS = "TBUDA_TEST_KERNELS"
MODULES = (
    "torch",
    "torch._dynamo",
    "torch.export",
    "anywidget",
    "IPython.core.completer",
    "ipykernel.kernelapp",
    "tbuda_lab.core.session",
)
"""Not `tbuda_lab.widgets`, which registers with the kernel that imports it."""


def launch(arguments: list[str]) -> None:
    """Run a kernel with these arguments in a fork, with the streams, folder and environment of this process."""
    with socket.socket(socket.AF_UNIX) as connection:
        pid = _fork(connection, arguments)
        if pid:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda n, _: os.kill(pid, n))
            connection.recv(1)  # nothing comes: the connection ends when the fork does
            return
    os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *arguments])


def _fork(connection: socket.socket, arguments: list[str]) -> int:
    """The process that became a kernel; 0 if no template answers."""
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    try:
        connection.connect(os.environ[ADDRESS])
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(request)
        return int.from_bytes(connection.recv(4), "big")
    except OSError:
        return 0


def serve(listener: socket.socket) -> None:
    """Fork for each connection, until the standard input ends."""
    import selectors

    for module in MODULES:
        import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ)
    while all(key.fileobj is listener for key, _ in selector.select()):
        connection, _ = listener.accept()
        if os.fork() == 0:
            selector.close()
            listener.close()
            _become_kernel(connection)
        connection.close()


def _become_kernel(connection: socket.socket) -> None:
    import gc
    import threading

    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as lines:
        arguments, folder, environment = json.loads(lines.read(int.from_bytes(head, "big")))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.sendall(os.getpid().to_bytes(4, "big"))

    def end_with_launcher() -> None:
        connection.recv(1)
        os._exit(1)

    threading.Thread(target=end_with_launcher, daemon=True).start()
    gc.freeze()
    sys.argv = ["ipykernel_launcher.py", *arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    import_module("ipykernel.kernelapp").launch_new_instance()
    os._exit(0)


class Template:
    """The process that kernels are forked from. path: a folder for `JUPYTER_PATH`."""

    def __init__(self, path: Path) -> None:
        import subprocess
        import tempfile

        self.path = path
        self._folder = tempfile.TemporaryDirectory(prefix="tbuda-kernels-")  # an address has at most 107 bytes
        address = os.path.join(self._folder.name, "socket")
        spec = {
            "argv": [sys.executable, "-I", "-S", __file__, "-f", "{connection_file}"],
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "metadata": {"debugger": True},
            "env": {ADDRESS: address},
        }
        (path / "kernels/python3").mkdir(parents=True)
        (path / "kernels/python3/kernel.json").write_text(json.dumps(spec))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            command = [sys.executable, "-c", f"from tests.kernels import main; main({listener.fileno()})"]
            root = str(Path(__file__).parents[1])
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                cwd=root,
                env=os.environ | {"PYTHONPATH": root},
            )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()


def main(descriptor: int) -> None:
    """The template's process: it listens at a descriptor that it has inherited."""
    with socket.socket(fileno=descriptor) as listener:
        serve(listener)


if __name__ == "__main__":
    launch(sys.argv[1:])

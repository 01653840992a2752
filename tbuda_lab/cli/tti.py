"""`tbuda tti`: what is in a device image, and its netlist as a file. `tbuda run` runs one, `export tti` writes one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tbuda_lab.cli.output import compare_outputs
from tbuda_lab.cli.request import refuse_flags
from tbuda_lab.cli.target import read_tensors
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import atomic_file, atomic_text, read_npz
from tbuda_lab.core.netlist.image import image_facts, read_image


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers `tti` and its sub-commands."""
    parser = subparsers.add_parser("tti", help="show and unpack device images (*.tti)")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser("info", help="show writer, device, inputs, outputs, files, and whether it runs here")
    command.add_argument("file", type=Path)
    command.add_argument("--files", action="store_true", help="also list every file in it")
    command.set_defaults(handler=_info)

    command = commands.add_parser("netlist", help="write its netlist to a file, and the cycles of its ops beside it")
    command.add_argument("file", type=Path)
    command.add_argument("--out", type=Path, required=True, metavar="FILE.yaml")
    command.set_defaults(handler=_netlist)


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """What `tbuda run` takes for images alone."""
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE.npz",
        help="of a device image: weights by name, instead of those in it or where it has none",
    )


def _info(arguments: argparse.Namespace) -> int:
    from tbuda_lab.core.tti import load_image

    image = read_image(arguments.file)
    facts = image_facts(image)
    try:
        loaded = load_image(arguments.file)
        missing = loaded.missing
        runs = "yes" if not missing else f"with weights: {len(missing)} are not in it (--weights FILE.npz)"
    except TbudaError as error:
        runs = f"no: {error}"
    width = max(len(what) for what, _ in facts)
    for what, value in [*facts, ("runs here", runs)]:
        print(f"{what:{width}s}  {value}")
    if arguments.files:
        for member in image.members:
            print(f"{member.size:14,d}  {member.name}")
    return 0


def _netlist(arguments: argparse.Namespace) -> int:
    from tbuda_lab.core.epochsim import cycles_path

    image = read_image(arguments.file)
    if not image.netlists:
        raise InputError(f"{arguments.file} has no netlist")
    name, text = next(iter(image.netlists.items()))
    with atomic_text(arguments.out) as stream:
        stream.write(text)
    if name in image.cycles:
        with atomic_text(cycles_path(arguments.out)) as stream:
            stream.write(image.cycles[name])
    print(f"wrote {arguments.out}")
    return 0


def run_image(arguments: argparse.Namespace) -> int:
    """Run the netlist of an image as it is, and compare it with its graph in torch; 1 below the bar."""
    import contextlib

    from tbuda_lab.core import frontend
    from tbuda_lab.core.runner import Runner
    from tbuda_lab.core.tti import load_image
    from tbuda_lab.core.tti.weights import sample_of
    from tbuda_lab.sim.files import write_archive

    refuse_flags(arguments, "an image says for which device it was compiled, and how")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic_file(arguments.outputs)) if arguments.outputs else None
        loaded = load_image(Path(arguments.target))
        if arguments.weights or loaded.missing:
            loaded = loaded.with_weights(read_npz(arguments.weights) if arguments.weights else {})
        values: Any = sample_of(loaded.graph, loaded.options.microbatch)
        if arguments.inputs:
            values = frontend.feeds(loaded.graph, read_tensors(arguments.inputs))
        sample = tuple(values.values()) if isinstance(values, dict) else values
        got = Runner(loaded, arguments.mode).run([sample])[0]
        names = loaded.output_names
        passed = compare_outputs(names, got, frontend.reference(loaded.graph, sample), arguments.pcc)
        if file is not None:
            write_archive(file, {name: tensor.numpy() for name, tensor in zip(names, got, strict=True)})
    return 0 if passed else 1

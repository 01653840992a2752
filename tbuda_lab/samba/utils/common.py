"""`common_app_driver`: compile or measure in one call, as older starters do it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tbuda_lab.samba.session import SESSION
from tbuda_lab.samba.utils.calls import measure_performance, trace_graph


def common_app_driver(
    args: argparse.Namespace,
    model: Any,
    inputs: Sequence[Any],
    optim: Any = None,
    name: str = "",
    app_dir: str = "",
    init_output_grads: bool = True,
    squeeze_bs_dim: bool = False,
    **others: Any,
) -> Any:
    """`compile` returns the path of the PEF, `measure-performance` its figures. Raises `ValueError` for another
    command."""
    if args.command == "compile":
        return SESSION.compile(
            model,
            inputs,
            optim,
            name=name,
            app_dir=app_dir,
            config_dict=vars(args),
            init_output_grads=init_output_grads,
            squeeze_bs_dim=squeeze_bs_dim,
            **others,
        )
    if args.command == "measure-performance":
        trace_graph(model, inputs, optim, init_output_grads=init_output_grads, pef=args.pef)
        return measure_performance(
            model,
            inputs,
            batch_size=args.batch_size,
            num_iterations=args.num_iterations,
            min_duration=args.min_duration,
        )
    raise ValueError(f"common_app_driver compiles and measures; {args.command!r} is the program's own")

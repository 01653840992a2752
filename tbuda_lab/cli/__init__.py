"""The `tbuda` command."""

from tbuda_lab.cli.app import main

__all__ = ["main"]

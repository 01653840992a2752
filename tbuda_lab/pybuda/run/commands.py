"""`pybuda.run.commands`: what a device's run loop is told."""

from tbuda_lab.runtime.internals import Command, CommandType

__all__ = ["Command", "CommandType"]

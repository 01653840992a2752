"""`pybuda.run`."""

from tbuda_lab.pybuda.run import api, commands
from tbuda_lab.pybuda.run.api import *  # noqa: F403
from tbuda_lab.pybuda.run.api import __all__ as _functions
from tbuda_lab.pybuda.run.commands import Command, CommandType

__all__ = ["Command", "CommandType", "api", "commands", *_functions]

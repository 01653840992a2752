"""Every test starts from the state after import, as those of PyBuda's devices do."""

from tests.pybuda.conftest import fresh as fresh

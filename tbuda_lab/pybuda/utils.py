"""`pybuda.utils`."""

from tbuda_lab.core.graph import TILE


def align_up_tile(size: int) -> int:
    """The next multiple of 32."""
    return round_up_div(size, TILE) * TILE


def round_up_div(number: int, divisor: int) -> int:
    """number / divisor, rounded up."""
    return -(-number // divisor)


def align_up(size: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return round_up_div(size, alignment) * alignment


__all__ = ["align_up", "align_up_tile", "round_up_div"]

"""Data formats, math fidelity and tile geometry."""

from tbuda_lab.core.formats.dataformat import DataFormat, MathFidelity

__all__ = ["DataFormat", "MathFidelity"]

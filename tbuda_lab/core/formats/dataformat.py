"""The data formats of the machine and the number of multiplication passes."""

from __future__ import annotations

from enum import Enum


class DataFormat(Enum):
    """Members carry the backend's number; `str()` gives the netlist's spelling."""

    Float32 = 0
    Float16 = 1
    Bfp8 = 2
    Bfp4 = 3
    Float16_b = 5
    Bfp8_b = 6
    Bfp4_b = 7
    Int32 = 8
    UInt16 = 12
    Lf8 = 10
    Bfp2 = 11
    Int8 = 14
    Bfp2_b = 15
    UInt8 = 30
    Fp8_e4m3 = 26
    RawUInt8 = 0xF0
    RawUInt16 = 0xF1
    RawUInt32 = 0xF2
    Invalid = 0xFF

    def __str__(self) -> str:
        return self.name


class MathFidelity(Enum):
    """Members carry the number of multiplication passes (LoFi counts 1)."""

    LoFi = 1
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4

    def __str__(self) -> str:
        return self.name

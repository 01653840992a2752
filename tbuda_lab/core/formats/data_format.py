"""The data formats of the machine and the number of multiplication passes."""

from __future__ import annotations

from enum import Enum

from tbuda_lab.core.errors import NetlistError


class Numbered(Enum):
    """An enumeration whose members convert to their numbers, as the enumerations of PyBuda's binding do."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


class DataFormat(Numbered):
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

    def __init__(self, _: int) -> None:
        self.is_bfp = self.name.startswith("Bfp")
        """Block floating point: 16 consecutive values of a face row share one exponent byte."""
        self.is_integer = self.name in ("Int8", "UInt8", "UInt16", "Int32")
        """Raw words are not integers in this sense."""
        self.is_raw = self.name.startswith("Raw")
        """Words that pass through the machine bit for bit."""

    def __str__(self) -> str:
        return self.name

    def to_json(self) -> str:
        """The name, as PyBuda writes it into JSON."""
        return self.name

    @classmethod
    def from_json(cls, text: str) -> DataFormat:
        """The member of that name. Raises `NetlistError` for an unknown one."""
        return parse_format(text) if text != "Invalid" else cls.Invalid

    @property
    def is_float(self) -> bool:
        """A floating format, block floating point included."""
        return self in _MANTISSA_BITS and not self.is_integer

    @property
    def family(self) -> str | None:
        """ "a" for formats that unpack to a 5-bit exponent, "b" for those with an 8-bit one, None for the rest."""
        return "a" if self in _FAMILY_A else "b" if self in _FAMILY_B else None

    @property
    def mantissa_bits(self) -> int:
        """Bits of the magnitude, the leading one included (Float16_b 8, Bfp8 7, Int8 7); 0 for raw words."""
        return _MANTISSA_BITS.get(self, 0)

    @property
    def datum_bits(self) -> int:
        """Bits one value takes in a tile, the shared exponents of block formats not counted."""
        return _DATUM_BITS[self]


class MathFidelity(Numbered):
    """How many passes a multiplication takes. Members carry the backend's number; `Invalid` is nobody's fidelity."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 0xFF

    def __str__(self) -> str:
        return self.name

    @property
    def passes(self) -> int:
        """Multiplication passes: 1 of LoFi, 4 of HiFi4. Raises `KeyError` for Invalid."""
        return {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}[self.name]

    def to_json(self) -> str:
        """The name, as PyBuda writes it into JSON."""
        return self.name

    @classmethod
    def from_json(cls, text: str) -> MathFidelity:
        """The member of that name. Raises `NetlistError` for an unknown one."""
        return parse_fidelity(text) if text != "Invalid" else cls.Invalid


FIDELITIES = (MathFidelity.LoFi, MathFidelity.HiFi2, MathFidelity.HiFi3, MathFidelity.HiFi4)
"""Those that ops may have."""


_FAMILY_A = frozenset(
    {
        DataFormat.Float16,
        DataFormat.Bfp8,
        DataFormat.Bfp4,
        DataFormat.Bfp2,
        DataFormat.Lf8,
        DataFormat.Fp8_e4m3,
    }
)
_FAMILY_B = frozenset({DataFormat.Float16_b, DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b})
_MANTISSA_BITS = {
    DataFormat.Float32: 24,
    DataFormat.Float16: 11,
    DataFormat.Float16_b: 8,
    DataFormat.Lf8: 3,
    DataFormat.Fp8_e4m3: 4,
    DataFormat.Bfp8: 7,
    DataFormat.Bfp8_b: 7,
    DataFormat.Bfp4: 3,
    DataFormat.Bfp4_b: 3,
    DataFormat.Bfp2: 1,
    DataFormat.Bfp2_b: 1,
    DataFormat.Int8: 7,
    DataFormat.UInt8: 8,
    DataFormat.UInt16: 16,
    DataFormat.Int32: 31,
}
_DATUM_BITS = {
    DataFormat.Float32: 32,
    DataFormat.Int32: 32,
    DataFormat.RawUInt32: 32,
    DataFormat.Float16: 16,
    DataFormat.Float16_b: 16,
    DataFormat.UInt16: 16,
    DataFormat.RawUInt16: 16,
    DataFormat.Bfp8: 8,
    DataFormat.Bfp8_b: 8,
    DataFormat.Lf8: 8,
    DataFormat.Fp8_e4m3: 8,
    DataFormat.Int8: 8,
    DataFormat.UInt8: 8,
    DataFormat.RawUInt8: 8,
    DataFormat.Bfp4: 4,
    DataFormat.Bfp4_b: 4,
    DataFormat.Bfp2: 2,
    DataFormat.Bfp2_b: 2,
    DataFormat.Invalid: 0,
}
_BY_NAME = {df.name: df for df in DataFormat if df is not DataFormat.Invalid}
_FIDELITIES = {f.name: f for f in FIDELITIES} | {"HiFi2_A": MathFidelity.HiFi2, "HiFi2_B": MathFidelity.HiFi2}


def parse_format(name: str) -> DataFormat:
    """The format a netlist spells `name`; raises `NetlistError` listing the names there are."""
    entry = _BY_NAME.get(name)
    if entry is None:
        raise NetlistError(f"unknown data format {name!r}; one of {', '.join(_BY_NAME)}")
    return entry


def parse_fidelity(name: str) -> MathFidelity:
    """The fidelity a netlist spells `name` (HiFi2_A and HiFi2_B are HiFi2); raises `NetlistError` otherwise."""
    entry = _FIDELITIES.get(name)
    if entry is None:
        raise NetlistError(f"unknown math fidelity {name!r}; one of {', '.join(_FIDELITIES)}")
    return entry

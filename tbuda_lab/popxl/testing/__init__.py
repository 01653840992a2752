"""Lists that tests of data types walk."""

from tbuda_lab.popxl.dtypes import _ALL, dtype


def get_all_dtypes() -> set[dtype]:
    """Every data type once."""
    return set(_ALL)


def get_all_int_dtypes(include_signed: bool = True, include_unsigned: bool = True) -> set[dtype]:
    """The integer types, of one kind or both."""
    return {t for t in _ALL if t.is_int and (include_signed if t.is_signed else include_unsigned)}

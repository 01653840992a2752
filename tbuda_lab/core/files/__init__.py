"""Files in and out: written whole or not at all, read only as far as their size is plausible."""

from tbuda_lab.core.files.arrays import BROKEN_ARCHIVE, parse_npy, read_npz
from tbuda_lab.core.files.atomic import (
    atomic_file,
    atomic_text,
    check_writable,
    file_stem,
    make_folder,
    temporary_folder,
)
from tbuda_lab.core.files.bounded import (
    Budget,
    bounded_bytes,
    bounded_text,
    json_map,
    open_file,
    parse_json,
    path_inside,
    shape_text,
    size_text,
    unique_names,
    unpacked_most,
)
from tbuda_lab.core.files.csv_text import csv_rows, csv_text
from tbuda_lab.core.files.yaml_text import Fault, Limits, compose_yaml, parse_yaml, yaml_fault, yaml_map

__all__ = [
    "BROKEN_ARCHIVE",
    "Budget",
    "Fault",
    "Limits",
    "atomic_file",
    "atomic_text",
    "bounded_bytes",
    "bounded_text",
    "check_writable",
    "compose_yaml",
    "csv_rows",
    "csv_text",
    "file_stem",
    "json_map",
    "make_folder",
    "open_file",
    "parse_json",
    "parse_npy",
    "parse_yaml",
    "path_inside",
    "read_npz",
    "shape_text",
    "size_text",
    "temporary_folder",
    "unique_names",
    "unpacked_most",
    "yaml_fault",
    "yaml_map",
]

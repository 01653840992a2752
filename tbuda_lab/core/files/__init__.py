"""Files in and out: written whole or not at all, read only as far as their size is plausible."""

from tbuda_lab.core.files.atomic import atomic_file, atomic_text, check_writable
from tbuda_lab.core.files.bounded import bounded_text

__all__ = ["atomic_file", "atomic_text", "bounded_text", "check_writable"]

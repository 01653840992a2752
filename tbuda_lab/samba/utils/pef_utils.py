"""What a program writes into a PEF about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab._version import __version__


def get_pefmeta_dict(cfg: Any, model: Any) -> dict[str, Any]:
    """Plain values of a program's arguments, the model's class and this version."""
    values = dict(cfg) if isinstance(cfg, Mapping) else vars(cfg)
    plain = {str(k): v for k, v in sorted(values.items()) if isinstance(v, str | int | float | bool | None)}
    return {"model": type(model).__name__, "version": __version__, **plain}


get_pefmeta = get_pefmeta_dict

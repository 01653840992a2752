"""Property tests draw the same examples every time, and a busy machine is no failure. No test finds the placements of
an earlier one, or leaves some behind: tests of the cache name a folder of their own."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])  # a loaded machine is no finding
settings.load_profile("house")

os.environ["TBUDA_CACHE"] = "off"

"""Property tests draw the same examples every time, and a busy machine is no failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])  # a loaded machine is no finding
settings.load_profile("house")

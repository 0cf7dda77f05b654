"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine under load is slow, not wrong.
settings.register_profile("hexport", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hexport")

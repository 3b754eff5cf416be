"""What all tests share: quiet threads, and figures drawn without a screen."""

from __future__ import annotations

import os

# Set before torch or matplotlib is imported; idle OpenMP threads would take the time of the working ones.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")

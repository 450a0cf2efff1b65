"""Tests inside nova's own functional fixtures: the real API, conductor, scheduler and placement."""

import os

# Before nova is imported: native threads, as its services run from 34 on.
os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

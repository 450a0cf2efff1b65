"""Tests inside nova's own functional fixtures: the real API, conductor, scheduler and placement.

They run under eventlet, as nova's functional tests do by default: the fixtures' lock around the cell database
can block for good between native threads. Our package imports no eventlet and knows of neither.
"""

# Before anything else is imported that eventlet changes.
import nova.tests.functional  # noqa: F401

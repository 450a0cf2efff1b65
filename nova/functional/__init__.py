"""Tests inside nova's own functional fixtures: the real API, conductor, scheduler and placement."""

"""Property tests have no time limit: how long a case takes says more of the machine than of the code."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

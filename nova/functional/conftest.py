"""Before nova is imported: native threads, as its services run from 34 on."""

import os

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")

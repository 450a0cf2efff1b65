"""Real-time CPU budgets for OpenStack Nova (RT-OpenStack; Xi et al., IEEE CLOUD 2015).

Pure: ``interface`` (extra specs and hints to a budget), ``admission`` (which host holds it), ``claim``
(what Placement is asked for). Glue: ``rt_filter``, ``rt_weigher``, ``validators``, ``api``, ``records``,
``config``. On the compute host: ``steadyvm hook``, which is no part of this package.
"""

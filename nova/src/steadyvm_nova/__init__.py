"""Real-time CPU budgets for OpenStack Nova (RT-OpenStack; Xi et al., IEEE CLOUD 2015).

Pure: ``interface`` (extra specs to a budget), ``capacity`` (what a host sells), ``admission`` (which host
holds a VM), ``claim`` (what Placement is asked for). Glue: ``rt_filter``, ``rt_weigher``, ``validators``,
``api``, ``records``, ``config``. On the compute host is `steadyvm hook`, a verb of the program.
"""

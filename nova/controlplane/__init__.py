"""A real OpenStack control plane on one machine, for tests and experiments: ``tools/openstack``.

MariaDB, RabbitMQ, keystone, glance, neutron's API, placement and nova run in network and process namespaces
of their own. Only nova's virt driver is fake: it makes VMs of no memory, on hosts of the shape that we say.
"""

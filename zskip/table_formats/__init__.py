"""Delta and Iceberg tables, planned in place by a zskip index that follows their logs.

``own_tables``: the first look at an address, for a table of zskip · ``source``: the interface of a format · ``delta``,
``iceberg``: its implementations · ``log_index``: brings the side-car up to date with a log · ``locate``: finds the
table of another format at an address, and its side-car.
"""

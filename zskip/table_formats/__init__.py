"""Delta and Iceberg tables, planned in place by a zskip index that follows their logs.

``source``: the interface of a format · ``delta``, ``iceberg``: its implementations, which
`tablelog.table_folders` lists · ``log_index``: brings the side-car up to date with a log · ``locate``: finds the table
of another format at an address, and its side-car.
"""

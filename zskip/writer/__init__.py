"""Write rows from any source as data files in layout order, with their statistics.

| step                        | modules                                                                                |
| --------------------------- | -------------------------------------------------------------------------------------- |
| reading rows                | `open_source`, `paths`, `row_source`, `storable`, `evolution`                          |
| sending them to files       | `row_sample`, `routing`, `look_ups`, `scatter`, `compact_rows`                         |
| encoding one file           | `encode`                                                                               |
| the whole write             | `write`                                                                                |
| changes to a table          | `append`, `delete`, on this machine or on a cluster (`backend`)                        |
| sketches of files           | `sketching`                                                                            |
| also for the advisor        | `workload_input`                                                                       |
"""

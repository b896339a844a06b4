"""The command `zskip`.

``main``: the entry point and the exit codes · ``…_commands``, ``demo``: the commands by group · ``command_options``:
their options · ``parser``: hints, and shell completion · ``terminal``: output.
"""

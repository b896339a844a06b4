"""The command `zskip`.

``main``: the entry point and the exit codes · ``…_commands``, ``demo``: the commands by group · ``arguments``,
``parser``: options, their help, and shell completion · ``terminal``: output.
"""

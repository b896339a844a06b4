"""`python -m zskip` is the command `zskip`."""

import sys

from zskip.cli import main

sys.exit(main())

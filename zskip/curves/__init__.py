"""Space-filling curves: several coordinates to one key, and back.

| function | what it does |
| --- | --- |
| `interleave`, `deinterleave` | the Z-order key (Morton 1966): the coordinates' bits in turn |
| `hilbert_key`, `hilbert_coordinates` | the Hilbert key: next on the curve is next in space (Skilling 2004) |
| `z_less`, `z_argsort` | Z-order without a key: compare at the most significant bit that differs (Chan 2002) |

Coordinates are unsigned integers of ``bits`` bits each. Keys of up to 64 bits are ``uint64``; longer ones, up to 1024
bits, are fixed-width byte strings (numpy ``S``) that sort as the curve does. An item of such an array, taken out,
shows without its trailing zero bytes, as numpy has it; the order is not touched by that.
"""

from zskip.curves.chan import z_argsort, z_less
from zskip.curves.hilbert import hilbert_coordinates, hilbert_key
from zskip.curves.orientation import Orientation
from zskip.curves.zorder import deinterleave, interleave

__all__ = [
    "Orientation",
    "deinterleave",
    "hilbert_coordinates",
    "hilbert_key",
    "interleave",
    "z_argsort",
    "z_less",
]

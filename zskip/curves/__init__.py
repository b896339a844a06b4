"""Space-filling curves: several coordinates to one key, and back.

| function | what it does |
| --- | --- |
| `interleave`, `deinterleave` | the Z-order key (Morton 1966): the coordinates' bits in turn |
| `hilbert_key`, `hilbert_coordinates` | the Hilbert key: adjacent on the curve is adjacent in space (Skilling 2004) |
| `z_less`, `z_argsort` | Z-order without a key: compare at the most significant bit that differs (Chan 2002) |

Coordinates are unsigned integers of ``bits`` bits each. Keys of up to 64 bits are ``uint64``; longer ones, up to 1024
bits, are fixed-width byte strings (numpy ``S``) that sort as the curve does. Numpy shows a single item of such an
array without its trailing zero bytes; that does not affect the order.
"""

from zskip.curves.hilbert import Orientation, hilbert_coordinates, hilbert_key
from zskip.curves.zorder import deinterleave, interleave, z_argsort, z_less

__all__ = [
    "Orientation",
    "deinterleave",
    "hilbert_coordinates",
    "hilbert_key",
    "interleave",
    "z_argsort",
    "z_less",
]

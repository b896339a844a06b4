"""Sketches: evidence beyond ranges of which files hold a value or a text, for columns that are not clustered.

``kinds``: the kinds, the keys of whole values, and the parser of the option ``sketches=`` · ``substrings``: the keys of
texts · ``hashing``: hashes that respect SQL equality · ``pairs``: how segments are stored, searched and merged ·
``build``: builds segments during a write.
"""

from zskip.tablelog.sketches.build import SketchBuilder, keys_of
from zskip.tablelog.sketches.kinds import SKETCHES, Sketch, named_sketches
from zskip.tablelog.snapshot import SketchName

__all__ = ["SKETCHES", "Sketch", "SketchBuilder", "SketchName", "keys_of", "named_sketches"]

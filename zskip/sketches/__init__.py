"""Sketches: evidence beyond ranges, of which files hold a value or a text, in columns that no layout clusters.

``kinds``: the registry, and how a user names sketches · ``hashing``: values → hashes that respect equality ·
``whole_values``, ``substrings``: the kinds · ``pairs``: the one form in which all are kept, looked up and merged ·
``build``: segments from rows as they pass.
"""

from zskip.sketches.build import SketchBuilder, keys_of
from zskip.sketches.kinds import SKETCHES, Sketch, SketchName, named_sketches

__all__ = ["SKETCHES", "Sketch", "SketchBuilder", "SketchName", "keys_of", "named_sketches"]

"""The advisor: which layout, columns and sketches serve a workload, estimated on a sample.

``search``: candidates, fitted to one half of the sample and scored on the other · ``advice``: the result, what each
kind of query gains or loses, and its text · ``attribute_workload``: statements over a star schema as conditions.
"""

from zskip.advisor.advice import Advice, Candidate, QueryGroup
from zskip.advisor.search import Weigh, advise

SAMPLE_ROWS = 40_000
"""The most rows of a sample that `advise` takes."""

__all__ = ["SAMPLE_ROWS", "Advice", "Candidate", "QueryGroup", "Weigh", "advise"]

"""Trust, but verify: plans put to the test on one's own data, and what the footers of a folder are good for."""

from zskip.audit.doctor import ColumnDiagnosis, Diagnosis, doctor
from zskip.audit.verify import Check, Verification, Wrong, verify

__all__ = ["Check", "ColumnDiagnosis", "Diagnosis", "Verification", "Wrong", "doctor", "verify"]

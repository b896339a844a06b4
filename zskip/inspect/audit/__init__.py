"""`verify` checks plans against the rows that they skip; `doctor` diagnoses the statistics in a folder's footers."""

from zskip.inspect.audit.doctor import ColumnDiagnosis, Diagnosis, doctor
from zskip.inspect.audit.verify import Check, Verification, Wrong, verify

__all__ = ["Check", "ColumnDiagnosis", "Diagnosis", "Verification", "Wrong", "doctor", "verify"]

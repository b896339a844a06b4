"""`verify` checks plans against the rows that they skip; `doctor` diagnoses the statistics in a folder's footers."""

from zskip.inspect.audit.doctor import ColumnDiagnosis, Diagnosis, doctor
from zskip.inspect.audit.verification import Check, Verification, Wrong
from zskip.inspect.audit.verify import verify

__all__ = ["Check", "ColumnDiagnosis", "Diagnosis", "Verification", "Wrong", "doctor", "verify"]

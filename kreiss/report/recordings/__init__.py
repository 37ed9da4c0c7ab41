"""Recordings: one episode of a trained agent, as a page, a moving picture or a strip."""

from kreiss.report.recordings.episode import Recording as Recording
from kreiss.report.recordings.episode import record as record
from kreiss.report.recordings.files import FORMS as FORMS
from kreiss.report.recordings.files import write as write

__all__ = ["FORMS", "Recording", "record", "write"]

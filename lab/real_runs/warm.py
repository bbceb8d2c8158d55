"""Imported where drivers are forked from: what each of them would import and compile for itself."""

from __future__ import annotations

import pyarrow as pa

from lab.forked import compile_codecs
from lab.real_runs import driver

__all__ = ["driver"]

compile_codecs()
pa.array([b""], pa.binary())  # imports pandas

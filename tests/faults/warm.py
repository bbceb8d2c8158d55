"""Imported where drivers are forked from: what each of them would import and compile for itself."""

from __future__ import annotations

from lab.forked import compile_codecs
from tests.faults import driver

__all__ = ["driver"]

compile_codecs()

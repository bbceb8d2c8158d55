"""A Dockerfile is read as Docker reads it, as far as it is read."""

from __future__ import annotations

import pytest

from tests.kubernetes.dockerfile import Instruction, instructions, stages

TEXT = """\
# A comment.
ARG BASE=debian:12
FROM ${BASE} AS base

FROM python:3
COPY --from=base /opt/a /opt/b
RUN apt-get update \\
    # between
    && apt-get install tini
ENV HOME=/opt \\
    PATH=$HOME/bin:$PATH
"""


def test_each_stage_has_its_image_its_name_and_its_instructions():
    base, last = stages(TEXT)
    assert (base.image, base.name, base.instructions) == ("debian:12", "base", ())
    assert (last.image, last.name) == ("python:3", "")
    assert [each.name for each in last.instructions] == ["COPY", "RUN", "ENV"]


def test_a_line_goes_on_after_a_backslash_and_over_a_comment():
    [_, run, _] = stages(TEXT)[1].instructions
    assert run.rest.split() == ["apt-get", "update", "&&", "apt-get", "install", "tini"]


def test_variables_are_those_of_before_the_instruction():
    [*_, env] = stages(TEXT)[1].instructions
    assert env.words({"HOME": "/root", "PATH": "/bin"}) == ["HOME=/opt", "PATH=/root/bin:/bin"]


def test_the_list_of_an_entrypoint_is_read_as_json():
    assert Instruction("ENTRYPOINT", '["/a", "b c"]').list_of_words() == ["/a", "b c"]


def test_an_instruction_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="HEALTHCHECK"):
        instructions("FROM a\nHEALTHCHECK NONE\n")

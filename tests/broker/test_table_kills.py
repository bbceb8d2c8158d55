"""Two hundred drivers that are killed while they write to a topic and a table: at every step and at random moments,
each followed by everything that can make it worse. After each, both have the same rows, once.
"""

from __future__ import annotations

import itertools
import random

import pytest

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from tests.broker.conftest import options_of
from tests.broker.one_batch import table_at
from tests.broker.table_kills import ANY, STEPS, Kills, PostgreSql, Sqlite, table_of

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(5_400)]

KILLS = 100  # of each database: every step with everything that can follow, then random moments


@pytest.fixture(params=[Sqlite, PostgreSql], ids=["SQLite", "PostgreSQL"])
def kills(request, kafka, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # otherwise the server warns that there is none
    topic = kafka.create_topic(f"kills-{request.param.__name__.lower()}", 2)
    source = kafka.create_topic(f"{topic}-source", 1)
    database = request.param(tmp_path)
    table_at(database.address).create()

    with Cluster(options_of(kafka.bootstrap)) as cluster:
        kills = Kills(kafka, cluster, database, topic, source, tmp_path, random.Random(7))
        yield kills
        for process in kills.running:
            process.kill()
            process.communicate()
    if isinstance(database, PostgreSql):
        database.close()


def test_topic_and_table_have_the_same_rows_once_after_each_kill(kills, capsys):
    everything = [*itertools.product(STEPS, kills.database.then)]
    kills.chance.shuffle(everything)
    more = ((ANY, kills.chance.choice(kills.database.then)) for _ in itertools.count())
    for step, then in itertools.islice(itertools.chain(everything, more), KILLS):
        outcome = kills.happen(step, then)
        kills.outcomes[step, outcome] += 1
        kills.outcomes[then, outcome] += 1
        kills.both_have_everything()
    with capsys.disabled():
        print(table_of(kills))

from collections import Counter

from tests.matrix import lay_out


def test_a_table_shows_each_cell_s_outcome_and_how_many_tests_had_it():
    cells = {
        ("driver killed", "TV2"): Counter(ok=2, FAILED=1),
        ("driver killed", "TV1"): Counter(ok=1),
        ("cut", "TV1"): Counter(ERROR=1),
    }

    assert lay_out(cells) == [
        "               TV1    TV2",
        "cut            ERROR  -",
        "driver killed  ok     ok ×2, FAILED",
    ]

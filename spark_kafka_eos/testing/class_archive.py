"""An archive of the classes that a broker loads, beside its jars in the cache: with it, a start takes half of the CPU.

Measured with Kafka 4.4.0 and Java 17: 1.5 instead of 2.9 s of CPU, and 2 instead of 4 s until the broker answers. It is
worth its own start where brokers are started often, as in a test suite. Every EmbeddedKafka uses an archive that is
there; Java itself checks that it fits (JEP 350).

Usage: python -m spark_kafka_eos.testing.class_archive [VERSION …]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, QUIET_ABOUT_ARCHIVES, EmbeddedKafka


def make(version: str = jars.DEFAULT_VERSION) -> Path:
    """Start a broker of this version once, and keep the classes that it loaded; return the archive, about 50 MB. It
    replaces one that is there, for example another Java's. Raises ToolFailed as EmbeddedKafka does.
    """
    archive = jars.class_archive(version)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)  # Java writes none while it uses one
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f"{version}.partial-") as folder:
        made = Path(folder, "made.jsa")
        options = (*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={made}", *QUIET_ABOUT_ARCHIVES)
        with EmbeddedKafka(version, directory=Path(folder, "broker"), jvm_options=options) as kafka:
            kafka.create_topic("any")
            kafka.stop()  # an orderly end, at which Java writes the archive
        made.replace(archive)
    return archive


if __name__ == "__main__":
    for version in sys.argv[1:] or [jars.DEFAULT_VERSION]:
        print(make(version))

"""An artificial object store: the local disk as a Hadoop file system `slow:`, each of whose operations takes a while.

Hadoop file systems are Java classes, so this compiles one, with the JDK's compiler and the Hadoop client that PySpark
includes. What an operation does inside, such as looking whether a file exists before it creates it, takes no more time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.java import java

SCHEME = "slow"

_NAME = "SlowFileSystem"
_JAVA = """
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class SlowFileSystem extends RawLocalFileSystem {
    private static final URI STORE = URI.create("slow:///");
    private static final ThreadLocal<Boolean> inside = ThreadLocal.withInitial(() -> false);
    private long milliseconds;

    private interface Operation<T> { T run() throws IOException; }

    private <T> T slowly(Operation<T> operation) throws IOException {
        if (inside.get()) return operation.run();
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException();
        }
        inside.set(true);
        try {
            return operation.run();
        } finally {
            inside.set(false);
        }
    }

    @Override public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        milliseconds = conf.getLong("fs.slow.milliseconds", 0);
    }
    @Override public URI getUri() { return STORE; }
    @Override public String getScheme() { return STORE.getScheme(); }
    @Override public FSDataInputStream open(Path file, int buffer) throws IOException {
        return slowly(() -> super.open(file, buffer));
    }
    @Override public FSDataOutputStream create(Path file, boolean overwrite, int buffer, short replication, long block,
            Progressable progress) throws IOException {
        return slowly(() -> super.create(file, overwrite, buffer, replication, block, progress));
    }
    @Override public FSDataOutputStream create(Path file, FsPermission permission, boolean overwrite, int buffer,
            short replication, long block, Progressable progress) throws IOException {
        return create(file, overwrite, buffer, replication, block, progress);
    }
    @Override public boolean rename(Path from, Path to) throws IOException {
        return slowly(() -> super.rename(from, to));
    }
    @Override public boolean delete(Path file, boolean recursive) throws IOException {
        return slowly(() -> super.delete(file, recursive));
    }
    @Override public FileStatus[] listStatus(Path folder) throws IOException {
        return slowly(() -> super.listStatus(folder));
    }
    @Override public FileStatus getFileStatus(Path file) throws IOException {
        return slowly(() -> super.getFileStatus(file));
    }
    @Override public boolean mkdirs(Path folder) throws IOException {
        return slowly(() -> super.mkdirs(folder));
    }
    @Override public boolean mkdirs(Path folder, FsPermission permission) throws IOException {
        return mkdirs(folder);
    }
    @Override public void setPermission(Path file, FsPermission permission) {}
}
"""


def register(spark: SparkSession, folder: Path, milliseconds: int) -> None:
    """Make `slow:///path` a location for the session's queries. `folder` is for the compiled class.

    Raises ToolFailed without a JDK.
    """
    source = folder / f"{_NAME}.java"
    source.write_text(_JAVA)
    [hadoop] = (Path(pyspark.__path__[0]) / "jars").glob("hadoop-client-api-*.jar")
    try:
        subprocess.run(
            [java().with_name("javac"), "-cp", hadoop, "-d", folder, source],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        cause = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        raise ToolFailed(f"the artificial store cannot be compiled: {cause}", action="Install a JDK.") from error
    context = spark.sparkContext
    jvm, gateway, configuration = context._jvm, context._gateway, context._jsc.hadoopConfiguration()
    assert jvm is not None
    assert gateway is not None
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URL(f"{folder.as_uri()}/")
    configuration.setClassLoader(jvm.java.net.URLClassLoader(urls, configuration.getClassLoader()))
    configuration.set(f"fs.{SCHEME}.impl", _NAME)
    configuration.set("fs.slow.milliseconds", str(milliseconds))

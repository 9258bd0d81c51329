"""What Spark needs, said when it is missing; and the page of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from data_stack_spark.session import local_path, readable_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def test_without_java_it_is_said_what_to_install() -> None:
    program = (
        "from data_stack_spark.session import spark_session\n"
        "try:\n"
        "    spark_session()\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": "/tmp", "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}

    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True)

    assert re.match("ConfigError .*Java 17 .*/nowhere", done.stdout), done.stderr


def test_urls_of_spark_are_read_without_it() -> None:
    assert readable_source("file:///data/a%20b/") == "/data/a b"
    assert readable_source("s3a://bucket/set") == "s3://bucket/set"
    assert readable_source("hdfs://host/set") == "hdfs://host/set"
    assert local_path("abfss://container@account/set") is None
    assert local_path("sets/one") == str(Path("sets/one").absolute())


def test_the_code_of_the_page_runs(spark: SparkSession, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    frame = spark.range(20).selectExpr("id", "array(id * 1D) as features", "id % 2 as label")
    names = {"spark": spark, "url": str(tmp_path / "frames"), "cache_url": (tmp_path / "cache").as_uri(), "df": frame}
    code = re.findall(r"```python\n(.*?)```", page, flags=re.S)

    for block in code:
        exec(block, names)

    assert len(code) == 3
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []

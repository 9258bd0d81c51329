"""Tells whether two DataFrames are the same rows: by the plan that computes them and the files that it reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from data_stack.distributed.spark_session import classic
from data_stack.exception import MissingDependencyError

try:
    from py4j.protocol import Py4JError
    from pyspark.sql import DataFrame
except ImportError as error:
    raise MissingDependencyError("data_stack.distributed with Spark", "pyspark", "spark") from error

__all__ = ["FramePlan"]

_CATALYST: Final = "org.apache.spark.sql.catalyst."
#: Operators whose JSON says all of what they do. Others hold functions, or rows, that it leaves out.
_OPERATORS: Final = frozenset(
    [
        "Aggregate",
        "Deduplicate",
        "Distinct",
        "Except",
        "Expand",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LocalLimit",
        "Offset",
        "OneRowRelation",
        "Project",
        "Range",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "SubqueryAlias",
        "Tail",
        "Union",
        "Unpivot",
        "Window",
    ]
)
#: Expressions that are different the next time, or whose JSON leaves something out.
_VAGUE: Final = re.compile(
    r"Current|Now|LocalTimestamp|Rand|Uuid|Shuffle|Monotonically|SparkPartitionID|InputFile|Python|Scala|Java|Invoke|NewInstance|"
    r"Subquery|Exists$|ListQuery|Udf|UDF|UDAF|Reflect|Typed|Object|Encode|Serializer|Hive|LambdaVariable|Catalyst|Wrapper|Session|"
    r"Sentences|TryEval|Outer"
)
#: What is null in the JSON because it is absent, or because the settings say it. All else that is null may have been left out.
_ABSENT: Final = frozenset(
    {
        "evalMode",
        "evalContext",
        "relation",
        "timeZoneId",
        "condition",
        "filter",
        "hint",
        "catalogTable",
        "optNumPartitions",
        "stream",
    }
)
_RELATION: Final = "org.apache.spark.sql.execution.datasources.LogicalRelation"
_LITERALS: Final = re.compile(
    r"null|void|boolean|byte|short|integer|long|float|double|string|date|timestamp|timestamp_ntz|decimal\(\d+,-?\d+\)"
)
_FILE: Final = re.compile(r"path=(.*?); isDirectory=\w+; length=(\d+); .*?modification_time=(\d+);")
#: Settings that change no rows.
_HARMLESS: Final = re.compile(
    r"spark\.sql\.(warehouse|catalogImplementation|ui|shuffle|adaptive|autoBroadcast|debug|queryExecutionListeners|artifact|execution\."
    r"arrow|parquet\.outputTimestampType|streaming|extensions|repl|hive\.metastore|codegen|cache|inMemory|statistics|broadcast)"
)


@dataclass(frozen=True)
class FramePlan:
    """The plan of a DataFrame; it does not hold the DataFrame.

    Attributes:
        digest: names the rows in this session and all others, 64 hex digits; None where that cannot be said: the plan holds a
            function of Python or Scala, rows of this process, a table that is no files, or something random.
        files: names the state of the files that are read: paths, sizes and times; None if none of them are known.
    """

    digest: str | None
    files: str | None
    _plan: Any

    @classmethod
    def of(cls, frame: DataFrame) -> FramePlan:
        """The plan of ``frame``.

        Raises:
            ConfigError: the DataFrame is of Spark Connect.
        """
        plan = classic(frame).queryExecution().analyzed()
        files = _file_states(plan)
        digest = None
        content = _described(plan)
        if content is not None and files is not None:
            session: Any = frame.sparkSession
            text = json.dumps([session.version, _settings(session), frame.schema.json(), content, files], sort_keys=True)
            digest = sha256(text.encode()).hexdigest()
        return cls(digest, None if files is None else sha256("\n".join(files).encode()).hexdigest(), plan)

    def is_same(self, other: FramePlan) -> bool:
        """Whether both give the same rows, as far as Spark can tell, of files that are the same still."""
        if self.digest is not None or other.digest is not None:
            return self.digest == other.digest
        if self.files != other.files:
            return False
        try:
            return bool(self._plan.sameResult(other._plan))
        except Py4JError:  # of a session that is gone
            return False


def _described(plan: Any) -> Any:
    """The plan as plain data; None if that does not say all."""
    try:
        nodes = json.loads(plan.canonicalized().toJSON())
    except (Py4JError, ValueError):
        return None
    n_relations = 0
    for node in _nodes(nodes):
        kind = node["class"]
        name = kind.rpartition(".")[2]
        if kind.startswith(_CATALYST + "plans.logical."):
            if name not in _OPERATORS:
                return None
        elif kind == _RELATION:
            n_relations += 1
        elif not kind.startswith(_CATALYST) or _VAGUE.search(name):
            return None
        if name == "Literal" and not (isinstance(node.get("dataType"), str) and _LITERALS.fullmatch(node["dataType"])):
            return None  # of bytes and arrays it gives where they lie in memory
        if any(value is None and key not in _ABSENT and (name, key) != ("Literal", "value") for key, value in node.items()):
            return None
    relations = _relations(plan)
    if relations is None or len(relations) != n_relations:
        return None
    return [_without_ids(nodes), relations]


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("class"), str):
            yield value
        for each in value.values():
            yield from _nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from _nodes(each)


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(each) for key, each in value.items() if key != "jvmId"}
    return [_without_ids(each) for each in value] if isinstance(value, list) else value


def _leaves(plan: Any) -> Iterator[Any]:
    found = plan.collectLeaves()
    for number in range(found.size()):
        yield found.apply(number)


def _relations(plan: Any) -> list[str] | None:
    """Format, options and schema of the files that are read; None if one is of no files."""
    found = []
    for leaf in _leaves(plan):
        if str(leaf.getClass().getName()) == _RELATION:
            relation = leaf.relation()
            try:
                facts = relation.fileFormat().getClass().getName(), relation.options().toString()
                found.append(" ".join([*map(str, facts), relation.dataSchema().json(), relation.partitionSchema().json()]))
            except (Py4JError, TypeError):
                return None
    return found


def _file_states(plan: Any) -> list[str] | None:
    """Path, size and time of each file that is read; None if something is read that is no listed files."""
    states: list[str] = []
    for leaf in _leaves(plan):
        if str(leaf.getClass().getName()) != _RELATION:
            continue
        try:
            listed = str(leaf.relation().location().allFiles().mkString("\n"))
        except (Py4JError, TypeError):  # of a table that is no files, or lists them in its own way
            return None
        found = _FILE.findall(listed)
        if listed and len(found) != listed.count("path="):
            return None
        states += sorted("\t".join(each) for each in found)
    return states


def _settings(session: Any) -> list[str]:
    """What somebody has set of Spark SQL that may change rows, and the time zone."""
    settings = session._jsparkSession.sessionState().conf().settings()
    found = {"spark.sql.session.timeZone": str(session.conf.get("spark.sql.session.timeZone"))}
    names = settings.keySet().toArray()
    for name in names:
        if str(name).startswith("spark.sql.") and not _HARMLESS.match(str(name)):
            found[str(name)] = str(settings.get(name))
    return sorted(f"{name}={value}" for name, value in found.items())

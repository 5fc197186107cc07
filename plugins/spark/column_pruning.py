"""Column pruning, which Spark lacks for data sources in Python: a query reads only the message columns that it uses.

Spark plans a read of a data source in Python with all columns of the source, even for ``count()``. This module adds an
optimizer rule to the session through ``spark.experimental.extraOptimizations``. The rule is written in Java. Janino, which also
compiles Spark's queries, compiles the rule in the session's process. The rule replaces the schema of the planned scan by the
used columns, and the reader treats the replaced schema like a schema from ``.schema(…)``. If the rule does not recognize a
plan, the plan stays unchanged, and the query is slower.

Sessions of Spark Connect do not have the rule, and Spark plans streams without the rule. Queries of Spark Connect and streams
read the columns of the option ``columns``.
"""

from __future__ import annotations

from typing import Any, Final

from flintmq.core.log_events import event_log

log = event_log("flintmq.spark")

_CLASS: Final = "flintmq.ColumnPruning"
_SOURCE: Final = """
package flintmq;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class ColumnPruning extends Rule {
  public ColumnPruning() { super(); }

  public String ruleName() { return "flintmq.ColumnPruning"; }

  public TreeNode apply(TreeNode plan) {
    try {
      return pruned((LogicalPlan) plan);
    } catch (Throwable error) {
      return plan;
    }
  }

  private LogicalPlan pruned(LogicalPlan plan) throws Exception {
    List children = CollectionConverters.asJava(plan.children());
    if (plan instanceof Project) {
      HashSet used = new HashSet();
      addReferences(plan, used);
      LogicalPlan below = scanned((LogicalPlan) children.get(0), used);
      return below == null ? plan : withChild(plan, below);
    }
    List others = new ArrayList();
    boolean same = true;
    for (int i = 0; i < children.size(); i++) {
      LogicalPlan child = (LogicalPlan) children.get(i);
      LogicalPlan other = pruned(child);
      same = same && other == child;
      others.add(other);
    }
    return same ? plan : (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(others).toSeq());
  }

  /** A plan below a projection, with the scan at its end pruned; null where it stays as it is. */
  private LogicalPlan scanned(LogicalPlan plan, HashSet used) throws Exception {
    if (plan instanceof Filter) {
      addReferences(plan, used);
      LogicalPlan below = scanned((LogicalPlan) ((Filter) plan).child(), used);
      return below == null ? null : withChild(plan, below);
    }
    if (plan instanceof DataSourceV2ScanRelation) {
      return ofScan((DataSourceV2ScanRelation) plan, used);
    }
    LogicalPlan other = pruned(plan);
    return other == plan ? null : other;
  }

  private static LogicalPlan withChild(LogicalPlan plan, LogicalPlan child) {
    List children = new ArrayList();
    children.add(child);
    return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(children).toSeq());
  }

  private static void addReferences(LogicalPlan plan, HashSet used) {
    scala.collection.Iterator found = plan.references().iterator();
    while (found.hasNext()) {
      used.add(((Attribute) found.next()).exprId());
    }
  }

  private static LogicalPlan ofScan(DataSourceV2ScanRelation relation, HashSet used) throws Exception {
    if (!(relation.scan() instanceof PythonScan)) {
      return null;
    }
    PythonScan scan = (PythonScan) relation.scan();
    String name = (String) valueOf(scan, String.class);
    CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) valueOf(scan, CaseInsensitiveStringMap.class);
    if (!"flintmq".equalsIgnoreCase(name) || options.getBoolean("pushdown", false)) {
      return null;
    }
    StructField[] fields = scan.readSchema().fields();
    List output = CollectionConverters.asJava(relation.output());
    if (output.size() < 2 || fields.length != output.size()) {
      return null;
    }
    int cheapest = 0;
    List kept = new ArrayList();
    List keptFields = new ArrayList();
    for (int i = 0; i < fields.length; i++) {
      if (used.contains(((Attribute) output.get(i)).exprId())) {
        kept.add(output.get(i));
        keptFields.add(fields[i]);
      }
      if (fields[i].name().equals("queueOffset")) {
        cheapest = i;
      }
    }
    if (kept.isEmpty()) {
      kept.add(output.get(cheapest));
      keptFields.add(fields[cheapest]);
    }
    if (kept.size() == output.size()) {
      return null;
    }
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(name);
    StructType schema = new StructType((StructField[]) keptFields.toArray(new StructField[0]));
    Constructor make = PythonScan.class.getConstructors()[0];
    Class[] types = make.getParameterTypes();
    Object[] values = new Object[types.length];
    for (int i = 0; i < types.length; i++) {
      values[i] = types[i] == PythonDataSourceV2.class ? source
          : types[i] == StructType.class ? schema
          : valueOf(scan, types[i]);
    }
    Object narrow = make.newInstance(values);
    Seq narrowOutput = CollectionConverters.asScala(kept).toSeq();
    Constructor copy = DataSourceV2ScanRelation.class.getConstructors()[0];
    Object[] parts = new Object[relation.productArity()];
    for (int i = 0; i < parts.length; i++) {
      Object part = relation.productElement(i);
      parts[i] = part == scan ? narrow : part == relation.output() ? narrowOutput : part;
    }
    return (LogicalPlan) copy.newInstance(parts);
  }

  private static Object valueOf(PythonScan scan, Class type) throws Exception {
    Field[] fields = PythonScan.class.getDeclaredFields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].getType() == type) {
        fields[i].setAccessible(true);
        return fields[i].get(scan);
      }
    }
    throw new NoSuchFieldException(type.getName());
  }
}
"""


def prune_columns(spark: Any) -> bool:
    """Add the optimizer rule for column pruning to a Spark session that lacks the rule.

    Args:
        spark: a SparkSession.

    Returns:
        Whether the session has the rule now. A session of Spark Connect cannot have the rule.
    """
    from py4j.protocol import Py4JError

    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:
        return False
    try:
        known = java_session.experimental().extraOptimizations()
        rules = [known.apply(number) for number in range(known.size())]
        if not any(rule.getClass().getName() == _CLASS for rule in rules):
            compiled = spark._jvm.PythonUtils.toSeq([*rules, _compiled(spark)])
            getattr(java_session.experimental(), "extraOptimizations_$eq")(compiled)
    except (Py4JError, TypeError, AttributeError) as error:
        log.warning(
            "spark.columns_not_pruned",
            "queries of this session read all columns; name the needed ones with the option columns: %(error)s",
            error=str(error)[:500],
        )
        return False
    return True


def _compiled(spark: Any) -> Any:
    """Return the optimizer rule for column pruning as a Java object in the process of the Spark session."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    made = compiler.getClassLoader().loadClass(_CLASS).getDeclaredConstructor(gateway.new_array(jvm.Class, 0))
    return made.newInstance(gateway.new_array(jvm.Object, 0))

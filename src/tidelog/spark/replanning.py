"""A plan of its own for each query that reads topics, in the JVM of the driver.

Spark 4.3 keeps what it planned for a Python source (its tasks, with the filters that were pushed down) in the
relation, which all queries on a `DataFrame` or a view share: a second query would read what the first one
planned, and with pushed filters one query would read the rows of another. So this rule, the last one of
Spark's optimizer, gives each scan of the source a relation of its own. Spark brings a compiler for Java, so
the rule needs no jar.

**Invariant:** filters are pushed down only where the rule is in place; everything else works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARK = "TIDELOG_OWN_PLANS"  # in the environment of the source's processes, where the rule is in place
RULE = "OwnPlans"
# A filter that the source took is applied by nobody else: it is pushed down again, to the new relation.
JAVA = """
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.runtime.AbstractPartialFunction;

public class OwnPlans extends Rule {
    final Set own = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

    public TreeNode apply(TreeNode plan) {
        return ((LogicalPlan) plan).transform(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return isShared(node); }

            public Object applyOrElse(Object node, scala.Function1 otherwise) {
                return isShared(node) ? withOwnPlan((DataSourceV2ScanRelation) node) : otherwise.apply(node);
            }
        });
    }

    boolean isShared(Object node) {
        if (!(node instanceof DataSourceV2ScanRelation)) return false;
        Object scan = ((DataSourceV2ScanRelation) node).scan();
        return scan instanceof PythonScan && "NAME".equals(field(scan, "shortName")) && !own.contains(scan);
    }

    Object withOwnPlan(DataSourceV2ScanRelation found) {
        Object shared = found.scan();
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName("NAME");
        set(source, "dataSourceInPython", field(field(shared, "ds"), "dataSourceInPython"));
        PythonScanBuilder builder = new PythonScanBuilder(
            source,
            "NAME",
            (StructType) field(shared, "outputSchema"),
            (CaseInsensitiveStringMap) field(shared, "options")
        );
        Filter[] filters = (Filter[]) field(shared, "supportedFilters");
        if (filters.length > 0) builder.pushFilters(filters);
        Object scan = builder.build();
        own.add(scan);
        return found.copy(
            found.relation(), (org.apache.spark.sql.connector.read.Scan) scan, found.output(),
            found.keyGroupedPartitioning(), found.ordering(), found.pushedFilters(), found.mergeableScan()
        );
    }

    static java.lang.reflect.Field place(Object of, String name) throws NoSuchFieldException {
        java.lang.reflect.Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    static Object field(Object of, String name) {
        try {
            return place(of, name).get(of);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    static void set(Object of, String name, Object value) {
        try {
            place(of, name).set(of, value);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
"""


def give_queries_own_plans(spark: SparkSession, source_name: str) -> bool:
    """Put the rule in place for a session; whether that was possible."""
    from py4j.protocol import Py4JError

    methods = spark._jsparkSession.experimental()
    try:
        rules = methods.extraOptimizations()
        if not any(rules.apply(index).getClass().getName() == RULE for index in range(rules.size())):
            getattr(methods, "extraOptimizations_$eq")(rules.appended(_compiled(spark, source_name)))
    except Py4JError:  # another Spark, whose classes have another form
        return False
    return True


def _compiled(spark: SparkSession, source_name: str) -> Any:
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(JAVA.replace("NAME", source_name))
    nothing = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 0)  # type: ignore[union-attr]
    return compiler.getClassLoader().loadClass(RULE).getDeclaredConstructors()[0].newInstance(nothing)

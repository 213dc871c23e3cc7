import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.write.*;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A catalog in memory whose tables Spark can merge into, as it can into those of Delta Lake and Iceberg. Each commit replaces all rows, or adds some. */
public class MergeCatalog implements TableCatalog {
  static final Map<String, MergeTable> TABLES = new ConcurrentHashMap<>();
  private String name;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
  }

  public String name() {
    return name;
  }

  public Identifier[] listTables(String[] namespace) {
    return new Identifier[0];
  }

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    MergeTable found = TABLES.get(ident.toString());
    if (found == null) throw new NoSuchTableException(ident);
    return found;
  }

  @Override
  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    TABLES.put(ident.toString(), new MergeTable(ident.toString(), columns, new HashMap<>(properties)));
    return TABLES.get(ident.toString());
  }

  public Table alterTable(Identifier ident, TableChange... changes) {
    for (TableChange change : changes) {
      TableChange.SetProperty set = (TableChange.SetProperty) change;
      TABLES.get(ident.toString()).properties.put(set.property(), set.value());
    }
    return TABLES.get(ident.toString());
  }

  public boolean dropTable(Identifier ident) {
    return TABLES.remove(ident.toString()) != null;
  }

  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException();
  }

  static class MergeTable implements SupportsRead, SupportsWrite, SupportsRowLevelOperations {
    final String name;
    final Column[] columns;
    final Map<String, String> properties;
    List<InternalRow> rows = List.of();

    MergeTable(String name, Column[] columns, Map<String, String> properties) {
      this.name = name;
      this.columns = columns;
      this.properties = properties;
    }

    public String name() {
      return name;
    }

    @Override
    public Column[] columns() {
      return columns;
    }

    @Override
    public Map<String, String> properties() {
      return properties;
    }

    public Set<TableCapability> capabilities() {
      return Set.of(
          TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return () -> new RowScan(name, CatalogV2Util.v2ColumnsToStructType(columns));
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new RowWriteBuilder(name);
    }

    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      return () -> new Merge(this, info.command());
    }
  }

  record Merge(MergeTable table, RowLevelOperation.Command command) implements RowLevelOperation {
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return table.newScanBuilder(options);
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new RowWriteBuilder(table.name).truncate();
    }
  }

  record RowScan(String name, StructType schema) implements Scan, Batch {
    public StructType readSchema() {
      return schema;
    }

    public Batch toBatch() {
      return this;
    }

    public InputPartition[] planInputPartitions() {
      return new InputPartition[] {new RowPartition(name)};
    }

    public PartitionReaderFactory createReaderFactory() {
      return new RowReaderFactory();
    }
  }

  record RowPartition(String name) implements InputPartition {}

  static class RowReaderFactory implements PartitionReaderFactory {
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      List<InternalRow> rows = TABLES.get(((RowPartition) partition).name()).rows;
      return new PartitionReader<>() {
        int at = -1;

        public boolean next() {
          return ++at < rows.size();
        }

        public InternalRow get() {
          return rows.get(at);
        }

        public void close() {}
      };
    }
  }

  static class RowWriteBuilder implements SupportsTruncate {
    final String name;
    boolean replaces;

    RowWriteBuilder(String name) {
      this.name = name;
    }

    public WriteBuilder truncate() {
      replaces = true;
      return this;
    }

    public Write build() {
      return new Write() {
        @Override
        public BatchWrite toBatch() {
          return new RowWrite(name, replaces);
        }
      };
    }
  }

  record RowWrite(String name, boolean replaces) implements BatchWrite {
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return new RowWriterFactory();
    }

    public void commit(WriterCommitMessage[] messages) {
      MergeTable table = TABLES.get(name);
      List<InternalRow> rows = new ArrayList<>(replaces ? List.of() : table.rows);
      for (WriterCommitMessage message : messages) rows.addAll(((WrittenRows) message).rows());
      table.rows = rows;
    }

    public void abort(WriterCommitMessage[] messages) {}
  }

  record WrittenRows(List<InternalRow> rows) implements WriterCommitMessage, Serializable {}

  static class RowWriterFactory implements DataWriterFactory {
    public DataWriter<InternalRow> createWriter(int partition, long task) {
      List<InternalRow> rows = new ArrayList<>();
      return new DataWriter<>() {
        public void write(InternalRow row) {
          rows.add(row.copy());
        }

        public WriterCommitMessage commit() {
          return new WrittenRows(rows);
        }

        public void abort() {}

        public void close() {}
      };
    }
  }
}

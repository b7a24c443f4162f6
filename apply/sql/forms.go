package sql

// forms are how statements and clauses are written (auto-cdc 1.1): the remedy of a
// syntax error that has no better one.
var forms = map[string]string{
	"APPLY CHANGES":             "APPLY CHANGES INTO target FROM STREAM(source) KEYS (column, ...) SEQUENCE BY expression",
	"CREATE STREAMING TABLE":    "CREATE [OR REFRESH] STREAMING TABLE name [(columns)] [clauses] [FLOW AUTO CDC FROM ...]",
	"CREATE FLOW":               "CREATE FLOW name [COMMENT 'text'] AS AUTO CDC [ONCE] INTO target FROM STREAM(source) KEYS (column, ...) SEQUENCE BY expression",
	"CREATE SOURCE":             "CREATE SOURCE name FROM 'path' [FORMAT name] [TABLE 'name'] [SCHEMA (columns)] [OPTIONS (key = value, ...)]",
	"snapshot":                  "FROM SNAPSHOT (SELECT ...) [WITH VERSION (SELECT ...)] KEYS (column, ...)",
	"keys":                      "KEYS (column, ...)",
	"ignore_null_updates":       "IGNORE NULL UPDATES [ON column, ... or ON * EXCEPT (column, ...)]",
	"apply_as_deletes":          "APPLY AS DELETE WHEN condition",
	"apply_as_truncates":        "APPLY AS TRUNCATE WHEN condition",
	"sequence_by":               "SEQUENCE BY expression, or STRUCT(a, b) for several columns",
	"system_sequence_by":        "SYSTEM SEQUENCE BY expression, or STRUCT(a, b) for several columns",
	"column_list":               "COLUMNS (column, ...) or COLUMNS * EXCEPT (column, ...)",
	"columns_to_update":         "COLUMNS TO UPDATE column",
	"stored_as_scd_type":        "STORED AS SCD TYPE 1, STORED AS SCD TYPE 2 or STORED AS BITEMPORAL",
	"track_history_column_list": "TRACK HISTORY ON (column, ...) or TRACK HISTORY ON * EXCEPT (column, ...)",
	"comment":                   "COMMENT 'text'",
	"table_properties":          "TBLPROPERTIES ('key' = 'value', ...)",
	"using":                     "USING DELTA",
	"partition_cols":            "PARTITIONED BY (column, ...)",
	"cluster_by":                "CLUSTER BY (column, ...), CLUSTER BY AUTO or CLUSTER BY NONE",
	"element":                   "column TYPE [NOT NULL] [COMMENT 'text'], or CONSTRAINT name EXPECT (condition) [ON VIOLATION DROP ROW or FAIL UPDATE]",
}

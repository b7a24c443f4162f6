// Command bench does one work of the benchmark through the SDK, as a whole process:
// what the command line has no form for that could be held against a library.
//
//	bench scan TABLE              all rows and columns to Arrow
//	bench count TABLE
//	bench filter TABLE LOW HIGH   rows with LOW <= id <= HIGH
//	bench open TABLE ID           all files, and those that may hold the key
//	bench append TABLE FILE       the rows of an Arrow IPC file into a new table
//	bench feed TABLE              the change feed from version 10 on
//
// bench.py beside it runs sluice and its peers (peers.py) over tables of tables.py
// and prints the table of docs/benchmarks.md; setup.sh installs the peers.
//
// The package imports the SDK alone; nothing imports it.
package main

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newFmtCommand(a *app) *cobra.Command {
	var write bool
	c := &cobra.Command{
		Use:   "fmt FILE",
		Short: "Print AUTO CDC statements in canonical form",
		Long: "Print AUTO CDC statements in canonical form: one clause a line in a fixed order, comments kept. FILE is SQL,\n" +
			"YAML (which is printed as SQL) or - for standard input.",
		Example: `  echo 'create streaming table t; apply changes into t from stream(s) keys (id) sequence by ts' > flow.sql
  sluice fmt flow.sql
  sluice fmt --write flow.sql`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("expected one file, found %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.format(args[0], write) },
	}
	c.Flags().BoolVarP(&write, "write", "w", false, "write the canonical form back to the file if it differs")
	return c
}

func (a *app) format(file string, write bool) error {
	if write && (file == "-" || isYAML(file)) {
		return usage("INVALID_FLAG", "fmt: --write is for SQL files")
	}
	script, before, err := a.readStatements(file)
	if err != nil {
		return err
	}
	text := script.String()
	if !write {
		_, err := io.WriteString(a.stdout, text)
		return err
	}
	if text == before {
		return nil
	}
	if err := replaceFile(file, text); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// replaceFile writes a file as a whole or not at all.
func replaceFile(file, text string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone after the rename
	_, err = tmp.WriteString(text)
	if err == nil {
		err = tmp.Chmod(info.Mode().Perm())
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

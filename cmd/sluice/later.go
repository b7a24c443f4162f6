package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// laterCommands are the commands that the contract of the command line names
// and this version lacks; they are refused by name instead of as typing errors.
var laterCommands = map[string]string{
	"run": "a pipeline",
}

// laterFlags are flags of the contract that this version lacks, by command.
var laterFlags = map[string][]string{
	"apply": {"memory"},
}

// laterFlag finds the flag that a parse error complains of among laterFlags.
func laterFlag(cmd *cobra.Command, message string) (string, bool) {
	for _, name := range laterFlags[cmd.Name()] {
		if strings.HasSuffix(message, "--"+name) || strings.Contains(message, "unknown shorthand flag: '"+name+"'") {
			if len(name) == 1 {
				return "-" + name, true
			}
			return "--" + name, true
		}
	}
	return "", false
}

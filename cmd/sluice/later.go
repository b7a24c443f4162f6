package main

// laterCommands are the commands that the contract of the command line names
// and this version lacks; they are refused by name instead of as typing errors.
var laterCommands = map[string]string{
	"run": "a pipeline",
}

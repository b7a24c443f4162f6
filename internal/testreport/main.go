package main

import (
	"os"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		os.Stdout.WriteString("testreport: " + err.Error() + "\n")
		os.Exit(1)
	}
}

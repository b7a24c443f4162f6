//go:build !linux

package servers

import "os/exec"

// bind does nothing: only Linux can tell a program that its parent died.
func bind(*exec.Cmd) {}

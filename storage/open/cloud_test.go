package open_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-data/sluice/storage/open"
)

const secret = "canary0secret"

// noCloud takes every variable of a cloud away, and the files in the home directory.
func noCloud(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "")
			}
		}
	}
	t.Setenv("HOME", t.TempDir())
}

func TestStore_CloudURLs(t *testing.T) {
	noCloud(t)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "acct")
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for location, want := range map[string]string{
		"s3://b": "s3://b/", "s3://b/": "s3://b/", "S3://b/lake/t/": "s3://b/lake/t/",
		"s3a://b/lake/t": "s3a://b/lake/t/", // a key of Delta's DynamoDB table: never respelled
		"s3://b/a b/%25": "s3://b/a%20b/%25/", "gs://b/p": "gs://b/p/",
		"azblob://c/p": "azblob://c/p/", "az://c/p": "azblob://c/p/",
		"abfss://c@acct.dfs.core.windows.net/p": "abfss://c@acct.dfs.core.windows.net/p/",
		"abfs://c@acct.dfs.core.windows.net":    "abfs://c@acct.dfs.core.windows.net/",
	} {
		s, err := open.Store(location, open.Options{})
		if err != nil {
			t.Errorf("%s: %v", location, err)
			continue
		}
		if s.URL() != want {
			t.Errorf("%s: URL %s, want %s", location, s.URL(), want)
		}
	}
}

func TestStore_Settings(t *testing.T) {
	noCloud(t)
	for _, c := range []struct{ location, name, value string }{
		{"s3://b/p", "regoin", "x"}, {"s3://b/p", "path_style", "maybe"}, {"s3://b/p", "sse", "rot13"}, {"s3://b/p", "requester_pays", "2"},
		{"s3://b/p", "insecure_tls", "perhaps"}, {"gs://b/p", "ca_file", filepath.Join(t.TempDir(), "absent.pem")}, {"gs://b/p", "proxy", "nowhere"},
		{"s3://b/p", "profile", "absent"},
	} {
		_, err := open.Store(c.location, open.Options{Settings: map[string]string{c.name: c.value}})
		var e *open.Error
		if !errors.As(err, &e) || e.Code() != open.CodeSetting {
			t.Errorf("%s with %s=%s: %v", c.location, c.name, c.value, err)
		}
	}
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Store("gs://b/p", open.Options{Settings: map[string]string{"ca_file": notPEM}}); err == nil {
		t.Error("a file without a certificate was taken")
	}
}

// TestStore_CloudErrorsKeepSecrets: whatever of a credential or an address is
// wrong, the message does not repeat it.
func TestStore_CloudErrorsKeepSecrets(t *testing.T) {
	noCloud(t)
	for i, env := range []map[string]string{
		{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=" + secret},
		{"AZURE_STORAGE_CONNECTION_STRING": secret},
		{"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_KEY": "not base64 " + secret},
		{"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_SAS_TOKEN": "sig=%zz" + secret},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			if _, err := open.Store("azblob://c/p", open.Options{}); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the message holds the secret: %v", err)
			}
		})
	}
	for _, location := range []string{"s3://AKIA:" + secret + "@b/p", "s3://b/p?aws_secret_access_key=" + secret, "azblob://c/p?sig=" + secret,
		"abfss://c:" + secret + "@a.dfs.core.windows.net/p", "ftp://u:" + secret + "@h/p"} {
		if _, err := open.Store(location, open.Options{}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("the message holds the secret: %v", err)
		}
	}
}

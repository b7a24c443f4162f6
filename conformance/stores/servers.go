package stores

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Secret is in every credential of the servers that they let us choose, so that
// tests can look for it where it must not be.
const Secret = "canary0secret0canary0secret0canary0secret"

// azuriteKey is the key of the one account of Azurite and of Microsoft's emulators,
// published in their documentation.
const azuriteKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

// Server is one object store that runs.
type Server struct {
	// Scheme of its URLs, as "s3://".
	Scheme string
	// Endpoint is its HTTP address, "http://127.0.0.1:1234".
	Endpoint string
	// Env are the variables that the cloud's tools, and sluice, read.
	Env map[string]string
	// DeltaRS are the variables that delta-rs needs beyond Env.
	DeltaRS map[string]string
	// ReadOnly: delta-rs cannot write to this server (fake-gcs-server knows the GET
	// and the listing of the XML API that delta-rs speaks, and not its PUT).
	ReadOnly bool

	bucket func(name string) error
}

// Bucket makes a new bucket and gives its URL without a slash at the end.
func (s *Server) Bucket(tb testing.TB) string {
	tb.Helper()
	name := "b" + strings.ReplaceAll(uuid.NewString(), "-", "")[:20]
	if err := s.bucket(name); err != nil {
		tb.Fatalf("make a bucket: %v", err)
	}
	return s.Scheme + name
}

// Setenv sets the server's variables for the test and its child processes.
func (s *Server) Setenv(t *testing.T) {
	for _, vars := range []map[string]string{s.Env, s.DeltaRS} {
		for k, v := range vars {
			t.Setenv(k, v)
		}
	}
}

// answers is ready once a server answers HTTP, whatever it says.
func answers(addr string) error {
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// S3 starts versitygw on a folder.
func S3(tb testing.TB) *Server {
	tb.Helper()
	bin := filepath.Join(dir(tb), "bin", "versitygw")
	root := tb.TempDir()
	addr := start(tb, "versitygw", func(port string) *exec.Cmd {
		cmd := exec.Command(bin, "--port", "127.0.0.1:"+port, "posix", root)
		cmd.Env = environ("ROOT_ACCESS_KEY=sluice", "ROOT_SECRET_KEY="+Secret)
		cmd.Dir = root
		return cmd
	}, answers)
	return &Server{Scheme: "s3://", Endpoint: "http://" + addr,
		Env: map[string]string{"AWS_ACCESS_KEY_ID": "sluice", "AWS_SECRET_ACCESS_KEY": Secret, "AWS_REGION": "us-east-1",
			"AWS_ENDPOINT_URL": "http://" + addr, "AWS_EC2_METADATA_DISABLED": "true"},
		DeltaRS: map[string]string{"AWS_ALLOW_HTTP": "true", "AWS_CONDITIONAL_PUT": "etag"},
		bucket:  func(name string) error { return os.Mkdir(filepath.Join(root, name), 0o755) },
	}
}

// GCS starts fake-gcs-server in memory (on a folder it takes no long names).
func GCS(tb testing.TB) *Server {
	tb.Helper()
	bin := filepath.Join(dir(tb), "bin", "fake-gcs-server")
	root := tb.TempDir()
	addr := start(tb, "fake-gcs-server", func(port string) *exec.Cmd {
		cmd := exec.Command(bin, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory",
			"-public-host", "127.0.0.1:"+port, "-external-url", "http://127.0.0.1:"+port)
		cmd.Env, cmd.Dir = environ(), root
		return cmd
	}, answers)
	key := filepath.Join(tb.TempDir(), "account.json")
	text := fmt.Sprintf(`{"gcs_base_url": %q, "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}`, "http://"+addr)
	if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &Server{Scheme: "gs://", Endpoint: "http://" + addr, ReadOnly: true,
		Env:     map[string]string{"STORAGE_EMULATOR_HOST": addr},
		DeltaRS: map[string]string{"GOOGLE_SERVICE_ACCOUNT": key},
		bucket: func(name string) error {
			resp, err := http.Post("http://"+addr+"/storage/v1/b?project=p", "application/json", strings.NewReader(`{"name":"`+name+`"}`))
			if err != nil {
				return err
			}
			if resp.StatusCode >= 300 {
				return fmt.Errorf("HTTP %d", resp.StatusCode)
			}
			return resp.Body.Close()
		},
	}
}

// Azure starts Azurite on a folder.
func Azure(tb testing.TB) *Server {
	tb.Helper()
	script := filepath.Join(dir(tb), "node", "node_modules", "azurite", "dist", "src", "blob", "main.js")
	root := tb.TempDir()
	addr := start(tb, "azurite", func(port string) *exec.Cmd {
		cmd := exec.Command("node", script, "--silent", "--blobHost", "127.0.0.1", "--blobPort", port, "--location", root, "--skipApiVersionCheck", "--disableTelemetry")
		cmd.Env, cmd.Dir = environ(), root
		return cmd
	}, answers)
	endpoint := "http://" + addr + "/devstoreaccount1"
	s := &Server{Scheme: "azblob://", Endpoint: endpoint,
		Env: map[string]string{"AZURE_STORAGE_ACCOUNT": "devstoreaccount1", "AZURE_STORAGE_KEY": azuriteKey, "AZURE_STORAGE_ENDPOINT": endpoint},
		DeltaRS: map[string]string{"AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1", "AZURE_STORAGE_ACCOUNT_KEY": azuriteKey,
			"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": "http://" + addr, "AZURE_ALLOW_HTTP": "true"},
	}
	s.bucket = func(name string) error { return makeContainer(endpoint, name) }
	return s
}

// DynamoDB starts dynalite in memory and gives its address.
func DynamoDB(tb testing.TB) string {
	tb.Helper()
	script := filepath.Join(dir(tb), "node", "node_modules", "dynalite", "cli.js")
	root := tb.TempDir()
	addr := start(tb, "dynalite", func(port string) *exec.Cmd {
		cmd := exec.Command("node", script, "--host", "127.0.0.1", "--port", port, "--createTableMs", "0")
		cmd.Env, cmd.Dir = environ(), root
		return cmd
	}, answers)
	return "http://" + addr
}

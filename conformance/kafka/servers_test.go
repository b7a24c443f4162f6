package kafka

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-data/sluice/conformance/servers"
)

// patience bounds every wait; on a busy machine a Java program takes its time.
const patience = 2 * time.Minute

// engine is the folder that setup.sh made; the test ends here if it did not.
func engine(tb testing.TB) string {
	tb.Helper()
	return servers.Dir(tb, "kafka", "the broker")
}

// server is one Java program.
type server struct {
	name string
	args []string
	env  []string
	dir  string
	*servers.Process
}

func (s *server) start(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command("java", s.args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	var err error
	if s.Process, err = servers.Start(cmd, filepath.Join(s.dir, s.name+".log")); err != nil {
		tb.Fatal(err)
	}
}

// kill ends it as a power cut would.
func (s *server) kill() { s.Kill() }

// ready waits until the check passes; a program that ended never does.
func (s *server) ready(tb testing.TB, check func(ctx context.Context) error) {
	tb.Helper()
	if err := s.Ready(patience, check); err != nil {
		tb.Fatalf("%s: %v", s.name, err)
	}
}

// broker is one node of Kafka with a plain listener and one with TLS and SASL PLAIN.
type broker struct {
	server
	plain, secure string
	ca            string // file with the certificate
}

const (
	saslUser     = "reader"
	saslPassword = "not-a-secret"
)

func startBroker(tb testing.TB) *broker {
	tb.Helper()
	lib := engine(tb)
	dir := tb.TempDir()
	p := servers.FreePorts(tb, 3)
	b := &broker{plain: fmt.Sprintf("127.0.0.1:%d", p[0]), secure: fmt.Sprintf("127.0.0.1:%d", p[1]), ca: filepath.Join(dir, "ca.pem")}
	key := filepath.Join(dir, "broker.pem")
	writeCertificate(tb, b.ca, key)
	config := filepath.Join(dir, "server.properties")
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[3]d
listeners=PLAIN://%[1]s,SECURE://%[2]s,CONTROLLER://127.0.0.1:%[3]d
listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=1000
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%[5]s="%[6]s";
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=%[7]s
log.dirs=%[4]s
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
`, b.plain, b.secure, p[2], filepath.Join(dir, "logs"), saslUser, saslPassword, key)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	classes := filepath.Join(lib, "libs", "*")
	format := exec.Command("java", "-cp", classes, "kafka.tools.StorageTool", "format", "-t", "q1Sh-9_ISia_zwGINzRvyQ", "-c", config)
	if out, err := format.CombinedOutput(); err != nil {
		tb.Fatalf("format the broker's storage: %v\n%s", err, out)
	}
	b.server = server{name: "broker", dir: dir, args: []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "kafka.Kafka", config}}
	b.begin(tb)
	tb.Cleanup(b.kill)
	return b
}

// begin starts the broker, again too, and waits until it answers.
func (b *broker) begin(tb testing.TB) {
	tb.Helper()
	b.start(tb)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.plain))
	if err != nil {
		tb.Fatal(err)
	}
	defer cl.Close()
	b.ready(tb, cl.Ping)
}

// writeCertificate makes a certificate for 127.0.0.1 that is its own authority.
func writeCertificate(tb testing.TB, ca, both string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if err := os.WriteFile(ca, cert, 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(both, append(private, cert...), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// startRegistry starts Apicurio and answers the URL of its Confluent API.
func startRegistry(tb testing.TB) string {
	tb.Helper()
	lib := engine(tb)
	jars, err := filepath.Glob(filepath.Join(lib, "registry", "apicurio-registry-app-*-runner.jar"))
	if err != nil || len(jars) != 1 {
		tb.Fatalf("the registry's jar: %v, %v", jars, err)
	}
	port := servers.FreePorts(tb, 1)[0]
	s := &server{name: "registry", dir: tb.TempDir(), args: []string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", jars[0]},
		env: []string{"QUARKUS_HTTP_HOST=127.0.0.1", fmt.Sprintf("QUARKUS_HTTP_PORT=%d", port)}}
	s.start(tb)
	tb.Cleanup(s.kill)
	url := fmt.Sprintf("http://127.0.0.1:%d/apis/ccompat/v7", port)
	s.ready(tb, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/subjects", nil)
		if err != nil {
			return err
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", r.Status)
		}
		return nil
	})
	return url
}

// ran is what a run of sluice left.
type ran struct {
	code           int
	stdout, stderr string
}

func (r ran) must(tb testing.TB) ran {
	tb.Helper()
	if r.code != 0 {
		tb.Fatalf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	return r
}

// command is sluice, to be run in dir.
func command(dir string, env []string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &stdout, &stderr, append(os.Environ(), env...)
	return cmd, &stdout, &stderr
}

func sluice(tb testing.TB, dir string, env []string, args ...string) ran {
	tb.Helper()
	cmd, stdout, stderr := command(dir, env, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		tb.Fatalf("run sluice %s: %v", strings.Join(args, " "), err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

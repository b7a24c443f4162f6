package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Options of a source.
type Options struct {
	Brokers []string
	// Topics are names; Pattern chooses further ones.
	Topics  []string
	Pattern *regexp.Regexp
	// Start is where a topic without position begins: earliest (""), latest, or a time.
	Start   string
	StartAt time.Time
	// AllowLoss goes on where offsets are gone or a topic was made anew.
	AllowLoss bool
	// Idle bounds the wait for records that the brokers say are there. 0: 60 s.
	Idle time.Duration
	// Client are further settings of the client: TLS, SASL, dialers.
	Client []kgo.Opt
}

// Error is a topic that cannot be read, or an option that is wrong. Code is
// stable: SOURCE_CHANGED, INPUT_GONE, TOPIC_NOT_FOUND, KAFKA_UNREACHABLE,
// KAFKA_STALLED, BAD_OPTION.
type Error struct{ Code, Reason string }

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// IsURL tells whether a location is kafka://brokers/topics.
func IsURL(location string) bool { return strings.HasPrefix(location, "kafka://") }

// ParseURL reads kafka://host:port,host:port/topic,topic and the source's settings,
// which it takes out of settings: topics_pattern, start (earliest, latest, RFC 3339),
// fail_on_data_loss=true|false, tls=true|false, tls_ca=FILE, sasl_mechanism
// (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512). User and password come from the
// environment, KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD.
func ParseURL(location string, settings map[string]string, env func(string) string) (Options, error) {
	o := Options{}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "kafka" || u.Host == "" {
		return o, &Error{"BAD_OPTION", "source: want kafka://host:port/topic"}
	}
	if u.User != nil {
		return o, &Error{"BAD_OPTION", "source: user and password do not belong into the URL: set KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"}
	}
	o.Brokers = strings.Split(u.Host, ",")
	for _, name := range strings.Split(strings.Trim(u.Path, "/"), ",") {
		if name != "" {
			o.Topics = append(o.Topics, name)
		}
	}
	secure := security{env: env}
	for name, value := range settings {
		known := true
		switch name {
		case "topics_pattern":
			if o.Pattern, err = regexp.Compile("^(?:" + value + ")$"); err != nil {
				return o, &Error{"BAD_OPTION", fmt.Sprintf("topics_pattern=%s: %v", value, err)}
			}
		case "start":
			err = o.setStart(value)
		case "fail_on_data_loss":
			var fail bool
			fail, err = strconv.ParseBool(value)
			o.AllowLoss = !fail
		case "tls":
			secure.tls, err = strconv.ParseBool(value)
		case "tls_ca":
			secure.ca, secure.tls = value, true
		case "sasl_mechanism":
			secure.mechanism = value
		default:
			known = false
		}
		if err != nil {
			return o, &Error{"BAD_OPTION", fmt.Sprintf("%s=%s: %v", name, value, err)}
		}
		if known {
			delete(settings, name)
		}
	}
	if len(o.Topics) == 0 && o.Pattern == nil {
		return o, &Error{"BAD_OPTION", "source: name topics, kafka://host:port/topic, or option topics_pattern=REGEX"}
	}
	o.Client, err = secure.options()
	return o, err
}

func (o *Options) setStart(value string) error {
	switch value {
	case "earliest":
		o.Start = ""
		return nil
	case "latest":
		o.Start = value
		return nil
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return fmt.Errorf("want earliest, latest or a time like 2024-05-01T10:00:00Z")
	}
	o.Start, o.StartAt = "time", at
	return nil
}

type security struct {
	env       func(string) string
	tls       bool
	ca        string
	mechanism string
}

func (s *security) options() ([]kgo.Opt, error) {
	var out []kgo.Opt
	if s.tls {
		c := &tls.Config{MinVersion: tls.VersionTLS12}
		if s.ca != "" {
			pem, err := os.ReadFile(s.ca)
			if err != nil {
				return nil, &Error{"BAD_OPTION", fmt.Sprintf("tls_ca: %v", err)}
			}
			c.RootCAs = x509.NewCertPool()
			if !c.RootCAs.AppendCertsFromPEM(pem) {
				return nil, &Error{"BAD_OPTION", "tls_ca: " + s.ca + " holds no certificate"}
			}
		}
		out = append(out, kgo.DialTLSConfig(c))
	}
	if s.mechanism == "" {
		return out, nil
	}
	user, pass := s.env("KAFKA_SASL_USERNAME"), s.env("KAFKA_SASL_PASSWORD")
	if user == "" {
		return nil, &Error{"BAD_OPTION", "sasl_mechanism: set KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD"}
	}
	switch s.mechanism {
	case "PLAIN":
		return append(out, kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism())), nil
	case "SCRAM-SHA-256":
		return append(out, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha256Mechanism())), nil
	case "SCRAM-SHA-512":
		return append(out, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha512Mechanism())), nil
	}
	return nil, &Error{"BAD_OPTION", "sasl_mechanism=" + s.mechanism + ": want PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"}
}

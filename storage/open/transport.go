package open

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// transport gives the function that sets a transport up as the settings say: how
// long to wait, how many connections to keep, whom to trust, which proxy.
func (s settings) transport() (func(*http.Transport), error) {
	insecure, err := s.on("insecure_tls")
	if err != nil {
		return nil, err
	}
	var roots *x509.CertPool
	if file := s.get("ca_file"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, &Error{CodeSetting, "ca_file", "cannot be read (" + err.Error() + ")"}
		}
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, &Error{CodeSetting, "ca_file", "holds no certificate"}
		}
	}
	proxy := http.ProxyFromEnvironment
	if text := s.get("proxy"); text != "" {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return nil, &Error{CodeSetting, "proxy", "is no URL such as http://host:3128"}
		}
		proxy = http.ProxyURL(u)
	}
	return func(t *http.Transport) {
		t.Proxy = proxy
		t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
		t.TLSHandshakeTimeout = 10 * time.Second
		t.ResponseHeaderTimeout = time.Minute
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = 256, 64, 90*time.Second
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if roots != nil {
			t.TLSClientConfig.RootCAs = roots
		}
		if insecure {
			t.TLSClientConfig.InsecureSkipVerify = true // the user asked for it by name
		}
	}, nil
}

// httpClient is a client of its own with such a transport.
func (s settings) httpClient() (*http.Client, error) {
	setUp, err := s.transport()
	if err != nil {
		return nil, err
	}
	t := &http.Transport{ForceAttemptHTTP2: true}
	setUp(t)
	return &http.Client{Transport: t}, nil
}

package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-data/sluice/apply/event"
	"github.com/sluice-data/sluice/apply/source/avro"
)

// translator makes the reader of framed Avro if options name a registry or a file
// of schemas, which it takes out of them; nil if they do not.
func (s *Spec) translator(rest map[string]string) (*avro.Options, error) {
	url, file, id := rest["registry"], rest["schemas"], rest["avro.id"]
	encoding := rest["avro.encoding"]
	for _, name := range []string{"registry", "schemas", "avro.id", "avro.encoding"} {
		delete(rest, name)
	}
	o := &avro.Options{IDKind: id, Base64: encoding == "base64"}
	switch {
	case encoding != "" && encoding != "base64":
		return nil, &Error{Code: "BAD_OPTION", Reason: "avro.encoding=" + encoding + ": want base64"}
	case url != "" && file != "":
		return nil, &Error{Code: "BAD_OPTION", Reason: "registry and schemas exclude each other"}
	case url != "":
		env := s.environment()
		o.Schemas = &avro.Registry{URL: url, User: env("SCHEMA_REGISTRY_USER"), Password: env("SCHEMA_REGISTRY_PASSWORD")}
	case file != "":
		f, err := avro.ReadFile(file)
		if err != nil {
			return nil, &Error{Code: "BAD_OPTION", Reason: err.Error()}
		}
		o.Schemas = f
	case id != "" || encoding != "":
		return nil, &Error{Code: "BAD_OPTION", Reason: "avro.id and avro.encoding need registry=URL or schemas=FILE"}
	default:
		return nil, nil
	}
	if _, err := avro.NewTranslator(*o); err != nil {
		return nil, &Error{Code: "BAD_OPTION", Reason: err.Error()}
	}
	return o, nil
}

// translated is a sample in JSON, for detection. Records that cannot be read stay
// as they are; a schema that is not to be had is an error.
func translated(ctx context.Context, o *avro.Options, sample []*event.Record) ([]*event.Record, error) {
	if o == nil {
		return sample, nil
	}
	t, err := avro.NewTranslator(*o)
	if err != nil {
		return nil, err
	}
	out := make([]*event.Record, len(sample))
	for i, r := range sample {
		c, err := t.Record(ctx, r)
		var gone *avro.Error
		switch {
		case errors.As(err, &gone):
			return nil, fmt.Errorf("look at sample: %w", err)
		case err != nil:
			c = r
		}
		out[i] = c
	}
	return out, nil
}

// behind puts a translator before every decoder.
func (o *Opened) behind(opt *avro.Options) error {
	c := *opt
	c.Bare = o.Format != Debezium && o.Format != DebeziumPlain
	inner := o.NewDecoder
	if _, err := avro.NewTranslator(c); err != nil {
		return &Error{Code: "BAD_OPTION", Reason: err.Error()}
	}
	o.NewDecoder = func() event.Decoder {
		t, err := avro.NewTranslator(c)
		if err != nil {
			return nil // cannot be: the same options passed above
		}
		return avro.NewDecoder(t, inner())
	}
	return nil
}

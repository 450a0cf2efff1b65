package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/webhook"
)

const (
	readPatience = 10 * time.Second
	endPatience  = 5 * time.Second
)

type webhookOptions struct{ program, listen, certificate, key string }

func (o *webhookOptions) define(set *flag.FlagSet) {
	set.StringVar(&o.program, "steadyvm", "steadyvm", "the program steadyvm of the same release")
	set.StringVar(&o.listen, "listen", ":8443", "address of /claims and /healthz")
	set.StringVar(&o.certificate, "certificate", "/etc/webhook/tls.crt", "its certificate, read anew for each connection")
	set.StringVar(&o.key, "key", "/etc/webhook/tls.key", "the certificate's key")
}

func serveWebhook(ctx context.Context, words []string) error {
	var chosen webhookOptions
	if err := options("webhook", words, chosen.define); err != nil {
		return err
	}
	// Read for each connection: who renews certificates replaces the files.
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(chosen.certificate, chosen.key)
		return &pair, err
	}
	if _, err := certificate(nil); err != nil {
		return fmt.Errorf("read the webhook's certificate: %w", err)
	}
	routes := http.NewServeMux()
	routes.Handle("/claims", webhook.Handler{Planner: engine.Program{Path: chosen.program}})
	routes.HandleFunc("/healthz", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &http.Server{
		Addr: chosen.listen, Handler: routes,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
	<-serve(ctx, server, func(server *http.Server) error { return server.ListenAndServeTLS("", "") }, stop)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// serve listens until the context ends, and lets what is under way end; the channel is closed then. A server that cannot
// listen stops the program.
func serve(
	ctx context.Context, server *http.Server, listen func(*http.Server) error, stop context.CancelCauseFunc,
) <-chan struct{} {
	server.ReadTimeout = readPatience
	ended := make(chan struct{})
	go func() {
		if err := listen(server); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("listen at %s: %w", server.Addr, err))
		}
	}()
	go func() {
		defer close(ended)
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
		defer cancel()
		if err := server.Shutdown(patience); err != nil {
			server.Close()
		}
	}()
	return ended
}

package trial

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"crypto/tls"
	"crypto/x509"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	namespace   = "steadyvm"
	webhookName = "claims.steadyvm.io"
)

// kubectl runs the release's own client as administrator.
func (c *Cluster) kubectl(ctx context.Context, words ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(c.Programs, "kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig()}, words...)...)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("kubectl %v: %w: %s", words, err, said.String())
	}
	return nil
}

// Install applies what the guide applies first.
func (c *Cluster) Install(ctx context.Context) error {
	return c.kubectl(ctx, "apply", "-k", filepath.Join(c.Source, "deploy/base"))
}

// startWebhook runs it here, and not as the pods of its Deployment, which have no kubelet.
func (c *Cluster) startWebhook(ctx context.Context) (*process, error) {
	if err := c.typeGuide(ctx, "The webhook"); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	own, err := start(c.Logs, "webhook", c.Driver, "webhook", "--listen=127.0.0.1:"+strconv.Itoa(port),
		"--certificate="+c.authority.path("webhook.crt"), "--key="+c.authority.path("webhook.key"), "--steadyvm="+c.Steadyvm)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("https://127.0.0.1:%d", port)
	authority, err := os.ReadFile(c.authority.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	err = own.until(ctx, "answers", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal([]map[string]any{{
		"op": "replace", "path": "/webhooks/0/clientConfig",
		"value": map[string]string{"url": address + "/claims", "caBundle": base64.StdEncoding.EncodeToString(authority)},
	}})
	if err != nil {
		return nil, err
	}
	_, err = c.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Patch(ctx, webhookName, types.JSONPatchType, change, metav1.PatchOptions{})
	return own, err
}

// removeWebhook leaves claims to the policies alone.
func (c *Cluster) removeWebhook(ctx context.Context) error {
	return c.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, webhookName, metav1.DeleteOptions{})
}

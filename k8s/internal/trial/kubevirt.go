package trial

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// named is the claim that a VM's owner writes, and compute the container of its VM.
const (
	named   = "steadyvm-cpu"
	compute = "compute"
)

// givesTheClaim: the policy for KubeVirt names the claim in the container of a VM, and changes nothing else.
func (c *Cluster) givesTheClaim(ctx context.Context) (Check, error) {
	check := Check{What: "The policy for KubeVirt names the claim in the VM's container alone, and leaves other pods as they are"}
	if err := c.kubectl(ctx, "apply", "-k", filepath.Join(c.Source, "deploy/kubevirt")); err != nil {
		return check, err
	}
	launcher := map[string]string{"kubevirt.io": "virt-launcher"}
	var found []string
	// The API server heeds it a moment after it is made.
	err := until(ctx, "the policy for KubeVirt is heeded", func(ctx context.Context) error {
		var err error
		if found, err = c.claimers(ctx, launcher, named); err == nil && len(found) == 0 {
			err = errors.New("no container has the claim")
		}
		return err
	})
	if err != nil {
		return check, err
	}
	stranger, err := c.claimers(ctx, nil, named)
	if err != nil {
		return check, err
	}
	another, err := c.claimers(ctx, launcher, "gpu")
	if err != nil {
		return check, err
	}
	check.Holds = len(found) == 1 && found[0] == compute && len(stranger) == 0 && len(another) == 0
	check.Found = fmt.Sprintf("the claim is in %v of a virt-launcher's containers, and in %d of another pod's; one of another name in %d",
		found, len(stranger), len(another))
	return check, nil
}

// claimers are the containers that have a claim, of a pod as virt-controller makes it: no container names one.
func (c *Cluster) claimers(ctx context.Context, labels map[string]string, claim string) ([]string, error) {
	template := "race"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-control", Labels: labels},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: claim, ResourceClaimTemplateName: &template}},
			Containers:     []corev1.Container{{Name: "guest-console-log", Image: "vm"}, {Name: compute, Image: "vm"}},
		},
	}
	made, err := c.admin.CoreV1().Pods(tenant).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, container := range made.Spec.Containers {
		if len(container.Resources.Claims) > 0 {
			found = append(found, container.Name)
		}
	}
	return found, nil
}

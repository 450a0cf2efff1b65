package trial

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/reservation"
)

// Check is something that was tried, and what was found.
type Check struct {
	What  string `json:"what"`
	Found string `json:"found"`
	Holds bool   `json:"holds"`
}

const (
	// Ten places: five parts of 18 % on each of two CPUs of which 90 % are for sale.
	hostFile = "[host]\ncpus = \"0-1\"\nscheduler = \"pedf\"\nenforce = \"deadline\"\n"
	places   = 10
	budgetUs = 1800
	periodUs = 10_000
)

func (n *node) engine() engine.Program {
	return engine.Program{Path: n.cluster.Steadyvm, File: n.file()}
}

// offers: the slices say what `steadyvm capacity` says.
func (n *node) offers(ctx context.Context) (Check, error) {
	check := Check{What: "A node offers what `steadyvm capacity` says of its host"}
	capacity, err := n.engine().Capacity(ctx)
	if err != nil {
		return check, err
	}
	slices, err := n.slices(ctx)
	if err != nil {
		return check, err
	}
	offered := map[string]int64{}
	for _, slice := range slices {
		for _, device := range slice.Spec.Devices {
			value := device.Capacity[reservation.Capacity].Value
			offered[device.Name] = value.Value()
		}
	}
	check.Holds = len(offered) == len(capacity.CPUs)
	for _, cpu := range capacity.CPUs {
		check.Holds = check.Holds && offered[devices.Name(cpu)] == capacity.CPUPpm
	}
	check.Found = fmt.Sprintf("%d CPUs of %d millionths; the host says %d of %d", len(offered), offered[devices.Name(0)],
		len(capacity.CPUs), capacity.CPUPpm)
	return check, nil
}

func (c *Cluster) forget(ctx context.Context, claim string) error {
	return c.admin.ResourceV1().ResourceClaims(tenant).Delete(ctx, claim, metav1.DeleteOptions{})
}

// writes: the webhook writes what the analysis computes, for a budget and for tasks.
func (c *Cluster) writes(ctx context.Context) (Check, error) {
	check := Check{What: "What a reservation takes of a CPU is computed by the analysis, and written into the claim", Holds: true}
	tasks := parameters{"tasks": []map[string]int64{{
		"executionMicroseconds": 1000, "periodMicroseconds": 20_000, "limitMicroseconds": 10_000,
	}}}
	program := engine.Program{Path: c.Steadyvm}
	for _, asked := range []parameters{budget(budgetUs, periodUs), tasks} {
		claim, err := c.claim(ctx, "written", asked, 0)
		if err != nil {
			return check, err
		}
		parsed, err := reservation.Parse(claim.Spec.Devices.Config[0].Opaque.Parameters.Raw)
		if err != nil {
			return check, err
		}
		need, err := parsed.Need(ctx, program, "written", 1)
		if err != nil {
			return check, err
		}
		written := claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests[reservation.Capacity]
		check.Holds = check.Holds && need.Ppm > 0 && written.Value() == need.Ppm
		check.Found += fmt.Sprintf("%d written, %d computed; ", written.Value(), need.Ppm)
		if err := c.forget(ctx, "written"); err != nil {
			return check, err
		}
	}
	check.Found = strings.TrimSuffix(check.Found, "; ")
	return check, nil
}

// rights: the driver's account may write slices of its own node, and nothing else.
func (n *node) rights(ctx context.Context) (Check, error) {
	check := Check{What: "A driver may write slices of its own node, and nothing else of the cluster"}
	config, err := clientcmd.BuildConfigFromFlags("", n.cluster.kubeconfig(n.name))
	if err != nil {
		return check, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return check, err
	}
	other := "another"
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "forged"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: reservation.Driver, NodeName: &other, Pool: resourceapi.ResourcePool{Name: other, ResourceSliceCount: 1},
		},
	}
	dry := []string{metav1.DryRunAll}
	_, forged := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{DryRun: dry})
	_, pods := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, secrets := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	_, claims := client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
	refused := 0
	for _, err := range []error{forged, pods, secrets, claims} {
		if apierrors.IsForbidden(err) || (apierrors.IsInvalid(err) && strings.Contains(err.Error(), "may not write a slice of node")) {
			refused++
		}
	}
	check.Holds = refused == 4
	check.Found = fmt.Sprintf("%d of 4 refused: a slice of another node, lists of pods, of secrets, of claims", refused)
	return check, nil
}

// prepares: what is sold starts. Each placed pod's VM is described with its cgroup, and the host holds all of them.
func (n *node) prepares(ctx context.Context, placed []corev1.Pod) (Check, error) {
	check := Check{What: "What is sold starts: each placed pod's claim is prepared, and the host's plan holds all of them"}
	named := 0
	for _, pod := range placed {
		path, err := n.makeCgroup(string(pod.UID))
		if err != nil {
			return check, err
		}
		claim, err := n.cluster.claimOf(ctx, pod)
		if err != nil {
			return check, err
		}
		if err := n.prepare(ctx, claim); err != nil {
			check.Found = err.Error()
			return check, nil
		}
		text, err := n.description(claim)
		if err != nil {
			return check, err
		}
		if strings.Contains(text, path) && strings.Contains(text, "1800000ns") {
			named++
		}
	}
	capacity, err := n.engine().Capacity(ctx)
	if err != nil {
		return check, err
	}
	check.Holds = named == len(placed) && len(capacity.Held) == len(placed) && named > 0
	check.Found = fmt.Sprintf("%d of %d prepared with their cgroup and budget; the host holds %d", named, len(placed), len(capacity.Held))
	return check, nil
}

// lastDefence: a claim that says it has a place on a full CPU is refused by the host's plan.
func (n *node) lastDefence(ctx context.Context, like corev1.Pod) (Check, error) {
	check := Check{What: "A claim that a full CPU was given to all the same is refused by the host's plan"}
	model, err := n.cluster.claimOf(ctx, like)
	if err != nil {
		return check, err
	}
	forged, err := n.cluster.claim(ctx, "forged", budget(budgetUs, periodUs), 0)
	if err != nil {
		return check, err
	}
	forged.Status = *model.Status.DeepCopy()
	forged.Status.Allocation.Devices.Results[0].ShareID = &forged.UID
	forged.Status.Devices = nil
	claims := n.cluster.admin.ResourceV1().ResourceClaims(tenant)
	if forged, err = claims.UpdateStatus(ctx, forged, metav1.UpdateOptions{}); err != nil {
		return check, err
	}
	refused := n.prepare(ctx, forged)
	files, err := dropin.Files(n.descriptions())
	if err != nil {
		return check, err
	}
	check.Holds = refused != nil && strings.Contains(refused.Error(), "cannot hold") && len(files) == places
	// The rest of its words is a proof, with this run's paths.
	_, words, _ := strings.Cut(fmt.Sprint(refused), "steadyvm.toml: ")
	words, _, _ = strings.Cut(words, " cannot promise")
	check.Found = fmt.Sprintf("%d files; the driver says: %q …", len(files), words)
	forged.Status = resourceapi.ResourceClaimStatus{}
	if _, err := claims.UpdateStatus(ctx, forged, metav1.UpdateOptions{}); err != nil {
		return check, err
	}
	return check, n.cluster.forget(ctx, "forged")
}

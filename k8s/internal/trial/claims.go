package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"steadyvm/k8s/internal/reservation"
)

const (
	tenant      = "default"
	deviceClass = "steadyvm-cpu"
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// parameters of a claim, as their owner writes them; what is not there is left out.
type parameters map[string]any

func budget(budgetUs, periodUs int64) parameters {
	return parameters{"budgetMicroseconds": budgetUs, "periodMicroseconds": periodUs}
}

func (p parameters) with(name string, value any) parameters {
	more := parameters{name: value}
	for name, value := range p {
		if _, isThere := more[name]; !isThere {
			more[name] = value
		}
	}
	return more
}

// spec is that of a claim. ppm 0: the webhook writes it. Without parameters it has no reservation.
func (p parameters) spec(ppm int64) (resourceapi.ResourceClaimSpec, error) {
	whole := p.with("apiVersion", reservation.APIVersion).with("kind", reservation.Kind)
	raw, err := json.Marshal(whole)
	request := resourceapi.ExactDeviceRequest{DeviceClassName: deviceClass}
	if ppm != 0 {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			reservation.Capacity: *resource.NewQuantity(ppm, resource.DecimalSI),
		}}
	}
	requests := []resourceapi.DeviceRequest{{Name: "cpu", Exactly: &request}}
	if p == nil {
		return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}, nil
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: requests,
		Config: []resourceapi.DeviceClaimConfiguration{{
			Requests: []string{"cpu"},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: reservation.Driver, Parameters: runtime.RawExtension{Raw: raw},
			}},
		}},
	}}, err
}

func (c *Cluster) claim(ctx context.Context, name string, asked parameters, ppm int64) (*resourceapi.ResourceClaim, error) {
	spec, err := asked.spec(ppm)
	if err != nil {
		return nil, err
	}
	object := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	return c.admin.ResourceV1().ResourceClaims(tenant).Create(ctx, object, metav1.CreateOptions{})
}

// template makes a template of claims, unless it is there.
func (c *Cluster) template(ctx context.Context, name string, asked parameters) error {
	err := c.makeTemplate(ctx, name, asked, 0)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *Cluster) makeTemplate(ctx context.Context, name string, asked parameters, ppm int64) error {
	spec, err := asked.spec(ppm)
	if err != nil {
		return err
	}
	object := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}
	_, err = c.admin.ResourceV1().ResourceClaimTemplates(tenant).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// pod makes a pod with a claim of its own by a template; "": without.
func (c *Cluster) pod(ctx context.Context, name, template string) error {
	return c.podWith(ctx, name, template, nil)
}

func (c *Cluster) podWith(ctx context.Context, name, template string, requests corev1.ResourceList) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"trial": "race"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "vm", Image: "vm"}}},
	}
	pod.Spec.Containers[0].Resources.Requests = requests
	if template != "" {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "cpu", ResourceClaimTemplateName: &template}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "cpu"}}
	}
	_, err := c.admin.CoreV1().Pods(tenant).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// standing is where the pods of the trial are.
type standing struct {
	placed, refused, open []corev1.Pod
}

func (c *Cluster) pods(ctx context.Context) (standing, error) {
	var now standing
	list, err := c.admin.CoreV1().Pods(tenant).List(ctx, metav1.ListOptions{LabelSelector: "trial=race"})
	if err != nil {
		return now, err
	}
	for _, pod := range list.Items {
		switch {
		case pod.Spec.NodeName != "":
			now.placed = append(now.placed, pod)
		case isUnschedulable(pod):
			now.refused = append(now.refused, pod)
		default:
			now.open = append(now.open, pod)
		}
	}
	return now, nil
}

func isUnschedulable(pod corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// settled waits until so many pods are placed, and the scheduler has said of all others that they have no place. It
// returns at once where more are placed.
func (c *Cluster) settled(ctx context.Context, places int) (standing, error) {
	var now standing
	err := until(ctx, fmt.Sprintf("%d pods are placed, and all others refused", places), func(ctx context.Context) error {
		var err error
		if now, err = c.pods(ctx); err != nil {
			return err
		}
		if len(now.placed) < places || (len(now.open) > 0 && len(now.placed) == places) {
			return fmt.Errorf("%d are placed, %d refused, %d open", len(now.placed), len(now.refused), len(now.open))
		}
		return nil
	})
	return now, err
}

// account is what claims hold: their number, and the millionths of each device.
type account struct {
	allocated int
	consumed  map[string]int64
}

func (c *Cluster) account(ctx context.Context) (account, error) {
	sum := account{consumed: map[string]int64{}}
	list, err := c.admin.ResourceV1().ResourceClaims(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return sum, err
	}
	for _, claim := range list.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		sum.allocated++
		for _, result := range claim.Status.Allocation.Devices.Results {
			part := result.ConsumedCapacity[reservation.Capacity]
			sum.consumed[result.Pool+"/"+result.Device] += part.Value()
		}
	}
	return sum, nil
}

// remove deletes pods as kubelet's last word would, and waits until no claim of theirs is left.
func (c *Cluster) remove(ctx context.Context, pods []corev1.Pod) error {
	now := int64(0)
	for _, pod := range pods {
		err := c.admin.CoreV1().Pods(tenant).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Name] = true
	}
	return until(ctx, "claims of deleted pods are gone", func(ctx context.Context) error {
		list, err := c.admin.ResourceV1().ResourceClaims(tenant).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, claim := range list.Items {
			for _, owner := range claim.OwnerReferences {
				if names[owner.Name] {
					return fmt.Errorf("claim %s is there", claim.Name)
				}
			}
		}
		return nil
	})
}

// claimOf is the claim that a pod's template has made.
func (c *Cluster) claimOf(ctx context.Context, pod corev1.Pod) (*resourceapi.ResourceClaim, error) {
	fresh, err := c.admin.CoreV1().Pods(tenant).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, status := range fresh.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			return c.admin.ResourceV1().ResourceClaims(tenant).Get(ctx, *status.ResourceClaimName, metav1.GetOptions{})
		}
	}
	return nil, errors.New("the pod has no claim")
}

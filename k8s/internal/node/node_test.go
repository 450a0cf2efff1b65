package node_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"steadyvm/k8s/internal/dropin"
	"steadyvm/k8s/internal/node"
	"steadyvm/k8s/internal/real"
	"steadyvm/k8s/internal/reservation"
)

const pod = "aa-bb"

// driver is one on a host of two CPUs, with the cgroup of one pod. The program that admits is the real one.
func driver(t *testing.T, objects ...runtime.Object) (*node.Driver, *prometheus.Registry) {
	t.Helper()
	program, root := real.Host(t)
	cgroups := filepath.Join(root, "cgroup")
	if err := os.MkdirAll(filepath.Join(cgroups, "kubepods/pod"+pod), 0o755); err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(root, "run/steadyvm.d")
	registry := prometheus.NewRegistry()
	metrics, err := node.NewMetrics(registry, directory)
	if err != nil {
		t.Fatal(err)
	}
	_, stop := context.WithCancelCause(t.Context())
	return &node.Driver{
		Node: "host1", Directory: directory, Cgroups: cgroups, Engine: program,
		Client: fake.NewClientset(objects...), Metrics: metrics, Stop: stop,
	}, registry
}

// claim is one that has so much of a CPU, for so many us of every 10 ms.
func claim(uid, device string, ppm, budgetUs string) *resourceapi.ResourceClaim {
	parameters := `{"apiVersion":"steadyvm.io/v1alpha1","kind":"Reservation","periodMicroseconds":10000,"budgetMicroseconds":` + budgetUs + `}`
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-" + uid, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: pod}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{{
					Request: "cpu", Driver: reservation.Driver, Pool: "host1", Device: device,
					ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{reservation.Capacity: resource.MustParse(ppm)},
				}},
				Config: []resourceapi.DeviceAllocationConfiguration{{
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver: reservation.Driver, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
					}},
				}},
			}},
		},
	}
}

func prepare(t *testing.T, own *node.Driver, claim *resourceapi.ResourceClaim) error {
	t.Helper()
	results, err := own.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	result := results[claim.UID]
	if result.Err == nil && len(result.Devices) != len(claim.Status.Allocation.Devices.Results) {
		t.Errorf("%+v", result)
	}
	return result.Err
}

func files(t *testing.T, own *node.Driver) []string {
	t.Helper()
	names, err := dropin.Files(own.Directory)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAContainersThreadsAreDescribedByTheirName(t *testing.T) {
	own, _ := driver(t)
	one := claim("u1", "cpu-0", "400000", "4000")
	raw := &one.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = []byte(strings.Replace(string(*raw), "{", `{"threads":"cycle*",`, 1))
	if err := prepare(t, own, one); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(own.Directory, "kubernetes-u1.toml"))
	if err != nil || !strings.Contains(string(text), "threads = 'cycle*'") {
		t.Errorf("%s, %v", text, err)
	}
	// The host counts it as it does a VM.
	capacity, err := own.Engine.Capacity(t.Context())
	if err != nil || len(capacity.Held) != 1 || capacity.Held[0].BudgetNs != 4_000_000 {
		t.Errorf("%+v, %v", capacity.Held, err)
	}
	if err := prepare(t, own, claim("u2", "cpu-0", "600000", "6000")); err == nil {
		t.Error("a CPU is given away twice")
	}
}

func TestAClaimIsDescribedOnceAndForgottenWithoutATrace(t *testing.T) {
	own, registry := driver(t)
	one := claim("u1", "cpu-1", "400000", "4000")
	for range 2 {
		if err := prepare(t, own, one); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(own.Directory, "kubernetes-u1.toml"))
	if err != nil || !strings.Contains(string(text), "/kubepods/pod"+pod) || !strings.Contains(string(text), "vcpu_cpus = [1]") {
		t.Errorf("%s, %v", text, err)
	}
	expected := "# HELP steadyvm_dra_prepared_claims Claims whose VMs are described to the host.\n" +
		"# TYPE steadyvm_dra_prepared_claims gauge\nsteadyvm_dra_prepared_claims 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected), "steadyvm_dra_prepared_claims"); err != nil {
		t.Error(err)
	}
	for range 2 {
		results, err := own.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{
			{NamespacedName: types.NamespacedName{Namespace: "default", Name: one.Name}, UID: one.UID},
		})
		if err != nil || results[one.UID] != nil || len(files(t, own)) != 0 {
			t.Errorf("%v, %v, %v", results, err, files(t, own))
		}
	}
}

func TestEachVCPUGetsTheCPUThatItWasGivenOrNone(t *testing.T) {
	for other, refused := range map[string]bool{"5000": false, "7000": true} {
		own, _ := driver(t)
		if err := prepare(t, own, claim("u1", "cpu-1", "700000", other)); err != nil {
			t.Fatal(err)
		}
		// Two VCPUs, of which CPU 0 could hold both.
		two := claim("u2", "cpu-1", "400000", "4000")
		results := &two.Status.Allocation.Devices.Results
		*results = append(*results, (*results)[0])
		(*results)[1].Device = "cpu-0"
		err := prepare(t, own, two)
		if (err != nil) != refused {
			t.Errorf("beside %s us: %v", other, err)
		}
		capacity, err := own.Engine.Capacity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		planned := map[string][]int{}
		for _, held := range capacity.Held {
			planned[held.VM] = held.CPUs
		}
		expected := map[string][]int{"kubernetes/default/claim-u1/u1": {1}}
		if !refused {
			expected["kubernetes/default/claim-u2/u2"] = []int{1, 0}
		}
		if !reflect.DeepEqual(planned, expected) {
			t.Errorf("beside %s us it is planned %v, not %v", other, planned, expected)
		}
	}
}

func TestWhatTheHostCannotHoldIsRefusedAndLeavesNothing(t *testing.T) {
	own, _ := driver(t)
	if err := prepare(t, own, claim("u1", "cpu-1", "600000", "6000")); err != nil {
		t.Fatal(err)
	}
	err := prepare(t, own, claim("u2", "cpu-1", "600000", "6000"))
	if err == nil || !strings.Contains(err.Error(), "cannot hold") || len(files(t, own)) != 1 {
		t.Errorf("%v, %v", err, files(t, own))
	}
	// The other CPU has room.
	if err := prepare(t, own, claim("u2", "cpu-0", "600000", "6000")); err != nil {
		t.Error(err)
	}
}

func TestWrongAllocationsAreRefused(t *testing.T) {
	two := claim("u1", "cpu-1", "400000", "4000")
	two.Status.ReservedFor = append(two.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", UID: "cc"})
	elsewhere := claim("u1", "cpu-1", "400000", "4000")
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "host2"
	silent := claim("u1", "cpu-1", "400000", "4000")
	silent.Status.Allocation.Devices.Config = nil
	gone := claim("u1", "cpu-1", "400000", "4000")
	gone.Status.ReservedFor[0].UID = "dd"
	for words, wrong := range map[string]*resourceapi.ResourceClaim{
		"2 pods":                       two,
		"nothing of node host1":        elsewhere,
		"no parameters":                silent,
		"no cgroup of pod dd":          gone,
		"its reservation needs 400000": claim("u1", "cpu-1", "399999", "4000"),
		"none of this driver's":        claim("u1", "gpu-1", "400000", "4000"),
		"more than its period":         claim("u1", "cpu-1", "900000", "11000"),
	} {
		own, _ := driver(t)
		err := prepare(t, own, wrong)
		if err == nil || !strings.Contains(err.Error(), words) || len(files(t, own)) != 0 {
			t.Errorf("%q: %v, %v", words, err, files(t, own))
		}
	}
}

func TestAStartForgetsClaimsThatAreGone(t *testing.T) {
	stays, other := claim("u1", "cpu-1", "100000", "1000"), claim("u2", "cpu-1", "100000", "1000")
	again := claim("u3", "cpu-1", "100000", "1000")
	again.UID = "u4"
	own, _ := driver(t, stays, again)
	for _, one := range []*resourceapi.ResourceClaim{stays, other, claim("u3", "cpu-1", "100000", "1000")} {
		if err := prepare(t, own, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(own.Directory, "libvirt-1.toml"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := own.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, own); len(left) != 1 || left[0] != "kubernetes-u1.toml" {
		t.Errorf("%v", left)
	}
	if _, err := os.Stat(filepath.Join(own.Directory, "libvirt-1.toml")); err != nil {
		t.Error("a file of another is gone")
	}
}

// Package kubevirt_test holds the manifests for KubeVirt to the types of its API, and to what else has to agree with them.
package kubevirt_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	admissionapi "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"steadyvm/k8s/internal/reservation"
)

const directory = "../../deploy/kubevirt/"

// virtualMachine has what the manifest says, by the JSON names of kubevirt/api, core/v1, at c3275b31 (1.9.0-rc.2). The module
// kubevirt.io/api itself is not to be had where this is tested.
type virtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RunStrategy string `json:"runStrategy"`
		Template    struct {
			Spec instance `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type instance struct {
	ResourceClaims []struct {
		Name                      string  `json:"name"`
		ResourceClaimName         *string `json:"resourceClaimName,omitempty"`
		ResourceClaimTemplateName *string `json:"resourceClaimTemplateName,omitempty"`
	} `json:"resourceClaims"`
	Domain struct {
		CPU struct {
			Cores   int64 `json:"cores"`
			Sockets int64 `json:"sockets"`
			Threads int64 `json:"threads"`
		} `json:"cpu"`
		Memory struct {
			Guest string `json:"guest"`
		} `json:"memory"`
		Resources struct {
			Requests corev1.ResourceList `json:"requests"`
		} `json:"resources"`
		Devices struct {
			Disks []struct {
				Name string `json:"name"`
				Disk struct {
					Bus string `json:"bus"`
				} `json:"disk"`
			} `json:"disks"`
			Interfaces []struct {
				Name       string   `json:"name"`
				Masquerade struct{} `json:"masquerade"`
			} `json:"interfaces"`
		} `json:"devices"`
	} `json:"domain"`
	Networks []struct {
		Name string   `json:"name"`
		Pod  struct{} `json:"pod"`
	} `json:"networks"`
	Volumes []struct {
		Name          string `json:"name"`
		ContainerDisk struct {
			Image string `json:"image"`
		} `json:"containerDisk"`
	} `json:"volumes"`
}

// read takes a manifest's documents into these, in which every field of theirs has a place.
func read(t *testing.T, file string, into ...any) {
	t.Helper()
	text, err := os.ReadFile(directory + file)
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != len(into) {
		t.Fatalf("%s has %d documents, not %d", file, len(documents), len(into))
	}
	for number, document := range documents {
		if err := yaml.UnmarshalStrict(document, into[number]); err != nil {
			t.Errorf("%s, document %d: %v", file, number, err)
		}
	}
}

func TestTheManifestsAreOfTheTypesAndAgree(t *testing.T) {
	var template resourceapi.ResourceClaimTemplate
	var machine virtualMachine
	read(t, "example.yaml", &template, &machine)
	var policy admissionapi.MutatingAdmissionPolicy
	var binding admissionapi.MutatingAdmissionPolicyBinding
	read(t, "policy.yaml", &policy, &binding)

	claims := machine.Spec.Template.Spec.ResourceClaims
	if len(claims) != 1 || claims[0].ResourceClaimTemplateName == nil || *claims[0].ResourceClaimTemplateName != template.Name {
		t.Fatalf("the VM has claims %+v, and the template is %s", claims, template.Name)
	}
	// The policy knows a claim by its name in the pod alone.
	named := "name == '" + claims[0].Name + "'"
	if len(policy.Spec.MatchConditions) != 1 || !strings.Contains(policy.Spec.MatchConditions[0].Expression, named) {
		t.Errorf("the policy does not look for %s: %+v", named, policy.Spec.MatchConditions)
	}
	named = "claims{name: '" + claims[0].Name + "'}"
	mutations := policy.Spec.Mutations
	if len(mutations) != 1 || !strings.Contains(mutations[0].ApplyConfiguration.Expression, named) {
		t.Errorf("the policy does not give %s: %+v", named, mutations)
	}
	if binding.Spec.PolicyName != policy.Name {
		t.Errorf("the binding is of %s, and the policy is %s", binding.Spec.PolicyName, policy.Name)
	}

	requests, configs := template.Spec.Spec.Devices.Requests, template.Spec.Spec.Devices.Config
	if len(requests) != 1 || len(configs) != 1 {
		t.Fatalf("%+v", template.Spec)
	}
	cpu := machine.Spec.Template.Spec.Domain.CPU
	if vcpus := cpu.Cores * cpu.Sockets * cpu.Threads; requests[0].Exactly.Count != vcpus {
		t.Errorf("the claim is for %d VCPUs, and the VM has %d", requests[0].Exactly.Count, vcpus)
	}
	if configs[0].Opaque.Driver != reservation.Driver {
		t.Errorf("%+v", configs[0])
	}
	if _, err := reservation.Parse(configs[0].Opaque.Parameters.Raw); err != nil {
		t.Error(err)
	}
}

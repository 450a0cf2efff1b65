// Package dropin keeps the files that describe pods' VMs to this host: one a claim, in /run/steadyvm.d.
package dropin

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"steadyvm/k8s/internal/engine"
)

const (
	filePrefix = "kubernetes-"
	fileSuffix = ".toml"
	vmPrefix   = "kubernetes/"
)

// Claim is a claim as kubelet names it.
type Claim struct {
	Namespace, Name, UID string
}

// File is the name of a claim's file.
func (c Claim) File() string { return filePrefix + c.UID + fileSuffix }

// VM is what the host calls the claim's VM.
func (c Claim) VM() string { return vmPrefix + c.Namespace + "/" + c.Name + "/" + c.UID }

// IsOurs tells whether a VM is a claim's.
func IsOurs(vm string) bool { return strings.HasPrefix(vm, vmPrefix) }

// IsOurFile tells whether a file is a claim's.
func IsOurFile(file string) bool {
	return strings.HasPrefix(file, filePrefix) && strings.HasSuffix(file, fileSuffix)
}

type table struct {
	Name      string      `toml:"name"`
	Cgroup    string      `toml:"cgroup"`
	Threads   string      `toml:"threads,omitempty"`
	Class     string      `toml:"class"`
	Interface string      `toml:"interface,omitempty"`
	Period    string      `toml:"period,omitempty"`
	Budget    string      `toml:"budget,omitempty"`
	VCPUs     int64       `toml:"vcpus"`
	VCPUCPUs  []int       `toml:"vcpu_cpus"`
	Tasks     []taskTable `toml:"tasks,omitempty,inline"`
}

type taskTable struct {
	C string `toml:"c"`
	T string `toml:"t"`
	D string `toml:"d,omitempty"`
}

type file struct {
	VM []table `toml:"vm"`
}

// Place is where a claim's VM is, and where it runs.
type Place struct {
	// Cgroup is the pod's.
	Cgroup string
	// Threads have this name, where they are its VCPUs and there is no VM.
	Threads string
	// CPUs has that of each VCPU.
	CPUs []int
}

// Text describes a VM: by the cgroup it is found, and each VCPU runs on its own of these CPUs. kube-scheduler has counted on
// that, so the plan may not put two VCPUs where one has room.
func Text(claim Claim, vm engine.VM, place Place) (string, error) {
	inNs := func(ns *int64) string {
		if ns == nil {
			return ""
		}
		return fmt.Sprintf("%dns", *ns)
	}
	described := table{
		Name: claim.VM(), Cgroup: place.Cgroup, Threads: place.Threads, Class: vm.Class, Interface: vm.Interface,
		Period: inNs(vm.PeriodNs), Budget: inNs(vm.BudgetNs), VCPUs: vm.VCPUs, VCPUCPUs: place.CPUs,
	}
	for _, task := range vm.Tasks {
		one := taskTable{C: inNs(&task.C), T: inNs(&task.T)}
		if task.D != 0 {
			one.D = inNs(&task.D)
		}
		described.Tasks = append(described.Tasks, one)
	}
	text, err := toml.Marshal(file{VM: []table{described}})
	if err != nil {
		return "", fmt.Errorf("describe the VM of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return "# Written by dra-driver-steadyvm, and deleted when the claim is unprepared.\n" + string(text), nil
}

// Read gives the claim of a file; an error if it is none of ours, or damaged.
func Read(text string) (Claim, error) {
	var read file
	if err := toml.Unmarshal([]byte(text), &read); err != nil {
		return Claim{}, err
	}
	if len(read.VM) != 1 {
		return Claim{}, fmt.Errorf("it describes %d VMs, not one", len(read.VM))
	}
	parts := strings.Split(strings.TrimPrefix(read.VM[0].Name, vmPrefix), "/")
	if !IsOurs(read.VM[0].Name) || len(parts) != 3 {
		return Claim{}, fmt.Errorf("VM %q is no claim's", read.VM[0].Name)
	}
	return Claim{Namespace: parts[0], Name: parts[1], UID: parts[2]}, nil
}

package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steadyvm/k8s/internal/devices"
	"steadyvm/k8s/internal/dropin"
)

// The cluster of section 4.3.3 of S. Xi's dissertation, from the repository's root.
const paperFile = "examples/dissertation-cluster.toml"

const wholeCPUPpm = 1_000_000

// paperCluster is what its file says.
type paperCluster struct {
	Hosts []struct {
		Name      string `toml:"name"`
		CPUs      int    `toml:"cpus"`
		MemoryMiB int64  `toml:"memory_mib"`
	} `toml:"host"`
	VMs []paperVM `toml:"vm"`
}

type paperVM struct {
	Name      string `toml:"name"`
	VCPUs     int64  `toml:"vcpus"`
	MemoryMiB int64  `toml:"memory_mib"`
	Tasks     []struct {
		C string `toml:"c"`
		T string `toml:"t"`
	} `toml:"tasks"`
}

// Paper is where Kubernetes has put the VMs of the dissertation's cluster.
type Paper struct {
	Release  string      `json:"release"`
	Revision string      `json:"revision"`
	When     time.Time   `json:"when"`
	Hosts    []PaperHost `json:"hosts"`
	// Refused are the VMs that had no place: the real-time VM after which no more came, and the other VM.
	Refused []string `json:"refused"`
}

// PaperHost is one of its hosts.
type PaperHost struct {
	Name string `json:"name"`
	CPUs int    `json:"cpus"`
	// RealTime VMs in the order of their start, each with its CPU time per wall time.
	RealTime []string `json:"real_time"`
	Others   int      `json:"others"`
	// Given is the CPU time per wall time of all, MostPpm of the fullest CPU in millionths.
	Given   float64 `json:"given"`
	MostPpm int64   `json:"most_ppm"`
}

// Paper starts real-time VMs until one has no place, and other VMs until one has none.
func (c *Cluster) Paper(ctx context.Context, say func(string)) (paper Paper, err error) {
	text, err := os.ReadFile(filepath.Join(c.Source, "..", paperFile))
	if err != nil {
		return paper, err
	}
	var described paperCluster
	if err := toml.Unmarshal(text, &described); err != nil {
		return paper, fmt.Errorf("%s: %w", paperFile, err)
	}
	if err := c.paperHosts(ctx, &described); err != nil {
		return paper, err
	}
	shares := map[string]float64{}
	var order []string
	start := func(vm paperVM, name string) (bool, error) {
		share, err := c.startPaperVM(ctx, vm, name)
		if err != nil {
			return false, err
		}
		isPlaced, err := c.decided(ctx, name)
		if err != nil || !isPlaced {
			paper.Refused = append(paper.Refused, vm.Name)
			return false, err
		}
		shares[name] = share
		order = append(order, name)
		say(fmt.Sprintf("%s has a node", name))
		return true, nil
	}
	for _, vm := range described.VMs {
		if len(vm.Tasks) == 0 {
			continue
		}
		if isPlaced, err := start(vm, podName(vm.Name)); err != nil || !isPlaced {
			if err != nil {
				return paper, err
			}
			break
		}
	}
	for _, vm := range described.VMs {
		for number := 1; len(vm.Tasks) == 0; number++ {
			if isPlaced, err := start(vm, fmt.Sprintf("%s-%d", podName(vm.Name), number)); err != nil {
				return paper, err
			} else if !isPlaced {
				break
			}
		}
	}
	return paper, c.countPaper(ctx, &described, &paper, order, shares)
}

func podName(vm string) string { return strings.ToLower(strings.ReplaceAll(vm, " ", "-")) }

// paperHosts makes the nodes, each with the memory of its host and whole CPUs, as the paper counts them.
func (c *Cluster) paperHosts(ctx context.Context, described *paperCluster) error {
	if err := c.Install(ctx); err != nil {
		return err
	}
	for _, host := range described.Hosts {
		own, err := c.newNode(ctx, host.Name, hostFile)
		if err != nil {
			return err
		}
		if err := c.setRoom(ctx, host.Name, *resource.NewQuantity(host.MemoryMiB<<20, resource.BinarySI)); err != nil {
			return err
		}
		capacity, err := own.engine().Capacity(ctx)
		if err != nil {
			return err
		}
		capacity.CPUs, capacity.CPUPpm = nil, wholeCPUPpm
		for cpu := range host.CPUs {
			capacity.CPUs = append(capacity.CPUs, cpu)
		}
		offered, err := devices.Of(capacity, dropin.IsOurs)
		if err != nil {
			return err
		}
		if err := c.offer(ctx, host.Name, offered); err != nil {
			return err
		}
	}
	return nil
}

// vcpuNeed is the largest budget and its period that the analysis computes for a VM's VCPUs, in microseconds. The paper counts CPUs
// as whole, of which Linux keeps a part: that no host of this machine could promise it is not asked.
func (c *Cluster) vcpuNeed(ctx context.Context, vm paperVM) (budgetUs, periodUs int64, err error) {
	asked := map[string]any{
		"schema_version": 1, "unit": "ns",
		"host": map[string]any{"pcpus": vm.VCPUs, "scheduler": "pedf"},
	}
	var tasks []map[string]int64
	for _, task := range vm.Tasks {
		c, errC := time.ParseDuration(task.C)
		t, errT := time.ParseDuration(task.T)
		if err := errors.Join(errC, errT); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", vm.Name, err)
		}
		tasks = append(tasks, map[string]int64{"c": c.Nanoseconds(), "t": t.Nanoseconds()})
	}
	asked["vms"] = []map[string]any{{"name": vm.Name, "vcpus": vm.VCPUs, "tasks": tasks}}
	input, err := json.Marshal(asked)
	if err != nil {
		return 0, 0, err
	}
	command := exec.CommandContext(ctx, c.Steadyvm, "plan", "--json", "-")
	command.Stdin = bytes.NewReader(input)
	// 1: it does not hold on a whole CPU of Linux.
	output, err := command.Output()
	if ended := new(exec.ExitError); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		return 0, 0, fmt.Errorf("plan of %s: %w", vm.Name, err)
	}
	var answer struct {
		VMs []struct {
			VCPUs []struct {
				Budget int64 `json:"budget"`
				Period int64 `json:"period"`
			} `json:"vcpus"`
		} `json:"vms"`
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		return 0, 0, err
	}
	for _, planned := range answer.VMs {
		for _, vcpu := range planned.VCPUs {
			// All VCPUs of a VM have one period.
			budgetUs, periodUs = max(budgetUs, (vcpu.Budget+999)/1000), vcpu.Period/1000
		}
	}
	if budgetUs == 0 {
		return 0, 0, fmt.Errorf("plan of %s: no VCPU has a budget", vm.Name)
	}
	return budgetUs, periodUs, nil
}

// startPaperVM makes its pod, with a claim of a device for each VCPU if it has tasks. It gives the claim's CPU time per wall time.
func (c *Cluster) startPaperVM(ctx context.Context, vm paperVM, name string) (float64, error) {
	memory := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(vm.MemoryMiB<<20, resource.BinarySI)}
	if len(vm.Tasks) == 0 {
		return 0, c.podWith(ctx, name, "", memory)
	}
	budgetUs, periodUs, err := c.vcpuNeed(ctx, vm)
	if err != nil {
		return 0, err
	}
	ppm := (budgetUs*1_000_000 + periodUs - 1) / periodUs
	spec, err := budget(budgetUs, periodUs).spec(ppm)
	if err != nil {
		return 0, err
	}
	spec.Devices.Requests[0].Exactly.AllocationMode = resourceapi.DeviceAllocationModeExactCount
	spec.Devices.Requests[0].Exactly.Count = vm.VCPUs
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}
	if _, err := c.admin.ResourceV1().ResourceClaimTemplates(tenant).Create(ctx, template, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	return float64(vm.VCPUs*ppm) / 1e6, c.podWith(ctx, name, name, memory)
}

// decided waits until a pod has a node, or kube-scheduler has said that it has none.
func (c *Cluster) decided(ctx context.Context, name string) (isPlaced bool, err error) {
	err = until(ctx, name+" has a node or is refused", func(ctx context.Context) error {
		pod, err := c.admin.CoreV1().Pods(tenant).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		isPlaced = pod.Spec.NodeName != ""
		if !isPlaced && !isUnschedulable(*pod) {
			return errors.New("neither yet")
		}
		return nil
	})
	return isPlaced, err
}

func (c *Cluster) countPaper(
	ctx context.Context, described *paperCluster, paper *Paper, order []string, shares map[string]float64,
) error {
	now, err := c.pods(ctx)
	if err != nil {
		return err
	}
	on := map[string]string{}
	for _, pod := range now.placed {
		on[pod.Name] = pod.Spec.NodeName
	}
	given, err := c.account(ctx)
	if err != nil {
		return err
	}
	for _, host := range described.Hosts {
		own := PaperHost{Name: host.Name, CPUs: host.CPUs}
		for _, name := range order {
			switch {
			case on[name] != host.Name:
			case shares[name] == 0:
				own.Others++
			default:
				own.Given += shares[name]
				own.RealTime = append(own.RealTime, fmt.Sprintf("%s (%.2f)", name, shares[name]))
			}
		}
		for device, ppm := range given.consumed {
			if strings.HasPrefix(device, host.Name+"/") {
				own.MostPpm = max(own.MostPpm, ppm)
			}
		}
		if own.MostPpm > wholeCPUPpm {
			return fmt.Errorf("%s has a CPU of which %d millionths are given away", host.Name, own.MostPpm)
		}
		paper.Hosts = append(paper.Hosts, own)
	}
	slices.SortFunc(paper.Hosts, func(a, b PaperHost) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (p *Paper) table() []string {
	if p == nil {
		return nil
	}
	realTime, others := 0, 0
	var rows []string
	for _, host := range p.Hosts {
		realTime += len(host.RealTime)
		others += host.Others
		rows = append(rows, fmt.Sprintf("| %s | %d | %.2f | %d | %s | %d |", host.Name, host.CPUs, host.Given, host.MostPpm,
			strings.Join(host.RealTime, ", "), host.Others))
	}
	return append(append([]string{
		"", "## The dissertation's seven hosts", "",
		fmt.Sprintf("`tools/kubernetes paper`, Kubernetes %s at revision %s on %s. Section 4.3.3 of Xi's dissertation, the VMs of",
			p.Release, p.Revision, p.When.Format("2006-01-02 15:04 UTC")),
		fmt.Sprintf("%s: real-time VMs until one has no place, then other VMs until one has none. A real Nova has", paperFile),
		"[placed the same VMs on the same hosts](openstack.md), by larger claims of a whole VM each. Here a claim is a device for each VCPU,",
		"each with the largest budget that the analysis computes for one. CPUs are whole, as in the paper; Linux keeps a tenth.", "",
		fmt.Sprintf("%d real-time and %d other VMs; refused: %s.", realTime, others, strings.Join(p.Refused, ", ")), "",
		"| host | CPUs | given | fullest CPU, millionths | real-time VMs (CPU) | other VMs |", "|---|---|---|---|---|---|",
	}, rows...), "")
}

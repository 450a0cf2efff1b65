// Package engine asks the program steadyvm of this machine. What a VM needs and what a host can hold is computed there;
// nothing of that theory is in Go.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Program is the program, and the file that describes the host.
type Program struct {
	Path string
	File string
}

// Capacity is what a host has to sell, as `steadyvm capacity --json` says it.
type Capacity struct {
	SchemaVersion int    `json:"schema_version"`
	KernelRelease string `json:"kernel_release"`
	PreemptRT     bool   `json:"preempt_rt"`
	Mechanism     string `json:"mechanism"`
	Scheduler     string `json:"scheduler"`
	CPUs          []int  `json:"cpus"`
	CPUPpm        int64  `json:"cpu_ppm"`
	Held          []Held `json:"held"`
	Cards         []Card `json:"cards"`
}

// Held is a VM that has a budget by the host's files.
type Held struct {
	VM       string `json:"vm"`
	BudgetNs int64  `json:"budget_ns"`
	PeriodNs int64  `json:"period_ns"`
	// CPUs has the planned CPU of each VCPU.
	CPUs []int `json:"cpus"`
}

// Card is a network card that has a class.
type Card struct {
	Name  string `json:"name"`
	Class string `json:"class"`
}

// Task is a task of a VM. Times are nanoseconds.
type Task struct {
	C int64 `json:"c" toml:"-"`
	T int64 `json:"t" toml:"-"`
	D int64 `json:"d,omitempty" toml:"-"`
}

// VM is a VM in the words of a request.
type VM struct {
	Name      string `json:"name"`
	Class     string `json:"class,omitempty"`
	Interface string `json:"interface,omitempty"`
	PeriodNs  *int64 `json:"period,omitempty"`
	BudgetNs  *int64 `json:"budget,omitempty"`
	VCPUs     int64  `json:"vcpus"`
	Tasks     []Task `json:"tasks,omitempty"`
}

// Install is what one VCPU gets.
type Install struct {
	RuntimeNs  int64 `json:"runtime_ns"`
	DeadlineNs int64 `json:"deadline_ns"`
	PeriodNs   int64 `json:"period_ns"`
}

// Plan is the answer: what each VCPU gets, and what its owner should know.
type Plan struct {
	VCPUs []Install
	Notes []string
}

// Refusal is the analysis' own word against a request: who asked has to change it.
type Refusal struct{ Words string }

func (r *Refusal) Error() string { return r.Words }

type planned struct {
	SchemaVersion int  `json:"schema_version"`
	Feasible      bool `json:"feasible"`
	VMs           []struct {
		VCPUs []struct {
			Install *Install `json:"install"`
		} `json:"vcpus"`
	} `json:"vms"`
	Explanations []struct {
		Text string `json:"text"`
	} `json:"explanations"`
	Suggestions []string `json:"suggestions"`
	Notes       []string `json:"notes"`
}

type request struct {
	SchemaVersion int            `json:"schema_version"`
	Unit          string         `json:"unit"`
	Host          map[string]any `json:"host"`
	VMs           []VM           `json:"vms"`
}

// Plan asks what a VM needs on CPUs that it has to itself, kept by SCHED_DEADLINE. The error is a *Refusal where the
// request is at fault.
func (p Program) Plan(ctx context.Context, vm VM) (Plan, error) {
	// As many CPUs as VCPUs: which others share them, the scheduler of the cluster knows.
	host := map[string]any{"pcpus": vm.VCPUs, "scheduler": "pedf", "enforce": "deadline"}
	input, err := json.Marshal(request{SchemaVersion: 1, Unit: "ns", Host: host, VMs: []VM{vm}})
	if err != nil {
		return Plan{}, fmt.Errorf("write a request to %s: %w", p.Path, err)
	}
	output, err := p.run(ctx, input, "plan", "--json", "-")
	// 1: a plan that does not hold, which is printed, too.
	if refusal := new(Refusal); err != nil && !(errors.As(err, &refusal) && len(output) > 0) {
		return Plan{}, err
	}
	var answer planned
	if err := p.read("plan --json", output, &answer, func() int { return answer.SchemaVersion }); err != nil {
		return Plan{}, err
	}
	if !answer.Feasible {
		var words []string
		for _, explanation := range answer.Explanations {
			words = append(words, explanation.Text)
		}
		return Plan{}, &Refusal{Words: strings.Join(append(words, answer.Suggestions...), "; ")}
	}
	plan := Plan{Notes: answer.Notes}
	for _, vm := range answer.VMs {
		for _, vcpu := range vm.VCPUs {
			if vcpu.Install != nil {
				plan.VCPUs = append(plan.VCPUs, *vcpu.Install)
			}
		}
	}
	if len(plan.VCPUs) == 0 {
		return Plan{}, &Refusal{Words: fmt.Sprintf(
			"class %q gets what is left, so it has no budget to claim: take a class with rt = true, or claim nothing", vm.Class)}
	}
	return plan, nil
}

// Capacity asks what this host has to sell.
func (p Program) Capacity(ctx context.Context) (Capacity, error) {
	output, err := p.run(ctx, nil, "capacity", "--json", p.File)
	if err != nil {
		return Capacity{}, err
	}
	var capacity Capacity
	err = p.read("capacity --json", output, &capacity, func() int { return capacity.SchemaVersion })
	return capacity, err
}

// Admit asks whether this host holds the VM of a file that does not count yet. The error is a *Refusal if it does not.
func (p Program) Admit(ctx context.Context, file string) error {
	_, err := p.run(ctx, nil, "capacity", "--json", "--with", file, p.File)
	return err
}

func (p Program) read(what string, output []byte, into any, version func() int) error {
	if err := json.Unmarshal(output, into); err != nil {
		return fmt.Errorf("read what %s %s prints: %w; is it of the same release as this driver?", p.Path, what, err)
	}
	if version() != 1 {
		return fmt.Errorf("%s %s prints schema_version %d, and this driver reads 1: install both of one release",
			p.Path, what, version())
	}
	return nil
}

// run gives what the program prints. Exit codes 1 and 2 are refusals, with its words.
func (p Program) run(ctx context.Context, input []byte, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, p.Path, arguments...)
	command.Stdin = bytes.NewReader(input)
	var output, words bytes.Buffer
	command.Stdout, command.Stderr = &output, &words
	err := command.Run()
	if err == nil {
		return output.Bytes(), nil
	}
	said := strings.TrimSpace(words.String())
	said = strings.TrimPrefix(said, "steadyvm: ")
	said = strings.TrimPrefix(said, "standard input: ")
	ended := new(exec.ExitError)
	if errors.As(err, &ended) && (ended.ExitCode() == 1 || ended.ExitCode() == 2) {
		return output.Bytes(), &Refusal{Words: said}
	}
	return nil, fmt.Errorf("run %s %s: %w: %s", p.Path, strings.Join(arguments, " "), err, said)
}

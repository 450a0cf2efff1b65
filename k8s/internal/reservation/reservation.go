// Package reservation has the parameters of a claim: what a VM needs, as its owner writes it.
package reservation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode"

	"steadyvm/k8s/internal/engine"
)

const (
	// Driver is the name of this driver.
	Driver = "cpu.steadyvm.io"
	// Capacity is the part of a CPU that claims consume, in millionths.
	Capacity = "cpuPpm"
	// APIVersion is that of the parameters.
	APIVersion = "steadyvm.io/v1alpha1"
	// Kind is that of the parameters.
	Kind = "Reservation"
	// DefaultClass is that of a claim that names none.
	DefaultClass = "rt"

	nsInMicrosecond = 1000
	// Of a thread, in bytes (TASK_COMM_LEN of include/linux/sched.h).
	longestName = 15
	// A year. Beyond it numbers of nanoseconds would not fit.
	longestMicroseconds = 365 * 24 * 3600 * 1_000_000
)

// Reservation is a budget and a period of each VCPU, or the tasks that the VM runs.
type Reservation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Class ranks the VM's other threads, such as its vhost workers.
	Class string `json:"class,omitempty"`
	// BudgetMicroseconds is the time of each VCPU in each period.
	BudgetMicroseconds *int64 `json:"budgetMicroseconds,omitempty"`
	// PeriodMicroseconds is that of its VCPUs.
	PeriodMicroseconds *int64 `json:"periodMicroseconds,omitempty"`
	// Tasks run in the VM; the analysis computes the budget.
	Tasks []Task `json:"tasks,omitempty"`
	// Threads is for a container without a VM: the name of the threads that have the budgets, or with a * its beginning.
	Threads *string `json:"threads,omitempty"`
}

// Task is one task of a VM.
type Task struct {
	// ExecutionMicroseconds is the longest execution of one job.
	ExecutionMicroseconds int64 `json:"executionMicroseconds"`
	// PeriodMicroseconds is the least time between two jobs.
	PeriodMicroseconds int64 `json:"periodMicroseconds"`
	// LimitMicroseconds is when a job has to be done; left out: the period.
	LimitMicroseconds int64 `json:"limitMicroseconds,omitempty"`
}

// Parse reads parameters. What is not known is an error: it may be a word that somebody counts on.
func Parse(raw []byte) (Reservation, error) {
	var read Reservation
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return read, fmt.Errorf("parameters: %w", err)
	}
	if read.APIVersion != APIVersion || read.Kind != Kind {
		return read, fmt.Errorf("parameters are apiVersion %q, kind %q: write apiVersion %s, kind %s",
			read.APIVersion, read.Kind, APIVersion, Kind)
	}
	if read.Class == "" {
		read.Class = DefaultClass
	}
	if (read.BudgetMicroseconds == nil) == (len(read.Tasks) == 0) {
		return read, fmt.Errorf("parameters have to say either budgetMicroseconds, with periodMicroseconds, or tasks")
	}
	if read.BudgetMicroseconds != nil && read.PeriodMicroseconds == nil {
		return read, fmt.Errorf("budgetMicroseconds is in every period: say periodMicroseconds")
	}
	if err := read.checkThreads(); err != nil {
		return read, err
	}
	return read, read.checkTimes()
}

// checkThreads refuses what Linux calls no thread: it would never be found.
func (r Reservation) checkThreads() error {
	if r.Threads == nil {
		return nil
	}
	written := strings.TrimSuffix(*r.Threads, "*")
	if len(written) < 1 || len(written) > longestName || strings.ContainsFunc(*r.Threads, unicode.IsControl) {
		return fmt.Errorf("threads is %q: write the name as /proc/PID/task/TID/comm has it, of 1 to %d bytes, "+
			"and behind it * if it is a beginning", *r.Threads, longestName)
	}
	return nil
}

func (r Reservation) checkTimes() error {
	check := func(name string, time *int64) error {
		if time != nil && (*time < 0 || *time > longestMicroseconds) {
			return fmt.Errorf("%s is %d: it has to be 0 to %d", name, *time, int64(longestMicroseconds))
		}
		return nil
	}
	if err := check("budgetMicroseconds", r.BudgetMicroseconds); err != nil {
		return err
	}
	if err := check("periodMicroseconds", r.PeriodMicroseconds); err != nil {
		return err
	}
	for number, task := range r.Tasks {
		for name, time := range map[string]int64{
			"executionMicroseconds": task.ExecutionMicroseconds,
			"periodMicroseconds":    task.PeriodMicroseconds,
			"limitMicroseconds":     task.LimitMicroseconds,
		} {
			if err := check(fmt.Sprintf("tasks[%d].%s", number, name), &time); err != nil {
				return err
			}
		}
	}
	return nil
}

// VM is the reservation in the words of the analysis.
func (r Reservation) VM(name string, vcpus int64) engine.VM {
	vm := engine.VM{Name: name, Class: r.Class, VCPUs: vcpus}
	inNs := func(microseconds *int64, times int64) *int64 {
		if microseconds == nil {
			return nil
		}
		ns := *microseconds * nsInMicrosecond * times
		return &ns
	}
	vm.PeriodNs = inNs(r.PeriodMicroseconds, 1)
	if r.BudgetMicroseconds != nil {
		vm.Interface = "mpr"
		vm.BudgetNs = inNs(r.BudgetMicroseconds, vcpus)
	} else if r.PeriodMicroseconds != nil {
		vm.Interface = "prm"
	}
	for _, task := range r.Tasks {
		vm.Tasks = append(vm.Tasks, engine.Task{
			C: task.ExecutionMicroseconds * nsInMicrosecond,
			T: task.PeriodMicroseconds * nsInMicrosecond,
			D: task.LimitMicroseconds * nsInMicrosecond,
		})
	}
	return vm
}

// Planner computes what VCPUs need.
type Planner interface {
	Plan(ctx context.Context, vm engine.VM) (engine.Plan, error)
}

// Need is what each VCPU takes of its CPU, in millionths, and what its owner should know.
type Need struct {
	Ppm   int64
	Notes []string
}

// Need asks the analysis. A claim's error is an *engine.Refusal.
func (r Reservation) Need(ctx context.Context, planner Planner, name string, vcpus int64) (Need, error) {
	if len(r.Tasks) > 0 && vcpus != 1 {
		return Need{}, &engine.Refusal{Words: fmt.Sprintf(
			"tasks are of a VM with one VCPU, and this request has count %d: say budgetMicroseconds and periodMicroseconds", vcpus)}
	}
	plan, err := planner.Plan(ctx, r.VM(name, vcpus))
	if err != nil {
		return Need{}, err
	}
	need := Need{Notes: plan.Notes}
	if int64(len(plan.VCPUs)) != vcpus {
		return need, &engine.Refusal{Words: fmt.Sprintf("the plan gives %d VCPUs a budget, and the request has count %d",
			len(plan.VCPUs), vcpus)}
	}
	for _, vcpu := range plan.VCPUs {
		need.Ppm = max(need.Ppm, ppm(vcpu))
	}
	return need, nil
}

// ppm is the share within the deadline, rounded up: shares of at most a whole are always in time under EDF.
func ppm(vcpu engine.Install) int64 {
	within := min(vcpu.DeadlineNs, vcpu.PeriodNs)
	share := new(big.Int).Mul(big.NewInt(vcpu.RuntimeNs), big.NewInt(1_000_000))
	share.Add(share, big.NewInt(within-1))
	return share.Div(share, big.NewInt(within)).Int64()
}

// Applies tells whether parameters for these requests are for this one; for none means for all.
func Applies(requests []string, request string) bool {
	return len(requests) == 0 || slices.Contains(requests, request)
}

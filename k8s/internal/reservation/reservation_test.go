package reservation_test

import (
	"errors"
	"strings"
	"testing"

	"steadyvm/k8s/internal/engine"
	"steadyvm/k8s/internal/real"
	"steadyvm/k8s/internal/reservation"
)

const head = `{"apiVersion":"steadyvm.io/v1alpha1","kind":"Reservation",`

func TestWrongParametersAreRefusedWithWhatToWrite(t *testing.T) {
	for parameters, words := range map[string]string{
		`{"kind":"Reservation"}`:                                                  "write apiVersion steadyvm.io/v1alpha1",
		head + `"budgte":1}`:                                                      "unknown field",
		head + `"class":"rt"}`:                                                    "either budgetMicroseconds",
		head + `"budgetMicroseconds":1}`:                                          "say periodMicroseconds",
		head + `"budgetMicroseconds":1,"tasks":[{}]}`:                             "either budgetMicroseconds",
		head + `"budgetMicroseconds":1,"periodMicroseconds":-1}`:                  "periodMicroseconds is -1",
		head + `"budgetMicroseconds":1,"periodMicroseconds":9223372036854775807}`: "has to be 0 to",
		head + `"tasks":[{"executionMicroseconds":1,"periodMicroseconds":1,"limitMicroseconds":-2}]}`: "tasks[0].limitMicroseconds",
		head + `"budgetMicroseconds":1.5,"periodMicroseconds":10}`:                                    "parameters:",
		head + `"budgetMicroseconds":1,"periodMicroseconds":9,"threads":""}`:                          "threads is",
		head + `"budgetMicroseconds":1,"periodMicroseconds":9,"threads":"*"}`:                         "threads is",
		head + `"budgetMicroseconds":1,"periodMicroseconds":9,"threads":"of-sixteen-bytes"}`:          "threads is",
		head + `"budgetMicroseconds":1,"periodMicroseconds":9,"threads":"a\nb"}`:                      "threads is",
		`[]`: "parameters:",
		``:   "parameters:",
	} {
		_, err := reservation.Parse([]byte(parameters))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, expected %q", parameters, err, words)
		}
	}
}

func FuzzNoParametersPanic(f *testing.F) {
	f.Add([]byte(head + `"budgetMicroseconds":4000,"periodMicroseconds":10000}`))
	f.Add([]byte(head + `"tasks":[{"executionMicroseconds":1,"periodMicroseconds":2}]}`))
	f.Add([]byte(`{"apiVersion":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := reservation.Parse(raw)
		if err != nil {
			return
		}
		vm := read.VM("vm", 3)
		if (vm.BudgetNs != nil) == (len(vm.Tasks) > 0) {
			t.Errorf("%s: a budget or tasks, and not %+v", raw, vm)
		}
	})
}

func TestTheAnalysisSaysWhatAReservationTakes(t *testing.T) {
	program, _ := real.Host(t)
	for parameters, ppm := range map[string]int64{
		`"budgetMicroseconds":4000,"periodMicroseconds":10000}`: 400_000,
		// A third: rounded up, so that three of them are no more than what is sold.
		`"budgetMicroseconds":1000,"periodMicroseconds":3000}`: 333_334,
		// Within its limit, which is shorter than its period.
		`"tasks":[{"executionMicroseconds":1000,"periodMicroseconds":20000,"limitMicroseconds":10000}]}`: 100_000,
	} {
		read, err := reservation.Parse([]byte(head + parameters))
		if err != nil {
			t.Fatal(err)
		}
		need, err := read.Need(t.Context(), program, "vm", 1)
		if err != nil {
			t.Fatal(err)
		}
		// What a reservation gets on top of its tasks, the analysis knows.
		if need.Ppm < ppm || need.Ppm > ppm+ppm/100 {
			t.Errorf("%s takes %d, expected %d", parameters, need.Ppm, ppm)
		}
	}
}

func TestTheAnalysisRefusesInItsOwnWords(t *testing.T) {
	program, _ := real.Host(t)
	for parameters, words := range map[string]string{
		`"budgetMicroseconds":11000,"periodMicroseconds":10000}`:                      "a VCPU runs on one processor at a time",
		`"budgetMicroseconds":1000,"periodMicroseconds":0}`:                           "must be greater than zero",
		`"budgetMicroseconds":9500,"periodMicroseconds":10000}`:                       "VCPUs may have 90 %",
		`"budgetMicroseconds":1000,"periodMicroseconds":10000,"class":"gold"}`:        `there is no class "gold"`,
		`"budgetMicroseconds":1000,"periodMicroseconds":10000,"class":"best-effort"}`: "best-effort",
		`"tasks":[{"executionMicroseconds":12000,"periodMicroseconds":10000}]}`:       "can never finish in time",
	} {
		read, err := reservation.Parse([]byte(head + parameters))
		if err != nil {
			t.Fatal(err)
		}
		_, err = read.Need(t.Context(), program, "vm", 1)
		if refusal := new(engine.Refusal); !errors.As(err, &refusal) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, expected %q", parameters, err, words)
		}
	}
}

func TestAProgramThatIsNotThereIsNoRefusal(t *testing.T) {
	read, err := reservation.Parse([]byte(head + `"budgetMicroseconds":1,"periodMicroseconds":10}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = read.Need(t.Context(), engine.Program{Path: "/nowhere/steadyvm"}, "vm", 1)
	if refusal := new(engine.Refusal); err == nil || errors.As(err, &refusal) {
		t.Errorf("%v is taken for a refusal", err)
	}
}
